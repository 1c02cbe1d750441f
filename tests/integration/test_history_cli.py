"""The ``history`` command as a process: what it prints, and how it refuses."""

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agentbench_otel.history.reader import HistoryReader
from agentbench_otel.records.results import RunFault, RunResult, Status
from agentbench_otel.records.scenario import CaseId, Mode
from tests.support.cli import COMMAND, LIMIT_S, Finished, environment, run_cli
from tests.support.history import (
    DAY,
    NOW,
    WallClock,
    a_cycle,
    a_run,
    a_writer,
    count,
    run_id_of,
    settle,
    some_spans,
    write,
)
from tests.support.results import FAULT

DATABASE = ("--database", "agentbench.db")
RUNS = [
    a_run(1, visible_ttft_ms=12.345, total_tokens=42),
    a_run(2, target="other", case_id=CaseId.SESSION_TERMINATE),
    a_run(3, mode=Mode.CHAT_AGENT_TOOLS, status=Status.FAILED, error=FAULT),
    a_run(4, warmup=True, visible_ttft_ms=None),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a history of four runs."""
    directory = tmp_path_factory.mktemp("history")
    write(directory / "agentbench.db", *RUNS, spans=some_spans())
    return directory


def history(place: Path, *arguments: str) -> Finished:
    finished = run_cli("history", *arguments, cwd=place)
    assert "Traceback" not in finished.stderr
    return finished


def succeed(place: Path, *arguments: str) -> str:
    finished = history(place, *arguments)
    assert (finished.exit_code, finished.stderr) == (0, "")
    return finished.stdout


def assert_refused(finished: Finished, words: str) -> None:
    assert (finished.exit_code, finished.stdout) == (2, "")
    assert words in finished.stderr


# --- list ----------------------------------------------------------------------------------------------------


def test_list_is_a_table_newest_first(place: Path) -> None:
    header, *lines = succeed(place, "list", *DATABASE).splitlines()
    assert header.split("  ")[0] == "run"
    assert [line.split()[0] for line in lines] == [run.run_id for run in reversed(RUNS)]
    assert lines[3].split()[1:] == [
        *("2023-11-14", "22:13:21", "local", "ordinary_chat", "dual_agent", "passed", "12.35", "12.00", "42"),
    ]
    assert "connect_error" in lines[1]
    assert "passed (warm-up)" in lines[0]
    assert "n/a" in lines[0]


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (["--target", "other"], [2]),
        (["--case", "session_terminate"], [2]),
        (["--mode", "chat_agent_tools"], [3]),
        (["--status", "failed"], [3]),
        (["--status", "passed"], [4, 2, 1]),
        (["--target", "local", "--status", "passed"], [4, 1]),
        (["--limit", "2"], [4, 3]),
    ],
)
def test_list_shows_only_what_is_asked_for(place: Path, options: list[str], numbers: list[int]) -> None:
    document = json.loads(succeed(place, "list", *DATABASE, *options, "--format", "json"))
    assert [run["run_id"] for run in document["runs"]] == [run_id_of(number) for number in numbers]


def test_list_as_json_has_the_whole_results(place: Path) -> None:
    document = json.loads(succeed(place, "list", *DATABASE, "--format", "json"))
    assert document["schema_version"] == 1
    assert [RunResult.model_validate(run) for run in document["runs"]] == RUNS[::-1]


def test_list_has_twenty_runs_at_most(tmp_path: Path) -> None:
    write(tmp_path / "agentbench.db", *(a_run(number) for number in range(25)))
    assert len(succeed(tmp_path, "list", *DATABASE).splitlines()) == 21


def test_list_of_nothing_says_so_beside_the_output(place: Path) -> None:
    finished = history(place, "list", *DATABASE, "--target", "none")
    assert (finished.exit_code, finished.stdout) == (0, "")
    assert finished.stderr == "no run is recorded that fits\n"


def test_texts_of_a_server_are_not_obeyed_by_the_terminal(tmp_path: Path) -> None:
    fault = RunFault(kind="\x1b[2J", message="\x9b2J")
    write(tmp_path / "agentbench.db", a_run(1, status=Status.FAILED, error=fault), spans=some_spans())
    for command in (["list"], ["list", "--format", "json"], ["export"], ["show", run_id_of(1)]):
        output = succeed(tmp_path, *command, *DATABASE)
        assert output.replace("\n", "").isprintable(), command


# --- show ----------------------------------------------------------------------------------------------------


def test_show_is_the_report_of_the_one_run(place: Path) -> None:
    output = succeed(place, "show", run_id_of(3)[:6], *DATABASE)
    assert "chat_agent_tools" in output
    assert "connect_error: local can't be reached" in output
    assert output.endswith("1 attempted, 0 passed, 1 failed\n")


def test_show_as_json_is_the_document_of_once(place: Path) -> None:
    document = json.loads(succeed(place, "show", run_id_of(1), *DATABASE, "--format", "json"))
    assert document["summary"] == {"attempted": 1, "passed": 1, "failed": 0}
    assert [RunResult.model_validate(run) for run in document["runs"]] == [RUNS[0]]


def test_measure_reads_the_spans_that_show_prints(place: Path, tmp_path: Path) -> None:
    spans = succeed(place, "show", run_id_of(1), *DATABASE, "--spans")
    (tmp_path / "spans.jsonl").write_text(spans, encoding="utf-8")
    measured = run_cli("measure", "spans.jsonl", "--format", "json", cwd=tmp_path)
    assert measured.exit_code == 0
    assert measured.runs[0]["model_calls"][0]["await_count"] == 5


def test_show_of_a_run_that_is_not_there_is_refused(place: Path) -> None:
    assert_refused(history(place, "show", "ffffff", *DATABASE), "ffffff: no run with this id is recorded; give")


def test_show_of_several_runs_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "agentbench.db", a_run(1, run_id="abcdef01"), a_run(2, run_id="abcdef02"))
    assert_refused(history(tmp_path, "show", "abcdef", *DATABASE), "abcdef01 and abcdef02 begin so")


def test_show_of_spans_that_are_removed_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "agentbench.db"
    write(file, a_run(1, started_at=NOW - 8 * DAY), spans=some_spans())
    with a_writer(file) as writer:
        settle(writer)
    assert_refused(history(tmp_path, "show", run_id_of(1), *DATABASE, "--spans"), "its spans are no longer kept")


# --- export --------------------------------------------------------------------------------------------------


def test_export_has_a_line_per_run_oldest_first(place: Path) -> None:
    lines = succeed(place, "export", *DATABASE, "--format", "jsonl").splitlines()
    assert [RunResult.model_validate_json(line) for line in lines] == RUNS


def test_export_to_a_file_has_the_same_lines(place: Path, tmp_path: Path) -> None:
    output = tmp_path / "runs.jsonl"
    assert succeed(place, "export", *DATABASE, "--output", str(output)) == ""
    assert output.read_text(encoding="utf-8") == succeed(place, "export", *DATABASE)


def test_export_of_nothing_is_empty(tmp_path: Path) -> None:
    write(tmp_path / "agentbench.db")
    assert succeed(tmp_path, "export", *DATABASE) == ""


def test_a_reader_of_the_export_that_has_enough_may_leave(tmp_path: Path) -> None:
    write(tmp_path / "agentbench.db", *(a_run(number) for number in range(300)))
    with subprocess.Popen(
        [*COMMAND, "history", "export", *DATABASE],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["run_id"] == run_id_of(0)
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(LIMIT_S)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is full")  # noqa: PTH110
def test_a_full_disk_behind_stdout_is_told(place: Path) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        finished = subprocess.run(
            [*COMMAND, "history", "export", *DATABASE],
            cwd=place,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            timeout=LIMIT_S,
            check=False,
        )
    assert finished.returncode == 2
    assert finished.stderr == "stdout: can't be written: No space left on device\n"


# --- prune ---------------------------------------------------------------------------------------------------


def write_old_and_new(file: Path) -> None:
    """A run of now, one of ten days ago and one of a hundred days ago, and a cycle of long ago."""
    now = datetime.now(UTC)
    runs = [a_run(days, started_at=now - timedelta(days=days)) for days in (0, 10, 100)]
    with a_writer(file, now_unix_s=WallClock(now - 200 * DAY)) as writer:
        for run in runs:
            writer.accept(run, some_spans())
        writer.record_cycle(a_cycle(1))
        settle(writer)


def test_prune_removes_what_started_longer_ago(tmp_path: Path) -> None:
    file = tmp_path / "agentbench.db"
    write_old_and_new(file)
    output = succeed(tmp_path, "prune", *DATABASE, "--older-than", "30d")
    assert output == "agentbench.db: removed 1 run(s), 3 cycle(s) and the spans of 1 run(s)\n"
    kept = [json.loads(document)["run_id"] for document in HistoryReader(file).documents()]
    assert kept == [run_id_of(0), run_id_of(10)]


def test_prune_keeps_what_the_config_keeps(tmp_path: Path) -> None:
    write_old_and_new(tmp_path / "agentbench.db")
    write_config(tmp_path, path="agentbench.db", keep="20d", keep_spans="5d")
    output = succeed(tmp_path, "prune", "--config", "agentbench.yaml")
    assert output == "agentbench.db: removed 1 run(s), 3 cycle(s) and the spans of 2 run(s)\n"
    assert count(tmp_path / "agentbench.db", "run_spans") == 1


def test_prune_of_a_duration_goes_before_the_config(tmp_path: Path) -> None:
    write_old_and_new(tmp_path / "agentbench.db")
    write_config(tmp_path, path="agentbench.db", keep="20d", keep_spans="5d")
    output = succeed(tmp_path, "prune", "--config", "agentbench.yaml", "--older-than", "200d")
    assert output.startswith("agentbench.db: removed 0 run(s)")


def test_prune_beside_a_daemon_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "agentbench.db"
    with a_writer(file) as writer:
        writer.accept(a_run(1), ())
        finished = history(tmp_path, "prune", *DATABASE, "--older-than", "1s")
    assert_refused(finished, f"agentbench.db: process {os.getpid()} writes this history")
    assert count(file, "runs") == 1


def test_prune_of_a_file_that_is_not_there_makes_none(tmp_path: Path) -> None:
    assert_refused(history(tmp_path, "prune", *DATABASE, "--older-than", "1d"), "does not exist; there is nothing")
    assert list(tmp_path.iterdir()) == []


def test_prune_without_a_duration_is_refused(place: Path) -> None:
    assert_refused(history(place, "prune", *DATABASE), "give --older-than DURATION with --database")


@pytest.mark.parametrize("duration", ["30", "0d", "-1d", "a month"])
def test_prune_of_what_is_no_duration_is_refused(place: Path, duration: str) -> None:
    finished = history(place, "prune", *DATABASE, f"--older-than={duration}")
    assert_refused(finished, f"--older-than {duration}: is no duration; allowed are")


# --- which file ----------------------------------------------------------------------------------------------


def write_config(directory: Path, **section: str) -> None:
    document = {
        "schema_version": 1,
        "targets": [{"name": "local", "base_url": "http://127.0.0.1:9/v1", "model": "m"}],
        "history": section,
    }
    (directory / "agentbench.yaml").write_text(json.dumps(document), encoding="utf-8")


def test_the_config_names_the_file(tmp_path: Path) -> None:
    write(tmp_path / "other.db", a_run(7))
    write_config(tmp_path, path="other.db")
    assert run_id_of(7) in succeed(tmp_path, "list", "--config", "agentbench.yaml")


@pytest.mark.parametrize("options", [[], ["--config", "agentbench.yaml", *DATABASE]])
@pytest.mark.parametrize("command", [["list"], ["show", "abcdef"], ["export"], ["prune", "--older-than", "1d"]])
def test_one_of_both_names_the_file(place: Path, command: list[str], options: list[str]) -> None:
    assert_refused(history(place, *command, *options), "give one of --config FILE and --database FILE")


@pytest.mark.parametrize("command", [["list"], ["show", "abcdef"], ["export"]])
def test_a_missing_file_is_one_that_no_daemon_has_written_yet(tmp_path: Path, command: list[str]) -> None:
    finished = history(tmp_path, *command, *DATABASE)
    assert_refused(finished, "agentbench.db: does not exist: no daemon has written its history here yet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (["--case", "ordinary_chatt"], "--case ordinary_chatt: is not known (did you mean ordinary_chat?)"),
        (["--mode", "dual"], "--mode dual: is not known"),
    ],
)
def test_a_name_that_is_not_known_is_refused(place: Path, option: list[str], words: str) -> None:
    assert_refused(history(place, "list", *DATABASE, *option), words)

"""The real command line, as a process: what it prints where, what it writes, and how it ends."""

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from agentbench_otel import __version__, names
from agentbench_otel.app import MOCK_TARGET
from agentbench_otel.cli.progress import Progress
from agentbench_otel.errors import InputError
from agentbench_otel.records.results import ModelCallResult, RunResult
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.reports.spans_file import measure_file
from agentbench_otel.runner import RunPlan
from tests.support.cli import COMMAND, Finished, environment, run_cli, running_cli
from tests.support.otlp_receiver import http_receiver
from tests.support.replay_server import ReplayServer, StreamCase
from tests.support.schedule_server import ScheduleServer

SECRET = "sk-SECRET-7Q4Z-0123456789"
CASES = [case.value for case in CaseId]
MODES = [mode.value for mode in Mode]
ONE = ("--case", "ordinary_chat", "--mode", "dual_agent")


@pytest.fixture(scope="module")
def mock(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Path]:
    """``once --mock --format json --spans``: what it printed, and the spans file."""
    directory = tmp_path_factory.mktemp("mock")
    finished = run_cli("once", "--mock", "--format", "json", "--spans", "spans.jsonl", cwd=directory)
    return finished, directory / "spans.jsonl"


def write_config(directory: Path, *targets: Mapping[str, Any], **sections: Any) -> None:
    document = {"schema_version": 1, "targets": list(targets), **sections}
    (directory / "agentbench.yaml").write_text(json.dumps(document), encoding="utf-8")


def assert_refused(finished: Finished, *words: str) -> None:
    """Exit 2 with these words on stderr, before any run, and no traceback."""
    assert finished.exit_code == 2
    assert finished.stdout == ""
    for word in words:
        assert word in finished.stderr
    assert "Traceback" not in finished.stderr
    assert "[1/" not in finished.stderr


# --- once --mock ---------------------------------------------------------------------------------------------


def test_the_mock_runs_twelve_and_all_pass(mock: tuple[Finished, Path]) -> None:
    finished, _ = mock
    assert finished.exit_code == 0
    assert finished.report["summary"] == {"attempted": 12, "passed": 12, "failed": 0}
    assert [run["status"] for run in finished.runs] == ["passed"] * 12
    assert [run["error"] for run in finished.runs] == [None] * 12
    assert [run["semantic_failures"] for run in finished.runs] == [[]] * 12


def test_the_mock_runs_every_case_in_both_modes_in_order(mock: tuple[Finished, Path]) -> None:
    finished, _ = mock
    ran = [(run["case_id"], run["mode"]) for run in finished.runs]
    assert ran == [(case, mode) for case in CASES for mode in MODES]


def test_exactly_the_parallel_runs_overlapped(mock: tuple[Finished, Path]) -> None:
    finished, _ = mock
    overlapped = {(run["case_id"], run["mode"]): run["parallel_events_overlapped"] for run in finished.runs}
    parallel = {("parallel_volume_schedule", mode) for mode in MODES}
    assert {key for key, value in overlapped.items() if value is True} == parallel
    assert {value for key, value in overlapped.items() if key not in parallel} == {None}
    assert all(run["overlap_ms"] > 0 for run in finished.runs if run["case_id"] == "parallel_volume_schedule")


def test_the_json_report_has_exactly_the_shape_of_its_schema(mock: tuple[Finished, Path]) -> None:
    report = mock[0].report
    top = ["schema_version", "tool", "mock", "started_at", "finished_at", "summary", "runs"]
    assert list(report) == top
    assert report["schema_version"] == 1
    assert report["tool"] == {"name": "agentbench-otel", "version": __version__}
    assert report["mock"] is True
    assert report["started_at"] <= report["finished_at"]
    for run in report["runs"]:
        assert list(run) == list(RunResult.model_fields)
        assert run["schema_version"] == 1
        assert run["mock"] is True
        for call in run["model_calls"]:
            assert list(call) == list(ModelCallResult.model_fields)
            assert call["usage"]["total_tokens"] == 15


def test_runs_share_the_cycle_and_nothing_else(mock: tuple[Finished, Path]) -> None:
    runs = mock[0].runs
    assert len({run["cycle_id"] for run in runs}) == 1
    assert len({run["run_id"] for run in runs}) == 12
    assert len({run["trace_id"] for run in runs}) == 12


def test_the_report_is_on_stdout_and_progress_on_stderr(mock: tuple[Finished, Path]) -> None:
    finished, _ = mock
    assert finished.stdout.startswith("{\n")
    assert finished.stdout.endswith("}\n")
    lines = finished.stderr.splitlines()
    assert len(lines) == 12
    assert re.fullmatch(r"\[1/12\] mock ordinary_chat dual_agent #1 passed \d+\.\d ms", lines[0])
    assert lines[-1].startswith("[12/12] mock parallel_volume_schedule chat_agent_tools #1 passed ")


@pytest.mark.parametrize("format_name", ["table", "json", "markdown", "junit"])
def test_every_format_tells_of_all_runs(tmp_path: Path, format_name: str) -> None:
    finished = run_cli("once", "--mock", "--format", format_name, cwd=tmp_path)
    assert finished.exit_code == 0
    found = {
        "table": lambda text: len(
            re.findall(r"^\w+ +(?:dual_agent|chat_agent_tools) +passed", text, re.MULTILINE)
        ),
        "json": lambda text: len(json.loads(text)["runs"]),
        "markdown": lambda text: len(re.findall(r"^\| mock \|", text, re.MULTILINE)),
        "junit": lambda text: len(ET.fromstring(text).findall(".//testcase")),
    }[format_name](finished.stdout)
    assert found == 12


def test_the_table_is_the_default(tmp_path: Path) -> None:
    finished = run_cli("once", "--mock", *ONE, cwd=tmp_path)
    assert finished.stdout.startswith("mock · mock · scripted mock · times in ms\n")
    assert finished.stdout.endswith("1 attempted, 1 passed, 0 failed\n")
    assert "\x1b" not in finished.stdout + finished.stderr


def test_output_goes_to_the_file_alone(tmp_path: Path) -> None:
    finished = run_cli("once", "--mock", *ONE, "--format", "json", "--output", "report.json", cwd=tmp_path)
    assert (finished.exit_code, finished.stdout) == (0, "")
    document = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert document["summary"]["passed"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_filters_may_be_repeated_and_keep_the_order_of_the_user(tmp_path: Path) -> None:
    chosen = ["--case", "session_terminate", "--case", "ordinary_chat", "--case", "session_terminate"]
    finished = run_cli(
        "once",
        "--mock",
        "--format",
        "json",
        "--target",
        "mock",
        *chosen,
        "--mode",
        "chat_agent_tools",
        cwd=tmp_path,
    )
    assert [(run["case_id"], run["mode"]) for run in finished.runs] == [
        ("session_terminate", "chat_agent_tools"),
        ("ordinary_chat", "chat_agent_tools"),
    ]


def test_runs_repeats_each_case_and_sums_it_up(tmp_path: Path) -> None:
    finished = run_cli("once", "--mock", *ONE, "--runs", "3", cwd=tmp_path)
    assert finished.exit_code == 0
    assert "[3/3] mock ordinary_chat dual_agent #3" in finished.stderr
    assert "median (min–max), ms" in finished.stdout
    assert re.search(r"^mock ordinary_chat dual_agent +3/3 ", finished.stdout, re.MULTILINE)


def test_the_mock_takes_its_benchmark_from_a_config_and_needs_none_of_its_keys(tmp_path: Path) -> None:
    target = {"name": "live", "base_url": "http://host.invalid/v1", "model": "m", "api_key_env": "UNSET"}
    benchmark = {"cases": ["ordinary_chat"], "modes": ["dual_agent"], "runs_per_case": 2, "warmup_runs": 1}
    write_config(tmp_path, target, benchmark=benchmark)
    finished = run_cli("once", "--mock", "--config", "agentbench.yaml", "--format", "json", cwd=tmp_path)
    assert finished.exit_code == 0
    assert [(run["target"], run["warmup"], run["iteration"]) for run in finished.runs] == [
        ("live", True, 1),
        ("live", False, 1),
        ("live", False, 2),
    ]
    assert finished.report["summary"] == {"attempted": 2, "passed": 2, "failed": 0}


def test_runs_on_the_command_line_win_over_the_config(tmp_path: Path) -> None:
    write_config(
        tmp_path,
        {"name": "a", "base_url": "http://host.invalid/v1", "model": "m"},
        {"name": "b", "base_url": "http://host.invalid/v1", "model": "m"},
        benchmark={"cases": ["ordinary_chat"], "modes": ["dual_agent"], "runs_per_case": 5},
    )
    arguments = ("--config", "agentbench.yaml", "--target", "b", "--runs", "1", "--case", "session_terminate")
    finished = run_cli("once", "--mock", *arguments, "--format", "json", cwd=tmp_path)
    assert [(run["target"], run["case_id"]) for run in finished.runs] == [("b", "session_terminate")]


# --- what once refuses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--case", "ordinary_chats"), ("--case ordinary_chats", "did you mean ordinary_chat?", *CASES)),
        (("--mode", "dual"), ("--mode dual", "allowed are dual_agent, chat_agent_tools")),
        (("--mode", "dual_agnt"), ("did you mean dual_agent?",)),
        (("--target", "mok"), ("--target mok", "did you mean mock?", "allowed are mock")),
        (("--case", "zzz"), ("--case zzz", "unknown case;")),
        (("--format", "xml"), ("--format", "table", "json", "markdown", "junit")),
        (("--runs", "0"), ("--runs", "0")),
        (("--runs", "many"), ("--runs", "many")),
        (("--no-such-option",), ("--no-such-option",)),
        (("extra",), ("extra",)),
    ],
)
def test_wrong_usage_is_refused_with_what_is_allowed(
    tmp_path: Path, arguments: Sequence[str], words: Sequence[str]
) -> None:
    assert_refused(run_cli("once", "--mock", *arguments, cwd=tmp_path), *words)


def test_once_needs_a_config_or_the_mock(tmp_path: Path) -> None:
    assert_refused(run_cli("once", cwd=tmp_path), "--config", "--mock")


@pytest.mark.parametrize("option", ["--output", "--spans"])
@pytest.mark.parametrize("place", ["no/such/directory/file", "."])
def test_an_unwritable_file_is_refused_before_any_run(tmp_path: Path, option: str, place: str) -> None:
    finished = run_cli("once", "--mock", option, place, cwd=tmp_path)
    assert_refused(finished, "can't be written")
    assert list(tmp_path.iterdir()) == []


def test_report_and_spans_cannot_be_one_file(tmp_path: Path) -> None:
    """The later one would silently replace the other."""
    finished = run_cli("once", "--mock", *ONE, "--output", "one", "--spans", str(tmp_path / "one"), cwd=tmp_path)
    assert_refused(finished, "--output", "--spans")


def test_a_missing_config_is_named(tmp_path: Path) -> None:
    finished = run_cli("once", "--config", "no.yaml", cwd=tmp_path)
    assert_refused(finished, "no.yaml: can't be read: No such file or directory")


def test_a_bad_config_is_refused_line_by_line(tmp_path: Path) -> None:
    text = "schema_version: 1\ntargets:\n  - {name: a, base_url: http://h/v1, model: m}\nbenchmark:\n"
    (tmp_path / "bad.yaml").write_text(text + "  runs_per_case: 0\n  modus: x\n", encoding="utf-8")
    finished = run_cli("once", "--config", "bad.yaml", cwd=tmp_path)
    assert_refused(finished)
    first, second = finished.stderr.splitlines()
    assert first == "bad.yaml:5: benchmark.runs_per_case: is 0; allowed is at least 1"
    assert second.startswith("bad.yaml:6: benchmark.modus: is not a known key (did you mean modes?); allowed are ")


def test_a_key_that_is_not_set_is_refused_before_any_run(tmp_path: Path) -> None:
    target = {"name": "a", "base_url": "http://127.0.0.1:1/v1", "model": "m", "api_key_env": "SECRET_KEY_X"}
    write_config(tmp_path, target)
    finished = run_cli("once", "--config", "agentbench.yaml", cwd=tmp_path, variables={"SECRET_KEY_X": "  "})
    assert_refused(finished, "agentbench.yaml:1: targets[0].api_key_env: ", "unset or blank")


def test_a_full_disk_under_stdout_is_told_without_a_traceback(tmp_path: Path) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        process = subprocess.run(
            [*COMMAND, "once", "--mock", *ONE],
            cwd=tmp_path,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            timeout=30,
            check=False,
        )
    assert process.returncode != 0
    assert "No space left on device" in process.stderr
    assert "Traceback" not in process.stderr


def test_a_full_disk_under_the_spans_does_not_lose_the_report(tmp_path: Path) -> None:
    finished = run_cli("once", "--mock", "--format", "json", "--spans", "/dev/full", cwd=tmp_path)
    assert finished.exit_code == 2
    assert finished.report["summary"]["attempted"] == 12
    assert finished.stderr.splitlines()[-1] == "/dev/full: can't be written: No space left on device"


def test_output_may_be_the_pipe_behind_stdout(tmp_path: Path) -> None:
    finished = run_cli("once", "--mock", *ONE, "--format", "json", "--output", "/dev/stdout", cwd=tmp_path)
    assert finished.exit_code == 0
    assert finished.report["summary"]["passed"] == 1


# --- no network ----------------------------------------------------------------------------------------------

BLOCKED_EXIT_CODE = 99
BLOCK_SOCKETS = f"""
import os, sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        os.write(2, ("network: " + event).encode())
        os._exit({BLOCKED_EXIT_CODE})

sys.addaudithook(refuse)
"""


@pytest.fixture
def without_network(tmp_path: Path) -> dict[str, str]:
    """Variables of a process that ends at once when it reaches for the network."""
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "sitecustomize.py").write_text(BLOCK_SOCKETS, encoding="utf-8")
    return {"PYTHONPATH": str(tmp_path / "blocked")}


def test_the_mock_opens_no_connection(tmp_path: Path, without_network: dict[str, str]) -> None:
    finished = run_cli("once", "--mock", "--format", "json", cwd=tmp_path, variables=without_network)
    assert finished.exit_code == 0
    assert finished.report["summary"]["passed"] == 12


def test_a_live_run_does_open_one(tmp_path: Path, without_network: dict[str, str]) -> None:
    """So the block of the other test blocks."""
    write_config(tmp_path, {"name": "a", "base_url": "http://127.0.0.1:1/v1", "model": "m"})
    finished = run_cli("once", "--config", "agentbench.yaml", cwd=tmp_path, variables=without_network)
    assert finished.exit_code == BLOCKED_EXIT_CODE


# --- measure -------------------------------------------------------------------------------------------------


def spans_of(path: Path) -> list[dict[str, Any]]:
    """Each span of a file as a request of its own."""
    requests = []
    for line in path.read_text(encoding="utf-8").splitlines():
        (resource_spans,) = json.loads(line)["resourceSpans"]
        (scope_spans,) = resource_spans["scopeSpans"]
        for span in scope_spans["spans"]:
            scope = {"scope": scope_spans["scope"], "spans": [span]}
            requests.append({"resourceSpans": [{"resource": resource_spans["resource"], "scopeSpans": [scope]}]})
    return requests


def span_in(request: dict[str, Any]) -> dict[str, Any]:
    span: dict[str, Any] = request["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    return span


def write_lines(path: Path, requests: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(request) + "\n" for request in requests), encoding="utf-8")
    return path


def test_measure_gives_the_same_runs_field_by_field(mock: tuple[Finished, Path], tmp_path: Path) -> None:
    finished, spans = mock
    measured = run_cli("measure", str(spans), "--format", "json", cwd=tmp_path)
    assert (measured.exit_code, measured.stderr) == (0, "")
    assert measured.runs == finished.runs
    for key in ("schema_version", "tool", "mock", "summary"):
        assert measured.report[key] == finished.report[key]


@pytest.mark.parametrize("format_name", ["table", "markdown", "junit"])
def test_measure_prints_the_report_of_the_cycle(tmp_path: Path, format_name: str) -> None:
    arguments = ("--format", format_name)
    once = run_cli("once", "--mock", "--case", "session_terminate", *arguments, "--spans", "s.jsonl", cwd=tmp_path)
    assert run_cli("measure", "s.jsonl", *arguments, cwd=tmp_path).stdout == once.stdout


def test_measure_writes_to_a_file_too(mock: tuple[Finished, Path], tmp_path: Path) -> None:
    measured = run_cli("measure", str(mock[1]), "--format", "junit", "--output", "junit.xml", cwd=tmp_path)
    assert (measured.exit_code, measured.stdout) == (0, "")
    assert ET.parse(tmp_path / "junit.xml").getroot().get("tests") == "12"


def test_the_order_of_lines_and_spans_does_not_matter(mock: tuple[Finished, Path], tmp_path: Path) -> None:
    finished, spans = mock
    shuffled = sorted(spans_of(spans), key=lambda request: str(span_in(request)["spanId"]))
    measured = run_cli("measure", str(write_lines(tmp_path / "s", shuffled)), "--format", "json", cwd=tmp_path)
    assert measured.runs == finished.runs


def test_every_line_of_the_spans_file_is_a_trace_request(mock: tuple[Finished, Path]) -> None:
    spans = [span_in(request) for request in spans_of(mock[1])]
    assert {len(span["traceId"]) for span in spans} == {32}
    assert sum(span["name"].startswith("agentbench.run ") for span in spans) == 12
    assert sum(span["name"].startswith("invoke_agent ") for span in spans) == 12


def test_spans_of_other_scopes_are_ignored_and_counted(mock: tuple[Finished, Path], tmp_path: Path) -> None:
    finished, spans = mock
    requests = spans_of(spans)
    for request in spans_of(spans)[:3]:  # a server that joined the trace: the same trace, ids of its own
        span_in(request).update(spanId="f" * 16, name="agentbench.run of another program")
        request["resourceSpans"][0]["scopeSpans"][0]["scope"] = {"name": "vllm"}
        requests.append(request)
    measured = run_cli("measure", str(write_lines(tmp_path / "s", requests)), "--format", "json", cwd=tmp_path)
    assert measured.runs == finished.runs
    assert measured.stderr == f"{tmp_path / 's'}: ignored 3 span(s) of other scopes\n"


def test_a_file_that_is_cut_inside_a_line_is_refused(mock: tuple[Finished, Path], tmp_path: Path) -> None:
    (tmp_path / "cut.jsonl").write_bytes(mock[1].read_bytes()[:-2])
    assert_refused(run_cli("measure", "cut.jsonl", cwd=tmp_path), "cut.jsonl:12: the line is cut")


def test_wherever_a_line_is_cut_its_number_is_told(mock: tuple[Finished, Path], tmp_path: Path) -> None:
    whole = mock[1].read_bytes()
    path = tmp_path / "cut.jsonl"
    positions = [1, 2, 100, *range(1, len(whole) - 1, len(whole) // 50), len(whole) - 2]
    for position in positions:
        if whole[position - 1 : position] == b"\n" or whole[position : position + 1] == b"\n":
            continue  # whole lines are left
        path.write_bytes(whole[:position])
        number = whole[:position].count(b"\n") + 1
        with pytest.raises(InputError, match=rf"cut\.jsonl:{number}: the line is cut: "):
            measure_file(path)


def test_a_file_without_its_last_line_end_is_whole(mock: tuple[Finished, Path], tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(mock[1].read_bytes().rstrip(b"\n"))
    measured = run_cli("measure", "s", "--format", "json", cwd=tmp_path)
    assert measured.runs == mock[0].runs


def test_a_file_that_lacks_a_span_is_refused_whichever_it_is(mock: tuple[Finished, Path], tmp_path: Path) -> None:
    """A long answer is cut into several lines; a lost one must not look like a run that did less."""
    run = next(one for one in mock[0].runs if one["case_id"] == "parallel_volume_schedule")
    requests = [one for one in spans_of(mock[1]) if span_in(one)["traceId"] == run["trace_id"]]
    assert len(requests) > 10
    accepted = []
    for index, request in enumerate(requests):
        path = write_lines(tmp_path / "s", requests[:index] + requests[index + 1 :])
        with contextlib.suppress(InputError):
            measure_file(path)
            accepted.append(span_in(request)["name"])
    assert accepted == []


def test_a_file_that_holds_a_run_twice_is_refused(mock: tuple[Finished, Path], tmp_path: Path) -> None:
    (tmp_path / "twice").write_bytes(mock[1].read_bytes() * 2)
    assert_refused(run_cli("measure", "twice", cwd=tmp_path), "twice: trace ", "expected one agentbench.run span")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "has no agentbench.run span"),
        (b"\n \n", "has no agentbench.run span"),
        (b'{"resourceSpans":[]}\n', "has no agentbench.run span"),
        (b'{"resourceSpans":null}\n', "file:1: the line can't be read"),
        (b"\n[]\n", "file:2: the line can't be read"),
        (b"hello\n", "file:1: the line can't be read"),
        (b"\xff\xfe\n", "can't be read: it is no UTF-8 text"),
        (b"[" * 100_000 + b"\n", "file:1: the line can't be read"),
    ],
    ids=["empty", "blank", "no-spans", "null", "list", "text", "bytes", "deep"],
)
def test_what_is_no_spans_file_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(words)):
        measure_file(path)


def test_an_empty_spans_file_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert_refused(run_cli("measure", "empty", cwd=tmp_path), "empty: has no agentbench.run span")


def test_spans_of_a_trace_without_a_run_are_refused(mock: tuple[Finished, Path], tmp_path: Path) -> None:
    first_run = mock[0].runs[0]["trace_id"]
    kept = [
        one
        for one in spans_of(mock[1])
        if not (span_in(one)["traceId"] == first_run and span_in(one)["name"].startswith(names.RUN_SPAN))
    ]
    finished = run_cli("measure", str(write_lines(tmp_path / "s", kept)), cwd=tmp_path)
    assert_refused(finished, f"the trace {first_run} has spans but no agentbench.run")


@pytest.mark.parametrize("place", ["no-such-file", "."])
def test_an_unreadable_spans_file_is_refused(tmp_path: Path, place: str) -> None:
    assert_refused(run_cli("measure", place, cwd=tmp_path), f"{place}: can't be read: ")


def test_half_a_surrogate_pair_in_a_spans_file_breaks_no_report(
    mock: tuple[Finished, Path], tmp_path: Path
) -> None:
    text = mock[1].read_text(encoding="utf-8").replace('"gen_ai.response.model","value":{"stringValue":"mock"}',
        '"gen_ai.response.model","value":{"stringValue":"mo\\ud800"}')  # fmt: skip
    assert "\\ud800" in text
    (tmp_path / "s").write_text(text, encoding="utf-8")
    measured = run_cli("measure", "s", "--format", "json", cwd=tmp_path)
    assert (measured.exit_code, measured.stderr) == (0, "")


# --- signals -------------------------------------------------------------------------------------------------


class SilentServer:
    """Accepts connections and never answers."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(20)
        self._connections: list[socket.socket] = []

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def take_request(self) -> None:
        """Return when a request has come in: its run is then under way."""
        connection, _ = self._listener.accept()
        connection.settimeout(20)
        self._connections.append(connection)
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.recv(65536)

    def has_another(self) -> bool:
        self._listener.setblocking(False)
        try:
            self._connections.append(self._listener.accept()[0])
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        for one in (*self._connections, self._listener):
            one.close()


@pytest.fixture
def silent_server() -> Iterator[SilentServer]:
    with contextlib.closing(SilentServer()) as server:
        yield server


SIGNALS = pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])


@SIGNALS
def test_a_signal_aborts_the_run_and_keeps_its_result(
    tmp_path: Path, silent_server: SilentServer, number: int, exit_code: int
) -> None:
    write_config(tmp_path, {"name": "silent", "base_url": silent_server.base_url, "model": "m"})
    arguments = ("once", "--config", "agentbench.yaml", "--format", "json", "--spans", "spans.jsonl")
    with running_cli(*arguments, cwd=tmp_path) as command:
        silent_server.take_request()
        command.send(number)
        finished = command.wait()
    assert finished.exit_code == exit_code
    assert finished.report["summary"] == {"attempted": 1, "passed": 0, "failed": 1}
    (run,) = finished.runs
    assert run["error"] == {"kind": "aborted", "message": "the run was aborted before it ended"}
    assert [failure["kind"] for failure in run["semantic_failures"]] == ["usage_missing"]
    assert run["turn_wall_time_ms"] > 0
    assert run["total_tokens"] is None
    assert not silent_server.has_another()  # the second run was not started
    assert "Traceback" not in finished.stderr
    measured = run_cli("measure", "spans.jsonl", "--format", "json", cwd=tmp_path)
    assert (measured.exit_code, measured.runs) == (3, finished.runs)


def test_a_signal_after_a_run_keeps_both_results_in_the_file(tmp_path: Path, silent_server: SilentServer) -> None:
    with ScheduleServer() as good:
        write_config(
            tmp_path,
            {"name": "good", "base_url": good.base_url, "model": "truth-ttft1-itl1-n3"},
            {"name": "silent", "base_url": silent_server.base_url, "model": "m"},
        )
        arguments = ("once", "--config", "agentbench.yaml", *ONE, "--format", "json", "--output", "report.json")
        with running_cli(*arguments, cwd=tmp_path) as command:
            silent_server.take_request()
            command.send(signal.SIGTERM)
            finished = command.wait()
    assert (finished.exit_code, finished.stdout) == (143, "")
    runs = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["runs"]
    assert [(run["target"], run["status"]) for run in runs] == [("good", "passed"), ("silent", "failed")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agentbench.yaml", "report.json"]


def test_a_signal_loses_nothing_that_a_live_collector_takes(tmp_path: Path, silent_server: SilentServer) -> None:
    with ScheduleServer() as good, http_receiver() as received:
        write_config(
            tmp_path,
            {"name": "good", "base_url": good.base_url, "model": "truth-ttft1-itl1-n3"},
            {"name": "silent", "base_url": silent_server.base_url, "model": "m"},
            telemetry={"otlp": {"endpoint": received.url}},
        )
        arguments = ("once", "--config", "agentbench.yaml", *ONE, "--format", "json", "--spans", "spans.jsonl")
        with running_cli(*arguments, cwd=tmp_path) as command:
            silent_server.take_request()
            command.send(signal.SIGTERM)
            finished = command.wait()
    assert finished.exit_code == 143
    assert [run["status"] for run in finished.runs] == ["passed", "failed"]
    written = (tmp_path / "spans.jsonl").read_text(encoding="utf-8").count('"spanId"')
    assert len(received.spans) == written
    assert {span.trace_id.hex() for span in received.spans} == {run["trace_id"] for run in finished.runs}
    runs = received.metrics["agentbench.runs"]
    assert runs.point(target="good", status="passed").value == 1
    assert runs.point(target="silent", status="aborted").value == 1


def test_a_signal_ends_the_command_within_5_s_whatever_the_collector_does(
    tmp_path: Path, silent_server: SilentServer
) -> None:
    with contextlib.closing(SilentServer()) as collector:
        write_config(
            tmp_path,
            {"name": "silent", "base_url": silent_server.base_url, "model": "m"},
            telemetry={"otlp": {"endpoint": collector.base_url}},
        )
        with running_cli("once", "--config", "agentbench.yaml", "--format", "json", cwd=tmp_path) as command:
            silent_server.take_request()
            start_s = time.monotonic()
            command.send(signal.SIGTERM)
            finished = command.wait()
        assert time.monotonic() - start_s < 5
    assert finished.exit_code == 143
    assert len(finished.runs) == 1
    assert re.search(r"^telemetry: spans: \d+ failed \(.*; metrics: 1 failed \(", finished.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "value"), [("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")]
)
def test_a_variable_that_asks_for_what_there_is_not_is_refused_before_any_run(
    tmp_path: Path, name: str, value: str
) -> None:
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", name: value}
    assert_refused(run_cli("once", "--mock", cwd=tmp_path, variables=variables), f"{name}: is '{value}'; allowed")


# --- a terminal ----------------------------------------------------------------------------------------------


class Terminal:
    """A pseudo terminal; what is written to ``end`` is read after that end is closed everywhere."""

    def __init__(self) -> None:
        self._master, self.end = pty.openpty()

    def close_end(self) -> None:
        os.close(self.end)

    def read(self) -> str:
        text = b""
        with contextlib.suppress(OSError):  # Linux ends a terminal with EIO
            while data := os.read(self._master, 65536):
                text += data
        os.close(self._master)
        return text.decode()


class TerminalText(StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_a_terminal(
    *arguments: str, cwd: Path, streams: Sequence[str], abort_when: Callable[[], None] | None = None
) -> tuple[str, int]:
    """Run with ``stdout``, ``stderr`` or both on a terminal; what it showed, and the exit code."""
    terminal = Terminal()
    stdout, stderr = (terminal.end if name in streams else subprocess.DEVNULL for name in ("stdout", "stderr"))
    with subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=environment(TERM="xterm"),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
    ) as process:
        terminal.close_end()
        if abort_when is not None:
            abort_when()
            process.send_signal(signal.SIGINT)
        shown = terminal.read()
        exit_code = process.wait(timeout=30)
    return shown, exit_code


def test_progress_on_a_terminal_is_one_line_that_vanishes(tmp_path: Path) -> None:
    shown, _ = on_a_terminal("once", "--mock", "--case", "ordinary_chat", cwd=tmp_path, streams=["stderr"])
    assert shown == (
        "\r\x1b[K[1/2] mock ordinary_chat dual_agent #1 …\r\x1b[K[2/2] mock ordinary_chat chat_agent_tools #1 …"
        "\r\x1b[K"
    )


def test_progress_vanishes_when_a_signal_ends_the_cycle(tmp_path: Path, silent_server: SilentServer) -> None:
    """Else the report begins at the end of that line."""
    write_config(tmp_path, {"name": "silent", "base_url": silent_server.base_url, "model": "m"})
    shown, exit_code = on_a_terminal(
        *("once", "--config", "agentbench.yaml"),
        cwd=tmp_path,
        streams=["stderr", "stdout"],
        abort_when=silent_server.take_request,
    )
    assert exit_code == 130
    told = shown.replace("\r\n", "\n")
    aborted = "aborted by signal 2 in run 1 of 12"
    assert f"[1/12] silent ordinary_chat dual_agent #1 …\r\x1b[K{aborted}\nsilent · m · times in ms" in told


def test_progress_vanishes_when_an_error_ends_the_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = TerminalText()
    monkeypatch.setattr(sys, "stderr", shown)
    plan = RunPlan(target=MOCK_TARGET, case_id=CaseId.ORDINARY_CHAT, mode=Mode.DUAL_AGENT, iteration=1)
    with contextlib.suppress(InputError), Progress(2) as progress:
        progress.start(plan)
        raise InputError
    assert shown.getvalue() == "\r\x1b[K[1/2] mock ordinary_chat dual_agent #1 …\r\x1b[K"


def test_the_table_has_style_on_a_terminal_only(tmp_path: Path) -> None:
    shown, _ = on_a_terminal("once", "--mock", *ONE, cwd=tmp_path, streams=["stdout"])
    assert "\x1b[1m" in shown
    assert "\x1b" not in run_cli("once", "--mock", *ONE, cwd=tmp_path).stdout


# --- live targets that fail ----------------------------------------------------------------------------------

EVENT_STREAM = {"content-type": "text/event-stream"}
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def answer(name: str, status: int, headers: Mapping[str, str], *frames: str, cut: bool = False) -> StreamCase:
    return StreamCase(
        id=name,
        title=name,
        status=status,
        headers=headers,
        frames=tuple({"delay_ms": 0, "raw": frame} for frame in frames),
        close="abort" if cut else "clean",
        expect={},
    )


def chunk(delta: Mapping[str, Any], finish_reason: str | None = None, **fields: Any) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    usage = {"usage": USAGE} if finish_reason else {}
    return f"data: {json.dumps({'id': 'c1', 'model': 'm', 'choices': [choice], **usage, **fields})}\n\n"


def tool_call(name: str) -> Mapping[str, Any]:
    function = {"name": name, "arguments": "{}"}
    return {"tool_calls": [{"index": 0, "id": "t1", "type": "function", "function": function}]}


def run_live(
    directory: Path,
    answers: Sequence[StreamCase],
    *others: Mapping[str, Any],
    formats: Sequence[str] = ("table", "markdown", "junit"),
) -> dict[str, Finished]:
    """Run one case against all answers, and print what happened in these formats, from one spans file.

    The key of every target is SECRET; ``spans`` holds the file's text as stdout.
    """
    with ReplayServer(answers) as replay:
        own = [{"name": one.id, "base_url": replay.base_url(one.id), "model": "m"} for one in answers]
        write_config(directory, *({**target, "api_key_env": "LIVE_KEY"} for target in (*own, *others)))
        once = run_cli(
            *("once", "--config", "agentbench.yaml", *ONE, "--format", "json", "--spans", "spans.jsonl"),
            cwd=directory,
            variables={"LIVE_KEY": SECRET},
        )
    printed = {"once": once}
    for format_name in formats:
        printed[format_name] = run_cli("measure", "spans.jsonl", "--format", format_name, cwd=directory)
    spans = directory / "spans.jsonl"
    text = spans.read_text(encoding="utf-8") if spans.exists() else ""
    printed["spans"] = Finished(exit_code=0, stdout=text, stderr="")
    return printed


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Finished]]:
    error = {"error": {"message": f"Incorrect API key provided: {SECRET}.", "code": SECRET, "param": SECRET}}
    answers = [
        answer("html", 200, {"content-type": "text/html"}, "<html><title>Sign in</title></html>"),
        answer("cut", 200, EVENT_STREAM, chunk({"content": "Hel"}), cut=True),
        answer("refusing", 401, {"content-type": "application/json"}, json.dumps(error)),
        answer("quoting", 200, EVENT_STREAM, f"data: {json.dumps(error)}\n\n"),
    ]
    with ScheduleServer() as good, socket.socket() as closed_port:
        closed_port.bind(("127.0.0.1", 0))  # bound and not listening: nobody else takes it, every connect fails
        yield run_live(
            tmp_path_factory.mktemp("failing"),
            answers,
            {
                "name": "down",
                "base_url": f"http://127.0.0.1:{closed_port.getsockname()[1]}/v1",
                "model": "m",
            },
            {"name": "good", "base_url": good.base_url, "model": "truth-ttft1-itl1-n3"},
        )


def test_every_way_to_fail_is_a_failed_run_with_its_kind(failing: dict[str, Finished]) -> None:
    once = failing["once"]
    assert once.exit_code == 3
    assert {run["target"]: run["error"] and run["error"]["kind"] for run in once.runs} == {
        "html": "not_a_stream",
        "cut": "stream_truncated",
        "refusing": "http_401",
        "quoting": "in_stream_error",
        "down": "connect_error",
        "good": None,
    }


def test_what_a_refusal_asks_to_wait_is_in_the_report_and_comes_back_from_the_spans(tmp_path: Path) -> None:
    headers = {"content-type": "application/json", "retry-after": "7"}
    printed = run_live(
        tmp_path,
        [answer("busy", 429, headers, json.dumps({"error": {"message": "slow down"}})), answer("full", 503, {})],
        formats=("json",),
    )
    for runs in (printed["once"].runs, printed["json"].runs):
        assert {
            (run["target"], call["error"]["kind"], call["retry_after_s"])
            for run in runs
            for call in run["model_calls"]
        } == {("busy", "http_429", 7), ("full", "http_503", None)}


def test_a_target_that_fails_does_not_stop_the_others(failing: dict[str, Finished]) -> None:
    once = failing["once"]
    assert once.report["summary"] == {"attempted": 6, "passed": 1, "failed": 5}
    assert [run["target"] for run in once.runs if run["status"] == "passed"] == ["good"]
    assert once.stderr.count("\n") == 6


def test_a_failed_run_reports_missing_usage_and_no_tokens(failing: dict[str, Finished]) -> None:
    for run in failing["once"].runs:
        if run["target"] != "good":
            assert run["total_tokens"] is None
            assert "usage_missing" in [failure["kind"] for failure in run["semantic_failures"]]


def test_the_key_is_nowhere_though_the_server_quotes_it(failing: dict[str, Finished]) -> None:
    assert "[redacted]" in failing["once"].stdout
    for printed in failing.values():
        assert SECRET not in printed.stdout + printed.stderr


def test_measure_ends_with_the_exit_code_of_the_recorded_runs(failing: dict[str, Finished]) -> None:
    assert [failing[name].exit_code for name in ("table", "markdown", "junit")] == [3, 3, 3]


def test_people_read_why_each_target_failed(failing: dict[str, Finished]) -> None:
    table = failing["table"].stdout
    for words in ("http_401: ", "not_a_stream: ", "stream_truncated: ", "connect_error: "):
        assert words in table
    assert table.endswith("6 attempted, 1 passed, 5 failed\n")
    suite_counts = ET.fromstring(failing["junit"].stdout)
    assert (suite_counts.get("tests"), suite_counts.get("errors")) == ("6", "5")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finished]:
    """Servers that answer in order and put into it what no report may show."""
    long_error = {"error": {"message": "x" * 285 + " " + SECRET}}
    end = "data: [DONE]\n\n"
    text = chunk({"content": "hi"})
    colors = "evil\x1b[31m\x07\x9b31m\u202e"
    return run_live(
        tmp_path_factory.mktemp("hostile"),
        [
            answer("long", 401, {"content-type": "application/json"}, json.dumps(long_error)),
            answer("model", 200, EVENT_STREAM, chunk({"content": "hi"}, "stop", model=SECRET), end),
            answer("id", 200, EVENT_STREAM, chunk({"content": "hi"}, "stop", id=SECRET), end),
            answer("finish", 200, EVENT_STREAM, text, chunk({}, f"stop {SECRET}"), end),
            answer("tool", 200, EVENT_STREAM, text, chunk(tool_call(SECRET), "tool_calls"), end),
            answer(
                "event", 200, EVENT_STREAM, chunk({"content": f'<event name="{SECRET}">{{}}</event>'}, "stop"), end
            ),
            answer("colors", 200, EVENT_STREAM, text, chunk(tool_call(colors), colors, model=colors), end),
        ],
    )


def test_half_a_surrogate_pair_in_an_answer_does_not_end_the_cycle(tmp_path: Path) -> None:
    """It is legal JSON; the reports, which can't hold it, must not be lost by it."""
    end = "data: [DONE]\n\n"
    text = chunk({"content": "hi"})
    printed = run_live(
        tmp_path,
        [
            answer("half-model", 200, EVENT_STREAM, chunk({"content": "hi"}, "stop", model="m\ud800"), end),
            answer("half-finish", 200, EVENT_STREAM, text, chunk({}, "stop\ud800"), end),
            answer("half-tool", 200, EVENT_STREAM, text, chunk(tool_call("t\ud800"), "tool_calls"), end),
            answer("half-text", 200, EVENT_STREAM, chunk({"content": "hi \ud800"}, "stop"), end),
        ],
    )
    assert [one.stderr for name, one in printed.items() if name != "once"] == [""] * 4
    assert "Traceback" not in printed["once"].stderr
    assert printed["once"].report["summary"] == {"attempted": 4, "passed": 3, "failed": 1}


def test_what_a_server_puts_into_its_answer_does_not_end_the_cycle(hostile: dict[str, Finished]) -> None:
    assert hostile["once"].report["summary"] == {"attempted": 7, "passed": 3, "failed": 4}
    assert [hostile[name].exit_code for name in ("once", "table", "markdown", "junit")] == [3, 3, 3, 3]


def test_no_part_of_an_answer_carries_the_key_into_a_report(hostile: dict[str, Finished]) -> None:
    for name, printed in hostile.items():
        assert SECRET not in printed.stdout + printed.stderr, name


def test_no_part_of_the_key_is_left_where_a_message_was_cut(hostile: dict[str, Finished]) -> None:
    (run,) = (run for run in hostile["once"].runs if run["target"] == "long")
    assert run["error"]["message"].endswith("…") or "[redacted]" in run["error"]["message"]
    assert SECRET[:8] not in json.dumps(run)


def test_no_control_character_of_a_server_reaches_a_terminal(hostile: dict[str, Finished]) -> None:
    for name, printed in hostile.items():
        shown = printed.stdout + printed.stderr
        assert [char for char in shown if not char.isprintable() and char != "\n"] == [], name


# --- config, cases, help -------------------------------------------------------------------------------------


def test_config_check_counts_what_a_cycle_will_run(tmp_path: Path) -> None:
    target = {"name": "a", "base_url": "http://host.invalid/v1", "model": "m"}
    write_config(tmp_path, target, {**target, "name": "b"}, benchmark={"runs_per_case": 3, "cases": CASES[:2]})
    finished = run_cli("config", "check", "agentbench.yaml", cwd=tmp_path)
    assert (finished.exit_code, finished.stderr) == (0, "")
    assert finished.stdout == "agentbench.yaml: ok: 2 target(s), 12 run(s) each per cycle\n"


def test_config_check_says_every_problem_at_once(tmp_path: Path) -> None:
    target = {"name": "A", "base_url": "ftp://h", "model": ""}
    write_config(tmp_path, target)
    finished = run_cli("config", "check", "agentbench.yaml", cwd=tmp_path)
    assert_refused(finished, "targets[0].name: ", "targets[0].base_url: ", "targets[0].model: ")


def test_config_check_looks_for_the_keys_too(tmp_path: Path) -> None:
    write_config(tmp_path, {"name": "a", "base_url": "http://h/v1", "model": "m", "api_key_env": "NOT_SET"})
    assert_refused(run_cli("config", "check", "agentbench.yaml", cwd=tmp_path), "api_key_env", "unset or blank")
    set_now = run_cli("config", "check", "agentbench.yaml", cwd=tmp_path, variables={"NOT_SET": SECRET})
    assert set_now.exit_code == 0
    assert SECRET not in set_now.stdout + set_now.stderr


def test_config_init_writes_an_example_that_checks(tmp_path: Path) -> None:
    finished = run_cli("config", "init", cwd=tmp_path)
    assert (finished.exit_code, finished.stderr) == (0, "")
    assert finished.stdout.startswith("agentbench.yaml: written; ")
    assert run_cli("config", "check", "agentbench.yaml", cwd=tmp_path).exit_code == 0


def test_config_init_leaves_an_existing_file_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("mine", encoding="utf-8")
    finished = run_cli("config", "init", "mine.yaml", cwd=tmp_path)
    assert_refused(finished, "mine.yaml: exists already")
    assert (tmp_path / "mine.yaml").read_text(encoding="utf-8") == "mine"


def test_config_init_says_why_it_cannot_write(tmp_path: Path) -> None:
    finished = run_cli("config", "init", "no/such.yaml", cwd=tmp_path)
    assert_refused(finished, "no/such.yaml: can't be written: No such file or directory")


def test_config_schema_prints_a_json_schema(tmp_path: Path) -> None:
    finished = run_cli("config", "schema", cwd=tmp_path)
    assert (finished.exit_code, finished.stderr) == (0, "")
    assert set(json.loads(finished.stdout)["properties"]) >= {"schema_version", "targets", "benchmark"}


def test_cases_lists_the_six_for_people(tmp_path: Path) -> None:
    finished = run_cli("cases", cwd=tmp_path)
    assert (finished.exit_code, finished.stderr) == (0, "")
    assert [line for line in finished.stdout.splitlines() if line and not line.startswith(" ")] == CASES
    assert "the handlers must overlap" in finished.stdout
    assert "the session ends" in finished.stdout


def test_cases_lists_the_six_as_json(tmp_path: Path) -> None:
    finished = run_cli("cases", "--format", "json", cwd=tmp_path)
    document = json.loads(finished.stdout)
    assert document["schema_version"] == 1
    assert [case["case_id"] for case in document["cases"]] == CASES
    assert [case["expectation"]["model_call_count"] for case in document["cases"]] == [1, 1, 1, 2, 1, 1]


def test_the_version_is_printed(tmp_path: Path) -> None:
    finished = run_cli("--version", cwd=tmp_path)
    assert (finished.exit_code, finished.stdout) == (0, f"agentbench-otel, version {__version__}\n")


@pytest.mark.parametrize("command", [(), ("once",), ("config", "check")])
def test_help_is_help_and_not_an_error(tmp_path: Path, command: Sequence[str]) -> None:
    finished = run_cli(*command, "-h", cwd=tmp_path)
    assert (finished.exit_code, finished.stderr) == (0, "")
    assert finished.stdout.startswith("Usage: ")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ((), ("Exit codes: 0", "1 internal error", "3 at least one", "130", "143", "once", "measure", "config")),
        (
            ("once",),
            (
                *("--mock", "--config", "--target", "--case", "--mode", "--runs", "--output", "--spans"),
                *("[x>=1]", "[table|json|markdown|junit]", "no network", "config init"),
            ),
        ),
        (("measure",), ("FILE", "once --spans", "status", "other scopes")),
        (("cases",), ("[table|json]",)),
        (("config",), ("check", "schema", "init")),
        (("config", "check"), ("FILE", "exit 0 or 2")),
        (("config", "init"), ("agentbench.yaml", "left alone")),
        (("config", "schema"), ("JSON Schema",)),
    ],
)
def test_help_says_what_it_must(tmp_path: Path, command: Sequence[str], words: Sequence[str]) -> None:
    text = " ".join(run_cli(*command, "--help", cwd=tmp_path).stdout.split())
    for word in words:
        assert word in text


def test_a_command_that_does_not_exist_is_wrong_usage(tmp_path: Path) -> None:
    assert_refused(run_cli("onec", cwd=tmp_path), "onec")


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    """Completion and ``--help`` are called often; pydantic alone takes longer than all else."""
    script = (
        "import sys\nfrom agentbench_otel.cli import cli\n"
        "try: cli(['once', '--help'])\nexcept SystemExit: pass\n"
        "print([name for name in ('httpx', 'opentelemetry', 'pydantic', 'rich', 'yaml') if name in sys.modules])"
    )
    process = subprocess.run(
        [COMMAND[0], "-c", script], cwd=tmp_path, env=environment(), capture_output=True, timeout=30, check=True
    )
    assert process.stdout.decode().splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "variables", [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}], ids=["plain", "push"]
)
def test_a_stderr_that_nobody_reads_costs_no_report(tmp_path: Path, variables: dict[str, str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as unread:
        process = subprocess.run(
            [*COMMAND, "once", "--mock", *ONE],
            cwd=tmp_path,
            env=environment(**variables),
            stdout=subprocess.PIPE,
            stderr=unread,
            encoding="utf-8",
            timeout=30,
            check=False,
        )
    assert "1 attempted, 1 passed, 0 failed" in process.stdout
    assert process.returncode == 0

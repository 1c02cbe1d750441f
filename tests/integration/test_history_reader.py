"""The reader on a real file: the right runs in the right order, fast, and from any thread beside the writer."""

import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest

from agentbench_otel.errors import ErrorKind, InputError
from agentbench_otel.history import database
from agentbench_otel.history.reader import HistoryReader
from agentbench_otel.history.schema import MIGRATIONS
from agentbench_otel.records.chat import TokenUsage
from agentbench_otel.records.cycles import RunQuery, Spending
from agentbench_otel.records.results import RunFault, RunResult, Status
from agentbench_otel.records.scenario import CaseId, Mode
from tests.support.history import (
    DAY,
    NOW,
    PATIENCE_S,
    a_cycle,
    a_run,
    a_writer,
    ids,
    locked,
    run_id_of,
    some_spans,
    write,
)
from tests.support.results import FAULT

SPANS = some_spans()
LONG_AGO = NOW - 1_000 * DAY
ABORTED = RunFault(kind=ErrorKind.ABORTED, message="the daemon stopped")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agentbench.db"


def reader_of(file: Path, *runs: RunResult) -> HistoryReader:
    write(file, *runs, spans=SPANS)
    return HistoryReader(file)


def failed(number: int, **changes: object) -> RunResult:
    return a_run(number, status=Status.FAILED, error=FAULT, **changes)


# --- opening -------------------------------------------------------------------------------------------------


def test_a_missing_file_is_one_that_no_daemon_has_written_yet(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refusal:
        HistoryReader(file)
    assert str(refusal.value) == f"{file}: does not exist: no daemon has written its history here yet"
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_one_that_no_daemon_has_written_yet(file: Path) -> None:
    file.touch()
    with pytest.raises(InputError, match="is empty: no daemon has written its history here yet"):
        HistoryReader(file)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory; give the path of a file"):
        HistoryReader(tmp_path)


def test_what_is_no_database_is_refused(file: Path) -> None:
    file.write_bytes(b"x" * 10_000)
    with pytest.raises(InputError, match="can't be read: it is no SQLite database"):
        HistoryReader(file)


@pytest.mark.parametrize(
    ("version", "words"), [(99, "has format version 99, .* knows up to 1"), (0, "version 0|is empty")]
)
def test_another_format_is_refused(file: Path, version: int, words: str) -> None:
    write(file, a_run(1))
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(InputError, match=words):
        HistoryReader(file)


def test_an_older_format_is_upgraded_by_the_daemon(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(file, a_run(1))
    newer = (*MIGRATIONS, "ALTER TABLE runs ADD COLUMN note TEXT;")
    monkeypatch.setattr(database, "MIGRATIONS", newer)
    with pytest.raises(InputError, match=r"has format version 1, .* reads 2; the daemon upgrades the file"):
        HistoryReader(file)


def test_a_reader_changes_nothing(file: Path) -> None:
    reader = reader_of(file, a_run(1))
    with database.snapshot(file) as connection, pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM runs")
    assert reader.run_count() == 1


# --- runs ----------------------------------------------------------------------------------------------------


def test_the_newest_runs_come_first(file: Path) -> None:
    runs = reader_of(file, a_run(1), a_run(2), a_run(3)).runs(RunQuery())
    assert runs == [a_run(3), a_run(2), a_run(1)]


def test_the_order_is_that_of_writing_though_a_clock_was_set_back(file: Path) -> None:
    reader = reader_of(file, a_run(5), a_run(1))
    assert ids(reader.runs(RunQuery())) == [run_id_of(1), run_id_of(5)]


def test_no_more_runs_than_the_limit_come(file: Path) -> None:
    reader = reader_of(file, *(a_run(number, mode=list(Mode)[number % 2]) for number in range(6)))
    assert ids(reader.runs(RunQuery(limit=3))) == [run_id_of(number) for number in (5, 4, 3)]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_nothing_gives_nothing(file: Path, limit: int) -> None:
    assert reader_of(file, a_run(1)).runs(RunQuery(limit=limit)) == []


def test_runs_go_on_before_a_run(file: Path) -> None:
    reader = reader_of(file, *(a_run(number) for number in range(5)))
    first = reader.runs(RunQuery(limit=2))
    second = reader.runs(RunQuery(limit=2, before_run_id=first[-1].run_id))
    assert ids([*first, *second]) == [run_id_of(number) for number in (4, 3, 2, 1)]


def test_before_a_run_that_is_removed_there_is_nothing(file: Path) -> None:
    assert reader_of(file, a_run(1)).runs(RunQuery(before_run_id="0" * 32)) == []


OTHER_CASE = CaseId.SESSION_TERMINATE
OTHERS = {
    "target": a_run(2, target="other"),
    "case_id": a_run(3, case_id=OTHER_CASE),
    "mode": a_run(4, mode=Mode.CHAT_AGENT_TOOLS),
    "status": failed(5),
}


@pytest.mark.parametrize("field", OTHERS)
def test_only_what_is_asked_for_comes(file: Path, field: str) -> None:
    reader = reader_of(file, a_run(1), *OTHERS.values())
    wanted = getattr(OTHERS[field], field)
    assert reader.runs(RunQuery(**{field: wanted})) == [OTHERS[field]]


def test_filters_hold_together(file: Path) -> None:
    both = failed(7, target="other")
    reader = reader_of(file, a_run(1), *OTHERS.values(), both)
    assert reader.runs(RunQuery(target="other", status=Status.FAILED)) == [both]


def test_a_target_that_has_no_runs_gives_nothing(file: Path) -> None:
    assert reader_of(file, a_run(1)).runs(RunQuery(target="none")) == []


# --- one run -------------------------------------------------------------------------------------------------


def test_a_run_is_found_by_its_id_or_six_characters_of_it(file: Path) -> None:
    reader = reader_of(file, a_run(1), a_run(0x100000))
    for text in (run_id_of(1), run_id_of(1)[:6], run_id_of(1)[:20]):
        assert reader.find(text) == a_run(1)


def test_less_than_six_characters_find_nothing(file: Path) -> None:
    assert reader_of(file, a_run(1)).find(run_id_of(1)[:5]) is None


@pytest.mark.parametrize("text", ["", "ffffff", "f" * 32, run_id_of(1) + "0", "\udcff" * 8, "%%%%%%", "______"])
def test_what_is_no_id_finds_nothing(file: Path, text: str) -> None:
    assert reader_of(file, a_run(1)).find(text) is None


def test_a_beginning_of_two_ids_is_refused_with_both(file: Path) -> None:
    reader = reader_of(file, a_run(1, run_id="abcdef01"), a_run(2, run_id="abcdef02"), a_run(3, run_id="abcdef"))
    assert reader.find("abcdef") == a_run(3, run_id="abcdef")  # it is an id itself
    with pytest.raises(InputError, match="run abcdef0: is not the only one: abcdef01 and abcdef02 begin so"):
        reader.find("abcdef0")


def test_a_run_that_another_version_wrote_is_told_by_its_id(file: Path) -> None:
    reader = reader_of(file, a_run(1))
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE runs SET result = json_remove(result, '$.model')")
    with pytest.raises(InputError, match=f"run {run_id_of(1)} can't be read: its result is damaged"):
        reader.find(run_id_of(1))


def test_a_run_that_can_t_be_read_hides_no_other(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    reader = reader_of(file, a_run(1), a_run(2, target="other"), a_run(3))
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE runs SET result = '{}' WHERE run_id = ?", (run_id_of(3),))
    for _ in range(2):
        assert reader.runs(RunQuery()) == [a_run(2, target="other"), a_run(1)]
        assert [series.target for series in reader.overview(since=LONG_AGO, points=1)] == ["other"]
    assert caplog.text.count("a run is left out") == 1


def test_a_case_of_another_version_hides_no_other(file: Path) -> None:
    reader = reader_of(file, a_run(1), a_run(2))
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE runs SET case_id = 'of_tomorrow' WHERE run_id = ?", (run_id_of(2),))
    assert reader.runs(RunQuery()) == [a_run(1)]
    assert len(reader.overview(since=LONG_AGO, points=1)) == 1


def test_spans_are_had_by_the_whole_id_only(file: Path) -> None:
    reader = reader_of(file, a_run(1))
    assert reader.spans_of(run_id_of(1)) == SPANS
    assert reader.spans_of(run_id_of(1)[:6]) is None
    assert reader.spans_of(run_id_of(2)) is None


def test_damaged_spans_are_told_by_their_run(file: Path) -> None:
    reader = reader_of(file, a_run(1))
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE run_spans SET spans = x'00'")
    with pytest.raises(InputError, match=f"the spans of run {run_id_of(1)} can't be read"):
        reader.spans_of(run_id_of(1))


# --- overview ------------------------------------------------------------------------------------------------


def test_points_are_of_the_newest_runs_oldest_first(file: Path) -> None:
    runs = [a_run(number, visible_ttft_ms=None if number == 3 else float(number)) for number in range(5)]
    (series,) = reader_of(file, *runs).overview(since=LONG_AGO, points=3)
    assert series.visible_ttft_ms == (2.0, None, 4.0)
    assert series.last == runs[4]


def test_without_points_the_rest_is_told(file: Path) -> None:
    (series,) = reader_of(file, a_run(1)).overview(since=LONG_AGO, points=0)
    assert (series.visible_ttft_ms, series.last) == ((), a_run(1))


def test_warm_ups_and_aborted_runs_are_outside(file: Path) -> None:
    inside = a_run(1, visible_ttft_ms=1.0)
    reader = reader_of(
        file,
        failed(0, warmup=True),
        inside,
        a_run(2, warmup=True),
        a_run(3, status=Status.FAILED, error=ABORTED),
        a_run(4, warmup=True, mode=Mode.CHAT_AGENT_TOOLS),
    )
    (series,) = reader.overview(since=LONG_AGO, points=9)
    assert series.last == inside
    assert series.visible_ttft_ms == (1.0,)
    assert (series.counted, series.passed, series.last_failure) == (1, 1, None)


def test_runs_are_counted_since_the_time_that_is_asked_for(file: Path) -> None:
    reader = reader_of(file, a_run(0), failed(1), a_run(2), failed(3), a_run(4))
    (series,) = reader.overview(since=NOW + timedelta(seconds=1), points=9)
    assert (series.counted, series.passed) == (4, 2)
    assert len(series.visible_ttft_ms) == 5  # points are of the newest runs, however old


def test_the_last_failure_is_told_however_old(file: Path) -> None:
    old = failed(1, started_at=LONG_AGO)
    reader = reader_of(file, failed(0), old, *(a_run(number) for number in range(2, 9)))
    (series,) = reader.overview(since=NOW, points=2)
    assert series.last_failure == old


def test_series_come_by_target_and_in_the_order_of_the_catalogue(file: Path) -> None:
    keys = list(product(("a", "b"), CaseId, Mode))
    runs = [
        a_run(number, target=target, case_id=case_id, mode=mode)
        for number, (target, case_id, mode) in enumerate(reversed(keys))
    ]
    overview = reader_of(file, *runs).overview(since=LONG_AGO, points=1)
    assert [(series.target, series.case_id, series.mode) for series in overview] == keys


def test_only_the_targets_that_are_asked_for_come(file: Path) -> None:
    reader = reader_of(file, a_run(1, target="a"), a_run(2, target="b"), a_run(3, target="c"))
    overview = reader.overview(since=LONG_AGO, points=1, targets=["c", "a", "z"])
    assert [series.target for series in overview] == ["a", "c"]


# --- cycles and spending -------------------------------------------------------------------------------------


def test_the_newest_cycle_of_each_target_is_told(file: Path) -> None:
    newest = a_cycle(3, target="a", started_at=NOW - DAY)  # by a clock that was set back
    write(file, cycles=[a_cycle(1, target="a"), a_cycle(2, target="b"), newest])
    assert HistoryReader(file).last_cycles() == {"a": newest, "b": a_cycle(2, target="b")}


def test_no_cycle_is_no_entry(file: Path) -> None:
    assert reader_of(file, a_run(1)).last_cycles() == {}


def test_a_cycle_comes_back_as_it_was(file: Path) -> None:
    cycle = replace(a_cycle(1), slot_at=NOW + timedelta(microseconds=1), missed_run_count=3)
    write(file, cycles=[cycle])
    assert HistoryReader(file).last_cycles() == {"local": cycle}


def with_usage(number: int, usage: TokenUsage, **changes: object) -> RunResult:
    call = a_run(number).model_calls[0].model_copy(update={"usage": usage})
    return a_run(number, model_calls=(call,), **changes)


def test_every_run_since_then_is_spent_warm_ups_and_failures_too(file: Path) -> None:
    usage = TokenUsage(prompt_tokens=20, completion_tokens=10, total_tokens=30)
    reader = reader_of(
        file,
        with_usage(0, usage),
        with_usage(1, usage),
        with_usage(2, usage, warmup=True),
        with_usage(3, usage, status=Status.FAILED, error=ABORTED),
        with_usage(4, TokenUsage(prompt_tokens=7), target="other"),
    )
    since = NOW + timedelta(seconds=1)
    assert reader.spending_since(since) == {
        "local": Spending(run_count=3, token_count=90),
        "other": Spending(run_count=1, token_count=7),
    }
    assert reader.spending_since(NOW + DAY) == {}


def test_absurd_numbers_of_tokens_can_be_added(file: Path) -> None:
    usage = TokenUsage(total_tokens=10**30)
    reader = reader_of(file, with_usage(1, usage), with_usage(2, usage))
    assert reader.spending_since(NOW)["local"].token_count > 10**18


# --- all of them ---------------------------------------------------------------------------------------------


def test_every_result_is_a_document_oldest_first(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentbench_otel.history.reader._EXPORT_STEP", 3)
    runs = [a_run(number) for number in range(10)]
    documents = reader_of(file, *runs).documents()
    assert [RunResult.model_validate_json(text) for text in documents] == runs


def test_documents_end_with_what_was_there_at_their_beginning(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentbench_otel.history.reader._EXPORT_STEP", 2)
    with a_writer(file) as writer:
        for number in range(3):
            writer.accept(a_run(number), ())
        assert writer.wait_until_written(PATIENCE_S)
        documents = HistoryReader(file).documents()
        next(documents)
        writer.accept(a_run(3), ())
        assert writer.wait_until_written(PATIENCE_S)
        rest = [RunResult.model_validate_json(text) for text in documents]
    assert rest == [a_run(1), a_run(2)]


def test_a_slow_reader_of_documents_does_not_hold_the_log_up(file: Path) -> None:
    with a_writer(file) as writer:
        for number in range(3):
            writer.accept(a_run(number), ())
        assert writer.wait_until_written(PATIENCE_S)
        documents = HistoryReader(file).documents()
        next(documents)
        with closing(sqlite3.connect(file)) as stranger:
            (is_held_up,) = stranger.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[:1]
        assert not is_held_up


# --- speed, and many at once ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10,000 runs over 24 series."""
    file = tmp_path_factory.mktemp("big") / "agentbench.db"
    keys = list(product(("a", "b"), CaseId, Mode))
    with a_writer(file) as writer:
        for number in range(10_000):
            target, case_id, mode = keys[number % 24]
            changes = {"target": target, "case_id": case_id, "mode": mode}
            writer.accept(failed(number, **changes) if number == 77 else a_run(number, **changes), ())
        writer.record_cycle(a_cycle(1))
        assert writer.wait_until_written(60.0)
    return file


def least_ms(call: object) -> float:
    assert callable(call)
    times = []
    for _ in range(5):
        start_s = time.perf_counter()
        call()
        times.append(time.perf_counter() - start_s)
    return 1_000 * min(times)


def test_an_overview_of_ten_thousand_runs_takes_less_than_100_ms(big: Path) -> None:
    reader = HistoryReader(big)
    assert len(reader.overview(since=NOW, points=50)) == 24
    assert least_ms(lambda: reader.overview(since=NOW, points=50)) < 100


def test_a_rare_run_among_ten_thousand_is_found_in_less_than_50_ms(big: Path) -> None:
    reader = HistoryReader(big)
    assert ids(reader.runs(RunQuery(status=Status.FAILED))) == [run_id_of(77)]
    assert least_ms(lambda: reader.runs(RunQuery(status=Status.FAILED))) < 50


def statements_of_all_questions(file: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    statements: list[str] = []
    open_for_reading = database.open_for_reading

    def open_traced(path: Path) -> sqlite3.Connection:
        connection = open_for_reading(path)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(database, "open_for_reading", open_traced)
    reader = HistoryReader(file)
    reader.runs(RunQuery(limit=3))
    reader.runs(RunQuery(target="a", status=Status.FAILED, before_run_id=run_id_of(9)))
    reader.find(run_id_of(1))
    reader.find(run_id_of(1)[:6])
    reader.spans_of(run_id_of(1))
    reader.overview(since=NOW, points=3)
    reader.last_cycles()
    reader.spending_since(NOW)
    next(reader.documents())
    return [statement for statement in dict.fromkeys(statements) if statement != "BEGIN"]


def test_no_question_but_the_count_reads_all_runs_or_sorts_them(
    big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = statements_of_all_questions(big, monkeypatch)
    assert len(statements) > 20
    with closing(sqlite3.connect(big)) as connection:
        for statement in statements:
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
            bad = [
                step
                for step in plan
                if step.startswith(("SCAN runs", "SCAN run_spans", "SCAN cycles"))
                or ("TEMP B-TREE" in step and "spent_tokens" not in statement)  # one entry per target
            ]
            assert not bad, (statement, plan)


def test_what_is_removed_is_found_by_its_index(big: Path) -> None:
    with closing(sqlite3.connect(big)) as connection:
        for table in ("runs", "run_spans", "cycles"):
            chosen = f"SELECT seq FROM {table} WHERE started_at < 1.0 ORDER BY started_at LIMIT 500"
            plan = [
                row[3]
                for row in connection.execute(f"EXPLAIN QUERY PLAN DELETE FROM {table} WHERE seq IN ({chosen})")
            ]
            assert f"SEARCH {table} USING COVERING INDEX {table}_by_time (started_at<?)" in plan
            assert not [step for step in plan if "SCAN" in step or "ORDER BY" in step]


def test_threads_may_ask_while_runs_are_written(file: Path) -> None:
    is_done = threading.Event()

    def ask(reader: HistoryReader) -> int:
        answers = 0
        while not is_done.is_set():
            runs = reader.runs(RunQuery(limit=10))
            numbers = [int(run.run_id[:6], 16) for run in runs]
            assert numbers == list(range(numbers[0], numbers[0] - len(numbers), -1))
            (series,) = reader.overview(since=LONG_AGO, points=5)
            assert series.counted > numbers[0]
            assert reader.spans_of(runs[0].run_id) == SPANS
            answers += 1
        return answers

    with a_writer(file) as writer, ThreadPoolExecutor(4) as pool:
        writer.accept(a_run(0), SPANS)
        assert writer.wait_until_written(PATIENCE_S)
        reader = HistoryReader(file)
        answers = [pool.submit(ask, reader) for _ in range(4)]
        for number in range(1, 300):
            writer.accept(a_run(number), SPANS)
        assert writer.wait_until_written(PATIENCE_S)
        is_done.set()
        assert all(answer.result() > 0 for answer in answers)
        assert (writer.write_errors, reader.run_count()) == (0, 300)


def test_readers_are_not_held_up_by_a_writer_in_the_middle_of_its_work(file: Path) -> None:
    reader = reader_of(file, a_run(1))
    with a_writer(file), locked(file):
        assert reader.run_count() == 1

"""The writer on a real file: what it commits, how it bears trouble, what it removes and how it ends."""

import logging
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from agentbench_otel.errors import InputError
from agentbench_otel.history.database import open_for_writing
from agentbench_otel.history.reader import HistoryReader
from agentbench_otel.history.retention import Retention, prune_step
from agentbench_otel.history.waiting import Bounds
from agentbench_otel.history.writer import HistoryWriter
from agentbench_otel.records.cycles import RunQuery
from agentbench_otel.records.spans import SpanRecord
from tests.support.history import (
    DAY,
    KEEP,
    NOW,
    PATIENCE_S,
    HeldPause,
    WallClock,
    a_cycle,
    a_run,
    a_writer,
    connection_of,
    count,
    ids,
    locked,
    settle,
    some_spans,
    write,
)

SPANS = some_spans()
LOCKED_WORDS = "can't be written: another program holds it locked; end that program"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A locked file is told of at once: these tests lock it often."""
    monkeypatch.setattr("agentbench_otel.history.database._WRITER_BUSY_S", 0.01)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agentbench.db"


def problem_of(writer: HistoryWriter) -> str | None:
    return writer.problem  # a call: what was known of the attribute is not known any more


def written(file: Path) -> list[str]:
    """Ids of the runs in the file, oldest first."""
    return ids(HistoryReader(file).runs(RunQuery(limit=100_000)))[::-1]


# --- what is written -----------------------------------------------------------------------------------------


def test_a_run_is_there_with_its_spans_once_it_is_written(file: Path) -> None:
    with a_writer(file) as writer:
        writer.accept(a_run(1), SPANS)
        assert writer.wait_until_written(PATIENCE_S)
        reader = HistoryReader(file)
        assert reader.find(a_run(1).run_id) == a_run(1)
        assert reader.spans_of(a_run(1).run_id) == SPANS


def test_a_cycle_is_there_after_its_runs(file: Path) -> None:
    with a_writer(file) as writer:
        writer.accept(a_run(1), SPANS)
        writer.record_cycle(a_cycle(1))
        assert writer.wait_until_written(PATIENCE_S)
        assert HistoryReader(file).last_cycles() == {"local": a_cycle(1)}
        assert written(file) == [a_run(1).run_id]


def test_a_name_with_characters_that_urls_reserve_is_the_name_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a b%20?mode=ro#ü.db"
    write(file, a_run(1))
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name, file.name + ".lock"]
    assert written(file) == [a_run(1).run_id]


class OneThreadSpans(Sequence[SpanRecord]):
    """Spans that tell by which thread they were looked at."""

    def __init__(self) -> None:
        self.threads: set[str] = set()

    def __len__(self) -> int:
        return len(SPANS)

    def __iter__(self) -> Iterator[SpanRecord]:
        self.threads.add(threading.current_thread().name)
        return iter(SPANS)

    def __getitem__(self, index: object) -> SpanRecord:  # type: ignore[override]
        raise AssertionError("spans are read in their order")


def test_spans_are_made_on_the_writers_thread(file: Path) -> None:
    spans = OneThreadSpans()
    with a_writer(file) as writer:
        writer.accept(a_run(1), spans)
        assert writer.wait_until_written(PATIENCE_S)
    assert spans.threads == {"agentbench-history"}


def test_a_run_that_is_written_twice_is_there_once(file: Path) -> None:
    """A commit that failed may have been done: the repetition changes nothing."""
    write(file, a_run(1), a_run(1), spans=SPANS)
    assert (count(file, "runs"), count(file, "run_spans")) == (1, 1)


def test_runs_go_on_in_a_file_that_was_closed(file: Path) -> None:
    write(file, a_run(1))
    write(file, a_run(2))
    assert written(file) == [a_run(1).run_id, a_run(2).run_id]


def test_the_last_write_is_told(file: Path) -> None:
    with a_writer(file) as writer:
        assert writer.last_write_unix_s is None
        writer.accept(a_run(1), ())
        assert writer.wait_until_written(PATIENCE_S)
        assert writer.last_write_unix_s == NOW.timestamp()


def test_every_commit_reaches_the_disk(file: Path) -> None:
    with a_writer(file) as writer:
        (synchronous,) = connection_of(writer).execute("PRAGMA synchronous").fetchone()
        (journal_mode,) = connection_of(writer).execute("PRAGMA journal_mode").fetchone()
    assert (synchronous, journal_mode) == (2, "wal")  # 2 is FULL


def test_a_run_takes_one_transaction_that_locks_from_its_start(file: Path) -> None:
    statements: list[str] = []
    with a_writer(file) as writer:
        settle(writer)
        connection_of(writer).set_trace_callback(statements.append)
        writer.accept(a_run(1), SPANS)
        assert writer.wait_until_written(PATIENCE_S)
        connection_of(writer).set_trace_callback(None)
    verbs = [" ".join(statement.split()[:3]).rstrip("(") for statement in statements]
    start = verbs.index("INSERT INTO runs") - 1
    assert verbs[start : start + 4] == ["BEGIN IMMEDIATE", "INSERT INTO runs", "INSERT INTO run_spans", "COMMIT"]


def test_a_run_whose_spans_can_t_be_written_is_not_there_either(file: Path) -> None:
    pause = HeldPause()
    with a_writer(file, pause=pause) as writer:
        settle(writer)
        connection_of(writer).execute(
            "CREATE TEMP TRIGGER no BEFORE INSERT ON run_spans BEGIN SELECT raise(FAIL, 'no'); END"
        )
        writer.accept(a_run(1), SPANS)
        assert writer.wait_until_written(PATIENCE_S)
        assert writer.lost_runs == 1
    assert count(file, "runs") == 0


# --- trouble -------------------------------------------------------------------------------------------------


def test_a_locked_file_keeps_runs_waiting_until_it_is_free(file: Path) -> None:
    pause = HeldPause()
    with a_writer(file, pause=pause) as writer:
        settle(writer)
        with locked(file):
            writer.accept(a_run(1), SPANS)
            writer.accept(a_run(2), SPANS)
            pause.begin()
            assert writer.waiting == 2
            assert writer.write_errors >= 1
            assert problem_of(writer) == f"{file}: {LOCKED_WORDS}"
        pause.end()
        assert writer.wait_until_written(PATIENCE_S)
        assert problem_of(writer) is None
        assert (writer.waiting, writer.lost_runs) == (0, 0)
        assert written(file) == [a_run(1).run_id, a_run(2).run_id]
        assert HistoryReader(file).spans_of(a_run(1).run_id) == SPANS


def test_a_full_disk_keeps_runs_waiting_until_there_is_room(file: Path) -> None:
    pause = HeldPause()
    with a_writer(file, pause=pause) as writer:
        settle(writer)
        connection = connection_of(writer)
        connection.execute("PRAGMA max_page_count = 1")
        big = some_spans(5_000)
        writer.accept(a_run(1), big)
        pause.begin()
        assert writer.problem == f"{file}: can't be written: the disk is full; free some space"
        connection.execute("PRAGMA max_page_count = 1000000")
        pause.end()
        assert writer.wait_until_written(PATIENCE_S)
        assert HistoryReader(file).spans_of(a_run(1).run_id) == big


def test_a_file_that_became_read_only_keeps_runs_waiting(file: Path) -> None:
    pause = HeldPause()
    with a_writer(file, pause=pause) as writer:
        settle(writer)
        connection_of(writer).execute("PRAGMA query_only = ON")
        writer.accept(a_run(1), SPANS)
        pause.begin()
        assert "it is read-only; make the file and its directory writable" in (writer.problem or "")
        connection_of(writer).execute("PRAGMA query_only = OFF")
        pause.end()
        assert writer.wait_until_written(PATIENCE_S)
        assert written(file) == [a_run(1).run_id]


def test_the_waits_grow_to_the_longest_and_begin_anew_with_the_next_trouble(file: Path) -> None:
    pause = HeldPause()
    with a_writer(file, pause=pause) as writer:
        settle(writer)
        for number in range(2):
            waits = []
            with locked(file):
                writer.accept(a_run(number), ())
                for _ in range(4):
                    waits.append(pause.begin())
                    if len(waits) < 4:
                        pause.end()
            pause.end()
            assert writer.wait_until_written(PATIENCE_S)
            assert waits == [0.5, 1.0, 2.0, 5.0]
        assert writer.write_errors == 8


def test_the_longest_wait_stays(file: Path) -> None:
    pause = HeldPause()
    writer = HistoryWriter(file, retention=KEEP, now_unix_s=WallClock(), retry_waits_s=(1.0, 3.0), pause=pause)
    settle(writer)
    with locked(file):
        writer.accept(a_run(1), ())
        waits = []
        for _ in range(3):
            waits.append(pause.begin())
            if len(waits) < 3:
                pause.end()
    pause.end()
    assert writer.close(PATIENCE_S) == 0
    assert waits == [1.0, 3.0, 3.0]


def test_beyond_the_bound_the_oldest_runs_are_lost_and_told(file: Path) -> None:
    pause = HeldPause()
    with a_writer(file, pause=pause, bounds=Bounds(entry_count=2)) as writer:
        settle(writer)
        with locked(file):
            writer.accept(a_run(0), SPANS)
            pause.begin()
            for number in range(1, 5):
                writer.accept(a_run(number), SPANS)
            assert (writer.lost_runs, writer.waiting) == (2, 3)
            pause.end()
            pause.begin()
            assert "too many runs wait, the oldest are lost" in (writer.problem or "")
        pause.end()
        assert writer.wait_until_written(PATIENCE_S)
        assert written(file) == [a_run(number).run_id for number in (0, 3, 4)]


def test_a_run_whose_spans_were_dropped_is_written_without_them(file: Path) -> None:
    pause = HeldPause()
    with a_writer(file, pause=pause, bounds=Bounds(span_count=len(SPANS))) as writer:
        settle(writer)
        with locked(file):
            writer.accept(a_run(0), SPANS)
            pause.begin()
            writer.accept(a_run(1), SPANS)
            writer.accept(a_run(2), SPANS)
        pause.end()
        assert writer.wait_until_written(PATIENCE_S)
        reader = HistoryReader(file)
        assert [reader.spans_of(a_run(number).run_id) for number in range(3)] == [SPANS, None, SPANS]
        assert writer.lost_spans == len(SPANS)


def test_trouble_is_logged_once_and_so_is_its_end(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "agentbench_otel.history")
    pause = HeldPause()
    with a_writer(file, pause=pause) as writer:
        settle(writer)
        with locked(file):
            writer.accept(a_run(1), ())
            for _ in range(3):
                pause.begin()
                pause.end()
            pause.begin()
        pause.end()
        assert writer.wait_until_written(PATIENCE_S)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"history {file}: {LOCKED_WORDS}; what is not written waits in memory"),
        ("INFO", f"history {file}: is written again; 0 run(s) were lost meanwhile"),
    ]


def test_a_run_that_can_t_be_stored_is_lost_alone(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A bug of ours: no file holds a lone surrogate."""
    with a_writer(file) as writer:
        writer.accept(a_run(1, model="\ud800"), ())
        writer.accept(a_run(2), ())
        assert writer.wait_until_written(PATIENCE_S)
        assert (writer.lost_runs, written(file)) == (1, [a_run(2).run_id])
    assert "a bug of agentbench-otel; what was being written is lost" in caplog.text


def test_a_row_that_the_tables_refuse_is_lost_alone(file: Path) -> None:
    with a_writer(file) as writer:
        writer.accept(a_run(1, target=None), ())
        writer.accept(a_run(2), ())
        assert writer.wait_until_written(PATIENCE_S)
        assert (writer.lost_runs, writer.write_errors) == (1, 0)
        assert written(file) == [a_run(2).run_id]


def test_a_file_that_was_removed_is_made_anew(file: Path) -> None:
    with a_writer(file) as writer:
        writer.accept(a_run(1), ())
        assert writer.wait_until_written(PATIENCE_S)
        file.unlink()
        writer.accept(a_run(2), ())
        assert writer.wait_until_written(PATIENCE_S)
        assert written(file) == [a_run(2).run_id]


def test_a_damaged_file_keeps_runs_waiting_until_it_is_moved_away(file: Path) -> None:
    write(file, *(a_run(number) for number in range(50)), spans=SPANS)
    pause = HeldPause()
    with a_writer(file, pause=pause) as writer:
        settle(writer)
        spoil(file)
        writer.accept(a_run(50), SPANS)
        pause.begin()
        assert "it is damaged; move it away" in (writer.problem or "")
        file.rename(file.with_name("damaged.db"))
        pause.end()
        assert writer.wait_until_written(PATIENCE_S)
        assert written(file) == [a_run(50).run_id]


# --- opening -------------------------------------------------------------------------------------------------


def spoil(file: Path, first_byte: int = 4096) -> None:
    """Overwrite the pages from there on, by a process that is not ours: SQLite's locks would go with a file."""
    size = file.stat().st_size - first_byte
    script = "import sys; f = open(sys.argv[1], 'r+b'); f.seek(int(sys.argv[2])); f.write(b'x' * int(sys.argv[3]))"
    os.spawnlp(os.P_WAIT, "python3", "python3", "-c", script, str(file), str(first_byte), str(size))


def assert_refused(file: Path, words: str) -> None:
    with pytest.raises(InputError) as refusal:
        HistoryWriter(file, retention=KEEP)
    assert str(refusal.value).startswith(f"{file}: ")
    assert words in str(refusal.value)


def test_a_second_writer_is_refused(file: Path) -> None:
    with a_writer(file):
        assert_refused(file, f"process {os.getpid()} writes this history")


def test_a_directory_in_its_place_is_refused(tmp_path: Path) -> None:
    assert_refused(tmp_path, "is a directory; give the path of a file")


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    assert_refused(missing / "agentbench.db", f"its directory {missing} does not exist; create it")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_can_t_be_written_is_refused() -> None:
    assert_refused(Path("/sys/agentbench.db"), "can't be written")


def test_what_is_no_database_is_refused_and_kept(file: Path) -> None:
    file.write_text("notes, and not a few of them\n" * 100, encoding="utf-8")
    assert_refused(file, "it is no SQLite database; give another path")
    assert file.read_text(encoding="utf-8").startswith("notes")


def test_another_programs_database_is_refused_and_kept(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE bookmarks (url)")
    before = file.read_bytes()
    assert_refused(file, "is the database of another program; give another path")
    assert file.read_bytes() == before


def test_a_newer_format_is_refused_and_kept(file: Path) -> None:
    write(file, a_run(1))
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = file.read_bytes()
    assert_refused(file, "has format version 99, and this agentbench-otel knows up to 1")
    assert file.read_bytes() == before


def test_a_refused_file_is_not_held(file: Path) -> None:
    file.write_bytes(b"x" * 10_000)
    assert_refused(file, "no SQLite database")
    file.unlink()
    write(file, a_run(1))


def test_after_an_unclean_end_a_damaged_file_is_found(file: Path) -> None:
    write(file, *(a_run(number) for number in range(50)), spans=SPANS)
    spoil(file, first_byte=file.stat().st_size // 2)
    Path(f"{file}.lock").write_text("4711\n", encoding="utf-8")
    assert_refused(file, "it is damaged; move it away with its -wal file, or restore a copy of it")


def test_a_damaged_file_that_was_brought_here_is_found(file: Path) -> None:
    write(file, *(a_run(number) for number in range(50)), spans=SPANS)
    spoil(file, first_byte=file.stat().st_size // 2)
    Path(f"{file}.lock").unlink()
    assert_refused(file, "it is damaged")


def test_after_a_clean_end_no_time_is_spent_on_checking(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Path] = []
    monkeypatch.setattr("agentbench_otel.history.database._check", lambda _, file: checked.append(file))
    write(file, a_run(1))
    assert checked == [file]  # nothing was known of it
    write(file, a_run(2))
    assert checked == [file]


# --- closing -------------------------------------------------------------------------------------------------


def test_closing_writes_what_waits(file: Path) -> None:
    writer = HistoryWriter(file, retention=KEEP, now_unix_s=WallClock())
    for number in range(20):
        writer.accept(a_run(number), SPANS)
    assert writer.close(PATIENCE_S) == 0
    assert len(written(file)) == 20


def test_closing_leaves_one_file_and_the_lock_of_nobody(file: Path, tmp_path: Path) -> None:
    write(file, a_run(1), spans=SPANS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agentbench.db", "agentbench.db.lock"]
    assert Path(f"{file}.lock").read_bytes() == b""


def test_closing_in_trouble_tells_how_many_runs_are_lost(file: Path) -> None:
    with a_writer(file) as writer:
        settle(writer)
        with locked(file):
            for number in range(3):
                writer.accept(a_run(number), SPANS)
            writer.record_cycle(a_cycle(1))
            assert writer.close(0.0) == 3
        assert writer.lost_runs == 3
        assert writer.close(0.0) == 0


def test_closing_ends_a_long_wait_for_the_next_attempt(file: Path) -> None:
    writer = HistoryWriter(file, retention=KEEP, now_unix_s=WallClock(), retry_waits_s=(3_600.0,))
    settle(writer)
    with locked(file):
        writer.accept(a_run(1), SPANS)
        while not writer.write_errors:
            writer.wait_until_written(0.01)
    assert writer.close(PATIENCE_S) == 0
    assert not writer._is_given_up.is_set()  # long before the deadline
    assert written(file) == [a_run(1).run_id]


def test_what_comes_after_the_end_is_lost_and_counted(file: Path) -> None:
    writer = HistoryWriter(file, retention=KEEP, now_unix_s=WallClock())
    writer.close(PATIENCE_S)
    writer.accept(a_run(1), SPANS)
    assert (writer.lost_runs, writer.waiting) == (1, 0)


# --- retention -----------------------------------------------------------------------------------------------


def counts(file: Path) -> tuple[int, int, int]:
    return count(file, "runs"), count(file, "run_spans"), count(file, "cycles")


def test_what_is_too_old_is_removed_at_the_start(file: Path) -> None:
    kept, no_spans, old = a_run(1), a_run(2, started_at=NOW - 8 * DAY), a_run(3, started_at=NOW - 91 * DAY)
    old_cycle = replace(a_cycle(1), started_at=NOW - 91 * DAY)
    with a_writer(file, now_unix_s=WallClock(NOW - 91 * DAY)) as writer:
        for run in (kept, no_spans, old):
            writer.accept(run, SPANS)
        writer.record_cycle(old_cycle)
        writer.record_cycle(a_cycle(2))
        settle(writer)
    assert counts(file) == (3, 3, 4)
    with a_writer(file) as writer:
        settle(writer)
    assert counts(file) == (2, 1, 3)
    reader = HistoryReader(file)
    assert reader.find(old.run_id) is None
    assert reader.spans_of(no_spans.run_id) is None
    assert reader.spans_of(kept.run_id) == SPANS
    assert reader.last_cycles()["local"] == a_cycle(2)


def test_runs_are_removed_with_their_spans_however_long_spans_are_kept(file: Path) -> None:
    write(file, a_run(1, started_at=NOW - 2 * DAY), a_run(2), spans=SPANS)
    with a_writer(file, retention=Retention(keep_s=86_400, keep_spans_s=10 * 86_400)) as writer:
        settle(writer)
    assert (count(file, "runs"), count(file, "run_spans")) == (1, 1)


def test_what_grows_old_is_removed_by_the_hour(file: Path) -> None:
    clock = WallClock()
    with a_writer(file, now_unix_s=clock) as writer:
        writer.accept(a_run(0), SPANS)
        settle(writer)
        clock.moment = NOW + timedelta(minutes=59) + 7 * DAY
        writer._tidied_unix_s = (NOW + 7 * DAY).timestamp()
        settle(writer)
        assert count(file, "run_spans") == 1
        clock.moment = NOW + timedelta(minutes=60) + 7 * DAY
        settle(writer)
        assert (count(file, "run_spans"), count(file, "runs")) == (0, 1)


def test_a_clock_that_is_set_back_does_not_put_the_removal_off(file: Path) -> None:
    clock = WallClock(NOW + 3_650 * DAY)
    with a_writer(file, now_unix_s=clock) as writer:
        settle(writer)
        clock.moment = NOW
        writer.accept(a_run(0, started_at=NOW - 8 * DAY), SPANS)
        settle(writer)
    assert count(file, "run_spans") == 0


def test_many_writes_bring_the_removal_forward(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentbench_otel.history.writer._TIDY_EVERY_WRITES", 10)
    with a_writer(file) as writer:
        settle(writer)
        for number in range(12):
            writer.accept(a_run(number, started_at=NOW - 8 * DAY), SPANS)
        assert writer.wait_until_written(PATIENCE_S)
        assert count(file, "run_spans") < 12


def test_the_removal_goes_in_steps_and_runs_that_come_meanwhile_go_first(file: Path) -> None:
    with a_writer(file, now_unix_s=WallClock(NOW - 100 * DAY)) as writer:
        for number in range(1_200):
            writer.accept(a_run(number, started_at=NOW - 100 * DAY), ())
        settle(writer)
    statements: list[str] = []
    clock, pause = WallClock(NOW - 100 * DAY), HeldPause()
    with a_writer(file, now_unix_s=clock, pause=pause) as writer:
        settle(writer)
        with locked(file):
            for number in range(2_000, 2_003):
                writer.accept(a_run(number), ())
            pause.begin()
        connection_of(writer).set_trace_callback(statements.append)
        clock.moment = NOW
        pause.end()
        settle(writer)
        connection_of(writer).set_trace_callback(None)
    verbs = [" ".join(statement.split()[:3]) for statement in statements]
    kinds = [verb for verb in verbs if verb in ("INSERT INTO runs", "DELETE FROM cycles")]
    assert count(file, "runs") == 3
    assert kinds[:6] == ["INSERT INTO runs", "DELETE FROM cycles"] * 3  # a step ends with cycles


def test_a_step_removes_five_hundred_rows_of_a_kind_at_most(file: Path) -> None:
    write(file, *(a_run(number) for number in range(600)))
    with closing(open_for_writing(file, is_check_needed=False)) as connection:
        later_unix_s = (NOW + 1_000 * DAY).timestamp()
        steps = [prune_step(connection, KEEP, later_unix_s) for _ in range(3)]
    assert [(step.spans, step.runs) for step in steps] == [(500, 500), (100, 100), (0, 0)]


def test_the_file_grows_smaller_when_much_is_removed(file: Path) -> None:
    spans = some_spans(1_000)
    with a_writer(file, now_unix_s=WallClock(NOW - 8 * DAY)) as writer:
        for number in range(100):
            writer.accept(a_run(number, started_at=NOW - 8 * DAY), spans)
        settle(writer)
    before = file.stat().st_size
    with a_writer(file) as writer:
        settle(writer)
    assert file.stat().st_size < before / 2
    write(file, a_run(1_000))  # and it is a sound file


def test_the_file_does_not_grow_while_as_much_is_removed_as_comes(file: Path) -> None:
    clock = WallClock()
    sizes = []
    retention = Retention(keep_s=10 * 86_400, keep_spans_s=5 * 86_400)
    spans = some_spans(200)
    with a_writer(file, now_unix_s=clock, retention=retention) as writer:
        for day in range(40):
            clock.moment = NOW + day * DAY
            for number in range(10):
                writer.accept(a_run(100 * day + number, started_at=clock.moment), spans)
            settle(writer)
            connection_of(writer).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            sizes.append(file.stat().st_size)
    assert max(sizes[20:]) < 1.15 * max(sizes[:20])

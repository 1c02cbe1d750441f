"""A writer that is killed loses at most the run in flight, and leaves a sound file behind."""

import multiprocessing
import random
import time
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

from agentbench_otel.history.database import snapshot
from agentbench_otel.history.reader import HistoryReader
from agentbench_otel.history.retention import Retention
from agentbench_otel.history.writer import HistoryWriter
from tests.support.history import NOW, PATIENCE_S, WallClock, a_cycle, a_run, some_spans, write

KILLS = 50
RUNS_PER_ROUND = 10_000
SPANS = some_spans(200)
KEEP = Retention(keep_s=86_400, keep_spans_s=86_400)


def write_without_end(file: Path, first: int, announcements: Connection) -> None:
    """Announce each run once it is committed. Old runs come in between: they are removed as they come."""
    writer = HistoryWriter(file, retention=KEEP, now_unix_s=WallClock())
    for number in range(first, first + RUNS_PER_ROUND):
        writer.accept(a_run(number, run_id=f"old-{number}", started_at=NOW - timedelta(days=2)), SPANS)
        writer.record_cycle(a_cycle(number))
        writer.accept(a_run(number), SPANS)
        writer._writes_since_tidy = 1_000
        assert writer.wait_until_written(PATIENCE_S)
        announcements.send(number)


def test_every_run_that_was_announced_is_there_whole_after_fifty_kills(tmp_path: Path) -> None:
    file = tmp_path / "agentbench.db"
    context = multiprocessing.get_context("forkserver")  # one process imports all, each round is a fork of it
    context.set_forkserver_preload([__name__, "tests.support.history"])
    chance = random.Random(20260714)
    announced: list[int] = []
    for round_number in range(KILLS):
        receiver, sender = context.Pipe(duplex=False)
        with receiver:
            process = context.Process(
                target=write_without_end, args=(file, round_number * RUNS_PER_ROUND, sender), daemon=True
            )
            process.start()
            sender.close()
            if round_number % 5:  # else it may be killed while it opens the file
                receiver.poll(PATIENCE_S)
            time.sleep(chance.uniform(0.0, 0.06))  # the moment of the kill, not a wait for something
            process.kill()
            process.join()
            with suppress(EOFError):
                while True:
                    announced.append(receiver.recv())
        assert_whole(file, announced[-20:])
    assert len(announced) > KILLS / 2
    assert_whole(file, announced)
    write(file, a_run(999_999))
    assert HistoryReader(file).find(a_run(999_999).run_id) is not None


def assert_whole(file: Path, numbers: list[int]) -> None:
    """Read-only, as a command would: the next writer finds the file as it was left."""
    if not numbers:
        return
    reader = HistoryReader(file)
    for number in numbers:
        run = a_run(number)
        assert reader.find(run.run_id) == run
        assert reader.spans_of(run.run_id) == SPANS
    with snapshot(file) as connection:
        assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        without_spans = "SELECT count(*) FROM runs WHERE seq NOT IN (SELECT seq FROM run_spans)"
        assert connection.execute(without_spans).fetchone() == (0,)

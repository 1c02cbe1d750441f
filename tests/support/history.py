"""Results, spans and cycles for a history, and its writer with a pause that a test holds in its hands."""

import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agentbench_otel.history.retention import Retention
from agentbench_otel.history.waiting import Bounds
from agentbench_otel.history.writer import HistoryWriter
from agentbench_otel.records.cycles import CycleOutcome, CycleRecord
from agentbench_otel.records.results import RunResult
from agentbench_otel.records.spans import SpanRecord
from tests.support.clock import MS, T0_NS
from tests.support.results import a_result
from tests.support.spans import RunSpans, item

NOW = datetime.fromtimestamp(T0_NS // 10**9, UTC)
"""The moment at which tests of the history take place."""

DAY = timedelta(days=1)
KEEP = Retention(keep_s=90 * 86_400, keep_spans_s=7 * 86_400)
PATIENCE_S = 20.0
"""The longest that a test waits for a thread; it comes to this only when the test fails."""

_BASE = a_result()


def run_id_of(number: int) -> str:
    """Distinct in its first characters."""
    return f"{number:06x}" + "0" * 26


def a_run(number: int, **changes: Any) -> RunResult:
    """The run of this number, by default started so many seconds after `NOW`."""
    started_at = NOW + timedelta(seconds=number)
    return _BASE.model_copy(update={"run_id": run_id_of(number), "started_at": started_at, **changes})


def some_spans(count: int = 5) -> Sequence[SpanRecord]:
    """The spans of a whole run, ``count`` awaits among them."""
    run = RunSpans()
    run.run(T0_NS, T0_NS + 13 * MS)
    run.turn(T0_NS, T0_NS + 12 * MS)
    awaits = [item(T0_NS + n, T0_NS + n + 1, is_visible=True) for n in range(count)]
    run.call(T0_NS, T0_NS + 10 * MS, awaits)
    return tuple(run.spans)


def a_cycle(number: int, **changes: Any) -> CycleRecord:
    fields: dict[str, Any] = {
        "cycle_id": f"cycle-{number}",
        "target": "local",
        "slot_at": NOW + timedelta(minutes=number),
        "started_at": NOW + timedelta(minutes=number, seconds=1),
        "ended_at": NOW + timedelta(minutes=number, seconds=9),
        "outcome": CycleOutcome.COMPLETED,
        "run_count": 12,
        "missed_run_count": 0,
    }
    return CycleRecord(**{**fields, **changes})


class WallClock:
    """Unix seconds that stand still until a test moves them."""

    def __init__(self, moment: datetime = NOW) -> None:
        self.moment = moment

    def __call__(self) -> float:
        return self.moment.timestamp()


class HeldPause:
    """The writer's pause between two attempts: it lasts until the test lets it go on."""

    def __init__(self) -> None:
        self._asked: queue.Queue[float] = queue.Queue()
        self._allowed: queue.Queue[None] = queue.Queue()

    def __call__(self, event: threading.Event, wait_s: float) -> None:
        del event
        self._asked.put(wait_s)
        self._allowed.get(timeout=PATIENCE_S)

    def begin(self) -> float:
        """Wait until the writer pauses; how long it wants to, in seconds."""
        return self._asked.get(timeout=PATIENCE_S)

    def end(self) -> None:
        self._allowed.put(None)


@contextmanager
def a_writer(
    file: Path,
    *,
    retention: Retention = KEEP,
    bounds: Bounds | None = None,
    now_unix_s: Callable[[], float] | None = None,
    pause: Callable[[threading.Event, float], object] = threading.Event.wait,
) -> Iterator[HistoryWriter]:
    """A writer whose present is `NOW`; it is closed when the block is left."""
    writer = HistoryWriter(
        file, retention=retention, bounds=bounds, now_unix_s=now_unix_s or WallClock(), pause=pause
    )
    try:
        yield writer
    finally:
        writer.close(PATIENCE_S)


def write(
    file: Path, *runs: RunResult, spans: Sequence[SpanRecord] = (), cycles: Sequence[CycleRecord] = ()
) -> None:
    """A history with these runs, in this order."""
    with a_writer(file) as writer:
        for run in runs:
            writer.accept(run, spans)
        for cycle in cycles:
            writer.record_cycle(cycle)


def connection_of(writer: HistoryWriter) -> sqlite3.Connection:
    """The writer's own connection, to make trouble on it."""
    assert writer._connection is not None
    return writer._connection


def settle(writer: HistoryWriter) -> None:
    """Wait until all is written and what is due to be removed is removed."""
    for number in range(2):  # when the second one is written, the step after the first is done
        writer.record_cycle(a_cycle(number, target="settle"))
        assert writer.wait_until_written(PATIENCE_S)
    while writer._is_tidying:
        writer.wait_until_written(0.001)
        threading.Event().wait(0.001)


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Another program holds the file for writing."""
    stranger = sqlite3.connect(file, isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        stranger.execute("ROLLBACK")
        stranger.close()


def ids(runs: Sequence[RunResult]) -> list[str]:
    return [run.run_id for run in runs]


def count(file: Path, table: str) -> int:
    """The rows of a table, by a connection of its own."""
    connection = sqlite3.connect(file)
    try:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    finally:
        connection.close()

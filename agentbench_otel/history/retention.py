"""What is removed from the history, in steps so small that no run waits long for its turn."""

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from agentbench_otel.errors import InputError
from agentbench_otel.history.database import check_place, open_for_writing, refusals, transaction
from agentbench_otel.history.lock import HistoryLock

_ROWS_PER_STEP = 500
_PAGES_PER_STEP = 500
_SPARE_SHARE = 8  # one in so many pages may be free: the next runs fill them

_TABLES = ("run_spans", "runs", "cycles")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long runs with their cycles are kept after their start, and the spans of runs."""

    keep_s: float
    keep_spans_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """How many rows were removed; spans are counted by the runs that they are of."""

    spans: int
    runs: int
    cycles: int

    def __bool__(self) -> bool:
        return (self.spans, self.runs, self.cycles) != (0, 0, 0)

    def __add__(self, other: "Pruned") -> "Pruned":
        return Pruned(
            spans=self.spans + other.spans, runs=self.runs + other.runs, cycles=self.cycles + other.cycles
        )


NOTHING = Pruned(spans=0, runs=0, cycles=0)


def prune_step(connection: sqlite3.Connection, retention: Retention, now_unix_s: float) -> Pruned:
    """Remove the oldest of what is too old, at most 500 rows of each kind; `NOTHING` when nothing is left."""
    limits = (retention.keep_spans_s, retention.keep_s, retention.keep_s)
    with transaction(connection):
        spans, runs, cycles = (
            _delete(connection, table, before_unix_s=now_unix_s - keep_s)
            for table, keep_s in zip(_TABLES, limits, strict=True)
        )
    return Pruned(spans=spans, runs=runs, cycles=cycles)


def _delete(connection: sqlite3.Connection, table: str, *, before_unix_s: float) -> int:
    chosen = f"SELECT seq FROM {table} WHERE started_at < ? ORDER BY started_at LIMIT {_ROWS_PER_STEP}"  # noqa: S608
    return connection.execute(f"DELETE FROM {table} WHERE seq IN ({chosen})", (before_unix_s,)).rowcount  # noqa: S608


def shrink_step(connection: sqlite3.Connection) -> bool:
    """Give some free pages back to the disk; False when no more are to be given back."""
    free_count = _pragma(connection, "freelist_count")
    if free_count <= _pragma(connection, "page_count") // _SPARE_SHARE:
        return False
    with transaction(connection):
        connection.execute(f"PRAGMA incremental_vacuum({_PAGES_PER_STEP})").fetchall()  # a page per row read
    return _pragma(connection, "freelist_count") < free_count


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def prune_file(file: Path, retention: Retention, now_unix_s: float) -> Pruned:
    """Remove all that is too old from a history that no daemon has open.

    Raises:
        InputError: There is none, it can't be used, or a daemon has it open.
    """
    check_place(file)
    if not file.exists():
        raise InputError(f"{file}: does not exist; there is nothing to prune")
    lock = HistoryLock(file)
    is_clean = False
    try:
        connection = open_for_writing(file, is_check_needed=not lock.was_clean)
        with refusals(file, "can't be pruned"):
            try:
                pruned = _prune(connection, retention, now_unix_s)
            finally:
                connection.close()
        is_clean = True
    finally:
        lock.release(is_clean=is_clean)
    return pruned


def _prune(connection: sqlite3.Connection, retention: Retention, now_unix_s: float) -> Pruned:
    total = NOTHING
    while pruned := prune_step(connection, retention, now_unix_s):
        total += pruned
    while shrink_step(connection):
        pass
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return total

"""The one writer of the history: a sink that keeps its caller waiting for nothing."""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from agentbench_otel.errors import InputError
from agentbench_otel.history.database import check_place, open_for_writing, transaction, words
from agentbench_otel.history.lock import HistoryLock
from agentbench_otel.history.retention import Retention, prune_step, shrink_step
from agentbench_otel.history.rows import Insert, cycle_inserts, run_inserts
from agentbench_otel.history.waiting import Bounds, Entry, WaitingCycle, WaitingLine, WaitingRun
from agentbench_otel.records.cycles import CycleRecord
from agentbench_otel.records.results import RunResult
from agentbench_otel.records.spans import SpanRecord

logger = logging.getLogger(__name__)

_RETRY_WAITS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_CLOSING_RETRY_S = 0.1
_GIVE_UP_S = 0.5
_TIDY_EVERY_S = 3_600.0
_TIDY_EVERY_WRITES = 1_000

Pause = Callable[[threading.Event, float], object]
"""Waits until the event is set, or so many seconds."""


class HistoryWriter:
    """Writes each run with its spans in one transaction, on a thread of its own, and removes what is too old.

    While the file can't be written, runs wait in memory within ``bounds`` and the writing is tried again.
    """

    def __init__(
        self,
        file: Path,
        *,
        retention: Retention,
        bounds: Bounds | None = None,
        now_unix_s: Callable[[], float] = time.time,
        retry_waits_s: Sequence[float] = _RETRY_WAITS_S,
        pause: Pause = threading.Event.wait,
    ) -> None:
        """``retry_waits_s``: after the first failure, the second …; the last one for good.

        Raises:
            InputError: The file can't be used, or another process writes it.
        """
        check_place(file)
        self._file = file
        self._retention = retention
        self._now_unix_s = now_unix_s
        self._retry_waits_s = retry_waits_s
        self._pause = pause
        self._line = WaitingLine(Bounds() if bounds is None else bounds)
        self._is_closing = threading.Event()
        self._is_given_up = threading.Event()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._is_tidying = True
        self._tidied_unix_s = now_unix_s()
        self._writes_since_tidy = 0
        self._lost_when_well = 0

        self.write_errors = 0
        """Attempts that failed."""
        self.problem: str | None = None
        """Why the last attempt failed; None when it did not."""
        self.last_write_unix_s: float | None = None

        self._lock = HistoryLock(file)
        try:
            self._connect(is_check_needed=not self._lock.was_clean)
        except BaseException:
            self._lock.release(is_clean=False)
            raise
        self._thread = threading.Thread(target=self._work, daemon=True, name="agentbench-history")
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Runs and cycles that are not written yet."""
        return len(self._line)

    @property
    def lost_runs(self) -> int:
        """Runs that were never written, because too many waited or the time to close was up."""
        return self._line.lost_runs

    @property
    def lost_spans(self) -> int:
        """Spans that were dropped while their runs waited."""
        return self._line.lost_spans

    def accept(self, result: RunResult, spans: Sequence[SpanRecord]) -> None:
        """Never waits and never raises. ``spans`` must not change afterwards; they may be made when looked at."""
        self._line.put(WaitingRun(result=result, spans=spans))

    def record_cycle(self, record: CycleRecord) -> None:
        """As `accept`; the runs that came before are written before."""
        self._line.put(WaitingCycle(record=record))

    def wait_until_written(self, timeout_s: float) -> bool:
        """Whether all that was given so far is committed (or lost) in time."""
        return self._line.wait_until_empty(timeout_s)

    def close(self, deadline_s: float) -> int:
        """Write what waits, close the file and release it; calling it again does nothing.

        Returns, half a second after the deadline at the latest, how many runs were not written and are lost.
        """
        self._line.close()
        self._is_closing.set()
        self._thread.join(deadline_s)
        if self._thread.is_alive():
            self._is_given_up.set()
            self._thread.join(_GIVE_UP_S)
        return self._line.lose_all()

    # --- on the writer's thread from here on -----------------------------------------------------------------

    def _work(self) -> None:
        is_open = True
        while is_open and not self._is_given_up.is_set():
            try:
                is_open = self._step()
            except Exception:
                logger.exception(
                    "history %s: a bug of agentbench-otel; what was being written is lost", self._file
                )
                self._line.lose()
        self._shut()

    def _step(self) -> bool:
        """Write the next entry if there is one, then tidy a bit; False when nothing more will come."""
        entry = self._line.take(0.0 if self._is_tidying else _TIDY_EVERY_S)
        if entry is not None:
            self._write_at_last(_inserts(entry))
        elif self._line.is_closed:
            return False
        self._tidy_a_bit()
        return True

    def _write_at_last(self, inserts: Sequence[Insert]) -> None:
        failed_count = 0
        while not self._write(inserts):
            if self._is_given_up.is_set():
                return
            wait_s = self._retry_waits_s[min(failed_count, len(self._retry_waits_s) - 1)]
            failed_count += 1
            if self._is_closing.is_set():
                self._pause(self._is_given_up, min(wait_s, _CLOSING_RETRY_S))
            else:
                self._pause(self._is_closing, wait_s)
        self._line.finish()

    def _write(self, inserts: Sequence[Insert]) -> bool:
        try:
            connection = self._connected()
            with transaction(connection):
                for insert in inserts:
                    connection.execute(insert.sql, insert.values)
        except (sqlite3.Error, InputError) as error:
            self._note_failure(error)
            return False
        self._note_success()
        return True

    def _note_failure(self, error: sqlite3.Error | InputError) -> None:
        """Raises:
        sqlite3.Error: It is of what was to be written, not of the file: trying again would not help.
        """
        if type(error) not in (sqlite3.OperationalError, sqlite3.DatabaseError, InputError):
            raise error
        self.write_errors += 1
        problem = str(error)
        if isinstance(error, sqlite3.Error):
            problem = f"{self._file}: can't be written: {words(error)}"
            if type(error) is sqlite3.DatabaseError:  # damaged: maybe another file stands there next time
                self._disconnect()
        if self._line.lost_runs > self._lost_when_well:
            problem += "; too many runs wait, the oldest are lost"
        if problem != self.problem:
            logger.warning("history %s; what is not written waits in memory", problem)
        self.problem = problem

    def _note_success(self) -> None:
        if self.problem is not None:
            lost_count = self._line.lost_runs - self._lost_when_well
            logger.info("history %s: is written again; %d run(s) were lost meanwhile", self._file, lost_count)
        self.problem = None
        self._lost_when_well = self._line.lost_runs
        self.last_write_unix_s = self._now_unix_s()
        self._writes_since_tidy += 1

    def _connected(self) -> sqlite3.Connection:
        """SQLite goes on writing a file that was removed or replaced; its runs would be gone without a word."""
        if self._connection is not None and _identity(self._file) != self._identity:
            logger.warning("history %s: was removed or replaced; it is opened anew", self._file)
            self._disconnect()
        if self._connection is not None:
            return self._connection
        return self._connect(is_check_needed=True)

    def _connect(self, *, is_check_needed: bool) -> sqlite3.Connection:
        connection = open_for_writing(self._file, is_check_needed=is_check_needed)
        self._identity = _identity(self._file)
        self._connection = connection
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _tidy_a_bit(self) -> None:
        """One step of what is due: the runs that came meanwhile go first."""
        now_unix_s = self._now_unix_s()
        is_time = not 0 <= now_unix_s - self._tidied_unix_s < _TIDY_EVERY_S  # below 0: the clock was set back
        is_due = self._is_tidying or is_time or self._writes_since_tidy >= _TIDY_EVERY_WRITES
        if not is_due or self._is_closing.is_set():
            return
        self._tidied_unix_s = now_unix_s
        self._writes_since_tidy = 0
        self._is_tidying = True
        has_more = False
        try:
            connection = self._connected()
            has_more = bool(prune_step(connection, self._retention, now_unix_s)) or shrink_step(connection)
        except (sqlite3.Error, InputError) as error:
            self._note_failure(error)
        finally:
            self._is_tidying = has_more  # after an error the next hour is soon enough

    def _shut(self) -> None:
        is_clean = self._connection is not None
        try:
            if self._connection is not None:
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error as error:
            is_clean = False
            logger.warning("history %s: can't be closed cleanly: %s", self._file, words(error))
        self._disconnect()
        self._lock.release(is_clean=is_clean)


def _inserts(entry: Entry) -> list[Insert]:
    if isinstance(entry, WaitingCycle):
        return cycle_inserts(entry.record)
    return run_inserts(entry.result, entry.spans)


def _identity(file: Path) -> tuple[int, int] | None:
    """Which file stands there; None when none does."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino

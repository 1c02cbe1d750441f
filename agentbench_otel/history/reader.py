"""What the history knows, read-only, while a daemon may be writing it."""

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from heapq import nlargest
from pathlib import Path
from sqlite3 import Connection

from pydantic import ValidationError

from agentbench_otel.errors import InputError
from agentbench_otel.history.database import snapshot
from agentbench_otel.history.rows import decompress_spans, read_cycle, read_result
from agentbench_otel.records.cycles import CycleRecord, RunQuery, SeriesOverview, Spending
from agentbench_otel.records.results import RunResult, Status
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.records.spans import SpanRecord

SHORTEST_PREFIX = 6
"""Characters of a run id that may stand for the whole."""

_EXPORT_STEP = 200
_AFTER_ANY_RUN = 1 << 62
_AFTER_ANY_CHARACTER = "\U0010ffff"
_CASES, _MODES = list(CaseId), list(Mode)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Series:
    target: str
    case_id: CaseId
    mode: Mode

    @property
    def key(self) -> tuple[str, str, str]:
        return self.target, self.case_id.value, self.mode.value


class HistoryReader:
    """Every call opens the file anew and sees one state of it: any thread may call at any time.

    Results that this version can't read (damaged, or of another version) are left out of lists and overviews and
    told once in the log: one of them must not hide all others. All methods raise `InputError` when the file itself
    can't be read.
    """

    def __init__(self, file: Path) -> None:
        """Raises:
        InputError: The file can't be read, or nothing was written yet.
        """
        self._file = file
        self._told: set[int] = set()
        with snapshot(file):
            pass

    def runs(self, query: RunQuery) -> list[RunResult]:
        """Newest first, in the order in which they were written."""
        with snapshot(self._file) as connection:
            before = _AFTER_ANY_RUN
            if query.before_run_id is not None:
                before = _seq_of(connection, query.before_run_id) or 0  # removed by now: and so are all before it
            found = [
                seq
                for series in _all_series(connection)
                if _is_wanted(series, query)
                for status in (Status if query.status is None else (query.status,))
                for (seq,) in connection.execute(
                    "SELECT seq FROM runs WHERE target = ? AND case_id = ? AND mode = ? AND status = ? "
                    "AND seq < ? ORDER BY seq DESC LIMIT ?",
                    (*series.key, status.value, before, max(0, query.limit)),
                )
            ]
            newest = [self._result_or_none(connection, seq) for seq in nlargest(query.limit, found)]
        return [result for result in newest if result is not None]

    def find(self, run_id: str) -> RunResult | None:
        """The run of this id, or of the only id that begins so; a beginning has six characters or more.

        Raises:
            InputError: Several ids begin so, or its result can't be read.
        """
        with snapshot(self._file) as connection:
            seq = _seq_of(connection, run_id)
            if seq is None and len(run_id) >= SHORTEST_PREFIX:
                seq = _seq_of_beginning(connection, run_id)
            return None if seq is None else self._result(connection, seq)

    def spans_of(self, run_id: str) -> tuple[SpanRecord, ...] | None:
        """The spans of the run of exactly this id; None when they are not kept (any more)."""
        with snapshot(self._file) as connection:
            seq = _seq_of(connection, run_id)
            row = connection.execute("SELECT spans FROM run_spans WHERE seq = ?", (seq,)).fetchone()
        if row is None:
            return None
        try:
            return decompress_spans(row[0])
        except ValueError as error:
            raise InputError(f"{self._file}: the spans of run {run_id} can't be read: {error}") from None

    def overview(
        self, *, since: datetime, points: int, targets: Collection[str] | None = None
    ) -> list[SeriesOverview]:
        """One entry per target, case and mode with a counted run; ``points`` runs of each, the newest.

        ``targets``: only these; None means all.
        """
        with snapshot(self._file) as connection:
            entries = [
                self._overview_of(connection, series, since_unix_s=since.timestamp(), points=points)
                for series in _all_series(connection)
                if targets is None or series.target in targets
            ]
        return [entry for entry in entries if entry is not None]

    def last_cycles(self) -> dict[str, CycleRecord]:
        """The newest cycle of each target, in the order of writing."""
        with snapshot(self._file) as connection:
            rows = connection.execute(
                "SELECT cycle_targets.target, cycles.record FROM cycle_targets JOIN cycles ON cycles.seq = ("
                "SELECT seq FROM cycles WHERE target = cycle_targets.target ORDER BY seq DESC LIMIT 1)"
            ).fetchall()
        return {target: read_cycle(record) for target, record in rows}

    def spending_since(self, since: datetime) -> dict[str, Spending]:
        """By target, of the runs that started at that time or later; targets without one are left out."""
        with snapshot(self._file) as connection:
            rows = connection.execute(
                # total() adds floats, so that absurd counts can't overflow it; it is exact up to 2**53. Without
                # its index named, the planner reads all runs in the order of their targets.
                "SELECT target, count(*), total(spent_tokens) FROM runs INDEXED BY runs_by_time "
                "WHERE started_at >= ? GROUP BY target",
                (since.timestamp(),),
            ).fetchall()
        return {target: Spending(run_count=runs, token_count=int(tokens)) for target, runs, tokens in rows}

    def run_count(self) -> int:
        with snapshot(self._file) as connection:
            return int(connection.execute("SELECT count(*) FROM runs").fetchone()[0])

    def documents(self) -> Iterator[str]:
        """The result of every run as JSON, oldest first, read a few at a time: no long read holds the file up.

        Runs that are written meanwhile are left out.
        """
        with snapshot(self._file) as connection:
            (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM runs").fetchone()
        done = 0
        while done < last:
            with snapshot(self._file) as connection:
                rows = connection.execute(
                    "SELECT seq, result FROM runs WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
                    (done, last, _EXPORT_STEP),
                ).fetchall()
            if not rows:
                return
            done = rows[-1][0]
            for _, text in rows:
                yield text

    def _overview_of(
        self, connection: Connection, series: _Series, *, since_unix_s: float, points: int
    ) -> SeriesOverview | None:
        counted = "FROM runs WHERE target = ? AND case_id = ? AND mode = ? AND is_counted = 1"
        newest = connection.execute(
            f"SELECT seq, visible_ttft_ms {counted} ORDER BY seq DESC LIMIT ?",
            (*series.key, max(1, points)),
        ).fetchall()
        if not newest:
            return None
        counts = {
            status: int(
                connection.execute(
                    f"SELECT count(*) {counted} AND status = ? AND started_at >= ?",
                    (*series.key, status.value, since_unix_s),
                ).fetchone()[0]
            )
            for status in Status
        }
        failure = connection.execute(
            f"SELECT seq {counted} AND status = ? ORDER BY seq DESC LIMIT 1",
            (*series.key, Status.FAILED.value),
        ).fetchone()
        last = self._result_or_none(connection, newest[0][0])
        if last is None:
            return None
        return SeriesOverview(
            target=series.target,
            case_id=series.case_id,
            mode=series.mode,
            last=last,
            visible_ttft_ms=tuple(visible for _, visible in reversed(newest[: max(0, points)])),
            counted=sum(counts.values()),
            passed=counts[Status.PASSED],
            last_failure=None if failure is None else self._result_or_none(connection, failure[0]),
        )

    def _result_or_none(self, connection: Connection, seq: int) -> RunResult | None:
        try:
            return self._result(connection, seq)
        except InputError as error:
            if seq not in self._told:
                self._told.add(seq)
                logger.warning("a run is left out: %s", error)
            return None

    def _result(self, connection: Connection, seq: int) -> RunResult:
        run_id, text = connection.execute("SELECT run_id, result FROM runs WHERE seq = ?", (seq,)).fetchone()
        try:
            return read_result(text)
        except ValidationError:
            raise InputError(
                f"{self._file}: run {run_id} can't be read: its result is damaged or of another version"
            ) from None


def _seq_of(connection: Connection, run_id: str) -> int | None:
    row = connection.execute("SELECT seq FROM runs WHERE run_id = ?", (_storable(run_id),)).fetchone()
    return None if row is None else int(row[0])


def _seq_of_beginning(connection: Connection, beginning: str) -> int | None:
    text = _storable(beginning)
    found = connection.execute(
        "SELECT seq, run_id FROM runs WHERE run_id >= ? AND run_id < ? ORDER BY run_id LIMIT 2",
        (text, text + _AFTER_ANY_CHARACTER),
    ).fetchall()
    if len(found) > 1:
        ids = " and ".join(run_id for _, run_id in found)
        raise InputError(f"run {beginning}: is not the only one: {ids} begin so; give more of the id")
    return int(found[0][0]) if found else None


def _storable(text: str) -> str:
    """A command line may hold bytes that are no text."""
    return text.encode(errors="replace").decode()


def _all_series(connection: Connection) -> list[_Series]:
    """By target, then in the order of the catalogue."""
    found = [
        _Series(target=target, case_id=CaseId(case_id), mode=Mode(mode))
        for target, case_id, mode in connection.execute("SELECT target, case_id, mode FROM series")
        if case_id in _CASES and mode in _MODES  # else of another version
    ]
    return sorted(found, key=lambda one: (one.target, _CASES.index(one.case_id), _MODES.index(one.mode)))


def _is_wanted(series: _Series, query: RunQuery) -> bool:
    return (
        query.target in (None, series.target)
        and query.case_id in (None, series.case_id)
        and query.mode in (None, series.mode)
    )

"""What the daemon does in quiet moments: hand spans over, push metrics, render ``/metrics``, collect garbage."""

import gc
import logging
from collections.abc import Sequence

from agentbench_otel.records.results import RunResult
from agentbench_otel.records.spans import SpanRecord
from agentbench_otel.telemetry.export import WAITING_LIMIT, TraceExport
from agentbench_otel.telemetry.metric_export import MetricExport
from agentbench_otel.telemetry.metrics_page import MetricsPage

logger = logging.getLogger(__name__)

LONGEST_WAIT_S = 60.0
"""For a quiet moment."""
_FIRST_PAUSE_S = 30.0
_LONGEST_PAUSE_S = 480.0
"""Between two tries while the collector refuses: doubling from the first to this."""


class _Pauses:
    """After a failure the next try waits, so that a dead collector holds the runs up only now and then."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._pause_s = 0.0
        self._next_try_s = 0.0
        self._problem: str | None = None

    def is_over(self, now_s: float) -> bool:
        return now_s >= self._next_try_s

    def note(self, problem: str | None, now_s: float) -> None:
        """Plan the next try, and say what changed: not what stays as it is."""
        if problem is None:
            self._pause_s = self._next_try_s = 0.0
        else:
            self._pause_s = min(max(_FIRST_PAUSE_S, 2 * self._pause_s), _LONGEST_PAUSE_S)
            self._next_try_s = now_s + self._pause_s
        if problem != self._problem:
            if problem is None:
                logger.info("the collector takes %s again", self._what)
            else:
                logger.warning("the collector does not take %s: %s", self._what, problem)
        self._problem = problem


class HandOverSpans:
    """The spans of ended runs → the collector."""

    def __init__(self, export: TraceExport, *, deadline_s: float) -> None:
        self._export = export
        self._deadline_s = deadline_s
        self._pauses = _Pauses("spans")
        self._waits_since_s: float | None = None

    def is_due(self, now_s: float) -> bool:
        waiting_count = self._export.waiting_count
        if not waiting_count:
            self._waits_since_s = None
            return False
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        return self._pauses.is_over(now_s) or waiting_count > WAITING_LIMIT

    def is_overdue(self, now_s: float) -> bool:
        is_due = self.is_due(now_s)
        if not is_due or self._waits_since_s is None:
            return False
        return now_s - self._waits_since_s > LONGEST_WAIT_S or self._export.waiting_count > WAITING_LIMIT

    def do(self, now_s: float) -> None:
        self._waits_since_s = None
        self._export.hand_over(self._deadline_s)
        self._pauses.note(self._export.problem, now_s)


class PushMetrics:
    """All metrics → the collector, every so often."""

    def __init__(self, export: MetricExport, *, interval_s: float, deadline_s: float) -> None:
        self._export = export
        self._interval_s = interval_s
        self._deadline_s = deadline_s
        self._pauses = _Pauses("metrics")
        self._pushed_s: float | None = None

    def is_due(self, now_s: float) -> bool:
        is_time = self._pushed_s is None or now_s - self._pushed_s >= self._interval_s
        return is_time and self._pauses.is_over(now_s)

    def is_overdue(self, now_s: float) -> bool:
        waited_s = 0.0 if self._pushed_s is None else now_s - self._pushed_s - self._interval_s
        return self.is_due(now_s) and waited_s > LONGEST_WAIT_S

    def do(self, now_s: float) -> None:
        self._pushed_s = now_s
        self._export.hand_over(self._deadline_s)
        self._pauses.note(self._export.problem, now_s)


class RenderPage:
    """The metrics of runs → the bytes that ``/metrics`` serves. A sink too: a run makes them old."""

    _EVERY_S = 5.0
    _AT_LEAST_EVERY_S = 60.0
    """Gauges vanish with time, and no run tells of it."""

    def __init__(self, page: MetricsPage) -> None:
        self._page = page
        self._has_changed = True
        self._rendered_s: float | None = None

    def accept(self, result: RunResult, spans: Sequence[SpanRecord]) -> None:
        self._has_changed = True

    def is_due(self, now_s: float) -> bool:
        if self._rendered_s is None:
            return True
        age_s = now_s - self._rendered_s
        return (self._has_changed and age_s >= self._EVERY_S) or age_s >= self._AT_LEAST_EVERY_S

    def is_overdue(self, now_s: float) -> bool:
        return self._rendered_s is None or now_s - self._rendered_s > 2 * LONGEST_WAIT_S

    def do(self, now_s: float) -> None:
        self._has_changed = False
        self._rendered_s = now_s
        self._page.refresh()


class CollectGarbage:
    """Python's full collections. With the metrics of many targets one stops the process for 0.1 s, and left to
    itself Python chooses the moment. Younger garbage it collects as ever, which takes less than a millisecond."""

    _EVERY_S = 30.0
    _OVERDUE_S = 600.0
    _NEVER = 1_000_000

    def __init__(self) -> None:
        self._collected_s: float | None = None

    def take_over(self) -> None:
        """From now on full collections are made here only; what there is now is never looked at again."""
        gc.collect()
        gc.freeze()
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, self._NEVER)

    def is_due(self, now_s: float) -> bool:
        return self._collected_s is None or now_s - self._collected_s >= self._EVERY_S

    def is_overdue(self, now_s: float) -> bool:
        return self._collected_s is not None and now_s - self._collected_s >= self._OVERDUE_S

    def do(self, now_s: float) -> None:
        self._collected_s = now_s
        gc.collect()

"""Everything that one cycle of ``once`` pushes: its spans, and its metrics."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from agentbench_otel.records.results import RunResult
from agentbench_otel.records.spans import SpanRecord
from agentbench_otel.telemetry.export import WAITING_LIMIT, TraceExport
from agentbench_otel.telemetry.metric_export import MetricExport
from agentbench_otel.telemetry.run_metrics import RunMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """A sink. ``traces`` and ``metrics`` None: the signal goes nowhere. ``deadline_s`` holds for each hand-over,
    whatever the collector does."""

    traces: TraceExport | None
    metrics: MetricExport | None
    run_metrics: RunMetrics | None
    deadline_s: float

    def accept(self, result: RunResult, spans: Sequence[SpanRecord]) -> None:
        """Called between runs, when no model call streams: a hand-over here is in nobody's way either."""
        if self.run_metrics is not None:
            self.run_metrics.accept(result, spans)
        if self.traces is not None:
            self.traces.accept(result, spans)
            if self.traces.waiting_count > WAITING_LIMIT:
                self.traces.hand_over(self.deadline_s)

    def hand_over(self) -> None:
        """Push all that waits, both signals at once; returns at the latest after the deadline."""
        threads = [
            threading.Thread(target=one.hand_over, args=(self.deadline_s,), daemon=True)
            for one in (self.traces, self.metrics)
            if one is not None
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def words(self) -> str:
        """What became of it, in one line."""
        return f"telemetry: {'; '.join(one.words() for one in (self.traces, self.metrics) if one is not None)}"

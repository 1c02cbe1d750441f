"""All metrics → OTLP, when they are told to leave: never on a timer of the SDK, which knows no model call."""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from opentelemetry.sdk.metrics.export import (
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)

from agentbench_otel.telemetry.bounded import run_bounded
from agentbench_otel.telemetry.endpoint import OtlpEndpoint
from agentbench_otel.telemetry.exporters import make_metric_exporter, metric_answers
from agentbench_otel.telemetry.instruments import cardinality_limits

IsShown = Callable[[Mapping[str, Any]], bool]


class MetricExport:
    """Pushes what its readers collect.

    Attributes:
        outcomes: Requests by what became of them: ``exported``, ``rejected`` (in part), ``failed``.
        last_success_unix_s: When the collector took metrics last; None when it never did.
        problem: Why the last push was not taken whole, in words; None when it was.
    """

    def __init__(self, endpoint: OtlpEndpoint, *, is_shown: IsShown) -> None:
        """``is_shown``: whether a series with these attributes leaves."""
        self._endpoint = endpoint
        self._is_shown = is_shown
        self._readers: list[MetricReader] = []
        self._answers = metric_answers(endpoint)
        self._worker: threading.Thread | None = None
        self.outcomes: Counter[str] = Counter()
        self.last_success_unix_s: float | None = None
        self.problem: str | None = None

    def make_reader(self) -> MetricReader:
        """For one more meter provider. Temporality is as ``OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE``
        says."""
        exporter = make_metric_exporter(self._endpoint, self._answers)
        reader = PeriodicExportingMetricReader(
            _Watched(exporter, self),
            export_interval_millis=math.inf,  # only when told to
            cardinality_limits=cardinality_limits(),
        )
        self._readers.append(reader)
        return reader

    def hand_over(self, deadline_s: float) -> None:
        """Push everything as it is now; returns when that is done, at the latest after the deadline."""
        self.problem = None
        if not run_bounded(self._push, deadline_s):
            self._worker = None
            self.problem = f"not taken within {deadline_s:g} s"
            self.outcomes["failed"] += 1

    def words(self) -> str:
        """What became of the metrics, in one line."""
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()) if count)
        return f"metrics: {counts or 'none'}{f' ({self.problem})' if self.problem else ''}"

    def _push(self) -> None:
        self._worker = threading.current_thread()
        for reader in self._readers:
            if self._is_awaited():
                reader.collect()

    def _is_awaited(self) -> bool:
        """Whether this thread is that of a push which was not given up: what comes later is counted already."""
        return self._worker is threading.current_thread()

    def send(self, exporter: MetricExporter, data: MetricsData) -> MetricExportResult:
        """One request. The exporter's verdict is put right by what the collector answered."""
        self._answers.clear()
        result = exporter.export(self._shown(data))
        if not self._is_awaited():
            return result
        if result is not MetricExportResult.SUCCESS:
            self.problem = self._answers.words or "the collector could not be reached"
            self.outcomes["failed"] += 1
            return result
        self.last_success_unix_s = time.time()
        if self._answers.rejected_count:
            self.problem = (
                f"the collector rejected {self._answers.rejected_count} data point(s): {self._answers.words}"
            )
        self.outcomes["rejected" if self._answers.rejected_count else "exported"] += 1
        return result

    def _shown(self, data: MetricsData) -> MetricsData:
        """Without the series of targets that left the config: the SDK keeps them for ever."""
        return MetricsData(
            [
                replace(
                    resource,
                    scope_metrics=[
                        replace(scope, metrics=list(self._shown_metrics(scope.metrics)))
                        for scope in resource.scope_metrics
                    ],
                )
                for resource in data.resource_metrics
            ]
        )

    def _shown_metrics(self, metrics: Iterable[Metric]) -> Iterator[Metric]:
        for metric in metrics:
            points = [point for point in metric.data.data_points if self._is_shown(point.attributes or {})]
            if points:
                yield replace(metric, data=replace(metric.data, data_points=points))  # type: ignore[arg-type]


class _Watched(MetricExporter):
    """Tells `MetricExport` of every request; temporality and aggregation are those of the exporter inside."""

    def __init__(self, inner: MetricExporter, export: MetricExport) -> None:
        super().__init__(inner._preferred_temporality, inner._preferred_aggregation)  # noqa: SLF001 - no other way
        self._inner = inner
        self._export = export

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        return self._export.send(self._inner, metrics_data)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._inner.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self._inner.shutdown(timeout_millis)

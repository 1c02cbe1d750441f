"""OpenTelemetry metrics → the families that ``prometheus_client`` renders, exemplars included.

The stock reader drops exemplars, repeats every series after a ``force_flush`` and fails the whole scrape on one
exponential histogram. This one replaces what it holds at each collection, keeps the newest exemplar of each
bucket (the SDK forgets them at every collection), and leaves out what it can't render.
"""

import logging
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricReader,
    MetricsData,
    NumberDataPoint,
    Sum,
)
from prometheus_client.core import (
    CounterMetricFamily,
    Exemplar,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.core import Metric as Family

from agentbench_otel import names
from agentbench_otel.telemetry.instruments import INSTRUMENT_TYPES, cardinality_limits

logger = logging.getLogger(__name__)

_Slot = tuple[str, frozenset[tuple[str, Any]], int]
"""Metric, attributes, bucket (0 of a counter): where one exemplar is kept."""


class PrometheusReader(MetricReader):
    """Holds the metrics of its provider as they were at the last collection."""

    def __init__(
        self,
        is_shown: Callable[[Mapping[str, Any]], bool] = lambda attributes: True,
        *,
        tells_resource: bool = True,
    ) -> None:
        """
        Args:
            is_shown: Whether a series with these attributes is rendered.
            tells_resource: Whether ``target_info`` is among the families; one reader of a page does.
        """
        super().__init__(
            preferred_temporality=dict.fromkeys(INSTRUMENT_TYPES, AggregationTemporality.CUMULATIVE),
            cardinality_limits=cardinality_limits(),
        )
        self._is_shown = is_shown
        self._tells_resource = tells_resource
        self._lock = threading.RLock()
        self._data: MetricsData | None = None
        self._exemplars: dict[_Slot, Exemplar] = {}
        self._left_out: set[str] = set()

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        with self._lock:
            self._data = metrics_data
            for metric in _metrics_in(metrics_data):
                for point in metric.data.data_points:
                    self._keep_exemplars(metric, point)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Nothing to release."""

    def families(self) -> list[Family]:
        """Collect, and turn everything into families of the text formats."""
        with self._lock:  # from the collection on: what another thread collected before must not come after it
            self.collect()
            if self._data is None:
                return []
            built: dict[str, Family] = {}
            for metric in _metrics_in(self._data):
                try:
                    family = self._family(metric)
                except Exception:  # noqa: BLE001 - one bad instrument never breaks the scrape
                    self._leave_out(metric, "can't be rendered", is_bug=True)
                    continue
                if family is None:
                    self._leave_out(metric, f"is a {type(metric.data).__name__}, which the text formats lack")
                elif built.setdefault(family.name, family) is not family:
                    self._leave_out(metric, f"has the name of another metric, {family.name}")
            return [*(_target_info(self._data) if self._tells_resource else ()), *built.values()]

    def _leave_out(self, metric: Metric, reason: str, *, is_bug: bool = False) -> None:
        if metric.name not in self._left_out:
            self._left_out.add(metric.name)
            logger.error("metric %s is left out of /metrics: it %s", metric.name, reason, exc_info=is_bug)

    def _keep_exemplars(self, metric: Metric, point: Any) -> None:
        for exemplar in getattr(point, "exemplars", None) or ():
            if exemplar.trace_id and exemplar.span_id:
                ids = {"trace_id": f"{exemplar.trace_id:032x}", "span_id": f"{exemplar.span_id:016x}"}
                bounds = getattr(point, "explicit_bounds", ())
                slot = _slot(metric, point, bisect_left(bounds, exemplar.value))
                self._exemplars[slot] = Exemplar(ids, exemplar.value, exemplar.time_unix_nano / 1e9)

    def _family(self, metric: Metric) -> Family | None:
        """None: a kind of data that the text formats don't have."""
        if isinstance(metric.data, Histogram):
            return self._histogram(metric)
        if isinstance(metric.data, Sum) and metric.data.is_monotonic:
            return self._counter(metric)
        if isinstance(metric.data, Sum | Gauge):
            return self._gauge(metric)
        return None

    def _histogram(self, metric: Metric) -> Family:
        rows = self._rows(metric)
        family = HistogramMetricFamily(
            *_head(metric), labels=rows.keys, unit=names.prometheus_unit(metric.unit or "")
        )
        for row, point in rows:
            below = 0
            buckets: list[Any] = []
            bounds = [*map(str, map(float, point.explicit_bounds)), "+Inf"]
            for index, (bound, count) in enumerate(zip(bounds, point.bucket_counts, strict=True)):
                below += count
                buckets.append((bound, below, self._exemplars.get(_slot(metric, point, index))))
            family.add_metric(row, buckets, point.sum)
        return family

    def _counter(self, metric: Metric) -> Family:
        rows = self._rows(metric)
        family = CounterMetricFamily(
            *_head(metric), labels=rows.keys, unit=names.prometheus_unit(metric.unit or "")
        )
        for row, point in rows:
            family.add_metric(row, point.value, exemplar=self._exemplars.get(_slot(metric, point, 0)))
        return family

    def _gauge(self, metric: Metric) -> Family:
        rows = self._rows(metric)
        family = GaugeMetricFamily(*_head(metric), labels=rows.keys, unit=names.prometheus_unit(metric.unit or ""))
        for row, point in rows:
            family.add_metric(row, point.value)
        return family

    def _rows(self, metric: Metric) -> "_Rows":
        shown = [point for point in metric.data.data_points if self._is_shown(point.attributes or {})]
        return _Rows(sorted({key for point in shown for key in point.attributes or {}}), shown)


@dataclass(slots=True)
class _Rows:
    """Points with their label values in the order of ``keys``, empty where a point lacks one."""

    attribute_keys: list[str]
    points: list[Any]
    keys: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.keys = [names.prometheus_label(key) for key in self.attribute_keys]

    def __iter__(self) -> Iterator[tuple[list[str], Any]]:
        for point in self.points:
            attributes = point.attributes or {}
            yield [str(attributes.get(key, "")) for key in self.attribute_keys], point


def _metrics_in(data: MetricsData) -> Iterable[Metric]:
    return (
        metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    )


def _target_info(data: MetricsData) -> Iterator[Family]:
    """The resource, as the OpenTelemetry specification maps it."""
    for resource_metrics in data.resource_metrics[:1]:
        info = InfoMetricFamily("target", "The OpenTelemetry resource of this process.")
        attributes = resource_metrics.resource.attributes
        info.add_metric([], {names.prometheus_label(key): str(value) for key, value in attributes.items()})
        yield info


def _head(metric: Metric) -> tuple[str, str]:
    return names.prometheus_label(metric.name), metric.description or ""


def _slot(metric: Metric, point: NumberDataPoint | HistogramDataPoint, bucket: int) -> _Slot:
    return metric.name, frozenset((point.attributes or {}).items()), bucket

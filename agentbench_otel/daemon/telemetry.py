"""How the daemon's numbers leave: ``/metrics``, and OTLP where it is configured."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from opentelemetry.sdk.metrics.export import MetricReader
from prometheus_client import ProcessCollector
from prometheus_client.core import Metric as Family

from agentbench_otel import names
from agentbench_otel.config.model import Config
from agentbench_otel.daemon.chores import HandOverSpans, PushMetrics, RenderPage
from agentbench_otel.errors import InputError
from agentbench_otel.names import Metric
from agentbench_otel.telemetry.endpoint import find_endpoint
from agentbench_otel.telemetry.export import TraceExport
from agentbench_otel.telemetry.metric_export import MetricExport
from agentbench_otel.telemetry.metrics_page import MetricsPage
from agentbench_otel.telemetry.own_metrics import OwnMetrics, Readings
from agentbench_otel.telemetry.prometheus import PrometheusReader
from agentbench_otel.telemetry.resource import make_resource
from agentbench_otel.telemetry.run_metrics import RunMetrics
from agentbench_otel.telemetry.sampling import configured_sampler

if TYPE_CHECKING:
    from agentbench_otel.daemon.quiet import Chore
    from agentbench_otel.ports import Sink

_SPAN_OUTCOMES = ("exported", "rejected", "failed", "unsampled")
_PUSH_OUTCOMES = ("exported", "rejected", "failed")
FLUSH_DEADLINE_S = 3.5
"""A daemon that is told to leave does so within 5 s, when no run is in flight."""

logger = logging.getLogger(__name__)

Sources = Mapping[Metric, Callable[[], Readings]]


class DaemonTelemetry:
    """The instruments, the page, the exports, and the chores that keep them going.

    Attributes:
        run_metrics, page: See their classes.
        sinks: Get each result.
        chores: For quiet moments.
    """

    def __init__(self, config: Config, environment: Mapping[str, str]) -> None:
        """Raises:
        InputError: An ``OTEL_…`` variable asks for what there is not.
        """
        if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            logger.warning("OTEL_SDK_DISABLED is true: nothing is pushed, and /metrics tells of this process only")
        traces = find_endpoint(config.telemetry.otlp, environment, "traces")
        metrics = find_endpoint(config.telemetry.otlp, environment, "metrics")
        self._traces = None if traces is None else TraceExport(traces, environment=environment)
        self._metrics = None if metrics is None else MetricExport(metrics, is_shown=self._is_shown)
        self._resource = make_resource(environment)
        self._own_reader = PrometheusReader(tells_resource=False)
        run_reader = PrometheusReader(self._is_shown)
        self.run_metrics = RunMetrics(
            [run_reader, *self._push_readers()],
            resource=self._resource,
            sampler=configured_sampler(),
            semconv=config.telemetry.semconv,
        )
        self._own_metrics: OwnMetrics | None = None
        self.page = MetricsPage(run_reader, [self._own_reader.families, _process_families])
        render = RenderPage(self.page)
        self.chores: list[Chore] = [render]
        self.sinks: list[Sink] = [self.run_metrics, render]
        if self._traces is not None and traces is not None:
            self.sinks.append(self._traces)
            self.chores.append(HandOverSpans(self._traces, deadline_s=traces.timeout_s + 0.5))
        if self._metrics is not None and metrics is not None:
            interval_s = _push_interval_s(environment)
            self.chores.append(
                PushMetrics(self._metrics, interval_s=interval_s, deadline_s=metrics.timeout_s + 0.5)
            )

    def watch(self, sources: Sources) -> None:
        """``sources``: what else is told of the process, beside the exports themselves."""
        self._own_metrics = OwnMetrics(
            [self._own_reader, *self._push_readers()],
            resource=self._resource,
            sources={**sources, **self._export_sources()},
        )

    def flush(self) -> None:
        """Hand over what waits, of both signals at once; returns within 5 s, whatever the collector does."""
        threads = [
            threading.Thread(target=partial(export.hand_over, FLUSH_DEADLINE_S), daemon=True)
            for export in (self._traces, self._metrics)
            if export is not None
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _is_shown(self, attributes: Mapping[str, object]) -> bool:
        target = attributes.get(names.L_TARGET)
        return target is None or self.run_metrics.has_target(str(target))

    def _push_readers(self) -> list[MetricReader]:
        return [] if self._metrics is None else [self._metrics.make_reader()]

    def _export_sources(self) -> dict[Metric, Callable[[], Readings]]:
        sources: dict[Metric, Callable[[], Readings]] = {}
        if self._traces is not None:
            sources[names.TELEMETRY_SPANS] = partial(_by_outcome, self._traces.outcomes, _SPAN_OUTCOMES)
        if self._metrics is not None:
            sources[names.TELEMETRY_METRIC_PUSHES] = partial(_by_outcome, self._metrics.outcomes, _PUSH_OUTCOMES)
        sources[names.TELEMETRY_SUCCESS_TIMESTAMP] = self._last_successes
        return sources

    def _last_successes(self) -> Readings:
        for signal, export in (("traces", self._traces), ("metrics", self._metrics)):
            if export is not None and export.last_success_unix_s is not None:
                yield export.last_success_unix_s, {names.L_SIGNAL: signal}


def _by_outcome(counts: Mapping[str, int], outcomes: Sequence[str]) -> Readings:
    return [(counts.get(outcome, 0), {names.L_OUTCOME: outcome}) for outcome in outcomes]


def _process_families() -> Iterable[Family]:
    return _PROCESS.collect()


_PROCESS = ProcessCollector(registry=None)


def _push_interval_s(environment: Mapping[str, str]) -> float:
    name = "OTEL_METRIC_EXPORT_INTERVAL"
    text = environment.get(name, "").strip() or "60000"
    if not text.isdigit() or not 100 <= int(text) <= 86_400_000:
        raise InputError(f"{name}: is {text[:64]!r}; allowed are whole milliseconds from 100 to 86400000")
    return int(text) / 1000

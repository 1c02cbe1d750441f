"""Runs of the shipped mock with their spans, and the instruments that they are recorded into."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from agentbench_otel import app, names
from agentbench_otel.config.model import Benchmark, Config, Target
from agentbench_otel.ports import ChatClient, Clock
from agentbench_otel.records.results import RunResult
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.records.spans import SpanRecord
from agentbench_otel.runner import Runner, RunPlan, plan_runs
from agentbench_otel.telemetry.run_metrics import PlannedSeries, RunMetrics

RESOURCE = Resource({"service.name": "tests", "service.instance.id": "i-1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    result: RunResult
    spans: Sequence[SpanRecord]

    @property
    def root(self) -> SpanRecord:
        (root,) = [span for span in self.spans if span.parent_span_id is None]
        return root


class Keep:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.runs: list[Recorded] = []

    def accept(self, result: RunResult, spans: Sequence[SpanRecord]) -> None:
        self.runs.append(Recorded(result=result, spans=list(spans)))


def record_runs(
    config: Config,
    plans: Iterable[RunPlan] | None = None,
    make_client: Callable[[RunPlan, Clock], ChatClient] = app.make_mock_client,
) -> list[Recorded]:
    """Make all runs of the plans; without plans all of the config."""
    kept = Keep()
    runner = Runner(config, client_factory=make_client, is_mock=True, sinks=[kept])

    async def all_runs() -> None:
        for plan in plan_runs(config.targets, config.benchmark) if plans is None else plans:
            await runner.run(plan)

    asyncio.run(all_runs())
    return kept.runs


def planned(name: str = "local", *, interval_s: float | None = 300.0, **benchmark: Any) -> PlannedSeries:
    """One case in one mode of a target, as `tests.support.results.a_result` is of."""
    chosen = {"cases": (CaseId.ORDINARY_CHAT,), "modes": (Mode.DUAL_AGENT,), **benchmark}
    return PlannedSeries(
        target=Target(name=name, base_url="http://localhost:1/v1", model="tiny"),
        benchmark=Benchmark(**chosen),
        interval_s=interval_s,
        is_mock=False,
    )


@contextmanager
def run_metrics(
    *readers: MetricReader,
    sampler: Sampler = ALWAYS_ON,
    semconv: names.Semconv = "1.41",
    wall_s: Callable[[], float] = lambda: 1_700_000_000.0,
) -> Iterator[RunMetrics]:
    metrics = RunMetrics(readers, resource=RESOURCE, sampler=sampler, semconv=semconv, wall_s=wall_s)
    try:
        yield metrics
    finally:
        metrics.shutdown()


Attributes = frozenset[tuple[str, Any]]


def points_of(reader: InMemoryMetricReader) -> dict[str, dict[Attributes, Any]]:
    """What the reader collects now: points by metric and attributes."""
    data = reader.get_metrics_data()
    found: dict[str, dict[Attributes, Any]] = {}
    for resource in data.resource_metrics if data is not None else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                points = found.setdefault(metric.name, {})
                for point in metric.data.data_points:
                    key = attributes_key(point.attributes or {})
                    assert key not in points
                    points[key] = point
    return found


def attributes_key(attributes: Mapping[str, Any]) -> Attributes:
    return frozenset(attributes.items())


def parse_openmetrics(page: bytes) -> list[Family]:
    """What the strict parser of prometheus_client reads.

    Raises:
        ValueError: The page is no OpenMetrics text.
    """
    return list(openmetrics_parser.text_string_to_metric_families(page.decode()))  # type: ignore[no-untyped-call]


def parse_plain(page: bytes) -> list[Family]:
    return list(text_string_to_metric_families(page.decode()))

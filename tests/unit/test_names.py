"""One module holds every name that leaves: nothing else does, and no two of them collide."""

from collections import Counter
from collections.abc import AsyncIterator, Iterable

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from agentbench_otel import app, names
from agentbench_otel.config.model import Benchmark, Config, Telemetry
from agentbench_otel.errors import ProviderError
from agentbench_otel.names import Metric, MetricKind
from agentbench_otel.ports import ChatClient, Clock
from agentbench_otel.records.spans import SpanRecord
from agentbench_otel.runner import RunPlan
from agentbench_otel.telemetry.metrics_page import MetricsPage
from agentbench_otel.telemetry.own_metrics import OwnMetrics
from agentbench_otel.telemetry.prometheus import PrometheusReader
from agentbench_otel.telemetry.run_metrics import PlannedSeries
from tests.support.recorded_runs import RESOURCE, Recorded, parse_openmetrics, points_of, record_runs, run_metrics

PROFILES: tuple[names.Semconv, ...] = ("1.41", "next")
TEXTS = {value for key, value in vars(names).items() if key.isupper() and isinstance(value, str)}
ATTRIBUTES = {text for text in TEXTS if "." in text}
SPAN_NAMES = {names.RUN_SPAN, names.TURN_SPAN, names.MODEL_CALL_SPAN, names.AWAIT_SPAN, names.TOOL_SPAN}
PHASES = {names.PHASE_SPAN_PREFIX + phase for phase in ("connect", "tls", "send", "first_byte")}
OF_THE_DAEMON = (
    "agentbench.cycle",
    "agentbench.missed_runs",
    "agentbench.stuck_runs",
    "agentbench.next_cycle",
    "agentbench.last_cycle",
    "agentbench.schedule",
    "agentbench.budget",
    "agentbench.target.info",
    "agentbench.build.info",
    "agentbench.config",
    "agentbench.loop",
    "agentbench.clock",
    "agentbench.telemetry",
    "agentbench.history",
)

NOT_OF_A_MOCK = (names.CALL_CONNECT, names.NEXT_REASONING_USAGE)
"""It opens no connection and does not reason."""


class Refusing:
    """A client of an endpoint that refuses everything."""

    async def stream_chat(self, *_: object) -> AsyncIterator[object]:
        nothing: tuple[object, ...] = ()
        for item in nothing:
            yield item
        raise ProviderError("http_429", "slow down", http_status=429, retry_after_s=3)

    async def aclose(self) -> None:
        """Nothing to close."""


@pytest.fixture(scope="module")
def config() -> Config:
    return Config(
        schema_version=1,
        targets=(app.MOCK_TARGET,),
        benchmark=Benchmark(runs_per_case=1, warmup_runs=1),
        telemetry=Telemetry(capture_content=True),
    )


@pytest.fixture(scope="module")
def recorded(config: Config) -> list[Recorded]:
    """All cases in both modes, warm-ups and content included, after as many runs that are refused."""

    def refuse(plan: RunPlan, clock: Clock) -> ChatClient:
        del plan, clock
        return Refusing()  # type: ignore[return-value]  # as little as a run asks of it

    return [*record_runs(config, make_client=refuse), *record_runs(config)]


def metrics_by_name(semconv: names.Semconv) -> dict[str, Metric]:
    return {metric.name: metric for metric in names.metrics_of(semconv)}


def of_runs(metrics: Iterable[Metric]) -> set[Metric]:
    return {metric for metric in metrics if not metric.name.startswith(OF_THE_DAEMON)}


def strange_names(span: SpanRecord) -> set[str]:
    """Names on the span that the module does not know."""
    word = span.name.split(" ")[0]
    used = {*span.attributes, *(event.name for event in span.events)}
    used.update(key for event in span.events for key in event.attributes)
    return (used - ATTRIBUTES) | ({word} - SPAN_NAMES - PHASES)


def test_every_name_on_spans_and_their_events_stands_in_the_module(recorded: list[Recorded]) -> None:
    spans = [span for run in recorded for span in run.spans]
    assert set().union(*map(strange_names, spans)) == set()
    assert any(span.events for span in spans)
    assert any(names.ERROR_TYPE in span.attributes for span in spans)
    assert any(names.OUTPUT_MESSAGES in span.attributes for span in spans)


@pytest.mark.parametrize("semconv", PROFILES)
def test_every_metric_of_runs_leaves_under_the_name_unit_and_labels_of_the_module(
    config: Config, recorded: list[Recorded], semconv: names.Semconv
) -> None:
    known = metrics_by_name(semconv)
    reader = InMemoryMetricReader()
    with run_metrics(reader, semconv=semconv) as metrics:
        metrics.plan(
            [PlannedSeries(target=app.MOCK_TARGET, benchmark=config.benchmark, interval_s=None, is_mock=True)]
        )
        for run in recorded:
            metrics.accept(run.result, run.spans)
        data = reader.get_metrics_data()
    assert data is not None
    sent = [metric for one in data.resource_metrics for scope in one.scope_metrics for metric in scope.metrics]
    for metric in sent:
        expected = known[metric.name]
        assert (metric.unit, metric.description) == (expected.unit, expected.description)
        used = {key for point in metric.data.data_points for key in point.attributes or {}}
        assert used <= set(expected.labels), metric.name
    assert {metric.name for metric in sent} <= {metric.name for metric in of_runs(known.values())}


@pytest.mark.parametrize("semconv", PROFILES)
def test_every_name_on_the_page_is_that_of_a_metric_of_the_profile(
    config: Config, recorded: list[Recorded], semconv: names.Semconv
) -> None:
    known = {metric.prometheus_name: metric for metric in names.metrics_of(semconv)}
    reader, own_reader = PrometheusReader(), PrometheusReader(tells_resource=False)
    own = OwnMetrics(
        [own_reader],
        resource=RESOURCE,
        sources={
            metric: lambda labels=metric.labels: [(1.0, dict.fromkeys(labels, "x"))]  # type: ignore[misc]
            for metric in set(names.metrics_of(semconv)) - of_runs(names.metrics_of(semconv))
        },
    )
    with run_metrics(reader, semconv=semconv) as metrics:
        metrics.plan(
            [PlannedSeries(target=app.MOCK_TARGET, benchmark=config.benchmark, interval_s=None, is_mock=True)]
        )
        for run in recorded:
            metrics.accept(run.result, run.spans)
        page, _ = MetricsPage(reader, [own_reader.families]).render("application/openmetrics-text")
    own.shutdown()
    seen = set()
    for family in parse_openmetrics(page):
        if family.name == "target":
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        metric = known[name]
        seen.add(name)
        assert (family.type, family.documentation) == (metric.kind.value, metric.description)
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert labels <= {*map(names.prometheus_label, metric.labels)}, name
    assert set(known) - seen == {names.CALL_CONNECT.prometheus_name}


def test_every_metric_of_runs_is_recorded_somewhere(config: Config, recorded: list[Recorded]) -> None:
    with_points: set[str] = set()
    for semconv in PROFILES:
        reader = InMemoryMetricReader()
        with run_metrics(reader, semconv=semconv) as metrics:
            metrics.plan(
                [PlannedSeries(target=app.MOCK_TARGET, benchmark=config.benchmark, interval_s=None, is_mock=True)]
            )
            for run in recorded:
                metrics.accept(run.result, run.spans)
            told = points_of(reader)
        counters = {metric.name for metric in names.metrics_of(semconv) if metric.kind is MetricKind.COUNTER}
        with_points |= {name for name in told.keys() - counters if told[name]}
        with_points |= {name for name in told.keys() & counters if any(one.value for one in told[name].values())}
    every = {metric.name for semconv in PROFILES for metric in of_runs(names.metrics_of(semconv))}
    assert every - with_points == {metric.name for metric in NOT_OF_A_MOCK}


@pytest.mark.parametrize("semconv", PROFILES)
def test_no_two_metrics_give_a_series_of_one_name(semconv: names.Semconv) -> None:
    endings = {
        MetricKind.COUNTER: ("", "_created"),
        MetricKind.GAUGE: ("",),
        MetricKind.HISTOGRAM: ("", "_bucket", "_count", "_sum", "_created"),
    }
    series = Counter(
        metric.prometheus_name.removesuffix("_total") + ending
        if ending == "_created"
        else metric.prometheus_name + ending
        for metric in names.metrics_of(semconv)
        for ending in endings[metric.kind]
    )
    assert [name for name, count in series.items() if count > 1] == []
    assert "target_info" not in series


@pytest.mark.parametrize("semconv", PROFILES)
def test_every_metric_says_its_unit_and_what_it_means(semconv: names.Semconv) -> None:
    for metric in names.metrics_of(semconv):
        assert metric.unit == "s" or metric.unit.strip("{}").isidentifier(), metric.name
        assert metric.description.endswith("."), metric.name
        assert "\n" not in metric.description
        assert (metric.kind is MetricKind.HISTOGRAM) == bool(metric.buckets), metric.name
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert all(isinstance(bound, float) for bound in metric.buckets)  # an int would be another ``le``
        assert len(set(metric.labels)) == len(metric.labels)


def test_the_profiles_differ_in_the_client_metrics_alone() -> None:
    tagged, following = (metrics_by_name(semconv) for semconv in PROFILES)
    assert {name for name in tagged if name not in following} == {
        "gen_ai.client.operation.duration",
        "gen_ai.client.operation.time_to_first_chunk",
        "gen_ai.client.token.usage",
    }
    assert all(name.startswith("gen_ai.client.inference.") for name in following if name not in tagged)


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        (names.OPERATION_DURATION, "gen_ai_client_operation_duration_seconds"),
        (names.TOKEN_USAGE, "gen_ai_client_token_usage"),
        (names.RUNS, "agentbench_runs_total"),
        (names.NEXT_CACHED_USAGE, "gen_ai_client_inference_usage_cache_read_input_tokens_total"),
        (names.LAST_TURN_WALL, "agentbench_last_run_turn_wall_seconds"),
        (names.LAST_RUN_TIMESTAMP, "agentbench_last_run_timestamp_seconds"),
        (names.BUILD_INFO, "agentbench_build_info"),
    ],
)
def test_a_metric_has_the_name_that_prometheus_gives_to_its_push(metric: Metric, name: str) -> None:
    assert metric.prometheus_name == name


def test_a_unit_becomes_a_suffix_unless_it_stands_in_braces() -> None:
    assert names.prometheus_name("a.b-c", "By", is_counter=True) == "a_b_c_bytes_total"
    assert names.prometheus_name("a", "{x}", is_counter=False) == "a"
    with pytest.raises(KeyError):
        names.prometheus_unit("ms")

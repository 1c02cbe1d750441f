"""``/metrics``: the format that the client takes, and bytes that are those of a page made from nothing."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import generate_latest as generate_plain
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from agentbench_otel import names
from agentbench_otel.records.results import RunFault, RunResult, Status
from agentbench_otel.records.spans import SpanKind, SpanRecord
from agentbench_otel.telemetry.metrics_page import MetricsPage
from agentbench_otel.telemetry.prometheus import PrometheusReader
from agentbench_otel.telemetry.run_metrics import RunMetrics
from tests.support.clock import MS, T0_NS
from tests.support.recorded_runs import RESOURCE, parse_openmetrics, parse_plain, planned, run_metrics
from tests.support.results import a_result

OPENMETRICS = "application/openmetrics-text"
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_3_WITH_NATIVE_HISTOGRAMS = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,"
    + PROMETHEUS_3
)
PROMETHEUS_2 = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


class Page:
    """A page over run metrics, with the targets that the plan has."""

    def __init__(self, wall_s: Callable[[], float] = lambda: T0_NS / 1e9) -> None:
        self.reader = PrometheusReader(self._is_shown)
        self.page = MetricsPage(self.reader, [])
        self.metrics = RunMetrics(
            [self.reader], resource=RESOURCE, sampler=ALWAYS_ON, semconv="1.41", wall_s=wall_s
        )

    def _is_shown(self, attributes: Mapping[str, object]) -> bool:
        return self.metrics.has_target(str(attributes[names.L_TARGET]))


@pytest.fixture
def shown() -> Iterator[Page]:
    page = Page()
    page.metrics.plan([planned()])
    page.metrics.accept(a_result(), [root(1)])
    yield page
    page.metrics.shutdown()


def root(number: int) -> SpanRecord:
    return SpanRecord(
        trace_id=f"{number:032x}",
        span_id=f"{number:016x}",
        parent_span_id=None,
        name="run",
        kind=SpanKind.INTERNAL,
        start_ns=T0_NS,
        end_ns=T0_NS + MS,
        attributes={},
    )


# --- content negotiation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "accept",
    [
        PROMETHEUS_3,
        PROMETHEUS_3_WITH_NATIVE_HISTOGRAMS,
        PROMETHEUS_2,
        OPENMETRICS,
        "Application/OpenMetrics-Text ; version=1.0.0 ; q=0.5",
        "text/plain, application/openmetrics-text;q=0.001",
    ],
)
def test_who_takes_openmetrics_gets_it_with_exemplars(shown: Page, accept: str) -> None:
    page, content_type = shown.page.render(accept)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert page.endswith(b"# EOF\n")
    assert page.count(b"# EOF") == 1
    assert any(sample.exemplar for family in parse_openmetrics(page) for sample in family.samples)


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "text/plain",
        "text/plain;version=0.0.4",
        BROWSER,
        "application/openmetrics-text;q=0",
        "application/openmetrics-text; q=0.0, text/plain",
        "application/openmetrics-text;version=1.0.0;q=0.000",
        "application/openmetrics-text;q = 0",
        ";;,,;q=,",
    ],
)
def test_everybody_else_gets_plain_text(shown: Page, accept: str) -> None:
    page, content_type = shown.page.render(accept)
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert b"# EOF" not in page
    assert b"trace_id" not in page
    assert b"# UNIT" not in page
    assert parse_plain(page)


def test_both_formats_hold_the_same_numbers(shown: Page) -> None:
    def numbers(families: list[Family]) -> set[object]:
        return {
            (sample.name, frozenset(sample.labels.items()), sample.value)
            for family in families
            for sample in family.samples
        }

    plain, _ = shown.page.render("")
    openmetrics, _ = shown.page.render(OPENMETRICS)
    assert numbers(parse_plain(plain)) == numbers(parse_openmetrics(openmetrics)) != set()


# --- when it is rendered -----------------------------------------------------------------------------------------


def test_a_scrape_serves_what_the_last_refresh_rendered(shown: Page) -> None:
    before = shown.page.render(OPENMETRICS)
    shown.metrics.accept(a_result(), [root(2)])
    assert shown.page.render(OPENMETRICS) == before
    shown.page.refresh()
    page, _ = shown.page.render(OPENMETRICS)
    assert page != before[0]
    assert b'mode="dual_agent",status="passed",target="local"} 2.0' in page


def test_what_the_process_tells_of_itself_is_read_at_each_scrape(shown: Page) -> None:
    reads: list[int] = []

    def own() -> list[Family]:
        reads.append(1)
        family = Family("own", "Of the process.", "gauge")
        family.add_sample("own", {}, len(reads))
        return [family]

    page = MetricsPage(shown.reader, [own])
    for number in (1, 2, 3):
        text, _ = page.render(OPENMETRICS)
        assert f"own {number}.0\n# EOF\n".encode() in text
        parse_openmetrics(text)


class Slow(PrometheusReader):
    """Its first collection takes until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = threading.Event()
        self.may_go_on = threading.Event()

    def families(self) -> list[Family]:
        self.is_asked.set()
        assert self.may_go_on.wait(5)
        return super().families()


def test_two_first_scrapes_at_once_get_the_same_whole_page() -> None:
    reader = Slow()
    pages: list[bytes] = []
    with run_metrics(reader) as metrics:
        metrics.plan([planned()])
        page = MetricsPage(reader, [])
        threads = [threading.Thread(target=lambda: pages.append(page.render("")[0])) for _ in range(3)]
        threads[0].start()
        assert reader.is_asked.wait(5)
        for thread in threads[1:]:
            thread.start()
            thread.join(0.05)
        reader.may_go_on.set()
        for thread in threads:
            thread.join(5)
    assert len(pages) == 3
    assert len(set(pages)) == 1
    assert b"agentbench_runs_total" in pages[0]


# --- the cache of each target ------------------------------------------------------------------------------------

TARGETS = ("a", "b", "c")


def a_run(target: str, number: int, kind: str | None, has_tool: bool) -> tuple[RunResult, list[SpanRecord]]:
    """Series come and go with it: an error brings a label to all, a tool a family."""
    fault = None if kind is None else RunFault(kind=kind, message="x")
    result = a_result(
        target=target,
        error=fault,
        status=Status.PASSED if fault is None else Status.FAILED,
        turn_wall_time_ms=None if number % 5 == 0 else float(number),
    )
    tool = SpanRecord(
        trace_id=f"{number:032x}",
        span_id="2" * 16,
        parent_span_id=f"{number:016x}",
        name="tool",
        kind=SpanKind.INTERNAL,
        start_ns=T0_NS,
        end_ns=T0_NS + number * MS,
        attributes={names.TOOL_NAME: "t"} if kind is None else {names.TOOL_NAME: "t", names.ERROR_TYPE: "x"},
    )
    return result, [root(number), *([tool] if has_tool else [])]


def test_a_label_that_comes_with_one_target_stands_on_the_series_of_all(shown: Page) -> None:
    page = shown.page.render(OPENMETRICS)[0].decode()
    count = 'gen_ai_invoke_agent_duration_seconds_count{case="ordinary_chat",'
    assert f"{count}gen_ai_agent_name" in page
    shown.metrics.plan([planned(), planned("a")])
    shown.metrics.accept(*a_run("a", 1, "connect_error", has_tool=False))
    shown.page.refresh()
    page = shown.page.render(OPENMETRICS)[0].decode()
    assert f'{count}error_type=""' in page
    assert f'{count}error_type="connect_error"' in page
    assert f"{count}gen_ai_agent_name" not in page


class AllFamilies(Collector):
    def __init__(self, reader: PrometheusReader) -> None:
        self._reader = reader

    def collect(self) -> Iterable[Family]:
        return self._reader.families()


ACCEPTS = st.tuples(
    st.just("accept"),
    st.sampled_from(TARGETS),
    st.integers(1, 50),
    st.sampled_from([None, None, "connect_error", "http_429", "aborted"]),
    st.booleans(),
)
PLANS = st.tuples(st.just("plan"), st.lists(st.sampled_from(TARGETS), unique=True))
STEPS = st.lists(
    st.tuples(st.one_of(ACCEPTS, ACCEPTS, PLANS, st.just(("wait",))), st.booleans()), min_size=1, max_size=12
)
"""Each with whether the page is rendered after it."""


@settings(max_examples=80, deadline=None)
@given(STEPS)
def test_after_any_changes_the_bytes_are_those_of_a_page_made_from_nothing(
    steps: list[tuple[tuple[object, ...], bool]],
) -> None:
    now_s = [T0_NS / 1e9]
    page = Page(lambda: now_s[0])
    page.metrics.plan([planned("a"), planned("b")])
    for accept in ("", OPENMETRICS):
        page.page.render(accept)
    for step, is_shown in steps:
        match step:
            case ("accept", str(target), int(number), kind, has_tool):
                page.metrics.accept(*a_run(target, number, None if kind is None else str(kind), bool(has_tool)))
            case ("plan", list(targets)):
                page.metrics.plan([planned(str(target)) for target in targets])
            case _:
                now_s[0] += 500
        if is_shown:
            page.page.refresh()
    page.page.refresh()
    for accept, generate in (("", generate_plain), (OPENMETRICS, generate_openmetrics)):
        text, _ = page.page.render(accept)
        assert text == MetricsPage(page.reader, []).render(accept)[0]
        assert sorted(text.splitlines()) == sorted(generate(AllFamilies(page.reader)).splitlines())
    parse_openmetrics(page.page.render(OPENMETRICS)[0])
    page.metrics.shutdown()

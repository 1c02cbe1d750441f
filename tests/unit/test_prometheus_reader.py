"""OpenTelemetry metrics as Prometheus text: complete, never doubled, and never broken by one bad instrument."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context
from prometheus_client.core import Metric as Family

from agentbench_otel.telemetry.metrics_page import MetricsPage
from agentbench_otel.telemetry.prometheus import PrometheusReader
from tests.support.recorded_runs import RESOURCE, parse_openmetrics, parse_plain

OPENMETRICS = "application/openmetrics-text"


def traced(number: int) -> Context:
    span = SpanContext(number, number, False, TraceFlags(TraceFlags.SAMPLED))
    return set_span_in_context(NonRecordingSpan(span), Context())


def ids(number: int) -> dict[str, str]:
    return {"trace_id": f"{number:032x}", "span_id": f"{number:016x}"}


class Instrumented:
    """A reader, its provider and a page of it."""

    def __init__(self, *views: View, is_shown: Callable[[Any], bool] = lambda attributes: True) -> None:
        self.reader = PrometheusReader(is_shown)
        self.provider = MeterProvider([self.reader], resource=RESOURCE, shutdown_on_exit=False, views=views)
        self.meter: Meter = self.provider.get_meter("tests")

    def page(self, accept: str = OPENMETRICS) -> bytes:
        return MetricsPage(self.reader, []).render(accept)[0]

    def families(self) -> dict[str, Family]:
        """As the parser of the page reads them."""
        return {family.name: family for family in parse_openmetrics(self.page())}


@pytest.fixture
def scraped() -> Iterator[Instrumented]:
    one = Instrumented()
    yield one
    one.provider.shutdown()


def record_all(meter: Meter) -> None:
    histogram = meter.create_histogram(
        "a.time", unit="s", description="A time.", explicit_bucket_boundaries_advisory=[0.1, 1.0]
    )
    for number, value in enumerate((0.05, 0.1, 0.5, 3.0), 1):
        histogram.record(value, {"target": "x", "server.port": 80}, traced(number))
    histogram.record(0.2, {"target": "y"})
    meter.create_counter("runs", unit="{run}", description='Says "no"\nand \\.').add(2, {"target": "x"}, traced(9))
    meter.create_up_down_counter("level", unit="By").add(-3, {"target": 'q"\\\n'})
    meter.create_gauge("now", unit="s").set(1.5)


def samples(family: Family) -> list[tuple[str, dict[str, str], float]]:
    return [(sample.name, sample.labels, sample.value) for sample in family.samples]


def test_both_parsers_of_prometheus_client_read_what_was_recorded(scraped: Instrumented) -> None:
    record_all(scraped.meter)
    families = scraped.families()
    x, y = {"server_port": "80", "target": "x"}, {"server_port": "", "target": "y"}
    assert samples(families["a_time_seconds"]) == [
        ("a_time_seconds_bucket", {**x, "le": "0.1"}, 2),
        ("a_time_seconds_bucket", {**x, "le": "1.0"}, 3),
        ("a_time_seconds_bucket", {**x, "le": "+Inf"}, 4),
        ("a_time_seconds_count", x, 4),
        ("a_time_seconds_sum", x, pytest.approx(3.65)),
        ("a_time_seconds_bucket", {**y, "le": "0.1"}, 0),
        ("a_time_seconds_bucket", {**y, "le": "1.0"}, 1),
        ("a_time_seconds_bucket", {**y, "le": "+Inf"}, 1),
        ("a_time_seconds_count", y, 1),
        ("a_time_seconds_sum", y, 0.2),
    ]
    assert samples(families["runs"]) == [("runs_total", {"target": "x"}, 2)]
    assert samples(families["level_bytes"]) == [("level_bytes", {"target": 'q"\\\n'}, -3)]
    assert samples(families["now_seconds"]) == [("now_seconds", {}, 1.5)]
    kinds = {name: (family.type, family.unit) for name, family in families.items()}
    assert kinds == {
        "target": ("info", ""),
        "a_time_seconds": ("histogram", "seconds"),
        "runs": ("counter", ""),
        "level_bytes": ("gauge", "bytes"),
        "now_seconds": ("gauge", "seconds"),
    }
    assert families["runs"].documentation == 'Says "no"\nand \\.'

    def values(parsed: list[Family]) -> set[Any]:
        return {
            (sample.name, frozenset(sample.labels.items()), sample.value)
            for family in parsed
            for sample in family.samples
        }

    assert values(parse_plain(scraped.page("text/plain"))) == values(parse_openmetrics(scraped.page()))


def exemplars(families: dict[str, Family]) -> dict[tuple[str, str, str], tuple[dict[str, str], float]]:
    return {
        (sample.name, sample.labels.get("target", ""), sample.labels.get("le", "")): (
            sample.exemplar.labels,
            sample.exemplar.value,
        )
        for family in families.values()
        for sample in family.samples
        if sample.exemplar is not None
    }


def test_the_newest_exemplar_of_each_bucket_outlives_scrapes_and_flushes(scraped: Instrumented) -> None:
    record_all(scraped.meter)
    expected = {
        ("a_time_seconds_bucket", "x", "0.1"): (ids(2), 0.1),  # a value on the bound is below it
        ("a_time_seconds_bucket", "x", "1.0"): (ids(3), 0.5),
        ("a_time_seconds_bucket", "x", "+Inf"): (ids(4), 3.0),
        ("runs_total", "x", ""): (ids(9), 2),
    }
    for _ in range(3):
        assert exemplars(scraped.families()) == expected
        scraped.provider.force_flush()
    scraped.meter.create_histogram("a.time", unit="s", description="A time.").record(
        0.3, {"target": "x", "server.port": 80}, traced(7)
    )
    scraped.provider.force_flush()
    expected["a_time_seconds_bucket", "x", "1.0"] = (ids(7), 0.3)
    assert exemplars(scraped.families()) == expected


def test_an_exemplar_has_the_time_of_its_measurement(scraped: Instrumented) -> None:
    def times() -> dict[str, float]:
        return {
            str(sample.labels): float(sample.exemplar.timestamp)  # type: ignore[arg-type]  # there is one
            for family in scraped.families().values()
            for sample in family.samples
            if sample.exemplar
        }

    start_s = time.time()
    record_all(scraped.meter)
    end_s = time.time()
    first = times()
    assert len(first) == 4
    assert all(start_s - 0.001 <= moment_s <= end_s + 0.001 for moment_s in first.values())
    assert times() == first


def test_a_measurement_without_a_sampled_span_has_no_exemplar(scraped: Instrumented) -> None:
    unsampled = set_span_in_context(NonRecordingSpan(SpanContext(1, 1, False, TraceFlags(0))), Context())
    scraped.meter.create_counter("runs", unit="{run}").add(1, {}, unsampled)
    assert exemplars(scraped.families()) == {}
    assert b" # " not in scraped.page()


def test_flushes_and_scrapes_at_the_same_time_never_double_or_lose_a_series(scraped: Instrumented) -> None:
    record_all(scraped.meter)
    expected = Counter(
        (sample.name, frozenset(sample.labels.items()))
        for family in scraped.reader.families()
        for sample in family.samples
    )
    assert set(expected.values()) == {1}
    wrong: list[object] = []

    def work(number: int) -> None:
        for _ in range(40):
            if number == 0:
                scraped.provider.force_flush()
                continue
            found = Counter(
                (sample.name, frozenset(sample.labels.items()))
                for family in scraped.reader.families()
                for sample in family.samples
            )
            if found != expected:
                wrong.append(found)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


class Interrupted(PrometheusReader):
    """The data of the thread ``late`` arrive when another thread has got newer ones, or waits for its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.has_collected = threading.Event()
        self.may_go_on = threading.Event()
        self.late = threading.Thread(target=self.families, name="late")

    def _receive_metrics(self, metrics_data: MetricsData, *arguments: Any, **options: Any) -> None:
        if threading.current_thread() is self.late:
            self.has_collected.set()
            assert self.may_go_on.wait(5)
        super()._receive_metrics(metrics_data, *arguments, **options)
        if threading.current_thread().name == "scraper":
            self.may_go_on.set()
            self.late.join(5)


def test_a_scrape_shows_nothing_older_than_its_own_collection() -> None:
    """A counter that falls is a restart to Prometheus."""
    reader = Interrupted()
    provider = MeterProvider([reader], resource=RESOURCE, shutdown_on_exit=False)
    counter = provider.get_meter("tests").create_counter("runs", unit="{run}")
    counter.add(1)
    seen: list[float] = []

    def scrape() -> None:
        (family,) = [family for family in reader.families() if family.name == "runs"]
        seen.extend(sample.value for sample in family.samples)

    reader.late.start()
    assert reader.has_collected.wait(5)
    counter.add(1)
    scraper = threading.Thread(target=scrape, name="scraper")
    scraper.start()
    scraper.join(0.1)
    reader.may_go_on.set()
    scraper.join(5)
    reader.late.join(5)
    assert seen == [2]
    provider.shutdown()


def test_an_exponential_histogram_is_left_out_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    one = Instrumented(View(instrument_name="bad", aggregation=ExponentialBucketHistogramAggregation()))
    one.meter.create_histogram("bad", unit="s").record(1)
    record_all(one.meter)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert set(one.families()) == {"target", "a_time_seconds", "runs", "level_bytes", "now_seconds"}
    (record,) = caplog.records
    assert "bad" in record.getMessage()
    assert "ExponentialHistogram" in record.getMessage()
    one.provider.shutdown()


def test_two_metrics_of_one_prometheus_name_leave_the_first_and_are_told_once(
    scraped: Instrumented, caplog: pytest.LogCaptureFixture
) -> None:
    scraped.meter.create_counter("a.b", unit="{x}").add(1)
    scraped.meter.create_counter("a_b", unit="{x}").add(2)
    scraped.provider.get_meter("another").create_gauge("a.b", unit="{x}").set(3)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert samples(scraped.families()["a_b"]) == [("a_b_total", {}, 1)]
    assert sorted(record.getMessage().split(" ")[1] for record in caplog.records) == ["a.b", "a_b"]


def test_a_unit_that_the_text_does_not_know_costs_one_metric(
    scraped: Instrumented, caplog: pytest.LogCaptureFixture
) -> None:
    scraped.meter.create_counter("strange", unit="furlong").add(1)
    record_all(scraped.meter)
    with caplog.at_level(logging.ERROR):
        assert "a_time_seconds" in scraped.families()
        assert "strange" not in scraped.families()
    (record,) = caplog.records
    assert record.exc_info is not None


def test_the_resource_is_told_once_and_only_by_a_reader_that_tells_it(scraped: Instrumented) -> None:
    other = PrometheusReader(tells_resource=False)
    provider = MeterProvider([other], resource=RESOURCE, shutdown_on_exit=False)
    provider.get_meter("tests").create_counter("own", unit="{x}").add(1)
    scraped.meter.create_counter("runs", unit="{run}").add(1)
    page, _ = MetricsPage(scraped.reader, [other.families]).render(OPENMETRICS)
    (info,) = [family for family in parse_openmetrics(page) if family.name == "target"]
    assert samples(info) == [
        ("target_info", {"service_name": "tests", "service_instance_id": "i-1"}, 1),
    ]
    assert page.count(b"target_info{") == 1
    provider.shutdown()


def test_series_that_are_not_shown_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    one = Instrumented(is_shown=lambda attributes: attributes.get("target") != "x")
    record_all(one.meter)
    pages = one.page()
    assert b'target="x"' not in pages
    assert b'target="y"' in pages
    assert caplog.records == []
    one.provider.shutdown()


def test_a_reader_without_a_metric_gives_an_empty_page(scraped: Instrumented) -> None:
    assert parse_openmetrics(scraped.page()) == []

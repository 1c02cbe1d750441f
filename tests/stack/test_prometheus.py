"""What Prometheus itself says of ``/metrics``: its linter has no complaint, and it keeps series and exemplars."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agentbench_otel import app, names
from agentbench_otel.config.model import Benchmark, Config
from agentbench_otel.names import Metric
from agentbench_otel.records.scenario import CaseId
from agentbench_otel.telemetry.metrics_page import MetricsPage
from agentbench_otel.telemetry.own_metrics import OwnMetrics, Readings
from agentbench_otel.telemetry.prometheus import PrometheusReader
from agentbench_otel.telemetry.run_metrics import PlannedSeries, RunMetrics
from tests.stack.servers import RunningPrometheus, StartPrometheus
from tests.support.recorded_runs import RESOURCE, Recorded, parse_plain, record_runs, run_metrics

pytestmark = pytest.mark.stack

SCRAPE_LIMIT_S = 20.0
CONFIG = Config(
    schema_version=1,
    targets=(app.MOCK_TARGET,),
    benchmark=Benchmark(cases=(CaseId.ORDINARY_CHAT, CaseId.PARALLEL_VOLUME_SCHEDULE)),
)
NOT_OF_A_MOCK = names.CALL_CONNECT  # it opens no connection
OF_THE_PAGE = '{job="agentbench",__name__!~"up|scrape_.*"}'
"""All series but those that Prometheus itself makes of each scrape."""


@pytest.fixture(scope="module")
def recorded() -> list[Recorded]:
    return record_runs(CONFIG)


def family_name(metric: Metric) -> str:
    return metric.prometheus_name.removesuffix("_total")


def reading(metric: Metric) -> Callable[[], Readings]:
    return lambda: [(1.0, dict.fromkeys(metric.labels, "x"))]


def of_the_process(runs: PrometheusReader, semconv: names.Semconv) -> list[Metric]:
    """The metrics that a daemon tells of itself: all that are not of runs."""
    known = {family.name for family in runs.families()}
    rest = [metric for metric in names.metrics_of(semconv) if family_name(metric) not in known]
    return [metric for metric in rest if metric is not NOT_OF_A_MOCK]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a daemon tells, and how more runs get into it."""

    page: MetricsPage
    metrics: RunMetrics

    def accept(self, runs: Iterable[Recorded]) -> None:
        for run in runs:
            self.metrics.accept(run.result, run.spans)
        self.page.refresh()


@contextmanager
def told_of(recorded: list[Recorded], semconv: names.Semconv = "1.41") -> Iterator[Told]:
    """What is told after these runs, with all that a daemon tells of itself."""
    runs, itself = PrometheusReader(), PrometheusReader(tells_resource=False)
    with run_metrics(runs, semconv=semconv) as metrics:
        planned = PlannedSeries(target=app.MOCK_TARGET, benchmark=CONFIG.benchmark, interval_s=None, is_mock=True)
        metrics.plan([planned])
        for run in recorded:
            metrics.accept(run.result, run.spans)
        own = OwnMetrics(
            [itself],
            resource=RESOURCE,
            sources={metric: reading(metric) for metric in of_the_process(runs, semconv)},
        )
        yield Told(page=MetricsPage(runs, [itself.families]), metrics=metrics)
        own.shutdown()


# --- the linter ----------------------------------------------------------------------------------------------


def complaints(promtool: Path, page: bytes) -> tuple[int, str]:
    """Its exit code, and all that it says."""
    done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, timeout=30, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


@pytest.mark.parametrize("semconv", ["1.41", "next"])
def test_promtool_has_no_complaint_about_the_page(
    promtool: Path, recorded: list[Recorded], semconv: names.Semconv
) -> None:
    with told_of(recorded, semconv) as told:
        text, _ = told.page.render("text/plain")
    assert {"agentbench_runs", "agentbench_loop_lag_seconds"} <= {family.name for family in parse_plain(text)}
    assert complaints(promtool, text) == (0, "")


def test_promtool_does_complain(promtool: Path) -> None:
    """Else its silence proves nothing."""
    assert "total" in complaints(promtool, b"# HELP a_ms A.\n# TYPE a_ms counter\na_ms 1\n")[1]
    assert complaints(promtool, b"a 1\na 2\n")[0] != 0


# --- the server ----------------------------------------------------------------------------------------------


class Scraped:
    """A page behind a socket; ``accepts``: what each scrape asked for."""

    def __init__(self) -> None:
        self.address = ""
        self.accepts: list[str] = []


@contextmanager
def serve(page: MetricsPage) -> Iterator[Scraped]:
    scraped = Scraped()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            scraped.accepts.append(self.headers.get("accept", ""))
            body, content_type = page.render(scraped.accepts[-1])
            self.send_response(200)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class named it
            """Nothing is logged."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        scraped.address = f"127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield scraped
        server.shutdown()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scraping:
    """A Prometheus that has scraped the page of ``runs``, by case and mode."""

    server: RunningPrometheus
    told: Told
    accepts: list[str]
    runs: Mapping[tuple[str, str], Recorded]

    def values(self, query: str) -> list[tuple[dict[str, str], float]]:
        """The labels and the value of each series that the query gives now."""
        answer = self.server.ask("query", query=query)
        return [(series["metric"], float(series["value"][1])) for series in answer["result"]]

    def by_run(self, query: str) -> dict[tuple[str, str], float]:
        """The value of the one series of each case and mode."""
        found = self.values(query)
        by_run = {(labels["case"], labels["mode"]): value for labels, value in found}
        assert len(by_run) == len(found)
        return by_run

    def until(self, look: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + SCRAPE_LIMIT_S
        while not look():
            log = self.server.log_path.read_text(encoding="utf-8")
            assert time.monotonic() < deadline_s, f"{what} did not come within {SCRAPE_LIMIT_S:g} s\n{log}"
            time.sleep(0.1)


@contextmanager
def scraping_of(prometheus: StartPrometheus, recorded: list[Recorded]) -> Iterator[Scraping]:
    """A Prometheus of its own that has scraped these runs."""
    runs = {(run.result.case_id.value, run.result.mode.value): run for run in recorded}
    assert len(runs) == len(recorded) == 4
    with told_of(recorded) as told, serve(told.page) as scraped:
        scraping = Scraping(server=prometheus(scraped.address), told=told, accepts=scraped.accepts, runs=runs)
        scraping.until(lambda: bool(scraping.values('up{job="agentbench"} == 1')), "the first scrape")
        yield scraping


@pytest.fixture(scope="module")
def scraping(prometheus: StartPrometheus, recorded: list[Recorded]) -> Iterator[Scraping]:
    with scraping_of(prometheus, recorded) as scraping:
        yield scraping


def test_prometheus_asks_for_openmetrics(scraping: Scraping) -> None:
    assert "application/openmetrics-text" in scraping.accepts[0]


def test_prometheus_keeps_the_numbers_of_the_results(scraping: Scraping) -> None:
    runs = scraping.runs
    assert scraping.by_run('agentbench_runs_total{status="passed"}') == dict.fromkeys(runs, 1.0)
    assert scraping.by_run('agentbench_runs_total{status="error"}') == dict.fromkeys(runs, 0.0)
    assert scraping.by_run("agentbench_last_run_turn_wall_seconds") == {
        key: (run.result.turn_wall_time_ms or 0) / 1000 for key, run in runs.items()
    }
    assert scraping.by_run("gen_ai_client_operation_duration_seconds_count") == {
        key: len(run.result.model_calls) for key, run in runs.items()
    }


def test_prometheus_knows_who_tells_it(scraping: Scraping) -> None:
    ((labels, _),) = scraping.values("target_info")
    assert labels["service_name"] == "tests"
    assert labels["job"] == "agentbench"


def test_prometheus_reads_kind_unit_and_description_of_every_metric(scraping: Scraping) -> None:
    told = scraping.server.ask("metadata")
    expected = {
        family_name(metric): [
            {
                "type": metric.kind.value,
                "help": metric.description,
                "unit": names.prometheus_unit(metric.unit),
            }
        ]
        for metric in names.metrics_of("1.41")
        if metric is not NOT_OF_A_MOCK
    }
    assert {name: one for name, one in told.items() if name != "target"} == expected


@pytest.mark.parametrize("name", ["agentbench_turn_wall_seconds_bucket", "agentbench_runs_total"])
def test_prometheus_gives_back_the_traces_of_the_runs(scraping: Scraping, name: str) -> None:
    now_s = time.time()
    found = scraping.server.ask("query_exemplars", query=name, start=str(now_s - 600), end=str(now_s + 600))
    exemplars = {
        (series["seriesLabels"]["case"], series["seriesLabels"]["mode"]): [
            exemplar["labels"] for exemplar in series["exemplars"]
        ]
        for series in found
    }
    assert exemplars == {
        key: [{"trace_id": run.root.trace_id, "span_id": run.root.span_id}] for key, run in scraping.runs.items()
    }


def test_more_runs_move_the_counters_of_the_same_series(
    prometheus: StartPrometheus, recorded: list[Recorded]
) -> None:
    with scraping_of(prometheus, recorded) as scraping:

        def passed() -> dict[tuple[str, str], float]:
            return scraping.by_run('agentbench_runs_total{status="passed"}')

        def series() -> set[frozenset[tuple[str, str]]]:
            return {frozenset(labels.items()) for labels, _ in scraping.values(OF_THE_PAGE)}

        assert passed() == dict.fromkeys(scraping.runs, 1.0)
        first_series = series()
        scraping.told.accept(record_runs(CONFIG))
        scraping.until(lambda: passed() == dict.fromkeys(scraping.runs, 2.0), "the second run of each")
        assert series() == first_series
        # Prometheus keeps one of two equal series in silence: only what it read tells of the other.
        ((_, sample_count),) = scraping.values("scrape_samples_scraped")
        assert sample_count == len(first_series)
        assert {value for _, value in scraping.values("resets(agentbench_runs_total[1m])")} == {0.0}

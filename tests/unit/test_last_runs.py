"""The gauges of the last run: exact, absent where nothing was measured, and gone when they are too old."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from agentbench_otel import names
from agentbench_otel.names import Metric
from agentbench_otel.records.results import RunFault, RunResult, Status
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.telemetry.last_runs import LAST_GAUGES, PAST_GAUGES, SeriesPast, lifetime_s
from agentbench_otel.telemetry.run_metrics import RunMetrics
from tests.support.recorded_runs import attributes_key, planned, points_of, run_metrics
from tests.support.results import a_result

NOW = datetime(2026, 12, 1, 10, tzinfo=UTC)
SERIES = {"target": "local", "case": "ordinary_chat", "mode": "dual_agent"}
KEY = ("local", CaseId.ORDINARY_CHAT, Mode.DUAL_AGENT)
LAST_NAMES = {metric.name for metric in LAST_GAUGES}
FULL: dict[str, Any] = {
    "initial_provider_ttft_ms": 101.0,
    "token_ttft_ms": 102.0,
    "visible_ttft_ms": 103.0,
    "turn_wall_time_ms": 104.0,
    "turn_provider_ms": 105.0,
    "turn_handler_ms": 0.0,
    "harness_ms": 107.0,
    "provider_await_ms": 108.0,
    "provider_stream_ms": 109.0,
    "consumer_ms": 110.0,
    "overlap_ms": 111.0,
    "max_handler_concurrency": 2,
    "parallel_events_overlapped": False,
    "prompt_tokens": 11,
    "completion_tokens": 12,
    "cached_tokens": 0,
    "reasoning_tokens": None,
}


class Gauges:
    """Run metrics whose wall clock a test moves."""

    def __init__(self) -> None:
        self.now_s = NOW.timestamp()
        self.reader = InMemoryMetricReader()

    def run(self, metrics: RunMetrics, *results: RunResult) -> None:
        for result in results:
            metrics.accept(result, [])

    def values(self) -> dict[str, dict[Any, float]]:
        """Of the gauges alone."""
        gauges = {metric.name for metric in (*LAST_GAUGES, *PAST_GAUGES)}
        return {
            name: {key: point.value for key, point in points.items()}
            for name, points in points_of(self.reader).items()
            if name in gauges
        }

    def value(self, metric: Metric, **labels: str) -> float | None:
        """None: no such series."""
        return self.values().get(metric.name, {}).get(attributes_key({**SERIES, **labels}))


@pytest.fixture
def gauges() -> Gauges:
    return Gauges()


@pytest.fixture
def metrics(gauges: Gauges) -> Iterator[RunMetrics]:
    with run_metrics(gauges.reader, wall_s=lambda: gauges.now_s) as metrics:
        metrics.plan([planned(interval_s=3600.0)])
        yield metrics


def a_full_result(**changes: Any) -> RunResult:
    calls = [call.model_copy(update={"max_chunk_gap_ms": 3.0}) for call in a_result().model_calls]
    calls.append(calls[0].model_copy(update={"call_index": 2, "max_chunk_gap_ms": 40.0}))
    calls.append(calls[0].model_copy(update={"call_index": 3, "max_chunk_gap_ms": None}))
    return a_result(**{"started_at": NOW, "model_calls": tuple(calls), **FULL, **changes})


def test_the_gauges_are_the_exact_numbers_of_the_last_run(gauges: Gauges, metrics: RunMetrics) -> None:
    gauges.run(metrics, a_full_result(turn_wall_time_ms=9.0, reasoning_tokens=5), a_full_result())
    series = attributes_key(SERIES)
    assert gauges.values() == {
        "agentbench.last_run.success": {series: 1.0},
        "agentbench.last_run.provider_ttft": {series: 0.101},
        "agentbench.last_run.token_ttft": {series: 0.102},
        "agentbench.last_run.visible_ttft": {series: 0.103},
        "agentbench.last_run.turn_wall": {series: 0.104},
        "agentbench.last_run.turn_provider": {series: 0.105},
        "agentbench.last_run.turn_handler": {series: 0.0},
        "agentbench.last_run.turn_harness": {series: 0.107},
        "agentbench.last_run.provider_await": {series: 0.108},
        "agentbench.last_run.stream": {series: 0.109},
        "agentbench.last_run.consumer": {series: 0.11},
        "agentbench.last_run.max_chunk_gap": {series: 0.04},
        "agentbench.last_run.overlap": {series: 0.111},
        "agentbench.last_run.handler_concurrency": {series: 2},
        "agentbench.last_run.parallel_proof": {series: 0.0},
        "agentbench.last_run.tokens": {
            attributes_key({**SERIES, "type": "input"}): 11,
            attributes_key({**SERIES, "type": "output"}): 12,
            attributes_key({**SERIES, "type": "cached"}): 0,
        },
        "agentbench.last_run.timestamp": {series: NOW.timestamp()},
        "agentbench.last_success.timestamp": {series: NOW.timestamp()},
        "agentbench.consecutive_failures": {series: 0},
    }


def test_what_the_last_run_did_not_measure_is_absent_though_the_run_before_did(
    gauges: Gauges, metrics: RunMetrics
) -> None:
    gauges.run(metrics, a_full_result())
    assert gauges.value(names.LAST_VISIBLE_TTFT) is not None
    nothing = a_full_result(**dict.fromkeys(FULL), model_calls=())
    gauges.run(metrics, nothing)
    assert set(gauges.values()) & LAST_NAMES == {names.LAST_SUCCESS.name}


def test_a_planned_series_without_a_run_says_only_that_nothing_failed(gauges: Gauges, metrics: RunMetrics) -> None:
    assert gauges.values() == {names.CONSECUTIVE_FAILURES.name: {attributes_key(SERIES): 0}}


def test_failures_are_counted_since_the_last_success(gauges: Gauges, metrics: RunMetrics) -> None:
    later = NOW + timedelta(minutes=5)
    fault = RunFault(kind="connect_error", message="x")
    gauges.run(metrics, a_full_result())
    for number in (1, 2):
        gauges.run(metrics, a_full_result(status=Status.FAILED, error=fault, started_at=later))
        assert gauges.value(names.CONSECUTIVE_FAILURES) == number
    assert gauges.value(names.LAST_SUCCESS) == 0
    assert gauges.value(names.LAST_SUCCESS_TIMESTAMP) == NOW.timestamp()
    assert gauges.value(names.LAST_RUN_TIMESTAMP) == later.timestamp()
    gauges.run(metrics, a_full_result(started_at=later))
    assert gauges.value(names.CONSECUTIVE_FAILURES) == 0
    assert gauges.value(names.LAST_SUCCESS_TIMESTAMP) == later.timestamp()


def test_warm_ups_and_aborted_runs_are_no_last_run(gauges: Gauges, metrics: RunMetrics) -> None:
    gauges.run(metrics, a_full_result())
    before = gauges.values()
    fault = RunFault(kind="aborted", message="x")
    gauges.run(metrics, a_full_result(warmup=True, harness_ms=1.0))
    gauges.run(metrics, a_full_result(error=fault, status=Status.FAILED, harness_ms=1.0))
    assert gauges.values() == before


@pytest.mark.parametrize(
    ("interval_s", "lifetime"), [(3600.0, 10_800.0), (300.0, 900.0), (301.0, 903.0), (10.0, 900.0)]
)
def test_the_numbers_go_after_three_intervals_and_not_before_a_quarter_of_an_hour(
    gauges: Gauges, interval_s: float, lifetime: float
) -> None:
    assert lifetime_s(interval_s) == lifetime
    with run_metrics(gauges.reader, wall_s=lambda: gauges.now_s) as metrics:
        metrics.plan([planned(interval_s=interval_s)])
        gauges.run(metrics, a_full_result())
        gauges.now_s = NOW.timestamp() + lifetime
        assert gauges.value(names.LAST_TURN_WALL) == 0.104
        gauges.now_s += 0.001
        values = gauges.values()
        assert set(values) == {metric.name for metric in PAST_GAUGES}
        gauges.run(metrics, a_full_result(started_at=NOW + timedelta(seconds=lifetime)))
        assert gauges.value(names.LAST_TURN_WALL) == 0.104


def test_what_was_measured_once_and_for_all_does_not_age(gauges: Gauges) -> None:
    with run_metrics(gauges.reader, wall_s=lambda: gauges.now_s) as metrics:
        metrics.plan([planned(interval_s=None)])
        gauges.run(metrics, a_full_result())
        gauges.now_s += 1e9
        assert gauges.value(names.LAST_TURN_WALL) == 0.104


def test_a_shorter_interval_in_a_new_config_holds_at_once(gauges: Gauges, metrics: RunMetrics) -> None:
    gauges.run(metrics, a_full_result())
    gauges.now_s += 1000
    assert gauges.value(names.LAST_TURN_WALL) == 0.104
    metrics.plan([planned(interval_s=60.0)])
    assert gauges.value(names.LAST_TURN_WALL) is None


def test_a_target_that_leaves_the_config_takes_its_gauges_with_it(gauges: Gauges, metrics: RunMetrics) -> None:
    gauges.run(metrics, a_full_result())
    metrics.plan([planned("other")])
    assert not metrics.has_target("local")
    assert metrics.has_target("other")
    other = attributes_key({**SERIES, "target": "other"})
    assert gauges.values() == {names.CONSECUTIVE_FAILURES.name: {other: 0}}


def test_a_run_that_ends_after_its_series_left_the_config_brings_no_gauge_back(
    gauges: Gauges, metrics: RunMetrics
) -> None:
    metrics.plan([planned(cases=(CaseId.DEVICE_VOLUME_SILENT,))])
    before = gauges.values()
    gauges.run(metrics, a_full_result())
    assert gauges.values() == before


def test_a_target_that_stays_keeps_its_gauges(gauges: Gauges, metrics: RunMetrics) -> None:
    gauges.run(metrics, a_full_result())
    metrics.plan([planned(interval_s=3600.0), planned("other")])
    assert gauges.value(names.LAST_TURN_WALL) == 0.104


def test_the_past_of_planned_series_is_taken_from_the_history(gauges: Gauges, metrics: RunMetrics) -> None:
    past = SeriesPast(last=a_full_result(status=Status.FAILED), last_success_unix_s=123.0, consecutive_failures=4)
    unknown = ("gone", CaseId.ORDINARY_CHAT, Mode.DUAL_AGENT)
    metrics.restore({KEY: past, unknown: past})
    assert gauges.value(names.LAST_TURN_WALL) == 0.104
    assert gauges.value(names.LAST_SUCCESS_TIMESTAMP) == 123.0
    assert gauges.value(names.CONSECUTIVE_FAILURES) == 4
    assert {dict(key)["target"] for points in gauges.values().values() for key in points} == {"local"}
    gauges.run(metrics, a_full_result(status=Status.FAILED))
    assert gauges.value(names.CONSECUTIVE_FAILURES) == 5
    assert points_of(gauges.reader)[names.RUNS.name][attributes_key({**SERIES, "status": "failed"})].value == 1


def test_restoring_leaves_alone_what_the_history_does_not_know(gauges: Gauges, metrics: RunMetrics) -> None:
    gauges.run(metrics, a_full_result())
    before = gauges.values()
    metrics.restore({})
    assert gauges.values() == before

"""Several runs become one line, and a doubtful median says so."""

import pytest

from agentbench_otel.measurement.aggregate import TIMES, Aggregate, Spread, aggregate
from agentbench_otel.records.results import RunResult, Status
from agentbench_otel.records.scenario import CaseId, Mode
from tests.support.results import FAULT, a_result


def with_walls(*walls_ms: float | None) -> list[RunResult]:
    return [a_result(turn_wall_time_ms=wall_ms) for wall_ms in walls_ms]


def line_of(runs: list[RunResult]) -> Aggregate:
    (line,) = aggregate(runs)
    return line


def test_a_single_run_is_no_aggregate() -> None:
    assert aggregate([a_result()]) == []


def test_no_runs_are_no_aggregate() -> None:
    assert aggregate([]) == []


def test_a_time_is_given_with_its_number_median_and_range() -> None:
    line = line_of(with_walls(10.0, 14.0, 11.0))
    assert line.spreads["turn_wall_time_ms"] == Spread(n=3, median_ms=11.0, min_ms=10.0, max_ms=14.0)


def test_the_median_of_an_even_number_lies_between_the_middle_two() -> None:
    assert line_of(with_walls(10.0, 11.0)).spreads["turn_wall_time_ms"].median_ms == 10.5


def test_the_median_has_microsecond_resolution() -> None:
    assert line_of(with_walls(10.001, 10.004)).spreads["turn_wall_time_ms"].median_ms in (10.002, 10.003)
    assert line_of(with_walls(0.1, 0.2)).spreads["turn_wall_time_ms"].median_ms == 0.15


@pytest.mark.parametrize("field", TIMES)
def test_every_time_of_the_list_is_aggregated(field: str) -> None:
    line = line_of([a_result(**{field: 4.0}), a_result(**{field: 5.0})])
    assert line.spreads[field] == Spread(n=2, median_ms=4.5, min_ms=4.0, max_ms=5.0)


def test_warm_ups_are_outside() -> None:
    runs = [a_result(warmup=True, turn_wall_time_ms=900.0), *with_walls(10.0, 11.0)]
    assert line_of(runs).n == 2
    assert line_of(runs).spreads["turn_wall_time_ms"].max_ms == 11.0


def test_one_counted_run_beside_a_warm_up_is_no_aggregate() -> None:
    assert aggregate([a_result(warmup=True), a_result()]) == []


def test_runs_are_grouped_by_target_case_and_mode_in_the_order_of_the_runs() -> None:
    variants = [
        {"target": "b"},
        {"target": "a"},
        {"target": "a", "mode": Mode.CHAT_AGENT_TOOLS},
        {"target": "a", "case_id": CaseId.SESSION_TERMINATE},
    ]
    runs = [a_result(**variant) for variant in variants * 2]
    assert [(line.target, line.case_id, line.mode, line.n) for line in aggregate(runs)] == [
        ("b", CaseId.ORDINARY_CHAT, Mode.DUAL_AGENT, 2),
        ("a", CaseId.ORDINARY_CHAT, Mode.DUAL_AGENT, 2),
        ("a", CaseId.ORDINARY_CHAT, Mode.CHAT_AGENT_TOOLS, 2),
        ("a", CaseId.SESSION_TERMINATE, Mode.DUAL_AGENT, 2),
    ]


def test_a_run_with_an_error_is_counted_but_its_times_are_not() -> None:
    failed = a_result(status=Status.FAILED, error=FAULT, turn_wall_time_ms=900.0)
    line = line_of([failed, *with_walls(10.0, 11.0)])
    assert (line.n, line.passed) == (3, 2)
    assert line.spreads["turn_wall_time_ms"] == Spread(n=2, median_ms=10.5, min_ms=10.0, max_ms=11.0)


def test_a_run_that_failed_semantically_keeps_its_times() -> None:
    wrong = a_result(status=Status.FAILED, turn_wall_time_ms=9.0)
    line = line_of([wrong, *with_walls(11.0)])
    assert (line.n, line.passed) == (2, 1)
    assert line.spreads["turn_wall_time_ms"].n == 2


def test_a_time_is_taken_over_the_runs_that_measured_it() -> None:
    line = line_of([a_result(visible_ttft_ms=None), a_result(visible_ttft_ms=3.0)])
    assert line.spreads["visible_ttft_ms"] == Spread(n=1, median_ms=3.0, min_ms=3.0, max_ms=3.0)


def test_a_time_that_no_run_has_measured_is_left_out() -> None:
    assert "turn_wall_time_ms" not in line_of(with_walls(None, None)).spreads


# --- doubts ------------------------------------------------------------------------------------------------


def test_close_runs_are_not_doubted() -> None:
    assert line_of(with_walls(100.0, 110.0, 120.0)).warnings == ()


def test_a_spread_of_half_the_median_is_still_believed() -> None:
    assert line_of(with_walls(80.0, 100.0, 130.0)).warnings == ()


def test_few_runs_that_lie_apart_ask_for_more_runs() -> None:
    (words,) = line_of(with_walls(80.0, 100.0, 200.0)).warnings
    assert words == (
        "the median turn wall of 100.0 ms is doubtful: 3 runs lie between 80.0 and 200.0 ms, "
        "a width of 120% of the median; raise runs_per_case to 5 or more"
    )


def test_two_runs_that_lie_apart_are_doubted() -> None:
    (words,) = line_of(with_walls(80.0, 200.0)).warnings
    assert words.startswith("the median turn wall of 140.0 ms is doubtful: 2 runs lie between")


def test_enough_runs_that_lie_apart_ask_for_the_cause() -> None:
    (words,) = line_of(with_walls(80.0, 100.0, 100.0, 100.0, 200.0)).warnings
    assert words.endswith("; look for other load on the client or the server, or for a cold start among the runs")


def test_four_runs_are_not_enough() -> None:
    (words,) = line_of(with_walls(80.0, 100.0, 100.0, 200.0)).warnings
    assert words.endswith("; raise runs_per_case to 5 or more")


def test_differences_of_two_milliseconds_are_negligible_however_short_the_time() -> None:
    assert line_of(with_walls(0.1, 0.1, 2.1)).warnings == ()


def test_a_median_of_zero_is_doubted_without_a_division() -> None:
    (words,) = line_of(with_walls(0.0, 0.0, 9.0)).warnings
    assert "the median turn wall of 0.0 ms is doubtful: 3 runs lie between 0.0 and 9.0 ms" in words

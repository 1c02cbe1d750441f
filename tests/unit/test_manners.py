"""An endpoint that refuses is asked less often, and nobody spends more than the budget."""

from datetime import date
from typing import Any

import pytest

from agentbench_otel.config.model import Budget, Target
from agentbench_otel.daemon.manners import Backoff, Budgets, Refusals
from agentbench_otel.records.chat import TokenUsage
from agentbench_otel.records.cycles import Spending
from agentbench_otel.records.results import RunFault, RunResult
from tests.support.results import a_result

DAY_S = 86_400.0
NOON_S = 20_000 * DAY_S + DAY_S / 2  # of some day


def a_run(kind: str | None = None, retry_after_s: float | None = None, tokens: int | None = None) -> RunResult:
    call = a_result().model_calls[0]
    fault = None if kind is None else RunFault(kind=kind, message="refused")
    usage = None if tokens is None else TokenUsage(total_tokens=tokens)
    changes: dict[str, Any] = {"error": fault, "retry_after_s": retry_after_s, "usage": usage}
    return a_result(target="local", model_calls=(call.model_copy(update=changes),))


def backoff_after(*runs: RunResult, stretch: int = 1) -> Backoff:
    refusals = Refusals()
    for run in runs:
        refusals.note(run)
    return refusals.backoff(stretch, NOON_S)


@pytest.mark.parametrize("kind", ["http_401", "http_402", "http_403", "http_429"])
def test_a_refusal_doubles_the_interval_up_to_eightfold(kind: str) -> None:
    refused = a_run(kind)
    stretches = [1]
    for _ in range(4):
        stretches.append(backoff_after(a_run(), refused, stretch=stretches[-1]).stretch)
    assert stretches == [1, 2, 4, 8, 8]


@pytest.mark.parametrize("kind", [None, "http_500", "connect_error", "idle_timeout"])
def test_a_cycle_without_a_refusal_makes_the_interval_whole_again(kind: str | None) -> None:
    assert backoff_after(a_run(kind), stretch=8) == Backoff(stretch=1)


def test_a_cycle_without_a_run_changes_nothing() -> None:
    assert backoff_after(stretch=4) == Backoff(stretch=4)


def test_the_longest_wait_that_was_asked_for_holds() -> None:
    runs = [a_run("http_429", 30), a_run("http_429", 90), a_run("http_503", 60)]
    assert backoff_after(*runs).not_before_unix_s == NOON_S + 90


def test_an_endpoint_that_asks_for_a_week_is_asked_again_after_a_day() -> None:
    assert backoff_after(a_run("http_429", 7 * DAY_S)).not_before_unix_s == NOON_S + DAY_S


def target(**budget: int) -> Target:
    return Target(
        name="local",
        base_url="http://127.0.0.1:8080/v1",
        model="small",
        budget=Budget(**budget) if budget else None,
    )


def budgets(spent: Spending | None = None) -> Budgets:
    day = date(2024, 10, 4)
    assert (day - date(1970, 1, 1)).days == NOON_S // DAY_S
    return Budgets(day, {} if spent is None else {"local": spent})


def test_a_target_without_a_budget_is_never_stopped() -> None:
    kept = budgets(Spending(run_count=10**9, token_count=10**12))
    assert kept.is_left(target(), NOON_S)


def test_runs_are_counted_with_those_of_the_history() -> None:
    kept = budgets(Spending(run_count=1, token_count=0))
    limited = target(max_runs_per_day=3)
    kept.spend(a_run(), NOON_S)
    assert kept.is_left(limited, NOON_S)
    kept.spend(a_run(), NOON_S)
    assert not kept.is_left(limited, NOON_S)


def test_tokens_are_counted_and_those_not_reported_are_none() -> None:
    kept = budgets()
    limited = target(max_tokens_per_day=100)
    kept.spend(a_run(), NOON_S)
    kept.spend(a_run(tokens=99), NOON_S)
    assert kept.is_left(limited, NOON_S)
    kept.spend(a_run(tokens=1), NOON_S)
    assert not kept.is_left(limited, NOON_S)


def test_a_new_day_begins_at_midnight_utc() -> None:
    kept = budgets(Spending(run_count=1, token_count=0))
    limited = target(max_runs_per_day=1)
    assert not kept.is_left(limited, NOON_S + DAY_S / 2 - 1)
    assert kept.is_left(limited, NOON_S + DAY_S / 2)


def test_the_budget_of_one_target_is_not_anothers() -> None:
    kept = budgets(Spending(run_count=1, token_count=0))
    other = target(max_runs_per_day=1).model_copy(update={"name": "other"})
    assert kept.is_left(other, NOON_S)

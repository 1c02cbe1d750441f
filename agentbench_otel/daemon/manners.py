"""Manners towards an endpoint: ask less often when it refuses, wait as long as it says, and keep to a budget."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime

from agentbench_otel.config.model import Target
from agentbench_otel.records.cycles import Spending, spent_tokens
from agentbench_otel.records.results import RunResult

LONGEST_STRETCH = 8
LONGEST_RETRY_AFTER_S = 86_400.0
"""An endpoint that asks for more is asked again after a day."""
_REFUSALS = frozenset({"http_401", "http_402", "http_403", "http_429"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """``not_before_unix_s`` None: the endpoint named no time."""

    stretch: int = 1
    not_before_unix_s: float | None = None


class Refusals:
    """What an endpoint refused in the course of a cycle, and how long it asked to wait."""

    def __init__(self) -> None:
        self._run_count = 0
        self._is_refused = False
        self._wait_s = 0.0

    def note(self, result: RunResult) -> None:
        self._run_count += 1
        for call in result.model_calls:
            self._is_refused |= call.error is not None and call.error.kind in _REFUSALS
            self._wait_s = max(self._wait_s, call.retry_after_s or 0.0)

    def backoff(self, stretch: int, now_unix_s: float) -> Backoff:
        """What follows for the next cycle: a refusal of the key, the quota or the rate doubles the interval up to
        eightfold, a cycle without one makes it whole again. A cycle without a run changes nothing."""
        if not self._run_count:
            return Backoff(stretch=stretch)
        wait_s = min(self._wait_s, LONGEST_RETRY_AFTER_S)
        return Backoff(
            stretch=min(stretch * 2, LONGEST_STRETCH) if self._is_refused else 1,
            not_before_unix_s=now_unix_s + wait_s if wait_s > 0 else None,
        )


class Budgets:
    """What each target spent on the current UTC day. Every run counts, warm-ups too."""

    def __init__(self, day: date, spent: Mapping[str, Spending]) -> None:
        """``spent``: on ``day``, by the history."""
        self._day = day
        self._runs = {target: spending.run_count for target, spending in spent.items()}
        self._tokens = {target: spending.token_count for target, spending in spent.items()}

    def spend(self, result: RunResult, now_unix_s: float) -> None:
        self._turn_page(now_unix_s)
        self._runs[result.target] = self._runs.get(result.target, 0) + 1
        self._tokens[result.target] = self._tokens.get(result.target, 0) + spent_tokens(result)

    def is_left(self, target: Target, now_unix_s: float) -> bool:
        """Whether one more run is within the budget; it may end above it, its tokens are known only then."""
        self._turn_page(now_unix_s)
        if target.budget is None:
            return True
        runs, tokens = target.budget.max_runs_per_day, target.budget.max_tokens_per_day
        has_runs = runs is None or self._runs.get(target.name, 0) < runs
        return has_runs and (tokens is None or self._tokens.get(target.name, 0) < tokens)

    def _turn_page(self, now_unix_s: float) -> None:
        today = utc_day(now_unix_s)
        if today != self._day:
            self._day, self._runs, self._tokens = today, {}, {}


def utc_day(unix_s: float) -> date:
    return datetime.fromtimestamp(unix_s, UTC).date()

"""Cycles of the daemon, and what the history tells of the past."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from agentbench_otel.records.results import RunResult, Status
from agentbench_otel.records.scenario import CaseId, Mode


class CycleOutcome(StrEnum):
    """What became of a slot of a target's schedule."""

    COMPLETED = "completed"
    """The cycle came to its end; its runs may have failed."""
    ABORTED = "aborted"
    """It was ended by a stop or a fault of ours."""
    MISSED = "missed"
    """Nobody was there at the time: the machine slept, or the event loop hung."""
    SKIPPED_OVERLAP = "skipped_overlap"
    """The target's cycle before was still running, or waited for its turn among the targets."""
    SKIPPED_BACKOFF = "skipped_backoff"
    """The endpoint had refused the key or asked for fewer requests."""
    SKIPPED_BUDGET = "skipped_budget"
    """The day's budget was used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRecord:
    """A cycle that ran. Times are UTC; ``slot_at`` is when it was due, ``started_at`` when its turn came."""

    cycle_id: str
    target: str
    slot_at: datetime
    started_at: datetime
    ended_at: datetime
    outcome: CycleOutcome
    run_count: int
    missed_run_count: int
    """Runs of the plan that were not started, because they would not have ended before the next slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which runs are wanted, newest first; None means any. ``before_run_id`` continues an earlier answer."""

    target: str | None = None
    case_id: CaseId | None = None
    mode: Mode | None = None
    status: Status | None = None
    before_run_id: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesOverview:
    """The past of one (target, case, mode). Warm-ups and aborted runs are outside."""

    target: str
    case_id: CaseId
    mode: Mode
    last: RunResult
    visible_ttft_ms: tuple[float | None, ...]
    """Of the newest runs, oldest first; None where a run showed nothing."""
    counted: int
    """Runs since the time that was asked for."""
    passed: int
    last_failure: RunResult | None
    """The newest run that failed, however old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a target used since some time: every run counts, warm-ups too, and every token that was reported."""

    run_count: int
    token_count: int


def spent_tokens(result: RunResult) -> int:
    """All tokens that the model calls reported, also of a run in which some reported none."""
    total = 0
    for call in result.model_calls:
        if call.usage is not None:
            parts = (call.usage.prompt_tokens or 0) + (call.usage.completion_tokens or 0)
            total += parts if call.usage.total_tokens is None else call.usage.total_tokens
    return total

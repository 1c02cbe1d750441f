"""Several runs of one case and mode → one line, with a warning where its median is doubtful."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from agentbench_otel.records.results import RunResult, Status
from agentbench_otel.records.scenario import CaseId, Mode

TIMES = {
    "visible_ttft_ms": "visible TTFT",
    "token_ttft_ms": "token TTFT",
    "provider_await_ms": "elapsed",
    "provider_stream_ms": "stream",
    "turn_wall_time_ms": "turn wall",
    "tool_handler_ms": "tool handlers",
}
"""The times that are aggregated: field of `RunResult` → its name for people."""

_DOUBTFUL_SPREAD = 0.5
_NEGLIGIBLE_SPREAD_MS = 2.0
_ENOUGH_RUNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One time over ``n`` runs, in ms."""

    n: int
    median_ms: float
    min_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """``spreads``: by the fields of `TIMES`; a time that no run has measured is left out.

    Times are taken over the runs without an error, those that failed semantically included: ``passed`` of
    ``n`` stands beside them, so that fast wrong answers can't hide.
    """

    target: str
    case_id: CaseId
    mode: Mode
    n: int
    passed: int
    spreads: dict[str, Spread]
    warnings: tuple[str, ...]


def aggregate(runs: Iterable[RunResult]) -> list[Aggregate]:
    """One line per target, case and mode with more than one counted run, in the order of the runs."""
    groups: dict[tuple[str, CaseId, Mode], list[RunResult]] = {}
    for run in runs:
        if not run.warmup:
            groups.setdefault((run.target, run.case_id, run.mode), []).append(run)
    return [_aggregate(group) for group in groups.values() if len(group) > 1]


def _aggregate(runs: Sequence[RunResult]) -> Aggregate:
    spreads: dict[str, Spread] = {}
    for field in TIMES:
        values = [value for run in runs if run.error is None and (value := getattr(run, field)) is not None]
        if values:
            spreads[field] = Spread(
                n=len(values), median_ms=round(median(values), 3), min_ms=min(values), max_ms=max(values)
            )
    return Aggregate(
        target=runs[0].target,
        case_id=runs[0].case_id,
        mode=runs[0].mode,
        n=len(runs),
        passed=sum(run.status is Status.PASSED for run in runs),
        spreads=spreads,
        warnings=tuple(words for field, spread in spreads.items() if (words := _doubt(field, spread))),
    )


def _doubt(field: str, spread: Spread) -> str | None:
    """pyperf's manner: the number, and what to do about it."""
    width_ms = spread.max_ms - spread.min_ms
    if spread.n < 2 or width_ms <= max(_NEGLIGIBLE_SPREAD_MS, _DOUBTFUL_SPREAD * spread.median_ms):
        return None
    remedy = (
        f"raise runs_per_case to {_ENOUGH_RUNS} or more"
        if spread.n < _ENOUGH_RUNS
        else "look for other load on the client or the server, or for a cold start among the runs"
    )
    share = f", a width of {width_ms / spread.median_ms:.0%} of the median" if spread.median_ms else ""
    return (
        f"the median {TIMES[field]} of {spread.median_ms:.1f} ms is doubtful: {spread.n} runs lie between "
        f"{spread.min_ms:.1f} and {spread.max_ms:.1f} ms{share}; {remedy}"
    )

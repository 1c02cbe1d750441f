"""What the gauges tell of the last run of each (target, case, mode): exact numbers, until they are too old."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from agentbench_otel import names
from agentbench_otel.names import Metric
from agentbench_otel.records.results import RunResult, Status
from agentbench_otel.records.scenario import CaseId, Mode

SeriesKey = tuple[str, CaseId, Mode]
Labels = Mapping[str, str | int]
TOKEN_TYPES = ("input", "output", "cached", "reasoning")

_LIFETIME_INTERVALS = 3
_SHORTEST_LIFETIME_S = 900.0
"""A schedule of seconds must not make the gauges flicker between two slow cycles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPast:
    """``last``: the last counted run that was not aborted; None: there was none."""

    last: RunResult | None = None
    last_success_unix_s: float | None = None
    consecutive_failures: int = 0

    def with_run(self, result: RunResult) -> "SeriesPast":
        has_passed = result.status is Status.PASSED
        return SeriesPast(
            last=result,
            last_success_unix_s=result.started_at.timestamp() if has_passed else self.last_success_unix_s,
            consecutive_failures=0 if has_passed else self.consecutive_failures + 1,
        )


def series_labels(key: SeriesKey) -> dict[str, str | int]:
    target, case_id, mode = key
    return {names.L_TARGET: target, names.L_CASE: case_id.value, names.L_MODE: mode.value}


def lifetime_s(interval_s: float) -> float:
    """How long the numbers of a run are shown as the last ones."""
    return max(_LIFETIME_INTERVALS * interval_s, _SHORTEST_LIFETIME_S)


Observed = tuple[float, Labels]


def observe_past(metric: Metric, past: SeriesPast, labels: Labels) -> Iterator[Observed]:
    """What a gauge of the whole past says; it has no age at which it would mislead."""
    if metric is names.CONSECUTIVE_FAILURES:
        yield past.consecutive_failures, labels
    elif metric is names.LAST_SUCCESS_TIMESTAMP and past.last_success_unix_s is not None:
        yield past.last_success_unix_s, labels
    elif metric is names.LAST_RUN_TIMESTAMP and past.last is not None:
        yield past.last.started_at.timestamp(), labels


def observe_last(metric: Metric, result: RunResult, labels: Labels) -> Iterator[Observed]:
    """What a gauge of the last run says; nothing where the run did not measure it."""
    if metric is names.LAST_TOKENS:
        counts = (result.prompt_tokens, result.completion_tokens, result.cached_tokens, result.reasoning_tokens)
        for token_type, count in zip(TOKEN_TYPES, counts, strict=True):
            if count is not None:
                yield count, {**labels, names.L_TYPE: token_type}
        return
    value = _READINGS[metric](result)
    if value is not None:
        yield value, labels


def _s(time_ms: float | None) -> float | None:
    return None if time_ms is None else time_ms / 1000


def _greatest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


_READINGS: Mapping[Metric, Callable[[RunResult], float | None]] = {
    names.LAST_SUCCESS: lambda run: float(run.status is Status.PASSED),
    names.LAST_PROVIDER_TTFT: lambda run: _s(run.initial_provider_ttft_ms),
    names.LAST_TOKEN_TTFT: lambda run: _s(run.token_ttft_ms),
    names.LAST_VISIBLE_TTFT: lambda run: _s(run.visible_ttft_ms),
    names.LAST_TURN_WALL: lambda run: _s(run.turn_wall_time_ms),
    names.LAST_TURN_PROVIDER: lambda run: _s(run.turn_provider_ms),
    names.LAST_TURN_HANDLER: lambda run: _s(run.turn_handler_ms),
    names.LAST_TURN_HARNESS: lambda run: _s(run.harness_ms),
    names.LAST_PROVIDER_AWAIT: lambda run: _s(run.provider_await_ms),
    names.LAST_STREAM: lambda run: _s(run.provider_stream_ms),
    names.LAST_CONSUMER: lambda run: _s(run.consumer_ms),
    names.LAST_MAX_CHUNK_GAP: lambda run: _s(_greatest(call.max_chunk_gap_ms for call in run.model_calls)),
    names.LAST_OVERLAP: lambda run: _s(run.overlap_ms),
    names.LAST_CONCURRENCY: lambda run: run.max_handler_concurrency,
    names.LAST_PARALLEL: lambda run: (
        None if run.parallel_events_overlapped is None else float(run.parallel_events_overlapped)
    ),
}
LAST_GAUGES = (*_READINGS, names.LAST_TOKENS)
PAST_GAUGES = (names.LAST_RUN_TIMESTAMP, names.LAST_SUCCESS_TIMESTAMP, names.CONSECUTIVE_FAILURES)

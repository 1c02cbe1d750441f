"""Spans → times: of a model call, of the turn, of the tool handlers. All values are integer nanoseconds."""

from dataclasses import dataclass
from itertools import pairwise
from typing import overload

from agentbench_otel import names
from agentbench_otel.measurement.intervals import Interval, clip, max_concurrency, overlap_ns, union_ns
from agentbench_otel.measurement.tree import Call, RunTree


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTiming:
    """See `ModelCallResult` for the meaning of each time; here in ns."""

    provider_ttft_ns: int | None
    token_ttft_ns: int | None
    visible_ttft_ns: int | None
    elapsed_ns: int
    stream_ns: int | None
    consumer_ns: int
    await_count: int
    max_await_ns: int | None
    generated_count: int
    chunk_count: int
    max_chunk_gap_ns: int | None
    connect_ns: int | None
    tls_ns: int | None
    first_byte_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTiming:
    """The wall of a turn and its three parts, each >= 0; they sum to ``wall_ns`` exactly."""

    wall_ns: int
    provider_ns: int
    handler_ns: int
    harness_ns: int
    visible_ttft_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerTiming:
    """The handlers of a turn. The last two are None without any handler."""

    durations_ns: tuple[int, ...]
    """By the order of detection."""
    overlap_ns: int | None
    max_concurrency: int | None


@overload
def to_ms(time_ns: int) -> float: ...
@overload
def to_ms(time_ns: int | None) -> float | None: ...
def to_ms(time_ns: int | None) -> float | None:
    """Milliseconds with µs resolution, as results carry them; "not measured" stays that."""
    return None if time_ns is None else round(time_ns / 1e6, 3)


def time_call(call: Call) -> CallTiming:
    """Measure one model call.

    Elapsed is the sum of its provider awaits, the one that ended the stream or raised included; what the
    consumer did in between is outside. The other times run from the call's start to *arrivals*, so they do
    not depend on when the consumer asked.
    """
    start_ns = call.span.start_ns
    arrivals = [one for one in call.awaits if one.arrival_ns is not None]
    arrival_times = [one.arrival_ns for one in arrivals if one.arrival_ns is not None]
    generated = [one.arrival_ns for one in arrivals if one.is_generated and one.arrival_ns is not None]
    visible = [one.arrival_ns for one in arrivals if one.is_visible and one.arrival_ns is not None]
    chunks = sorted(set(generated))
    durations = [one.end_ns - one.start_ns for one in call.awaits]
    elapsed_ns = sum(durations)
    return CallTiming(
        provider_ttft_ns=min(arrival_times) - start_ns if arrival_times else None,
        token_ttft_ns=min(generated) - start_ns if generated else None,
        visible_ttft_ns=min(visible) - start_ns if visible else None,
        elapsed_ns=elapsed_ns,
        stream_ns=max(arrival_times) - start_ns if arrival_times else None,
        consumer_ns=call.span.duration_ns - elapsed_ns,
        await_count=len(call.awaits),
        max_await_ns=max(durations, default=None),
        generated_count=len(generated),
        chunk_count=len(chunks),
        max_chunk_gap_ns=max((later - earlier for earlier, later in pairwise(chunks)), default=None),
        connect_ns=_phase_ns(call, "connect"),
        tls_ns=_phase_ns(call, "tls"),
        first_byte_ns=_phase_ns(call, "first_byte"),
    )


def _phase_ns(call: Call, name: str) -> int | None:
    phase = call.phases.get(name)
    return None if phase is None else phase.end_ns - phase.start_ns


def time_turn(tree: RunTree) -> TurnTiming | None:
    """Split the wall time of the turn; None when no turn began.

    Every nanosecond counts once: as the provider's if any provider await is open, else as a handler's if any
    handler runs, else as the harness's. Parallel handlers count once: the user waited for the union.
    """
    if tree.turn is None:
        return None
    turn = Interval(tree.turn.start_ns, tree.turn.end_ns)
    awaits = clip((one.interval for call in tree.calls for one in call.awaits), turn)
    handlers = clip(_handler_intervals(tree), turn)
    wall_ns = max(0, turn.end_ns - turn.start_ns)
    provider_ns = union_ns(awaits)
    busy_ns = union_ns(awaits + handlers)
    first_visible_ns = min(
        (event.time_ns for event in tree.turn.events if event.name == names.FIRST_VISIBLE_MESSAGE_EVENT),
        default=None,
    )
    return TurnTiming(
        wall_ns=wall_ns,
        provider_ns=provider_ns,
        handler_ns=busy_ns - provider_ns,
        harness_ns=wall_ns - busy_ns,
        visible_ttft_ns=None if first_visible_ns is None else first_visible_ns - turn.start_ns,
    )


def time_handlers(tree: RunTree) -> HandlerTiming:
    """Durations, overlap (time with at least two handlers running) and the largest number at once."""
    intervals = _handler_intervals(tree)
    return HandlerTiming(
        durations_ns=tuple(interval.end_ns - interval.start_ns for interval in intervals),
        overlap_ns=overlap_ns(intervals) if intervals else None,
        max_concurrency=max_concurrency(intervals) if intervals else None,
    )


def _handler_intervals(tree: RunTree) -> list[Interval]:
    return [Interval(span.start_ns, span.end_ns) for span in tree.handlers]

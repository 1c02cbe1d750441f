"""The times of a run against an oracle that looks at every nanosecond of a short turn."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from agentbench_otel import names
from agentbench_otel.measurement.assemble import assemble
from agentbench_otel.measurement.timing import CallTiming, time_call, time_handlers, time_turn
from agentbench_otel.measurement.tree import read_run
from agentbench_otel.records.chat import CallKind, ItemKind
from agentbench_otel.records.spans import SpanEvent, SpanRecord
from tests.support.clock import T0_NS
from tests.support.spans import AwaitSketch, RunSpans

LENGTH = 40
ENDINGS = (ItemKind.END, ItemKind.ERROR)
GENERATED = (ItemKind.TEXT, ItemKind.REASONING, ItemKind.REFUSAL, ItemKind.TOOL_CALL_DELTA)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSketch:
    """A model call whose awaits may lie apart (a busy consumer); arrivals are where they like."""

    start_ns: int
    end_ns: int
    awaits: tuple[AwaitSketch, ...]
    kind: CallKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSketch:
    turn: tuple[int, int]
    calls: tuple[CallSketch, ...]
    handlers: tuple[tuple[int, int], ...]
    first_visible_ns: int | None

    def spans(self) -> list[SpanRecord]:
        run = RunSpans()
        run.run()
        events = (
            []
            if self.first_visible_ns is None
            else [SpanEvent(name=names.FIRST_VISIBLE_MESSAGE_EVENT, time_ns=self.first_visible_ns)]
        )
        run.turn(*self.turn, events=events)
        for call in self.calls:
            run.call(call.start_ns, call.end_ns, call.awaits, kind=call.kind)
        for start_ns, end_ns in self.handlers:
            run.handler(start_ns, end_ns)
        return run.spans


moments = st.integers(min_value=T0_NS, max_value=T0_NS + LENGTH)
stretches = st.tuples(moments, moments).map(lambda pair: (min(pair), max(pair)))


@st.composite
def call_sketches(draw: st.DrawFn) -> CallSketch:
    bounds = sorted(draw(st.lists(moments, min_size=2, max_size=10)))
    pairs = list(zip(bounds[::2], bounds[1::2], strict=False))
    awaits = []
    for start_ns, end_ns in pairs:
        kind = draw(st.sampled_from([kind for kind in ItemKind if kind not in ENDINGS]))
        arrival_ns, is_visible = draw(moments), kind is ItemKind.TEXT and draw(st.booleans())
        awaits.append(
            AwaitSketch(start_ns=start_ns, end_ns=end_ns, kind=kind, arrival_ns=arrival_ns, is_visible=is_visible)
        )
    if draw(st.booleans()):
        last = awaits.pop()
        awaits.append(AwaitSketch(start_ns=last.start_ns, end_ns=last.end_ns, kind=draw(st.sampled_from(ENDINGS))))
    end_ns = draw(st.integers(min_value=bounds[-1], max_value=T0_NS + LENGTH))
    return CallSketch(
        start_ns=bounds[0], end_ns=end_ns, awaits=tuple(awaits), kind=draw(st.sampled_from(list(CallKind)))
    )


run_sketches = st.builds(
    RunSketch,
    turn=stretches,  # calls and handlers may lie outside it, as when a task outlives its turn
    calls=st.lists(call_sketches(), max_size=3).map(tuple),
    handlers=st.lists(stretches, max_size=4).map(tuple),
    first_visible_ns=st.none() | moments,
)


def parts_by_moment(sketch: RunSketch) -> tuple[int, int, int]:
    """Provider, handler and harness time, asked of every nanosecond of the turn."""
    awaits = [(one.start_ns, one.end_ns) for call in sketch.calls for one in call.awaits]
    provider_ns = handler_ns = harness_ns = 0
    for moment in range(*sketch.turn):
        if any(start_ns <= moment < end_ns for start_ns, end_ns in awaits):
            provider_ns += 1
        elif any(start_ns <= moment < end_ns for start_ns, end_ns in sketch.handlers):
            handler_ns += 1
        else:
            harness_ns += 1
    return provider_ns, handler_ns, harness_ns


@given(run_sketches)
def test_every_nanosecond_of_the_turn_is_given_to_one_part(sketch: RunSketch) -> None:
    timing = time_turn(read_run(sketch.spans()))
    assert timing is not None
    assert (timing.provider_ns, timing.handler_ns, timing.harness_ns) == parts_by_moment(sketch)


@given(run_sketches)
def test_the_parts_are_not_negative_and_sum_to_the_wall_exactly(sketch: RunSketch) -> None:
    timing = time_turn(read_run(sketch.spans()))
    assert timing is not None
    parts = (timing.provider_ns, timing.handler_ns, timing.harness_ns)
    assert min(parts) >= 0
    assert sum(parts) == timing.wall_ns == sketch.turn[1] - sketch.turn[0]


@given(run_sketches)
def test_visible_ttft_runs_from_the_start_of_the_turn(sketch: RunSketch) -> None:
    timing = time_turn(read_run(sketch.spans()))
    assert timing is not None
    expected = None if sketch.first_visible_ns is None else sketch.first_visible_ns - sketch.turn[0]
    assert timing.visible_ttft_ns == expected


@given(run_sketches, st.randoms(use_true_random=False))
def test_the_order_of_the_spans_does_not_matter(sketch: RunSketch, chance: random.Random) -> None:
    spans = sketch.spans()
    shuffled = list(spans)
    chance.shuffle(shuffled)
    assert assemble(shuffled) == assemble(spans)


def time_only(call: CallSketch) -> CallTiming:
    run = RunSpans()
    run.run()
    run.call(call.start_ns, call.end_ns, call.awaits)
    return time_call(read_run(run.spans).calls[0])


@given(call_sketches())
def test_elapsed_is_the_sum_of_the_awaits_and_the_rest_is_the_consumers(call: CallSketch) -> None:
    timing = time_only(call)
    in_awaits = sum(
        any(one.start_ns <= moment < one.end_ns for one in call.awaits)
        for moment in range(call.start_ns, call.end_ns)
    )
    assert timing.elapsed_ns == in_awaits
    assert timing.consumer_ns == call.end_ns - call.start_ns - in_awaits
    assert timing.max_await_ns == max(one.end_ns - one.start_ns for one in call.awaits)
    assert timing.await_count == len(call.awaits)


def arrivals(call: CallSketch, kinds: Sequence[ItemKind] = tuple(ItemKind)) -> list[int]:
    return [one.arrival_ns for one in call.awaits if one.arrival_ns is not None and one.kind in kinds]


@given(call_sketches())
def test_first_and_last_times_are_those_of_the_earliest_and_latest_arrivals(call: CallSketch) -> None:
    timing = time_only(call)
    every, generated = sorted(arrivals(call)), sorted(arrivals(call, GENERATED))
    visible = sorted(one.arrival_ns for one in call.awaits if one.is_visible and one.arrival_ns is not None)
    assert timing.provider_ttft_ns == (every[0] - call.start_ns if every else None)
    assert timing.token_ttft_ns == (generated[0] - call.start_ns if generated else None)
    assert timing.visible_ttft_ns == (visible[0] - call.start_ns if visible else None)
    assert timing.stream_ns == (every[-1] - call.start_ns if every else None)


@given(call_sketches())
def test_chunks_are_the_distinct_arrivals_of_generated_pieces(call: CallSketch) -> None:
    timing = time_only(call)
    pieces = arrivals(call, GENERATED)
    is_read = [T0_NS + moment in pieces for moment in range(LENGTH + 1)]
    reads = [moment for moment, has_pieces in enumerate(is_read) if has_pieces]
    assert timing.generated_count == len(pieces)
    assert timing.chunk_count == len(reads)
    assert timing.max_chunk_gap_ns == max((later - earlier for earlier, later in pairwise(reads)), default=None)


@given(call_sketches(), st.integers(min_value=0, max_value=50))
def test_a_slower_consumer_changes_nothing_but_its_own_time(call: CallSketch, pause_ns: int) -> None:
    slower = CallSketch(
        start_ns=call.start_ns,
        end_ns=call.end_ns + pause_ns * len(call.awaits),
        awaits=tuple(
            AwaitSketch(
                start_ns=one.start_ns + pause_ns * position,
                end_ns=one.end_ns + pause_ns * position,
                kind=one.kind,
                arrival_ns=one.arrival_ns,
                is_visible=one.is_visible,
            )
            for position, one in enumerate(call.awaits)
        ),
        kind=call.kind,
    )
    quick, slow = time_only(call), time_only(slower)
    assert slow.consumer_ns == quick.consumer_ns + pause_ns * len(call.awaits)
    for name in CallTiming.__slots__:
        if name != "consumer_ns":
            assert getattr(slow, name) == getattr(quick, name), name


@given(st.lists(stretches, min_size=1, max_size=5))
def test_handlers_overlap_where_two_of_them_run(handlers: list[tuple[int, int]]) -> None:
    sketch = RunSketch(turn=(T0_NS, T0_NS + LENGTH), calls=(), handlers=tuple(handlers), first_visible_ns=None)
    timing = time_handlers(read_run(sketch.spans()))
    running = [
        sum(start_ns <= moment < end_ns for start_ns, end_ns in handlers)
        for moment in range(T0_NS, T0_NS + LENGTH)
    ]
    assert timing.overlap_ns == sum(count >= 2 for count in running)
    assert timing.max_concurrency == max(running)
    assert timing.durations_ns == tuple(end_ns - start_ns for start_ns, end_ns in handlers)

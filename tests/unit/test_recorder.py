"""The recorder makes the spans: their ids, parents and ends, and the two lazy sequences."""

import asyncio
import string
from collections.abc import Callable, Sequence

import pytest

from agentbench_otel import names
from agentbench_otel.errors import AgentError, ProviderError
from agentbench_otel.records.chat import ItemKind
from agentbench_otel.records.spans import SpanKind, SpanRecord
from agentbench_otel.telemetry.recorded_spans import CallMoments, RecordedSpans
from agentbench_otel.telemetry.recorder import OpenSpan, Recorder, error_type, error_words
from tests.support.clock import MS, T0_NS, ManualClock

SPANS_OF_ONE_CALL = 7
"""Run, turn, handler, call, phase and two awaits."""


def finish_nothing(span: OpenSpan) -> None:
    del span


def moments_of(*kinds: ItemKind, start_ns: int = T0_NS) -> CallMoments:
    """A call with one await of 1 ms after the other; items arrive when their await ends."""
    moments = CallMoments(start_ns)
    for position, kind in enumerate(kinds):
        asked_ns = start_ns + position * MS
        is_item = kind not in (ItemKind.END, ItemKind.ERROR)
        moments.append(asked_ns, asked_ns + MS, asked_ns + MS if is_item else 0, kind)
    return moments


def record_call(recorder: Recorder, moments: CallMoments, *phases: tuple[str, int, int]) -> None:
    recorder.open_call(moments)
    recorder.close_call(moments, name="chat tiny", end_ns=T0_NS + 9 * MS, attributes={}, phases=phases, error=None)


def awaits_of(moments: CallMoments) -> Sequence[SpanRecord]:
    recorder = Recorder(ManualClock())
    record_call(recorder, moments)
    return [span for span in recorder.spans() if span.name == names.AWAIT_SPAN]


def record_run() -> RecordedSpans:
    """A run with one of everything."""
    clock = ManualClock()
    recorder = Recorder(clock)
    run = recorder.start_run("ordinary_chat", {names.TARGET: "local"})
    with recorder.turn("conversation", finish_nothing):
        record_call(recorder, moments_of(ItemKind.TEXT, ItemKind.END), ("connect", T0_NS, T0_NS + MS))
        with recorder.tool_handler("session.terminate", {}):
            clock.advance_ms(1)
    run.end(clock())
    return recorder.spans()


def by_name(spans: Sequence[SpanRecord]) -> dict[str, SpanRecord]:
    return {span.name: span for span in spans}


# --- ids and parents ---------------------------------------------------------------------------------------


def test_ids_are_lower_case_hex_of_the_right_length() -> None:
    digits = set(string.hexdigits.lower())
    for span in record_run():
        assert len(span.trace_id) == 32
        assert len(span.span_id) == 16
        assert set(span.trace_id + span.span_id) <= digits
        assert int(span.span_id, 16) != 0


def test_all_spans_of_a_run_share_one_trace_and_no_span_id() -> None:
    spans = record_run()
    assert len({span.trace_id for span in spans}) == 1
    assert len({span.span_id for span in spans}) == len(spans) == SPANS_OF_ONE_CALL


def test_two_runs_have_two_traces() -> None:
    assert Recorder(ManualClock()).trace_id != Recorder(ManualClock()).trace_id


def test_parents_are_run_turn_and_call() -> None:
    spans = by_name(record_run())
    run, turn, call = spans["agentbench.run ordinary_chat"], spans["invoke_agent agentbench"], spans["chat tiny"]
    assert run.parent_span_id is None
    assert turn.parent_span_id == run.span_id
    assert call.parent_span_id == turn.span_id
    assert spans["execute_tool session.terminate"].parent_span_id == turn.span_id
    assert spans["agentbench.http.connect"].parent_span_id == call.span_id
    assert spans["agentbench.provider.await"].parent_span_id == call.span_id


def test_a_call_outside_a_turn_belongs_to_the_run() -> None:
    recorder = Recorder(ManualClock())
    run = recorder.start_run("case", {})
    record_call(recorder, moments_of(ItemKind.END))
    assert by_name(recorder.spans())["chat tiny"].parent_span_id == run.span_id


def test_a_call_of_a_recorder_without_a_run_is_a_root() -> None:
    recorder = Recorder(ManualClock())
    record_call(recorder, moments_of(ItemKind.END))
    assert by_name(recorder.spans())["chat tiny"].parent_span_id is None


def test_a_handler_outside_a_turn_is_a_root() -> None:
    recorder = Recorder(ManualClock())
    with recorder.tool_handler("tool", {}):
        pass
    (handler,) = recorder.spans()
    assert handler.parent_span_id is None


def test_only_the_model_call_is_a_client_span() -> None:
    assert [span.name for span in record_run() if span.kind is SpanKind.CLIENT] == ["chat tiny"]


# --- times and ends ----------------------------------------------------------------------------------------


def test_a_span_runs_from_the_start_to_the_end_of_its_block() -> None:
    clock = ManualClock()
    recorder = Recorder(clock)
    recorder.start_run("case", {})
    clock.advance_ms(1)
    with recorder.turn("conversation", finish_nothing):
        clock.advance_ms(5)
        with recorder.tool_handler("tool", {}):
            clock.advance_ms(2)
    spans = by_name(recorder.spans())
    turn, handler = spans["invoke_agent agentbench"], spans["execute_tool tool"]
    assert (turn.start_ns, turn.end_ns) == (T0_NS + 1 * MS, T0_NS + 8 * MS)
    assert (handler.start_ns, handler.end_ns) == (T0_NS + 6 * MS, T0_NS + 8 * MS)


def test_bookkeeping_at_the_end_of_the_turn_costs_the_turn_nothing() -> None:
    clock = ManualClock()
    recorder = Recorder(clock)
    recorder.start_run("case", {})

    def finish(span: OpenSpan) -> None:
        clock.advance_ms(100)
        span.attributes["written"] = "late"

    with recorder.turn("conversation", finish):
        clock.advance_ms(5)
    (turn,) = recorder.spans()
    assert turn.duration_ns == 5 * MS
    assert turn.attributes["written"] == "late"


ENDINGS: list[tuple[BaseException, str, str]] = [
    (ProviderError("http_429", "slow down"), "http_429", "slow down"),
    (AgentError("lost"), "agent_error", "lost"),
    (ValueError("odd"), "ValueError", "odd"),
    (ValueError(), "ValueError", "ValueError"),
    (asyncio.CancelledError(), "cancelled", "CancelledError"),
    (KeyboardInterrupt(), "KeyboardInterrupt", "KeyboardInterrupt"),
]


@pytest.mark.parametrize(("error", "kind", "words"), ENDINGS, ids=[kind for _, kind, _ in ENDINGS])
def test_any_error_has_a_type_and_words(error: BaseException, kind: str, words: str) -> None:
    assert error_type(error) == kind
    assert error_words(error) == words


@pytest.mark.parametrize(("error", "kind", "words"), ENDINGS, ids=[kind for _, kind, _ in ENDINGS])
def test_any_error_ends_the_spans_at_its_moment_and_goes_on(error: BaseException, kind: str, words: str) -> None:
    clock = ManualClock()
    recorder = Recorder(clock)
    recorder.start_run("case", {})
    with (  # noqa: PT012 - the clock has to move inside
        pytest.raises(type(error)) as raised,
        recorder.turn("conversation", lambda span: clock.advance_ms(100)),
        recorder.tool_handler("tool", {}),
    ):
        clock.advance_ms(3)
        raise error
    assert raised.value is error
    assert len(recorder.spans()) == 2
    for span in recorder.spans():
        assert span.end_ns == T0_NS + 3 * MS
        assert span.attributes[names.ERROR_TYPE] == kind
        assert span.error == words


def test_a_span_that_ended_well_has_no_error() -> None:
    for span in record_run():
        assert span.error is None
        assert names.ERROR_TYPE not in span.attributes


def test_an_error_that_was_dealt_with_is_noted_all_the_same() -> None:
    recorder = Recorder(ManualClock())
    recorder.start_run("case", {})
    with recorder.turn("conversation", finish_nothing) as span:
        span.failure = AgentError("lost")
    (turn,) = recorder.spans()
    assert turn.error == "lost"


def test_an_error_that_leaves_the_block_replaces_one_that_was_dealt_with() -> None:
    recorder = Recorder(ManualClock())
    recorder.start_run("case", {})
    with (  # noqa: PT012 - the span is known inside only
        pytest.raises(ValueError),
        recorder.turn("conversation", finish_nothing) as span,
    ):
        span.failure = AgentError("lost")
        raise ValueError("odd")
    (turn,) = recorder.spans()
    assert turn.error == "odd"


def test_a_span_can_be_looked_at_before_it_ends() -> None:
    recorder = Recorder(ManualClock())
    run = recorder.start_run("case", {"early": 1})
    preview = run.record(T0_NS + 5)
    run.attributes["late"] = 2
    run.end(T0_NS + 9)
    assert (preview.end_ns, preview.attributes) == (T0_NS + 5, {"early": 1})
    (span,) = recorder.spans()
    assert (span.end_ns, span.attributes) == (T0_NS + 9, {"early": 1, "late": 2})
    assert span.span_id == preview.span_id


def test_events_keep_their_own_times_and_order() -> None:
    recorder = Recorder(ManualClock())
    run = recorder.start_run("case", {})
    run.add_event("second", T0_NS + 2, {"n": 1})
    run.add_event("first", T0_NS + 1)
    run.end(T0_NS + 9)
    (span,) = recorder.spans()
    assert [(event.name, event.time_ns, event.attributes) for event in span.events] == [
        ("second", T0_NS + 2, {"n": 1}),
        ("first", T0_NS + 1, {}),
    ]


def test_handlers_carry_the_tool_and_what_they_were_given() -> None:
    recorder = Recorder(ManualClock())
    recorder.start_run("case", {})
    with recorder.turn("conversation", finish_nothing), recorder.tool_handler("tool", {names.EVENT_INDEX: 3}):
        pass
    handler = by_name(recorder.spans())["execute_tool tool"]
    assert handler.attributes == {
        names.OPERATION_NAME: "execute_tool",
        names.TOOL_NAME: "tool",
        names.EVENT_INDEX: 3,
    }


def test_parallel_handlers_end_on_their_own() -> None:
    clock = ManualClock()
    recorder = Recorder(clock)
    recorder.start_run("case", {})

    async def handle(tool: str, first: asyncio.Event, second: asyncio.Event) -> None:
        with recorder.tool_handler(tool, {}):
            first.set()
            await second.wait()
            clock.advance_ms(1)

    async def both() -> None:
        one, two = asyncio.Event(), asyncio.Event()
        with recorder.turn("conversation", finish_nothing):
            await asyncio.gather(handle("one", one, two), handle("two", two, one))

    asyncio.run(both())
    spans = by_name(recorder.spans())
    ends = {spans["execute_tool one"].end_ns, spans["execute_tool two"].end_ns}
    assert ends == {T0_NS + 1 * MS, T0_NS + 2 * MS}
    assert spans["execute_tool one"].start_ns == spans["execute_tool two"].start_ns == T0_NS


# --- one turn, one call at a time --------------------------------------------------------------------------


def test_a_turn_needs_a_run() -> None:
    with (
        pytest.raises(RuntimeError, match="it starts after the run"),
        Recorder(ManualClock()).turn("conversation", finish_nothing),
    ):
        pass


def test_a_run_has_one_turn() -> None:
    recorder = Recorder(ManualClock())
    recorder.start_run("case", {})
    with recorder.turn("conversation", finish_nothing):
        pass
    with pytest.raises(RuntimeError, match="a run has one turn"), recorder.turn("again", finish_nothing):
        pass


def test_calls_are_counted_from_one() -> None:
    recorder = Recorder(ManualClock())
    first, second = moments_of(ItemKind.END), moments_of(ItemKind.END)
    assert recorder.open_call(first) == 1
    recorder.close_call(first, name="chat", end_ns=T0_NS, attributes={}, phases=[], error=None)
    assert recorder.open_call(second) == 2


def test_two_calls_at_once_are_refused() -> None:
    recorder = Recorder(ManualClock())
    recorder.open_call(moments_of())
    with pytest.raises(RuntimeError, match="one model call at a time"):
        recorder.open_call(moments_of())


def test_marking_without_an_open_call_does_nothing() -> None:
    recorder = Recorder(ManualClock())
    moments = moments_of(ItemKind.TEXT)
    record_call(recorder, moments)
    recorder.mark_visible()
    assert by_name(recorder.spans())[names.AWAIT_SPAN].attributes[names.ITEM_VISIBLE] is False


# --- awaits ------------------------------------------------------------------------------------------------


def test_an_await_carries_what_the_measurement_needs() -> None:
    (span,) = awaits_of(moments_of(ItemKind.TEXT))
    assert (span.start_ns, span.end_ns) == (T0_NS, T0_NS + MS)
    assert span.attributes == {
        names.AWAIT_INDEX: 0,
        names.ITEM_KIND: "text",
        names.ITEM_ARRIVAL: T0_NS + MS,
        names.ITEM_GENERATED: True,
        names.ITEM_VISIBLE: False,
    }


@pytest.mark.parametrize("kind", [ItemKind.END, ItemKind.ERROR])
def test_an_await_without_an_item_carries_its_ending_alone(kind: ItemKind) -> None:
    (span,) = awaits_of(moments_of(kind))
    assert span.attributes == {names.AWAIT_INDEX: 0, names.ITEM_KIND: kind.value}


@pytest.mark.parametrize("kind", [ItemKind.TEXT, ItemKind.REASONING, ItemKind.REFUSAL, ItemKind.TOOL_CALL_DELTA])
def test_pieces_of_the_model_are_generated(kind: ItemKind) -> None:
    (span,) = awaits_of(moments_of(kind))
    assert span.attributes[names.ITEM_GENERATED] is True


@pytest.mark.parametrize("kind", [ItemKind.RAW_CHUNK, ItemKind.TOOL_CALL, ItemKind.USAGE, ItemKind.FINISH])
def test_other_items_are_not_generated(kind: ItemKind) -> None:
    (span,) = awaits_of(moments_of(kind))
    assert span.attributes[names.ITEM_GENERATED] is False


def test_the_item_handed_out_last_is_the_one_marked_visible() -> None:
    recorder = Recorder(ManualClock())
    moments = CallMoments(T0_NS)
    recorder.open_call(moments)
    for position in range(3):
        moments.append(T0_NS, T0_NS, T0_NS + 1, ItemKind.TEXT)
        if position == 1:
            recorder.mark_visible()
    recorder.close_call(moments, name="chat", end_ns=T0_NS, attributes={}, phases=[], error=None)
    awaits = [span for span in recorder.spans() if span.name == names.AWAIT_SPAN]
    assert [span.attributes[names.ITEM_VISIBLE] for span in awaits] == [False, True, False]


def test_phases_are_child_spans_with_their_own_times() -> None:
    recorder = Recorder(ManualClock())
    record_call(
        recorder,
        moments_of(ItemKind.END),
        ("connect", T0_NS, T0_NS + 2),
        ("first_byte", T0_NS + 2, T0_NS + 7),
    )
    spans = by_name(recorder.spans())
    assert (spans["agentbench.http.connect"].start_ns, spans["agentbench.http.connect"].end_ns) == (
        T0_NS,
        T0_NS + 2,
    )
    assert spans["agentbench.http.first_byte"].duration_ns == 5


def test_spans_are_those_that_have_ended_so_far() -> None:
    recorder = Recorder(ManualClock())
    run = recorder.start_run("case", {})
    assert list(recorder.spans()) == []
    before = recorder.spans()
    record_call(recorder, moments_of(ItemKind.END))
    run.end(T0_NS)
    assert len(before) == 0
    assert len(recorder.spans()) == 3


# --- the lazy sequences ------------------------------------------------------------------------------------


def all_of_a_run() -> Sequence[SpanRecord]:
    return record_run()


def awaits_of_a_call() -> Sequence[SpanRecord]:
    recorder = Recorder(ManualClock())
    record_call(recorder, moments_of(ItemKind.RAW_CHUNK, ItemKind.TEXT, ItemKind.TEXT, ItemKind.END))
    return recorder._awaits[0]


def nothing_at_all() -> Sequence[SpanRecord]:
    return Recorder(ManualClock()).spans()


sequences = pytest.mark.parametrize("make", [all_of_a_run, awaits_of_a_call, nothing_at_all])


@sequences
def test_iterating_twice_gives_equal_spans(make: Callable[[], Sequence[SpanRecord]]) -> None:
    spans = make()
    assert list(spans) == list(spans)
    assert len(spans) == len(list(spans))


@sequences
def test_indexes_work_as_in_a_list(make: Callable[[], Sequence[SpanRecord]]) -> None:
    spans = make()
    as_list = list(spans)
    for index in range(-len(as_list), len(as_list)):
        assert spans[index] == as_list[index]


@sequences
@pytest.mark.parametrize("beyond", [0, 1, 2])
def test_an_index_beyond_either_end_is_an_index_error(
    make: Callable[[], Sequence[SpanRecord]], beyond: int
) -> None:
    spans = make()
    with pytest.raises(IndexError):
        spans[len(spans) + beyond]
    with pytest.raises(IndexError):
        spans[-len(spans) - 1 - beyond]


@sequences
def test_slices_work_as_in_a_list(make: Callable[[], Sequence[SpanRecord]]) -> None:
    spans = make()
    as_list = list(spans)
    for part in (slice(None), slice(1, 3), slice(-2, None), slice(None, None, -1), slice(0, 99, 2), slice(5, 2)):
        assert list(spans[part]) == as_list[part]


@sequences
def test_membership_and_position_work_as_in_a_list(make: Callable[[], Sequence[SpanRecord]]) -> None:
    spans = make()
    for position, span in enumerate(list(spans)):
        assert span in spans
        assert spans.index(span) == position
    assert list(reversed(spans)) == list(spans)[::-1]

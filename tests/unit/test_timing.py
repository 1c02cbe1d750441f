"""The times of calls, turns and handlers, one example for each promise."""

import pytest

from agentbench_otel import names
from agentbench_otel.measurement.facts import measure_run
from agentbench_otel.measurement.timing import (
    CallTiming,
    HandlerTiming,
    TurnTiming,
    time_call,
    time_handlers,
    time_turn,
    to_ms,
)
from agentbench_otel.measurement.tree import read_run
from agentbench_otel.records.chat import CallKind, ItemKind
from agentbench_otel.records.spans import SpanEvent
from tests.support.clock import T0_NS
from tests.support.spans import AwaitSketch, RunSpans, item


def timed(
    *awaits: AwaitSketch, start_ns: int = 0, end_ns: int = 100, phases: dict[str, tuple[int, int]] | None = None
) -> CallTiming:
    run = RunSpans()
    run.run()
    run.call(start_ns, end_ns, awaits, phases=phases)
    return time_call(read_run(run.spans).calls[0])


def turn_of(run: RunSpans) -> TurnTiming:
    timing = time_turn(read_run(run.spans))
    assert timing is not None
    return timing


def handlers_of(*stretches: tuple[int, int]) -> HandlerTiming:
    run = RunSpans()
    run.run()
    run.turn(0, 1_000)
    for start_ns, end_ns in stretches:
        run.handler(start_ns, end_ns)
    return time_handlers(read_run(run.spans))


# --- model calls -------------------------------------------------------------------------------------------


def test_elapsed_leaves_out_what_the_consumer_did_between_items() -> None:
    timing = timed(item(0, 10), item(50, 55), item(90, 92, ItemKind.END))
    assert timing.elapsed_ns == 10 + 5 + 2
    assert timing.consumer_ns == 100 - 17


def test_elapsed_includes_the_await_that_ended_the_stream() -> None:
    assert timed(item(0, 10), item(10, 40, ItemKind.END)).elapsed_ns == 40


def test_elapsed_includes_the_await_that_raised() -> None:
    assert timed(item(0, 10), item(10, 70, ItemKind.ERROR)).elapsed_ns == 70


def test_provider_ttft_is_the_arrival_of_an_item_of_any_kind() -> None:
    timing = timed(item(0, 10, ItemKind.RAW_CHUNK, arrival_ns=7), item(10, 30))
    assert timing.provider_ttft_ns == 7


@pytest.mark.parametrize("kind", [ItemKind.TEXT, ItemKind.REASONING, ItemKind.REFUSAL, ItemKind.TOOL_CALL_DELTA])
def test_token_ttft_is_the_arrival_of_the_first_generated_piece(kind: ItemKind) -> None:
    timing = timed(item(0, 10, ItemKind.RAW_CHUNK), item(10, 30, kind), item(30, 50))
    assert timing.token_ttft_ns == 30


@pytest.mark.parametrize("kind", [ItemKind.RAW_CHUNK, ItemKind.USAGE, ItemKind.FINISH, ItemKind.TOOL_CALL])
def test_an_item_without_a_generated_piece_gives_no_token_ttft(kind: ItemKind) -> None:
    assert timed(item(0, 10, kind)).token_ttft_ns is None


def test_a_calls_visible_ttft_is_the_arrival_of_its_first_visible_item() -> None:
    timing = timed(item(0, 10), item(10, 30, is_visible=True, arrival_ns=25), item(30, 50, is_visible=True))
    assert timing.visible_ttft_ns == 25


def test_a_call_without_visible_text_has_no_visible_ttft() -> None:
    assert timed(item(0, 10)).visible_ttft_ns is None


def test_stream_time_ends_with_the_last_arrival_not_with_the_end_of_the_body() -> None:
    timing = timed(item(0, 10), item(10, 30, ItemKind.USAGE, arrival_ns=28), item(30, 90, ItemKind.END))
    assert timing.stream_ns == 28


def test_times_run_from_the_start_of_the_call() -> None:
    timing = timed(item(1_000, 1_010, is_visible=True), start_ns=1_000, end_ns=1_100)
    assert timing.provider_ttft_ns == timing.token_ttft_ns == timing.visible_ttft_ns == timing.stream_ns == 10


def test_arrivals_before_the_consumer_asked_count_as_they_are() -> None:
    timing = timed(item(0, 10), item(80, 81, arrival_ns=12), item(90, 91, arrival_ns=13))
    assert timing.stream_ns == 13
    assert timing.max_chunk_gap_ns == 2


def test_a_call_that_got_nothing_has_an_elapsed_time_and_no_arrival_times() -> None:
    timing = timed(item(0, 60, ItemKind.ERROR))
    assert timing.elapsed_ns == timing.max_await_ns == 60
    assert timing.provider_ttft_ns is timing.token_ttft_ns is timing.stream_ns is None
    assert timing.chunk_count == timing.generated_count == 0


def test_a_call_without_any_await_has_no_longest_one() -> None:
    timing = timed()
    assert timing.max_await_ns is None
    assert timing.elapsed_ns == timing.await_count == 0


def test_pieces_that_came_in_one_read_are_one_chunk() -> None:
    timing = timed(item(0, 10, arrival_ns=9), item(10, 11, arrival_ns=9), item(11, 30, arrival_ns=29))
    assert timing.generated_count == 3
    assert timing.chunk_count == 2
    assert timing.max_chunk_gap_ns == 20


def test_the_chunk_gap_is_the_longest_one() -> None:
    assert timed(item(0, 10), item(10, 15), item(15, 45), item(45, 50)).max_chunk_gap_ns == 30


def test_the_wait_for_usage_is_no_chunk_gap() -> None:
    assert timed(item(0, 10), item(10, 15), item(15, 95, ItemKind.USAGE)).max_chunk_gap_ns == 5


def test_one_chunk_has_no_gap() -> None:
    assert timed(item(0, 10)).max_chunk_gap_ns is None


def test_phases_are_timed_by_name() -> None:
    timing = timed(item(0, 10), phases={"connect": (0, 3), "tls": (3, 8), "send": (8, 9), "first_byte": (9, 20)})
    assert (timing.connect_ns, timing.tls_ns, timing.first_byte_ns) == (3, 5, 11)


def test_a_phase_that_did_not_happen_is_not_zero() -> None:
    timing = timed(item(0, 10))
    assert timing.connect_ns is timing.tls_ns is timing.first_byte_ns is None


# --- the turn ----------------------------------------------------------------------------------------------


def test_a_run_without_a_turn_has_no_turn_times() -> None:
    run = RunSpans()
    run.run()
    assert time_turn(read_run(run.spans)) is None


def test_parallel_handlers_count_once() -> None:
    run = RunSpans()
    run.run()
    run.turn(0, 100)
    run.handler(10, 60)
    run.handler(20, 70)
    assert turn_of(run).handler_ns == 60
    assert turn_of(run).harness_ns == 40


def test_a_handler_under_an_open_provider_await_is_the_providers_time() -> None:
    run = RunSpans()
    run.run()
    run.turn(0, 100)
    run.call(0, 50, [item(0, 50)])
    run.handler(40, 60)
    assert (turn_of(run).provider_ns, turn_of(run).handler_ns, turn_of(run).harness_ns) == (50, 10, 40)


def test_the_consumers_pauses_are_harness_time() -> None:
    run = RunSpans()
    run.run()
    run.turn(0, 100)
    run.call(0, 100, [item(0, 10), item(90, 100)])
    assert (turn_of(run).provider_ns, turn_of(run).harness_ns) == (20, 80)


def test_what_lies_outside_the_turn_is_not_part_of_it() -> None:
    run = RunSpans()
    run.run()
    run.turn(100, 200)
    run.call(50, 120, [item(50, 120)])
    run.handler(190, 260)
    run.handler(300, 400)
    timing = turn_of(run)
    assert (timing.wall_ns, timing.provider_ns, timing.handler_ns, timing.harness_ns) == (100, 20, 10, 70)


def test_visible_ttft_of_the_turn_is_when_its_first_message_was_put() -> None:
    run = RunSpans()
    run.run()
    event = SpanEvent(name=names.FIRST_VISIBLE_MESSAGE_EVENT, time_ns=T0_NS + 30)
    run.turn(T0_NS, T0_NS + 100, events=[event])
    assert turn_of(run).visible_ttft_ns == 30


def test_visible_ttft_of_the_turn_is_the_earliest_one_told() -> None:
    run = RunSpans()
    run.run()
    moments = (T0_NS + 40, T0_NS + 30, T0_NS + 50)
    events = [SpanEvent(name=names.FIRST_VISIBLE_MESSAGE_EVENT, time_ns=time_ns) for time_ns in moments]
    run.turn(T0_NS, T0_NS + 100, events=events)
    assert turn_of(run).visible_ttft_ns == 30


def test_a_turn_without_a_visible_message_has_no_visible_ttft() -> None:
    run = RunSpans()
    run.run()
    run.turn(0, 100, events=[SpanEvent(name=names.AUDIT_EVENT, time_ns=5)])
    assert turn_of(run).visible_ttft_ns is None


# --- handlers ----------------------------------------------------------------------------------------------


def test_overlap_is_the_time_in_which_two_handlers_ran() -> None:
    timing = handlers_of((10, 60), (50, 90))
    assert (timing.overlap_ns, timing.max_concurrency) == (10, 2)


def test_handlers_that_only_touch_did_not_overlap() -> None:
    timing = handlers_of((10, 50), (50, 90))
    assert (timing.overlap_ns, timing.max_concurrency) == (0, 1)


def test_the_overlap_of_three_handlers_counts_each_moment_once() -> None:
    timing = handlers_of((0, 100), (10, 40), (20, 60))
    assert (timing.overlap_ns, timing.max_concurrency) == (50, 3)


def test_one_handler_has_no_overlap() -> None:
    timing = handlers_of((10, 60))
    assert (timing.overlap_ns, timing.max_concurrency) == (0, 1)


def test_without_a_handler_nothing_is_said_about_overlap() -> None:
    timing = handlers_of()
    assert timing.overlap_ns is timing.max_concurrency is None
    assert timing.durations_ns == ()


def test_handler_times_keep_the_order_of_detection() -> None:
    run = RunSpans()
    run.run()
    run.turn(0, 100)
    run.handler(50, 59, index=1)
    run.handler(10, 13, index=0)
    assert time_handlers(read_run(run.spans)).durations_ns == (3, 9)


def have_overlapped(first: tuple[int, int], second: tuple[int, int]) -> bool:
    run = RunSpans()
    run.run()
    run.turn(0, 100)
    run.handler(*first)
    run.handler(*second)
    return measure_run(run.spans).have_handlers_overlapped


def test_a_nanosecond_of_overlap_is_overlap_and_none_is_not() -> None:
    assert have_overlapped((10, 51), (50, 90))
    assert not have_overlapped((10, 50), (50, 90))


@pytest.mark.parametrize(
    ("time_ns", "time_ms"), [(0, 0.0), (1_499, 0.001), (1_501, 0.002), (1_234_567_890, 1_234.568), (None, None)]
)
def test_milliseconds_have_microsecond_resolution(time_ns: int | None, time_ms: float | None) -> None:
    assert to_ms(time_ns) == time_ms


def test_calls_are_ordered_by_their_index() -> None:
    run = RunSpans()
    run.run()
    run.call(50, 60, attributes={names.CALL_INDEX: 2}, kind=CallKind.ARGUMENT_FALLBACK)
    run.call(10, 20, attributes={names.CALL_INDEX: 1})
    assert [call.span.start_ns for call in read_run(run.spans).calls] == [10, 50]

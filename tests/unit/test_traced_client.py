"""What the traced client records of a model call, with a clock that only the provider and the consumer move."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import pytest

from agentbench_otel import names
from agentbench_otel.agent.adapters import in_memory_handlers
from agentbench_otel.agent.executor import ConcurrentExecutor
from agentbench_otel.agent.runtime import AgentRuntime, TurnRequest
from agentbench_otel.agent.tools import ToolRegistry
from agentbench_otel.errors import ProviderError, RunError
from agentbench_otel.measurement.timing import CallTiming, time_call
from agentbench_otel.measurement.tree import Call, read_run
from agentbench_otel.ports import ChatClient
from agentbench_otel.records.chat import (
    CallKind,
    ChatMessage,
    ChatRequest,
    Exchange,
    ItemKind,
    Phase,
    StreamItem,
    TokenUsage,
)
from agentbench_otel.records.scenario import Mode
from agentbench_otel.records.spans import AttributeValue, SpanKind, SpanRecord
from agentbench_otel.records.turn import OutputMessage
from agentbench_otel.telemetry.recorder import Recorder
from agentbench_otel.telemetry.traced_client import TracedChatClient
from tests.support.agent_fakes import run_in_virtual_time
from tests.support.clients import ScriptedStream, Stream, StreamsClient, text_item, usage_item
from tests.support.clock import MS, T0_NS, ManualClock

REQUEST = ChatRequest(messages=(ChatMessage(role="user", content="Hello."),))


def lost() -> ProviderError:
    return ProviderError("stream_truncated", "the stream ended too early")


class Bench:
    """A recorder and a traced client on a clock by hand."""

    def __init__(self, *streams: Stream, inner: ChatClient | None = None) -> None:
        self.clock = ManualClock()
        self.recorder = Recorder(self.clock)
        self._run = self.recorder.start_run("case", {})
        self.client = TracedChatClient(
            inner or StreamsClient(*streams), self.recorder, model="tiny", attributes={names.PROVIDER_NAME: "fake"}
        )

    async def consume(
        self, *, pause_ms: int = 0, request: ChatRequest = REQUEST, exchange: Exchange | None = None
    ) -> list[StreamItem]:
        """Take the whole stream; after each item the consumer is busy for ``pause_ms``."""
        items = []
        async with aclosing(self.client.stream_chat(request, exchange or Exchange())) as stream:
            async for item in stream:
                items.append(item)
                self.clock.advance_ms(pause_ms)
        return items

    @property
    def calls(self) -> tuple[Call, ...]:
        return read_run([*self.recorder.spans(), self._run.record(self.clock())]).calls

    @property
    def call(self) -> Call:
        (call,) = self.calls
        return call

    @property
    def timing(self) -> CallTiming:
        return time_call(self.call)

    @property
    def attributes(self) -> dict[str, AttributeValue]:
        return dict(self.call.span.attributes)


def paced(bench: Bench, *items: StreamItem, wait_ms: int = 10, error: BaseException | None = None) -> Stream:
    """A provider that takes ``wait_ms`` for each item, and as long again for its end or its error."""

    async def stream(request: ChatRequest, exchange: Exchange) -> AsyncGenerator[StreamItem, None]:
        del request, exchange
        for item in items:
            bench.clock.advance_ms(wait_ms)
            yield item
        bench.clock.advance_ms(wait_ms)
        if error is not None:
            raise error

    return stream


def bench_with(make: Callable[[Bench], Stream]) -> Bench:
    """A bench whose provider moves the bench's own clock."""
    client = StreamsClient()
    bench = Bench(inner=client)
    client.add(make(bench))
    return bench


def bench_of(*items: StreamItem, wait_ms: int = 10, error: BaseException | None = None) -> Bench:
    return bench_with(lambda bench: paced(bench, *items, wait_ms=wait_ms, error=error))


def bench_of_iterator(
    *steps: StreamItem | BaseException,
    wait_ms: int = 0,
    close_error: BaseException | None = None,
    close_ms: int = 0,
) -> tuple[Bench, ScriptedStream]:
    bench = Bench(inner=(client := StreamsClient()))
    stream = ScriptedStream(bench.clock, steps, wait_ms=wait_ms, close_error=close_error, close_ms=close_ms)
    client.add(lambda request, exchange: stream)
    return bench, stream


async def close_after_one_item(bench: Bench) -> None:
    stream = bench.client.stream_chat(REQUEST, Exchange())
    await anext(stream)
    bench.clock.advance_ms(5)
    await stream.aclose()


# --- elapsed -----------------------------------------------------------------------------------------------


def test_items_are_handed_on_as_they_are() -> None:
    items = [text_item(T0_NS + 1, "a"), text_item(T0_NS + 2, "b")]
    assert asyncio.run(bench_of(*items).consume()) == items


def test_elapsed_is_the_sum_of_the_awaits_with_the_one_that_ended_the_stream() -> None:
    bench = bench_of(text_item(T0_NS + 1), text_item(T0_NS + 2))
    asyncio.run(bench.consume())
    assert bench.timing.elapsed_ns == 3 * 10 * MS
    assert bench.timing.await_count == 3


def test_elapsed_includes_the_await_that_raised() -> None:
    bench = bench_of(text_item(T0_NS + 1), error=lost())
    with pytest.raises(ProviderError):
        asyncio.run(bench.consume())
    assert bench.timing.elapsed_ns == 2 * 10 * MS


def test_a_slow_consumer_does_not_change_elapsed() -> None:
    bench = bench_of(text_item(T0_NS + 1), text_item(T0_NS + 2))
    asyncio.run(bench.consume(pause_ms=40))
    assert bench.timing.elapsed_ns == 3 * 10 * MS
    assert bench.timing.consumer_ns == 2 * 40 * MS


def test_time_before_the_first_item_is_asked_for_is_outside() -> None:
    bench = bench_of(text_item(T0_NS + 1))

    async def dawdle() -> None:
        stream = bench.client.stream_chat(REQUEST, Exchange())
        bench.clock.advance_ms(500)
        async for _ in stream:
            pass

    asyncio.run(dawdle())
    assert bench.call.span.start_ns == T0_NS + 500 * MS
    assert bench.timing.elapsed_ns == 2 * 10 * MS
    assert bench.timing.consumer_ns == 0


def test_a_call_that_nobody_iterates_never_was() -> None:
    bench = bench_of(text_item(T0_NS + 1))

    async def ignore() -> None:
        await bench.client.stream_chat(REQUEST, Exchange()).aclose()

    asyncio.run(ignore())
    assert bench.calls == ()


def test_the_time_after_the_last_await_is_outside_the_call() -> None:
    bench = bench_of(text_item(T0_NS + 1))
    asyncio.run(bench.consume(pause_ms=40))
    bench.clock.advance_ms(1_000)
    assert bench.call.span.duration_ns == (10 + 40 + 10) * MS


# --- arrivals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pause_ms", [0, 40])
def test_ttft_and_stream_time_are_those_of_the_arrivals(pause_ms: int) -> None:
    bench = bench_of(
        StreamItem(kind=ItemKind.RAW_CHUNK, arrival_ns=T0_NS + 3 * MS),
        text_item(T0_NS + 5 * MS),
        usage_item(T0_NS + 11 * MS, TokenUsage(prompt_tokens=1)),
    )
    asyncio.run(bench.consume(pause_ms=pause_ms))
    assert bench.timing.provider_ttft_ns == 3 * MS
    assert bench.timing.token_ttft_ns == 5 * MS
    assert bench.timing.stream_ns == 11 * MS


def test_awaits_are_recorded_one_by_one() -> None:
    bench = bench_of(StreamItem(kind=ItemKind.RAW_CHUNK, arrival_ns=T0_NS + 7), text_item(T0_NS + 9))
    asyncio.run(bench.consume(pause_ms=40))
    recorded = [
        (one.index, one.start_ns, one.end_ns, one.kind, one.arrival_ns, one.is_generated, one.is_visible)
        for one in bench.call.awaits
    ]
    assert recorded == [
        (0, T0_NS, T0_NS + 10 * MS, ItemKind.RAW_CHUNK, T0_NS + 7, False, False),
        (1, T0_NS + 50 * MS, T0_NS + 60 * MS, ItemKind.TEXT, T0_NS + 9, True, False),
        (2, T0_NS + 100 * MS, T0_NS + 110 * MS, ItemKind.END, None, False, False),
    ]


def test_the_first_item_is_told_on_the_call() -> None:
    bench = bench_of(StreamItem(kind=ItemKind.RAW_CHUNK, arrival_ns=T0_NS + 3 * MS), text_item(T0_NS + 9 * MS))
    asyncio.run(bench.consume())
    assert bench.attributes[names.FIRST_ITEM_KIND] == "raw_chunk"
    assert bench.attributes[names.RESPONSE_TIME_TO_FIRST_CHUNK] == 0.003


def test_a_call_without_items_has_no_first_item() -> None:
    bench = bench_of()
    asyncio.run(bench.consume())
    assert names.FIRST_ITEM_KIND not in bench.attributes
    assert names.RESPONSE_TIME_TO_FIRST_CHUNK not in bench.attributes
    assert bench.attributes[names.AWAIT_COUNT] == 1


# --- the ends of a call ------------------------------------------------------------------------------------


def test_a_stream_that_ends_well_leaves_no_error() -> None:
    bench = bench_of(text_item(T0_NS + 1))
    asyncio.run(bench.consume())
    assert bench.call.span.error is None
    assert names.ERROR_TYPE not in bench.attributes


def test_a_provider_that_raises_after_two_items_keeps_its_times() -> None:
    error = lost()
    bench = bench_of(text_item(T0_NS + 4 * MS), text_item(T0_NS + 6 * MS), error=error)
    with pytest.raises(ProviderError) as raised:
        asyncio.run(bench.consume(pause_ms=40))
    assert raised.value is error
    assert bench.attributes[names.ERROR_TYPE] == "stream_truncated"
    assert bench.call.span.error == "the stream ended too early"
    assert [one.kind for one in bench.call.awaits] == [ItemKind.TEXT, ItemKind.TEXT, ItemKind.ERROR]
    assert bench.timing.token_ttft_ns == 4 * MS
    assert bench.timing.stream_ns == 6 * MS
    assert bench.timing.elapsed_ns == 30 * MS


def test_a_cancellation_while_awaiting_ends_the_span_and_goes_on() -> None:
    async def cancel() -> Bench:
        is_waiting = asyncio.Event()

        def hanging(bench: Bench) -> Stream:
            async def stream(request: ChatRequest, exchange: Exchange) -> AsyncGenerator[StreamItem, None]:
                del request, exchange
                yield text_item(T0_NS + 1)
                bench.clock.advance_ms(7)
                is_waiting.set()
                await asyncio.Event().wait()

            return stream

        bench = bench_with(hanging)
        task = asyncio.create_task(bench.consume())
        await is_waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return bench

    bench = asyncio.run(cancel())
    assert bench.attributes[names.ERROR_TYPE] == "cancelled"
    assert [one.kind for one in bench.call.awaits] == [ItemKind.TEXT, ItemKind.ERROR]
    assert bench.timing.elapsed_ns == 7 * MS
    assert bench.call.span.end_ns == T0_NS + 7 * MS


def test_a_consumer_that_closes_early_ends_the_span_at_that_moment_without_an_error() -> None:
    bench, stream = bench_of_iterator(text_item(T0_NS + 1), text_item(T0_NS + 2), wait_ms=10, close_ms=30)
    asyncio.run(close_after_one_item(bench))
    assert stream.close_count == 1
    assert bench.call.span.end_ns == T0_NS + 15 * MS
    assert bench.call.span.error is None
    assert [one.kind for one in bench.call.awaits] == [ItemKind.TEXT]
    assert bench.timing.consumer_ns == 5 * MS


def test_closing_early_runs_the_cleanup_of_a_providers_generator() -> None:
    cleaned: list[str] = []

    def tidy(_: Bench) -> Stream:
        async def stream(request: ChatRequest, exchange: Exchange) -> AsyncGenerator[StreamItem, None]:
            del request, exchange
            try:
                yield text_item(T0_NS + 1)
            finally:
                cleaned.append("closed")

        return stream

    async def close_and_look() -> list[str]:
        await close_after_one_item(bench_with(tidy))
        return list(cleaned)

    assert asyncio.run(close_and_look()) == ["closed"]


def test_an_error_that_the_consumer_throws_in_ends_the_call() -> None:
    bench, provider = bench_of_iterator(text_item(T0_NS + 1))

    async def throw() -> None:
        stream = bench.client.stream_chat(REQUEST, Exchange())
        await anext(stream)
        bench.clock.advance_ms(5)
        await stream.athrow(ValueError("odd"))

    with pytest.raises(ValueError, match="odd"):
        asyncio.run(throw())
    assert provider.close_count == 1
    assert bench.call.span.end_ns == T0_NS + 5 * MS


@pytest.mark.parametrize("items", [[], [text_item(T0_NS + 1)]], ids=["no item", "one item"])
def test_the_providers_iterator_is_closed_once_when_it_ended(items: list[StreamItem]) -> None:
    bench, stream = bench_of_iterator(*items)
    asyncio.run(bench.consume())
    assert stream.close_count == 1


@pytest.mark.parametrize("items", [[], [text_item(T0_NS + 1)]], ids=["no item", "one item"])
def test_the_providers_iterator_is_closed_once_when_it_raised(items: list[StreamItem]) -> None:
    bench, stream = bench_of_iterator(*items, lost())
    with pytest.raises(ProviderError):
        asyncio.run(bench.consume())
    assert stream.close_count == 1


def test_closing_the_providers_iterator_is_outside_the_call() -> None:
    bench, _ = bench_of_iterator(text_item(T0_NS + 1), wait_ms=10, close_ms=30)
    asyncio.run(bench.consume())
    assert bench.call.span.duration_ns == 20 * MS


def test_a_client_that_raises_before_it_has_an_iterator_ends_its_call_too() -> None:
    class Broken(StreamsClient):
        def stream_chat(self, request: ChatRequest, exchange: Exchange) -> AsyncGenerator[StreamItem, None]:
            raise ValueError("odd")

    bench = Bench(inner=Broken())
    with pytest.raises(ValueError, match="odd"):
        asyncio.run(bench.consume())
    assert bench.attributes[names.ERROR_TYPE] == "ValueError"


# --- close errors ------------------------------------------------------------------------------------------


def test_a_close_error_is_raised_when_there_is_no_other() -> None:
    bench, _ = bench_of_iterator(text_item(T0_NS + 1), close_error=OSError("gone"))
    with pytest.raises(RunError, match=r"^close failed: gone$") as raised:
        asyncio.run(bench.consume())
    assert raised.value.kind == "close_failed"
    assert bench.attributes[names.ERROR_TYPE] == "close_failed"


def test_a_close_error_is_raised_when_the_consumer_closes_early() -> None:
    bench, _ = bench_of_iterator(text_item(T0_NS + 1), close_error=OSError())
    with pytest.raises(RunError, match=r"^close failed: OSError$"):
        asyncio.run(close_after_one_item(bench))
    assert bench.attributes[names.ERROR_TYPE] == "close_failed"


def test_a_close_error_never_hides_the_providers_own() -> None:
    error = lost()
    bench, _ = bench_of_iterator(text_item(T0_NS + 1), error, close_error=OSError("gone"))
    with pytest.raises(ProviderError) as raised:
        asyncio.run(bench.consume())
    assert raised.value is error
    assert bench.attributes[names.ERROR_TYPE] == "stream_truncated"


def test_a_close_error_that_has_a_kind_keeps_it() -> None:
    reset = ProviderError("connect_error", "reset")
    bench, _ = bench_of_iterator(close_error=reset)
    with pytest.raises(ProviderError) as raised:
        asyncio.run(bench.consume())
    assert raised.value is reset
    assert bench.attributes[names.ERROR_TYPE] == "connect_error"


def test_a_close_error_is_never_its_own_cause() -> None:
    reset = ProviderError("connect_error", "reset")
    bench, _ = bench_of_iterator(close_error=reset)
    with pytest.raises(ProviderError):
        asyncio.run(bench.consume())
    assert reset.__cause__ is not reset


def test_a_cancellation_while_closing_goes_on() -> None:
    bench, _ = bench_of_iterator(close_error=asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(bench.consume())
    assert bench.attributes[names.ERROR_TYPE] == "cancelled"


def test_a_cancellation_while_closing_goes_on_even_after_an_error_of_the_provider() -> None:
    bench, _ = bench_of_iterator(lost(), close_error=asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(bench.consume())
    assert bench.attributes[names.ERROR_TYPE] == "stream_truncated"


# --- what stands on the span -------------------------------------------------------------------------------


def test_the_request_is_told() -> None:
    request = ChatRequest(messages=(), call_kind=CallKind.ARGUMENT_FALLBACK, max_tokens=128, temperature=0.0)
    bench = bench_of(text_item(T0_NS + 1))
    asyncio.run(bench.consume(request=request))
    assert bench.call.span.name == "chat tiny"
    assert bench.call.span.kind is SpanKind.CLIENT
    told = {
        names.PROVIDER_NAME: "fake",
        names.OPERATION_NAME: "chat",
        names.REQUEST_MODEL: "tiny",
        names.REQUEST_STREAM: True,
        names.REQUEST_MAX_TOKENS: 128,
        names.REQUEST_TEMPERATURE: 0.0,
        names.CALL_INDEX: 1,
        names.CALL_KIND: "argument_fallback",
    }
    assert told.items() <= bench.attributes.items()


def test_what_was_not_sent_is_absent() -> None:
    bench = bench_of(text_item(T0_NS + 1))
    asyncio.run(bench.consume())
    assert not {names.REQUEST_MAX_TOKENS, names.REQUEST_TEMPERATURE} & bench.attributes.keys()


def test_the_answer_is_told() -> None:
    exchange = Exchange(
        is_connection_reused=True,
        http_status=200,
        response_id="r-1",
        response_model="tiny-v2",
        adaptations=["temperature left out"],
    )
    finish = StreamItem(kind=ItemKind.FINISH, arrival_ns=T0_NS + 2, finish_reason="stop")
    bench = bench_of(text_item(T0_NS + 1), finish)
    asyncio.run(bench.consume(exchange=exchange))
    told = {
        names.HTTP_STATUS_CODE: 200,
        names.CONNECTION_REUSED: True,
        names.RESPONSE_ID: "r-1",
        names.RESPONSE_MODEL: "tiny-v2",
        names.RESPONSE_FINISH_REASONS: ("stop",),
        names.ADAPTATIONS: ("temperature left out",),
        names.AWAIT_COUNT: 3,
    }
    assert told.items() <= bench.attributes.items()


def test_what_the_answer_did_not_tell_is_absent() -> None:
    bench = bench_of(text_item(T0_NS + 1))
    asyncio.run(bench.consume())
    unknown = {
        names.HTTP_STATUS_CODE,
        names.CONNECTION_REUSED,
        names.RESPONSE_ID,
        names.RESPONSE_MODEL,
        names.RESPONSE_FINISH_REASONS,
        names.ADAPTATIONS,
        names.CALL_WARNINGS,
        names.USAGE_INPUT_TOKENS,
        names.USAGE_OUTPUT_TOKENS,
        names.USAGE_TOTAL_TOKENS,
        names.USAGE_CACHED_TOKENS,
        names.USAGE_REASONING_TOKENS,
    }
    assert not unknown & bench.attributes.keys()


def test_usage_is_told_field_by_field_zeros_included() -> None:
    usage = TokenUsage(prompt_tokens=10, completion_tokens=0, total_tokens=10, reasoning_tokens=3)
    bench = bench_of(usage_item(T0_NS + 1, usage))
    asyncio.run(bench.consume())
    assert bench.attributes[names.USAGE_INPUT_TOKENS] == 10
    assert bench.attributes[names.USAGE_OUTPUT_TOKENS] == 0
    assert bench.attributes[names.USAGE_TOTAL_TOKENS] == 10
    assert bench.attributes[names.USAGE_REASONING_TOKENS] == 3
    assert names.USAGE_CACHED_TOKENS not in bench.attributes


def test_the_last_report_of_usage_counts() -> None:
    bench = bench_of(
        usage_item(T0_NS + 1, TokenUsage(completion_tokens=1)),
        usage_item(T0_NS + 2, TokenUsage(completion_tokens=5)),
    )
    asyncio.run(bench.consume())
    assert bench.attributes[names.USAGE_OUTPUT_TOKENS] == 5


def test_usage_that_came_before_an_error_is_kept() -> None:
    bench = bench_of(usage_item(T0_NS + 1, TokenUsage(prompt_tokens=10)), error=lost())
    with pytest.raises(ProviderError):
        asyncio.run(bench.consume())
    assert bench.attributes[names.USAGE_INPUT_TOKENS] == 10


def test_phases_of_the_exchange_become_child_spans() -> None:
    phases = [
        Phase(name="connect", start_ns=T0_NS, end_ns=T0_NS + 2 * MS),
        Phase(name="first_byte", start_ns=T0_NS + 3 * MS, end_ns=T0_NS + 9 * MS),
    ]
    bench = bench_of(text_item(T0_NS + 1))
    asyncio.run(bench.consume(exchange=Exchange(phases=phases)))
    assert (bench.timing.connect_ns, bench.timing.first_byte_ns, bench.timing.tls_ns) == (2 * MS, 6 * MS, None)
    children: list[SpanRecord] = [
        span for span in bench.recorder.spans() if span.name.startswith(names.PHASE_SPAN_PREFIX)
    ]
    assert {span.parent_span_id for span in children} == {bench.call.span.span_id}


def test_what_the_client_notes_while_it_streams_is_told() -> None:
    def noting(_: Bench) -> Stream:
        async def stream(request: ChatRequest, exchange: Exchange) -> AsyncGenerator[StreamItem, None]:
            del request
            yield text_item(T0_NS + 1)
            exchange.response_model = "late"
            exchange.warnings.append("odd")

        return stream

    bench = bench_with(noting)
    asyncio.run(bench.consume())
    assert bench.attributes[names.RESPONSE_MODEL] == "late"
    assert bench.attributes[names.CALL_WARNINGS] == ("odd",)


def test_a_blocked_event_loop_is_told() -> None:
    bench = bench_of(text_item(T0_NS + 1), wait_ms=0)

    async def block() -> None:
        async for _ in bench.client.stream_chat(REQUEST, Exchange()):
            bench.clock.advance_ms(30)  # without giving the loop a chance: the 5 ms sample is 25 ms late

    asyncio.run(block())
    assert bench.attributes[names.LOOP_LAG_MAX_NS] == 25 * MS


def test_a_loop_that_was_never_late_has_no_lag() -> None:
    bench = bench_of(text_item(T0_NS + 1), wait_ms=0)
    asyncio.run(bench.consume())
    assert bench.attributes[names.LOOP_LAG_MAX_NS] == 0


def lag_of(*blocked_ms: int) -> AttributeValue:
    """The lag of a call whose loop takes samples again and again, each time after having been blocked so long."""

    def blocking(bench: Bench) -> Stream:
        async def stream(request: ChatRequest, exchange: Exchange) -> AsyncGenerator[StreamItem, None]:
            del request, exchange
            for ms in blocked_ms:
                bench.clock.advance_ms(ms)
                await asyncio.sleep(0.006)  # of virtual time: one sample is due
            yield text_item(T0_NS + 1)

        return stream

    bench = bench_with(blocking)
    run_in_virtual_time(bench.consume())
    return bench.attributes[names.LOOP_LAG_MAX_NS]


def test_the_loop_is_sampled_every_five_milliseconds() -> None:
    assert lag_of(5, 5, 5) == 0


@pytest.mark.parametrize("blocked_ms", [(20, 5, 5), (5, 20, 5), (5, 5, 20)], ids=["first", "second", "third"])
def test_the_worst_of_all_samples_is_told(blocked_ms: tuple[int, ...]) -> None:
    assert lag_of(*blocked_ms) == 15 * MS


def test_no_timer_outlives_the_call() -> None:
    bench = bench_of(text_item(T0_NS + 1), error=lost())

    async def count_timers() -> int:
        with pytest.raises(ProviderError):
            await bench.consume()
        loop = asyncio.get_running_loop()
        handles: list[asyncio.TimerHandle] = loop._scheduled  # type: ignore[attr-defined]
        return sum(not handle.cancelled() for handle in handles)

    assert asyncio.run(count_timers()) == 0


# --- several calls -----------------------------------------------------------------------------------------


def test_two_calls_are_counted_from_one_and_kept_apart() -> None:
    client = StreamsClient()
    bench = Bench(inner=client)
    client.add(paced(bench, text_item(T0_NS + 1), text_item(T0_NS + 2), error=lost()))
    client.add(paced(bench, text_item(T0_NS + 3), wait_ms=20))

    async def call_twice() -> None:
        with pytest.raises(ProviderError):
            await bench.consume()
        await bench.consume()

    asyncio.run(call_twice())
    assert [call.index for call in bench.calls] == [1, 2]
    assert [time_call(call).elapsed_ns for call in bench.calls] == [30 * MS, 40 * MS]
    assert [call.span.attributes.get(names.ERROR_TYPE) for call in bench.calls] == ["stream_truncated", None]


def test_a_call_after_one_that_was_closed_early_is_the_second() -> None:
    client = StreamsClient()
    bench = Bench(inner=client)
    for _ in range(2):
        client.add(paced(bench, text_item(T0_NS + 1), text_item(T0_NS + 2)))

    async def call_twice() -> None:
        await close_after_one_item(bench)
        await bench.consume()

    asyncio.run(call_twice())
    assert [call.index for call in bench.calls] == [1, 2]


def test_closing_the_client_closes_the_one_inside() -> None:
    inner = StreamsClient()
    asyncio.run(Bench(inner=inner).client.aclose())
    assert inner.close_count == 1


# --- visible text, decided by the runtime ------------------------------------------------------------------


def visible_flags(mode: Mode, *texts: str) -> list[bool]:
    """Which items of a turn's one model call are recorded as visible."""
    items = [text_item(T0_NS + position + 1, text) for position, text in enumerate(texts)]
    bench = bench_of(*items)
    runtime = AgentRuntime(
        client=bench.client,
        tools=ToolRegistry(in_memory_handlers()),
        executor=ConcurrentExecutor(2),
        recorder=bench.recorder,
        output=asyncio.Queue[OutputMessage](),
    )
    request = TurnRequest(conversation_id="c", mode=mode, user_message="Hello.", tool_names=())
    asyncio.run(runtime.run_turn(request))
    return [one.is_visible for one in bench.call.awaits]


@pytest.mark.parametrize("mode", Mode)
def test_a_blank_delta_is_not_visible(mode: Mode) -> None:
    assert visible_flags(mode, " ", "\n\n", "Yes.") == [False, False, True, False]


def test_markup_is_not_visible() -> None:
    assert visible_flags(Mode.DUAL_AGENT, '<event name="a">', "{}</event>", "Yes.") == [False, False, True, False]

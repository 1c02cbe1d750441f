"""Chat clients for tests: streams that a test writes out, and the scripted mock with one fault."""

from collections.abc import AsyncGenerator, Callable, Sequence
from types import TracebackType
from typing import Any, Self

from agentbench_otel.ports import ChatClient
from agentbench_otel.records.chat import ChatRequest, Exchange, ItemKind, StreamItem, TokenUsage
from tests.support.clock import ManualClock

Stream = Callable[[ChatRequest, Exchange], AsyncGenerator[StreamItem, None]]


class StreamsClient:
    """Answers the model calls, one after the other, with the given streams."""

    def __init__(self, *streams: Stream) -> None:
        self._streams = list(streams)
        self.requests: list[ChatRequest] = []
        self.close_count = 0

    def stream_chat(self, request: ChatRequest, exchange: Exchange) -> AsyncGenerator[StreamItem, None]:
        self.requests.append(request)
        return self._streams[len(self.requests) - 1](request, exchange)

    def add(self, stream: Stream) -> None:
        """One call more; for streams that need something that in turn needs this client."""
        self._streams.append(stream)

    async def aclose(self) -> None:
        self.close_count += 1


class ScriptedStream(AsyncGenerator[StreamItem, None]):
    """A provider's iterator that is no Python generator, so that closing it may do things after its end, too.

    Each step is an item, or an exception that asking for it raises; ``wait_ms`` passes on the clock in each
    await. An iterator class may suspend and fail in ``aclose`` at any time.
    """

    def __init__(
        self,
        clock: ManualClock,
        steps: Sequence[StreamItem | BaseException],
        *,
        wait_ms: int = 0,
        close_error: BaseException | None = None,
        close_ms: int = 0,
    ) -> None:
        self._clock = clock
        self._steps = list(steps)
        self._wait_ms = wait_ms
        self._close_error = close_error
        self._close_ms = close_ms
        self.close_count = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamItem:
        self._clock.advance_ms(self._wait_ms)
        if not self._steps:
            raise StopAsyncIteration
        step = self._steps.pop(0)
        if isinstance(step, BaseException):
            raise step
        return step

    async def asend(self, value: None) -> StreamItem:
        del value
        return await anext(self)

    async def athrow(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
    ) -> StreamItem:
        raise NotImplementedError

    async def aclose(self) -> None:
        self.close_count += 1
        self._clock.advance_ms(self._close_ms)
        if self._close_error is not None:
            raise self._close_error


def text_item(arrival_ns: int, text: str = "piece") -> StreamItem:
    return StreamItem(kind=ItemKind.TEXT, arrival_ns=arrival_ns, text=text)


def usage_item(arrival_ns: int, usage: TokenUsage) -> StreamItem:
    return StreamItem(kind=ItemKind.USAGE, arrival_ns=arrival_ns, usage=usage)


class FaultyClient:
    """Another client with faults. The arguments say what goes wrong; nothing does without them.

    Args:
        silent_call: The call, counted from 1, that loses its usage item.
        raise_after: Items after which every call raises ``error``.
        error: What it raises then, and also what ``stop`` ends in.
        stop: Called after the first item of every call; awaits whatever the test wants to happen there.
        close_error: What closing the client raises.
    """

    def __init__(
        self,
        inner: ChatClient,
        *,
        silent_call: int | None = None,
        raise_after: int | None = None,
        error: BaseException | None = None,
        stop: Callable[[], Any] | None = None,
        close_error: BaseException | None = None,
    ) -> None:
        self._inner = inner
        self._silent_call = silent_call
        self._raise_after = raise_after
        self._error = error
        self._stop = stop
        self._close_error = close_error
        self._call_count = 0
        self.close_count = 0

    async def stream_chat(self, request: ChatRequest, exchange: Exchange) -> AsyncGenerator[StreamItem, None]:
        self._call_count += 1
        is_silent = self._call_count == self._silent_call
        count = 0
        async for item in self._inner.stream_chat(request, exchange):
            if item.kind is ItemKind.USAGE and is_silent:
                continue
            yield item
            count += 1
            if self._stop is not None and count == 1:
                await self._stop()
            if self._error is not None and count == self._raise_after:
                raise self._error

    async def aclose(self) -> None:
        self.close_count += 1
        await self._inner.aclose()
        if self._close_error is not None:
            raise self._close_error

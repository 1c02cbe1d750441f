"""The scripted mock with the ways of a real endpoint: it takes its time, drifts for hours, fails now and then.

For a first look at the daemon without any endpoint; the numbers are made up, and every run says ``mock``.
"""

import asyncio
import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from random import Random

from agentbench_otel.errors import ErrorKind, ProviderError, http_error_kind
from agentbench_otel.ports import ChatClient, Clock
from agentbench_otel.records.chat import ChatRequest, Exchange, ItemKind, Phase, StreamItem, TokenUsage

FAILURES_PER_RUN = 0.03
_DRIFT_PERIOD_S = 3600.0
_PIECES = re.compile(r"<event.*?</event>|\S+\s*", re.DOTALL)

Sleep = Callable[[float], Awaitable[None]]


class LivelyChatClient:
    """Streams what the client inside answers, word by word. The same ``random`` gives the same run."""

    def __init__(self, inner: ChatClient, clock: Clock, random: Random, *, sleep: Sleep = asyncio.sleep) -> None:
        self._inner = inner
        self._clock = clock
        self._random = random
        self._sleep = sleep
        self._failure = random.choice(_FAILURES) if random.random() < FAILURES_PER_RUN else None
        self._speed = random.lognormvariate(0.0, 0.25)

    async def stream_chat(self, request: ChatRequest, exchange: Exchange) -> AsyncGenerator[StreamItem, None]:
        await self._connect(exchange)
        await self._wait(0.12, 0.4)  # the prompt is read
        if self._failure == "http_503":
            raise ProviderError(http_error_kind(503), "HTTP 503: the mock is overloaded, as it is now and then")
        exchange.http_status = 200
        word_count = 0
        async for item in self._inner.stream_chat(request, exchange):
            for piece in _pieces(item):
                word_count += piece.kind in (ItemKind.TEXT, ItemKind.TOOL_CALL_DELTA)
                if word_count > 2 and self._failure == "cut":
                    raise ProviderError(
                        ErrorKind.STREAM_TRUNCATED, "the mock cut its answer, as it does now and then"
                    )
                if piece.kind in (ItemKind.TEXT, ItemKind.TOOL_CALL_DELTA):
                    await self._wait(0.012, 0.5)
                if piece.kind is ItemKind.USAGE:
                    if self._failure == "no_usage":
                        continue
                    piece = _counted(piece, request, word_count)
                yield _now(piece, self._clock())

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _connect(self, exchange: Exchange) -> None:
        start_ns = self._clock()
        await self._wait(0.002, 0.3)
        exchange.phases.append(Phase(name="connect", start_ns=start_ns, end_ns=self._clock()))
        exchange.is_connection_reused = False

    async def _wait(self, typical_s: float, spread: float) -> None:
        hours = self._clock() / 1e9 / _DRIFT_PERIOD_S
        drift = 1 + 0.3 * math.sin(2 * math.pi * hours)
        await self._sleep(typical_s * drift * self._speed * self._random.lognormvariate(0.0, spread))


_FAILURES = ("http_503", "cut", "no_usage")


def _pieces(item: StreamItem) -> list[StreamItem]:
    """A text word by word, event markup in one piece; anything else as it is."""
    if item.kind is not ItemKind.TEXT:
        return [item]
    return [StreamItem(kind=item.kind, arrival_ns=0, text=text) for text in _PIECES.findall(item.text)]


def _counted(item: StreamItem, request: ChatRequest, word_count: int) -> StreamItem:
    sent = sum(len(message.content.split()) for message in request.messages) * 4 // 3
    usage = TokenUsage(
        prompt_tokens=sent, completion_tokens=word_count, total_tokens=sent + word_count, cached_tokens=sent // 8
    )
    return StreamItem(kind=item.kind, arrival_ns=0, usage=usage)


def _now(item: StreamItem, arrival_ns: int) -> StreamItem:
    return StreamItem(
        kind=item.kind,
        arrival_ns=arrival_ns,
        text=item.text,
        tool_call=item.tool_call,
        usage=item.usage,
        finish_reason=item.finish_reason,
    )

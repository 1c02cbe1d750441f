"""Helpers to drive a `ChatClient` and to look at what it gave."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import SecretStr

from agentbench_otel.cases import CALENDAR, SEARCH, TERMINATE, VOLUME
from agentbench_otel.config import Target
from agentbench_otel.errors import RunError
from agentbench_otel.ports import ChatClient, Clock
from agentbench_otel.providers.adaptation import EndpointProfile
from agentbench_otel.providers.openai import OpenAIChatClient
from agentbench_otel.providers.wire import WireNames
from agentbench_otel.records.chat import (
    ChatMessage,
    ChatRequest,
    Exchange,
    ItemKind,
    StreamItem,
    TokenUsage,
    ToolCall,
)
from agentbench_otel.telemetry.clock import AnchoredClock

ALL_TOOLS = (VOLUME, CALENDAR, SEARCH, TERMINATE)
HELLO = ChatRequest(messages=(ChatMessage(role="user", content="Hello."),), max_tokens=64)

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Streamed:
    """Everything that one model call gave before it ended; ``error`` is how it failed, if it did."""

    items: list[StreamItem] = field(default_factory=list)
    exchange: Exchange = field(default_factory=Exchange)
    error: RunError | None = None

    def text(self, kind: ItemKind = ItemKind.TEXT) -> str:
        return "".join(item.text for item in self.items if item.kind is kind)

    @property
    def kinds(self) -> list[ItemKind]:
        return [item.kind for item in self.items]

    @property
    def usage(self) -> TokenUsage | None:
        return next((item.usage for item in reversed(self.items) if item.usage is not None), None)

    @property
    def tool_calls(self) -> list[ToolCall]:
        return [item.tool_call for item in self.items if item.tool_call is not None]

    @property
    def finish_reason(self) -> str | None:
        return next((item.finish_reason for item in reversed(self.items) if item.finish_reason), None)


def target(base_url: str, **settings: Any) -> Target:
    return Target.model_validate({"name": "under-test", "base_url": base_url, "model": "demo", **settings})


def openai_client(
    base_url: str,
    *,
    api_key: str | None = None,
    clock: Clock | None = None,
    profile: EndpointProfile | None = None,
    **settings: Any,
) -> OpenAIChatClient:
    return OpenAIChatClient(
        target(base_url, **settings),
        api_key=None if api_key is None else SecretStr(api_key),
        names=WireNames(ALL_TOOLS),
        profile=profile or EndpointProfile(),
        clock=clock or AnchoredClock(),
    )


async def stream(
    client: ChatClient,
    request: ChatRequest = HELLO,
    *,
    after_item: Callable[[StreamItem], Awaitable[None]] | None = None,
) -> Streamed:
    """One model call to its end; ``after_item`` is what the consumer does with each item."""
    streamed = Streamed()
    try:
        async with aclosing(client.stream_chat(request, streamed.exchange)) as items:
            async for item in items:
                streamed.items.append(item)
                if after_item is not None:
                    await after_item(item)
    except RunError as error:
        streamed.error = error
    return streamed


async def stream_and_close(client: ChatClient, request: ChatRequest = HELLO) -> Streamed:
    try:
        return await stream(client, request)
    finally:
        await client.aclose()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end, and fail when a task is left behind."""

    async def and_nothing_is_left() -> T:
        result = await coroutine
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left
        return result

    return asyncio.run(and_nothing_is_left())

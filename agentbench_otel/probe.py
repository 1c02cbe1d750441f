"""One raw model call against any endpoint: what was received, and when."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

from agentbench_otel.config import Target
from agentbench_otel.errors import ErrorKind, ProviderError, RunError
from agentbench_otel.measurement.facts import CallFacts, measure_run
from agentbench_otel.measurement.timing import to_ms
from agentbench_otel.measurement.warnings import call_warnings
from agentbench_otel.ports import ChatClient, Clock
from agentbench_otel.records.chat import (
    GENERATED_KINDS,
    ChatMessage,
    ChatRequest,
    Exchange,
    ItemKind,
    StreamItem,
    ToolCall,
    ToolSpec,
)
from agentbench_otel.records.results import (
    ProbeError,
    ProbePhase,
    ProbeRead,
    ProbeResult,
    ProbeToolCall,
)
from agentbench_otel.redaction import redact
from agentbench_otel.telemetry.clock import AnchoredClock
from agentbench_otel.telemetry.recorder import Recorder
from agentbench_otel.telemetry.traced_client import TracedChatClient

ClientFactory = Callable[[Clock], ChatClient]
FirstItem = Literal["reasoning", "text", "tool_call", "refusal"]

_FIRST_ITEMS: dict[ItemKind, FirstItem] = {
    ItemKind.REASONING: "reasoning",
    ItemKind.TEXT: "text",
    ItemKind.TOOL_CALL_DELTA: "tool_call",
    ItemKind.REFUSAL: "refusal",
}


@dataclass(slots=True)
class _Received:
    exchange: Exchange = field(default_factory=Exchange)
    items: list[StreamItem] = field(default_factory=list)
    error: RunError | None = None

    def text(self, kind: ItemKind) -> str:
        return "".join(item.text for item in self.items if item.kind is kind)

    @property
    def tool_calls(self) -> list[ToolCall]:
        return [item.tool_call for item in self.items if item.tool_call is not None]


async def probe(
    target: Target,
    *,
    message: str,
    tools: Sequence[ToolSpec],
    make_client: ClientFactory,
    adaptation_count: Callable[[], int],
    secrets: Sequence[str],
) -> ProbeResult:
    """Make one model call; made again when the endpoint refused a parameter that is now adapted.

    ``secrets`` stand in no text of the result, also where the server sent them back.
    """
    request = ChatRequest(
        messages=(ChatMessage(role="user", content=message),),
        tools=tuple(tools),
        max_tokens=target.max_tokens,
        temperature=target.temperature,
    )
    while True:
        known_count = adaptation_count()
        result = await _attempt(target, request, make_client)
        if adaptation_count() == known_count:
            return _redacted(result, secrets)


async def _attempt(target: Target, request: ChatRequest, make_client: ClientFactory) -> ProbeResult:
    recorder = Recorder(AnchoredClock())
    run_span = recorder.start_run("probe", {})
    received = _Received()
    client = make_client(recorder.clock)
    try:
        traced = TracedChatClient(client, recorder, model=target.model, attributes={})
        await _receive(traced, request, recorder, received)
    finally:
        async with asyncio.timeout(5):
            await client.aclose()
    run_span.end(recorder.clock())
    (facts,) = measure_run(recorder.spans()).calls
    return _result(target, received, facts)


async def _receive(client: ChatClient, request: ChatRequest, recorder: Recorder, received: _Received) -> None:
    try:
        async with aclosing(client.stream_chat(request, received.exchange)) as items:
            async for item in items:
                received.items.append(item)
                if item.kind is ItemKind.TEXT and item.text.strip():
                    recorder.mark_visible()
    except RunError as error:
        received.error = error


def _result(target: Target, received: _Received, facts: CallFacts) -> ProbeResult:
    timing = facts.timing
    exchange = received.exchange
    start_ns = facts.call.span.start_ns
    first = next((item for item in received.items if item.kind in GENERATED_KINDS), None)
    return ProbeResult(
        base_url=target.base_url,
        model=target.model,
        visible_text=received.text(ItemKind.TEXT) or exchange.unstreamed_text,
        reasoning_text=received.text(ItemKind.REASONING),
        refusal_text=received.text(ItemKind.REFUSAL),
        first_item=None if first is None else _FIRST_ITEMS[first.kind],
        finish_reason=next((item.finish_reason for item in reversed(received.items) if item.finish_reason), None),
        tool_calls=tuple(map(_tool_call, received.tool_calls)),
        usage=facts.usage,
        error=_error(received),
        provider_ttft_ms=to_ms(timing.provider_ttft_ns),
        token_ttft_ms=to_ms(timing.token_ttft_ns),
        visible_ttft_ms=to_ms(timing.visible_ttft_ns),
        elapsed_ms=to_ms(timing.elapsed_ns),
        stream_ms=to_ms(timing.stream_ns),
        connect_ms=to_ms(timing.connect_ns),
        tls_ms=to_ms(timing.tls_ns),
        first_byte_ms=to_ms(timing.first_byte_ns),
        chunk_count=timing.chunk_count,
        max_chunk_gap_ms=to_ms(timing.max_chunk_gap_ns),
        connection_reused=exchange.is_connection_reused,
        http_status=exchange.http_status,
        response_id=exchange.response_id,
        response_model=exchange.response_model,
        adaptations=tuple(exchange.adaptations),
        warnings=tuple(call_warnings(facts, is_cache_expected=True)),
        phases=tuple(
            ProbePhase(
                name=phase.name,
                from_ms=to_ms(phase.start_ns - start_ns),
                to_ms=to_ms(phase.end_ns - start_ns),
            )
            for phase in exchange.phases
        ),
        reads=tuple(
            ProbeRead(
                at_ms=to_ms(arrival_ns - start_ns),
                items=tuple(item.kind.value for item in items),
            )
            for arrival_ns, items in groupby(received.items, key=lambda item: item.arrival_ns)
        ),
    )


def _tool_call(call: ToolCall) -> ProbeToolCall:
    return ProbeToolCall(
        id=None if call.has_local_id else call.id,
        name=call.name,
        arguments=None if call.arguments is None else dict(call.arguments),
        raw_arguments=call.raw_arguments,
    )


def _error(received: _Received) -> ProbeError | None:
    """Why the call failed. Arguments that are no JSON object fail a probe; an agent would ask once more."""
    error = received.error
    if error is None:
        unusable = next((call for call in received.tool_calls if call.arguments is None), None)
        if unusable is None:
            return None
        error = ProviderError(
            ErrorKind.TOOL_ARGUMENTS_INVALID,
            f"the arguments of the tool call {unusable.name!r} are no JSON object",
        )
    details = error if isinstance(error, ProviderError) else ProviderError(error.kind, str(error))
    return ProbeError(
        kind=details.kind,
        message=str(details),
        status=details.http_status or received.exchange.http_status,
        code=details.code,
        param=details.param,
        retry_after_s=details.retry_after_s,
        retryable=details.is_retryable,
    )


def _redacted(result: ProbeResult, secrets: Sequence[str]) -> ProbeResult:
    """Text by text, not in the JSON as a whole, where a secret may be escaped."""

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return redact(value, secrets)
        if isinstance(value, list | tuple):
            return [clean(item) for item in value]
        return {key: clean(item) for key, item in value.items()} if isinstance(value, dict) else value

    return ProbeResult.model_validate(clean(result.model_dump())) if secrets else result

"""The scripted mock: answers a case as its script says, without any network."""

import json
from collections.abc import AsyncGenerator

from agentbench_otel.errors import ErrorKind, ProviderError
from agentbench_otel.ports import Clock
from agentbench_otel.records.chat import ChatRequest, Exchange, ItemKind, StreamItem, TokenUsage, ToolCall
from agentbench_otel.records.scenario import Case, MockEvent, Mode

MOCK_USAGE = TokenUsage(prompt_tokens=10, completion_tokens=5, total_tokens=15, cached_tokens=2)


class ScriptedChatClient:
    """Plays one round of the case's script per model call; the events come with the first.

    In ``dual_agent`` mode the events are markup in the text, so that mock and live take one path through
    the decoder; otherwise they are native tool calls.
    """

    def __init__(self, case: Case, mode: Mode, clock: Clock) -> None:
        self._case = case
        self._mode = mode
        self._clock = clock
        self._call_count = 0

    async def stream_chat(self, request: ChatRequest, exchange: Exchange) -> AsyncGenerator[StreamItem, None]:
        del request
        if self._call_count >= len(self._case.mock_messages):
            raise ProviderError(
                ErrorKind.MOCK_EXHAUSTED, f"mock benchmark stream exhausted: {self._case.case_id.value}"
            )
        text = self._case.mock_messages[self._call_count]
        events = self._case.mock_events if self._call_count == 0 else ()
        self._call_count += 1
        exchange.response_model = "mock"
        yield StreamItem(kind=ItemKind.RAW_CHUNK, arrival_ns=self._clock())
        yield StreamItem(kind=ItemKind.TEXT, arrival_ns=self._clock(), text=text)
        for event in events:
            if self._mode is Mode.DUAL_AGENT:
                yield StreamItem(kind=ItemKind.TEXT, arrival_ns=self._clock(), text=_markup(event))
                continue
            arguments = _json_arguments(event)
            yield StreamItem(kind=ItemKind.TOOL_CALL_DELTA, arrival_ns=self._clock(), text=arguments)
            call = ToolCall(id=event.id, name=event.name, raw_arguments=arguments, arguments=dict(event.arguments))
            yield StreamItem(kind=ItemKind.TOOL_CALL, arrival_ns=self._clock(), tool_call=call)
        is_tool_turn = bool(events) and self._mode is Mode.CHAT_AGENT_TOOLS
        yield StreamItem(
            kind=ItemKind.FINISH,
            arrival_ns=self._clock(),
            finish_reason="tool_calls" if is_tool_turn else "stop",
        )
        yield StreamItem(kind=ItemKind.USAGE, arrival_ns=self._clock(), usage=MOCK_USAGE)

    async def aclose(self) -> None:
        """Nothing is open."""


def _json_arguments(event: MockEvent) -> str:
    return json.dumps(dict(event.arguments), sort_keys=True, separators=(",", ":"))


def _markup(event: MockEvent) -> str:
    return f'<event name="{event.name}">{_json_arguments(event) if event.arguments else ""}</event>'

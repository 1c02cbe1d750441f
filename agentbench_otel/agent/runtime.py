"""One turn of the agent: stream a model call, collect its events, execute them as a batch, follow up.

The runtime reports twice, independently: through the recorder (spans) and through its audit log. The
measurement compares the two.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agentbench_otel import names
from agentbench_otel.agent.prompts import AnsweredEvent, fallback_messages, follow_up_messages, system_prompt
from agentbench_otel.agent.text_events import EventMarkup, TextEventDecoder, TextPiece, VisibleText
from agentbench_otel.agent.tools import FollowUp, Tool, ToolRegistry
from agentbench_otel.errors import InvalidArgumentsError, ProviderError, RunError
from agentbench_otel.json_text import load_object
from agentbench_otel.measurement.audit import audit_attributes
from agentbench_otel.ports import ChatClient, HandlerExecutor
from agentbench_otel.records.chat import (
    CallKind,
    ChatMessage,
    ChatRequest,
    Exchange,
    ItemKind,
    ToolCall,
)
from agentbench_otel.records.scenario import Mode
from agentbench_otel.records.turn import (
    AuditEntry,
    AuditKind,
    EventResult,
    EventSource,
    EventStatus,
    MessageType,
    OutputMessage,
)
from agentbench_otel.telemetry.content import handler_content
from agentbench_otel.telemetry.recorder import OpenSpan, Recorder

_EVENT_NAME_LIMIT = 64  # a name that a model made up goes into spans; content does not


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """One user message and the limits of the turn that it starts."""

    conversation_id: str
    mode: Mode
    user_message: str
    tool_names: tuple[str, ...]
    prompt_nonce: str = ""
    max_tokens: int | None = 128
    temperature: float | None = 0.0
    max_event_loops: int = 1
    """Batches of events per turn; events detected after the last one are audited and not executed."""
    batch_timeout_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    index: int
    """From 0 over the whole turn, in the order of detection."""
    call: ToolCall
    source: EventSource
    tool: Tool


@dataclass(slots=True, kw_only=True)
class _Outcome:
    status: EventStatus = EventStatus.TIMEOUT
    arguments: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=lambda: {"error": "not finished within the batch timeout"})
    has_started: bool = False


@dataclass(slots=True, kw_only=True)
class _Answer:
    """What one chat completion gave: its text as written, the known events, every call of the model."""

    text: list[str] = field(default_factory=list)
    events: list[_Event] = field(default_factory=list)
    unknown: list[ToolCall] = field(default_factory=list)


class AgentRuntime:
    """Runs the one turn of a run. ``client`` is traced by the same ``recorder``."""

    def __init__(
        self,
        *,
        client: ChatClient,
        tools: ToolRegistry,
        executor: HandlerExecutor,
        recorder: Recorder,
        output: asyncio.Queue[OutputMessage],
        capture_content: bool = False,
    ) -> None:
        self._client = client
        self._tools = tools
        self._executor = executor
        self._recorder = recorder
        self._output = output
        self._capture_content = capture_content
        self._audit: list[AuditEntry] = []
        self._event_count = 0
        self._first_visible_ns: int | None = None
        self._last_message: MessageType | None = None

    async def run_turn(self, request: TurnRequest) -> None:
        """Put the turn's messages on the output queue; the last one is ``turn_completed`` or ``error``.

        A `RunError` becomes the ``error`` message. Anything else (a bug, a cancellation) is raised: the turn
        span ends there, and the queue gets no last message.
        """
        with self._recorder.turn(request.conversation_id, self._finish_turn_span) as span:
            try:
                await self._converse(request)
            except RunError as error:
                span.failure = error
                last = OutputMessage(type=MessageType.ERROR, content=str(error), error_kind=error.kind)
            else:
                last = OutputMessage(type=MessageType.TURN_COMPLETED)
            await self._put(last)
            self._last_message = last.type

    async def _converse(self, request: TurnRequest) -> None:
        messages: tuple[ChatMessage, ...] = (
            system_prompt(request.mode, self._tools.specs(request.tool_names), nonce=request.prompt_nonce),
            ChatMessage(role="user", content=request.user_message),
        )
        answer = await self._chat(request, messages)
        for _ in range(request.max_event_loops):
            if not answer.events:
                return
            outcomes = await self._run_batch(request, answer.events)
            await self._tell_results(answer.events, outcomes)
            if self._note_terminal(answer.events, outcomes):
                return
            if not any(event.tool.follow_up is FollowUp.MODEL for event in answer.events):
                return
            messages += follow_up_messages(request.mode, "".join(answer.text), _answered(answer, outcomes))
            answer = await self._chat(request, messages)

    # --- model calls ---------------------------------------------------------------------------------------

    async def _chat(self, request: TurnRequest, messages: tuple[ChatMessage, ...]) -> _Answer:
        self._log(AuditKind.MODEL_CALL, call_kind=CallKind.CHAT_COMPLETION)
        has_native_tools = request.mode is Mode.CHAT_AGENT_TOOLS
        chat = ChatRequest(
            messages=messages,
            tools=self._tools.specs(request.tool_names) if has_native_tools else (),
            max_tokens=request.max_tokens,
            temperature=request.temperature,
        )
        decoder = None if has_native_tools else TextEventDecoder()
        answer = _Answer()
        async with aclosing(self._client.stream_chat(chat, Exchange())) as items:
            async for item in items:
                if item.kind is ItemKind.TEXT:
                    answer.text.append(item.text)
                    pieces = [VisibleText(item.text)] if decoder is None else decoder.feed(item.text)
                    if any(isinstance(piece, VisibleText) and piece.text.strip() for piece in pieces):
                        self._recorder.mark_visible()
                    await self._take(pieces, answer, request)
                elif item.kind is ItemKind.TOOL_CALL and item.tool_call is not None:
                    self._detect(item.tool_call, EventSource.PROVIDER_RESOLVED, answer, request)
        if decoder is not None:
            await self._take(decoder.finish(), answer, request)
        return answer

    async def _take(self, pieces: Sequence[TextPiece], answer: _Answer, request: TurnRequest) -> None:
        for piece in pieces:
            if isinstance(piece, VisibleText):
                await self._say(piece.text)
            elif isinstance(piece, EventMarkup):
                call = ToolCall(
                    id=f"event-{self._event_count + 1}",
                    name=piece.name,
                    raw_arguments=piece.body,
                    arguments=load_object(piece.body),
                )
                self._detect(call, EventSource.TEXT_EVENT, answer, request)
            else:
                self._log(AuditKind.UNTERMINATED_EVENT, event_name=piece.name[:_EVENT_NAME_LIMIT])

    def _detect(self, call: ToolCall, source: EventSource, answer: _Answer, request: TurnRequest) -> None:
        tool = self._tools.tool(call.name) if call.name in request.tool_names else None
        if tool is None:
            self._log(AuditKind.UNKNOWN_EVENT, event_name=call.name[:_EVENT_NAME_LIMIT], event_source=source)
            answer.unknown.append(call)
            return
        self._log(AuditKind.CHAT_EVENT_DETECTED, event_name=tool.name, event_source=source)
        answer.events.append(_Event(index=self._event_count, call=call, source=source, tool=tool))
        self._event_count += 1

    async def _fall_back(self, request: TurnRequest, event: _Event, problem: str) -> Mapping[str, Any] | None:
        """One more model call, forced to the event's tool; None when that gave no valid arguments either."""
        self._log(AuditKind.MODEL_CALL, call_kind=CallKind.ARGUMENT_FALLBACK)
        chat = ChatRequest(
            messages=fallback_messages(request.user_message, event.call, problem),
            call_kind=CallKind.ARGUMENT_FALLBACK,
            tools=self._tools.specs([event.tool.name]),
            forced_tool=event.tool.name,
            max_tokens=request.max_tokens,
            temperature=request.temperature,
        )
        try:
            async with aclosing(self._client.stream_chat(chat, Exchange())) as items:
                calls = [
                    item.tool_call
                    async for item in items
                    if item.tool_call is not None and item.tool_call.name == event.tool.name
                ]
            return event.tool.validate(calls[0].arguments if calls else None)
        except (ProviderError, InvalidArgumentsError):
            return None  # the event fails with invalid_arguments; the call's own error stands on its span

    # --- events --------------------------------------------------------------------------------------------

    async def _run_batch(self, request: TurnRequest, events: Sequence[_Event]) -> list[_Outcome]:
        """Resolve all events, then execute them together; the outcomes are in the order of detection."""
        outcomes = [_Outcome() for _ in events]
        jobs = []
        for event, outcome in zip(events, outcomes, strict=True):
            arguments = await self._resolve(request, event)
            if arguments is None:
                outcome.status = EventStatus.INVALID_ARGUMENTS
                outcome.result = {"error": "invalid arguments"}
                continue
            outcome.arguments = arguments
            jobs.append(partial(self._execute, event, outcome))
        try:
            async with asyncio.timeout(request.batch_timeout_s):
                await self._executor.run(jobs)
        except TimeoutError:
            pass  # who has not finished still has the status timeout
        for event, outcome in zip(events, outcomes, strict=True):
            if outcome.has_started:
                self._log(AuditKind.TOOL_EXECUTION, event_name=event.tool.name)
        self._log(
            AuditKind.EVENT_BATCH_RESULTS,
            results=tuple(
                EventResult(event_name=event.tool.name, status=outcome.status)
                for event, outcome in zip(events, outcomes, strict=True)
            ),
        )
        return outcomes

    async def _resolve(self, request: TurnRequest, event: _Event) -> Mapping[str, Any] | None:
        try:
            return event.tool.validate(event.call.arguments)
        except InvalidArgumentsError as error:
            return await self._fall_back(request, event, str(error))

    async def _execute(self, event: _Event, outcome: _Outcome) -> None:
        handler = self._tools.handler(event.tool.name)
        attributes = {
            names.EVENT_INDEX: event.index,
            names.EVENT_SOURCE: event.source.value,
            names.TOOL_CALL_ID: event.call.id,
            names.TOOL_TYPE: "function",
        }
        outcome.has_started = True
        finish = partial(_tell_content, outcome) if self._capture_content else None
        try:
            with self._recorder.tool_handler(event.tool.name, attributes, finish):
                try:
                    outcome.result = await handler(event.call.id, outcome.arguments)
                except Exception as error:
                    outcome.result = {"error": f"{type(error).__qualname__}: {error}"}
                    raise
        except Exception:  # noqa: BLE001 - a handler may fail in any way; it fails its event only
            outcome.status = EventStatus.FAILED
            return
        outcome.status = EventStatus.SUCCESS

    async def _tell_results(self, events: Sequence[_Event], outcomes: Sequence[_Outcome]) -> None:
        for event, outcome in zip(events, outcomes, strict=True):
            await self._put(
                OutputMessage(
                    type=MessageType.TOOL_RESULT,
                    event_name=event.tool.name,
                    status=outcome.status,
                    result=outcome.result,
                )
            )
            if event.tool.follow_up is FollowUp.TEMPLATE and outcome.status is EventStatus.SUCCESS:
                await self._say(event.tool.template.format_map(outcome.arguments))

    def _note_terminal(self, events: Sequence[_Event], outcomes: Sequence[_Outcome]) -> bool:
        for event, outcome in zip(events, outcomes, strict=True):
            if event.tool.follow_up is FollowUp.TERMINAL and outcome.status is EventStatus.SUCCESS:
                self._log(AuditKind.TERMINAL_COMPLETED)
                return True
        return False

    # --- reporting -----------------------------------------------------------------------------------------

    async def _say(self, text: str) -> None:
        if self._first_visible_ns is None and text.strip():
            self._first_visible_ns = self._recorder.clock()
        await self._put(OutputMessage(type=MessageType.MESSAGE_DELTA, content=text))

    async def _put(self, message: OutputMessage) -> None:
        await self._output.put(message)

    def _log(self, kind: AuditKind, **fields: Any) -> None:
        self._audit.append(AuditEntry(kind=kind, time_ns=self._recorder.clock(), **fields))

    def _finish_turn_span(self, span: OpenSpan) -> None:
        if self._last_message is not None:
            span.attributes[names.TURN_END] = self._last_message.value
        if self._first_visible_ns is not None:
            span.add_event(names.FIRST_VISIBLE_MESSAGE_EVENT, self._first_visible_ns)
        for entry in self._audit:
            span.add_event(names.AUDIT_EVENT, entry.time_ns, audit_attributes(entry))


def _tell_content(outcome: _Outcome, span: OpenSpan) -> None:
    span.attributes.update(handler_content(outcome.arguments, outcome.result))


def _answered(answer: _Answer, outcomes: Sequence[_Outcome]) -> list[AnsweredEvent]:
    known = [
        AnsweredEvent(call=event.call, result=outcome.result)
        for event, outcome in zip(answer.events, outcomes, strict=True)
    ]
    return known + [AnsweredEvent(call=call, result={"error": "unknown tool"}) for call in answer.unknown]

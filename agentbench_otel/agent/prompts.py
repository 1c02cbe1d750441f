"""The words that the agent sends: system prompts, the history for a follow-up, the plea for arguments."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentbench_otel.cases import VOLUME
from agentbench_otel.records.chat import ChatMessage, ToolCall, ToolSpec
from agentbench_otel.records.scenario import Mode

_TASK = (
    "You are a voice assistant. Answer in one short sentence. When the user asks for something that one of "
    "your tools does, say first in one short sentence what you will do, then use the tool."
)
_EVENTS = (
    "You use a tool by writing an event at the end of your answer, with the arguments as JSON:\n"
    f'<event name="{VOLUME}">{{"mode":"absolute","value":30}}</event>\n'
    "Write one event per action and use only these tools:"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredEvent:
    """An event of the model with what became of it, for the history."""

    call: ToolCall
    result: Mapping[str, Any]


def system_prompt(mode: Mode, tools: Iterable[ToolSpec], *, nonce: str = "") -> ChatMessage:
    """``nonce`` comes first, so that no provider finds the prompt in its cache."""
    parts = [f"[{nonce}]", _TASK] if nonce else [_TASK]
    if mode is Mode.DUAL_AGENT:
        parts.append(_EVENTS)
        parts += (f"- {tool.name}: {tool.description} Arguments: {_json(tool.parameters)}" for tool in tools)
    return ChatMessage(role="system", content="\n".join(parts))


def follow_up_messages(mode: Mode, answer: str, events: Sequence[AnsweredEvent]) -> tuple[ChatMessage, ...]:
    """What the model said and what its events gave. Every event is answered, the failed ones too: strict
    servers refuse a history in which a tool call has no answer."""
    if mode is Mode.CHAT_AGENT_TOOLS:
        return (
            ChatMessage(role="assistant", content=answer, tool_calls=tuple(event.call for event in events)),
            *(
                ChatMessage(role="tool", content=_json(event.result), tool_call_id=event.call.id)
                for event in events
            ),
        )
    results = "\n".join(
        f'<event_result name="{event.call.name}">{_json(event.result)}</event_result>' for event in events
    )
    plea = "Answer the user now, in one sentence, from these results. Write no event."
    return (
        ChatMessage(role="assistant", content=answer),
        ChatMessage(role="user", content=f"{results}\n{plea}"),
    )


def fallback_messages(user_message: str, call: ToolCall, problem: str) -> tuple[ChatMessage, ...]:
    """Ask once more for the arguments of one event, with what was wrong."""
    given = f"The arguments given before were {call.raw_arguments or 'none'!r}: {problem}"
    return (
        ChatMessage(role="system", content="Call the tool with arguments that fit its parameters."),
        ChatMessage(role="user", content=f"{user_message}\n\n{given}"),
    )


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

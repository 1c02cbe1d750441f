"""Prompts and answers as span attributes, for who asked for them (``telemetry.capture_content: true``).

Source: GenAI semantic conventions v1.41.1, ``gen_ai.input.messages``, ``gen_ai.output.messages`` and
``gen_ai.tool.call.arguments|result`` as JSON.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentbench_otel import names
from agentbench_otel.records.chat import ChatMessage, ChatRequest, ItemKind, StreamItem, ToolCall
from agentbench_otel.records.spans import AttributeValue

_PART_TYPES = {ItemKind.TEXT: "text", ItemKind.REASONING: "reasoning", ItemKind.REFUSAL: "refusal"}


def content_attributes(
    request: ChatRequest, items: Sequence[StreamItem], finish_reason: str | None
) -> dict[str, AttributeValue]:
    """``items``: those that carry content, in the order of the stream."""
    output = {
        "role": "assistant",
        "parts": [*_texts(items), *(_call(item.tool_call) for item in items if item.tool_call is not None)],
        "finish_reason": finish_reason or "error",
    }
    return {
        names.INPUT_MESSAGES: _json([_message(message) for message in request.messages]),
        names.OUTPUT_MESSAGES: _json([output]),
    }


def handler_content(arguments: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """What a tool handler was given and gave; ``str`` where a result holds what JSON can't."""
    return {names.TOOL_CALL_ARGUMENTS: _json(arguments), names.TOOL_CALL_RESULT: _json(result)}


def _texts(items: Sequence[StreamItem]) -> list[dict[str, Any]]:
    """One part per stretch of a kind."""
    parts: list[dict[str, Any]] = []
    for item in items:
        kind = _PART_TYPES.get(item.kind)
        if kind is None:
            continue
        if parts and parts[-1]["type"] == kind:
            parts[-1]["content"] += item.text
        else:
            parts.append({"type": kind, "content": item.text})
    return parts


def _message(message: ChatMessage) -> dict[str, Any]:
    if message.tool_call_id is not None:
        part = {"type": "tool_call_response", "id": message.tool_call_id, "response": message.content}
        return {"role": message.role, "parts": [part]}
    texts = [{"type": "text", "content": message.content}] if message.content else []
    return {"role": message.role, "parts": [*texts, *map(_call, message.tool_calls)]}


def _call(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)

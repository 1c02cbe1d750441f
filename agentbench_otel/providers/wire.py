"""A `ChatRequest` → the JSON body of ``/chat/completions``, and tool names on the wire."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from agentbench_otel.errors import InputError
from agentbench_otel.records.chat import ChatMessage, ChatRequest, ToolCall, ToolSpec

_NAME_LIMIT = 64


class WireNames:
    """Tool names, both ways: providers refuse dots, so ``device.volume.adjust`` travels as
    ``device_volume_adjust``. The same mapping for every endpoint, so that all get the same requests."""

    def __init__(self, names: Iterable[str]) -> None:
        """Raises:
        InputError: Two names would be the same on the wire, or one is no tool name there.
        """
        self._domain_names: dict[str, str] = {}
        for name in names:
            wire = self.to_wire(name)
            other = self._domain_names.setdefault(wire, name)
            if other != name:
                raise InputError(f"tools: {name} and {other} are both {wire} on the wire; rename one of them")
            if not wire.isascii() or not wire.replace("_", "").isalnum() or not wire[0].isalpha():
                raise InputError(f"tools: {name} can't be sent; allowed are letters, digits, _ and dots")
            if len(wire) > _NAME_LIMIT:
                raise InputError(f"tools: {name} is longer than {_NAME_LIMIT} characters; shorten it")

    @staticmethod
    def to_wire(name: str) -> str:
        return name.replace(".", "_")

    def to_domain(self, name: str) -> str:
        """The domain name; a name that is not ours comes back as it is."""
        return self._domain_names.get(name, name)


def request_body(request: ChatRequest, model: str) -> dict[str, Any]:
    """The body without ``adaptations``: what an endpoint that takes everything is sent."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [_message(message) for message in request.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if request.forced_tool is not None:
        body["tool_choice"] = {
            "type": "function",
            "function": {"name": WireNames.to_wire(request.forced_tool)},
        }
    return body


def _message(message: ChatMessage) -> dict[str, Any]:
    body: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        body["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        body["tool_call_id"] = message.tool_call_id
    return body


def _call(call: ToolCall) -> Mapping[str, Any]:
    """Arguments go back as a JSON text, whatever the server had sent."""
    return {
        "id": call.id,
        "type": "function",
        "function": {
            "name": WireNames.to_wire(call.name),
            "arguments": json.dumps(call.arguments or {}, ensure_ascii=False),
        },
    }


def _tool(tool: ToolSpec) -> Mapping[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": WireNames.to_wire(tool.name),
            "description": tool.description,
            "parameters": tool.parameters,
        },
    }

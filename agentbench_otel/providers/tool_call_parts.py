"""Streamed fragments of tool calls → finished calls.

Servers disagree on which fragment belongs to which call: some leave the index out, reuse it, repeat ids and
names, or send new ids with every fragment. The key is the index if given, else a known id, else the last call.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from agentbench_otel.json_text import load_object
from agentbench_otel.records.chat import ToolCall

_EMPTY_OBJECT_LENGTH = 16  # with white space around; longer arguments are no empty object


@dataclass(slots=True)
class _Slot:
    index: int | None
    id: str = ""
    name: str = ""
    parts: list[str] = field(default_factory=list)
    length: int = 0  # of the parts together

    @property
    def arguments(self) -> str:
        return "".join(self.parts)

    def append(self, fragment: str) -> None:
        self.parts.append(fragment)
        self.length += len(fragment)


class ToolCallParts:
    """Collects the fragments of one answer."""

    def __init__(self) -> None:
        self._slots: list[_Slot] = []
        self._by_index: dict[int, _Slot] = {}

    def add(self, fragment: Any) -> str | None:
        """Take one element of ``delta.tool_calls``.

        Returns:
            What it added, for the item's text (a name or arguments); None when it added nothing.
        """
        if not isinstance(fragment, dict):
            return None
        function = fragment.get("function")
        function = function if isinstance(function, dict) else {}
        call_id, name = _text(fragment.get("id")), _text(function.get("name"))
        arguments = function.get("arguments")
        if isinstance(arguments, dict | list):
            arguments = json.dumps(arguments, ensure_ascii=False)
        arguments = _text(arguments)
        if not (call_id or name or arguments):
            return None
        index = fragment.get("index")
        slot = self._slot(index if type(index) is int else None, call_id, name)
        slot.id = slot.id or call_id
        if name and name != slot.name:
            slot.name += name
        _append_arguments(slot, arguments)
        return arguments or name or None

    def add_legacy(self, function_call: Any) -> str | None:
        """Take the deprecated ``delta.function_call``: one call, without an id."""
        return self.add({"index": 0, "function": function_call})

    def finish(self) -> list[ToolCall]:
        """The calls by index. ``arguments`` is None where they are no JSON object; none at all is ``{}``."""
        order = sorted(
            enumerate(self._slots),
            key=lambda pair: (pair[0] if pair[1].index is None else pair[1].index, pair[0]),
        )
        return [_finish(slot, position) for position, (_, slot) in enumerate(order)]

    def _slot(self, index: int | None, call_id: str, name: str) -> _Slot:
        if index is not None:
            slot = self._by_index.get(index)
            if slot is not None and not (call_id and name and slot.id and call_id != slot.id):
                return slot
            return self._open(index)
        if call_id:
            known = next((slot for slot in self._slots if slot.id == call_id), None)
            return known or self._open(None)
        if self._slots and (not name or name == self._slots[-1].name or not self._slots[-1].name):
            return self._slots[-1]
        return self._open(None)

    def _open(self, index: int | None) -> _Slot:
        slot = _Slot(index)
        self._slots.append(slot)
        if index is not None:
            self._by_index[index] = slot
        return slot


def _append_arguments(slot: _Slot, fragment: str) -> None:
    if (
        slot.length <= _EMPTY_OBJECT_LENGTH
        and slot.arguments.strip() == "{}"
        and fragment.lstrip().startswith("{")
    ):
        slot.parts.clear()  # some gateways open every call with an empty object
        slot.length = 0
    elif len(fragment) == slot.length and fragment == slot.arguments and load_object(fragment) is not None:
        return  # a second copy of the whole adds nothing
    if fragment:
        slot.append(fragment)


def _finish(slot: _Slot, position: int) -> ToolCall:
    raw = slot.arguments
    raw = raw if raw.strip() else "{}"
    return ToolCall(
        id=slot.id or local_call_id(position),
        name=slot.name,
        raw_arguments=raw,
        arguments=load_object(raw),
        has_local_id=not slot.id,
    )


def local_call_id(position: int) -> str:
    """An id for a call that came without one: nine letters and digits, which the strictest servers take."""
    return f"call{position + 1:05d}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""

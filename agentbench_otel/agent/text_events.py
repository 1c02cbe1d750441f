"""The dual-agent text protocol, decoded incrementally.

The model acts by writing ``<event name="device.volume.adjust">{"mode":"absolute","value":30}</event>`` in its
answer. A tag may be cut anywhere between two deltas, so text that could still become markup is held back, and
markup is never visible. How a text is cut never changes what comes out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from agentbench_otel.markers import held_back_length

_OPEN = "<event"
_CLOSE = "</event>"
_NAME = re.compile(r"""\sname\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'/>]+))""")


@dataclass(frozen=True, slots=True)
class VisibleText:
    text: str


@dataclass(frozen=True, slots=True)
class EventMarkup:
    """One whole event. The name is empty when the tag gave none; the body is stripped of outer white space."""

    name: str
    body: str


@dataclass(frozen=True, slots=True)
class UnterminatedMarkup:
    """The text ended inside an event. The name is empty when even the tag was cut."""

    name: str


TextPiece = VisibleText | EventMarkup | UnterminatedMarkup


class _Place(Enum):
    TEXT = auto()
    TAG = auto()
    BODY = auto()


class TextEventDecoder:
    """Feed the deltas of one answer in order, then finish; pieces come out in the order of the text."""

    def __init__(self) -> None:
        self._place = _Place.TEXT
        self._held = ""  # the last few characters, while they may still be the start of a tag
        self._parts: list[str] = []  # of the tag or body that is being read
        self._name = ""

    def feed(self, text: str) -> list[TextPiece]:
        pieces: list[TextPiece] = []
        visible: list[str] = []
        text = self._held + text
        self._held = ""
        position = 0
        while position < len(text):
            if self._place is _Place.TEXT:
                position = self._read_text(text, position, visible)
                continue
            if self._place is _Place.TAG:
                event, position = self._read_tag(text, position)
            else:
                event, position = self._read_body(text, position)
            if event is not None:
                pieces += _visible(visible)
                visible.clear()
                pieces.append(event)
        pieces += _visible(visible)
        return pieces

    def finish(self) -> list[TextPiece]:
        """The text has ended: what was held back is text after all, an open event is unterminated."""
        place, held, self._held, self._place = self._place, self._held, "", _Place.TEXT
        if place is _Place.TEXT:
            if held == _OPEN:  # the tag's name alone is markup already
                return [UnterminatedMarkup("")]
            return list(_visible([held]))
        name = self._name if place is _Place.BODY else _tag_name("".join(self._parts))
        self._parts.clear()
        return [UnterminatedMarkup(name)]

    def _read_text(self, text: str, start: int, visible: list[str]) -> int:
        """Take the text up to the next piece of markup; returns where to read on."""
        position = text.find("<", start)
        if position < 0:
            visible.append(text[start:])
            return len(text)
        visible.append(text[start:position])
        if text.startswith(_CLOSE, position):  # without an event that it could close
            return position + len(_CLOSE)
        after_open = position + len(_OPEN)
        if text.startswith(_OPEN, position) and after_open < len(text):
            if text[after_open] in " \t\r\n>/":
                self._place = _Place.TAG
            else:
                visible.append(_OPEN)
            return after_open
        rest = text[position : position + len(_CLOSE)]
        if position + len(rest) == len(text) and (_OPEN.startswith(rest) or _CLOSE.startswith(rest)):
            self._held = rest
            return len(text)
        visible.append("<")
        return position + 1

    def _read_tag(self, text: str, start: int) -> tuple[EventMarkup | None, int]:
        end = text.find(">", start)
        if end < 0:
            self._parts.append(text[start:])
            return None, len(text)
        self._parts.append(text[start:end])
        tag = "".join(self._parts)
        self._parts.clear()
        self._name = _tag_name(tag)
        if tag.rstrip().endswith("/"):
            self._place = _Place.TEXT
            return EventMarkup(self._name, ""), end + 1
        self._place = _Place.BODY
        return None, end + 1

    def _read_body(self, text: str, start: int) -> tuple[EventMarkup | None, int]:
        end = text.find(_CLOSE, start)
        if end < 0:
            rest = text[start:]
            kept_length = len(rest) - held_back_length(_CLOSE, rest)
            self._parts.append(rest[:kept_length])
            self._held = rest[kept_length:]
            return None, len(text)
        self._parts.append(text[start:end])
        body = "".join(self._parts).strip()
        self._parts.clear()
        self._place = _Place.TEXT
        return EventMarkup(self._name, body), end + len(_CLOSE)


def _visible(texts: list[str]) -> Iterator[VisibleText]:
    text = "".join(texts)
    if text:
        yield VisibleText(text)


def _tag_name(tag: str) -> str:
    match = _NAME.search(tag)
    return "" if match is None else next(group for group in match.groups() if group is not None).strip()

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
        rest = self._held + text
        self._held = ""
        while rest:
            if self._place is _Place.TEXT:
                shown, rest = self._read_text(rest)
                visible.append(shown)
                continue
            event, rest = self._read_tag(rest) if self._place is _Place.TAG else self._read_body(rest)
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

    def _read_text(self, rest: str) -> tuple[str, str]:
        """The visible text up to the next piece of markup, and what is left to read."""
        position = rest.find("<")
        if position < 0:
            return rest, ""
        shown, rest = rest[:position], rest[position:]
        if rest.startswith(_CLOSE):  # without an event that it could close
            return shown, rest[len(_CLOSE) :]
        if rest.startswith(_OPEN) and len(rest) > len(_OPEN):
            if rest[len(_OPEN)] in " \t\r\n>/":
                self._place = _Place.TAG
                return shown, rest[len(_OPEN) :]
            return shown + _OPEN, rest[len(_OPEN) :]
        if _OPEN.startswith(rest) or _CLOSE.startswith(rest):
            self._held = rest
            return shown, ""
        return shown + "<", rest[1:]

    def _read_tag(self, rest: str) -> tuple[EventMarkup | None, str]:
        inside, end, rest = rest.partition(">")
        self._parts.append(inside)
        if not end:
            return None, ""
        tag = "".join(self._parts)
        self._parts.clear()
        self._name = _tag_name(tag)
        if tag.rstrip().endswith("/"):
            self._place = _Place.TEXT
            return EventMarkup(self._name, ""), rest
        self._place = _Place.BODY
        return None, rest

    def _read_body(self, rest: str) -> tuple[EventMarkup | None, str]:
        inside, end, after = rest.partition(_CLOSE)
        if not end:
            shown_length = len(rest) - held_back_length(_CLOSE, rest)
            self._parts.append(rest[:shown_length])
            self._held = rest[shown_length:]
            return None, ""
        self._parts.append(inside)
        body = "".join(self._parts).strip()
        self._parts.clear()
        self._place = _Place.TEXT
        return EventMarkup(self._name, body), after


def _visible(texts: list[str]) -> Iterator[VisibleText]:
    text = "".join(texts)
    if text:
        yield VisibleText(text)


def _tag_name(tag: str) -> str:
    match = _NAME.search(tag)
    return "" if match is None else next(group for group in match.groups() if group is not None).strip()

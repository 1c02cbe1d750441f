"""Content deltas → text and reasoning: think tags at the start of an answer belong to the reasoning."""

from dataclasses import dataclass
from enum import Enum, auto

from agentbench_otel.markers import held_back_length

_OPEN = "<think>"
_CLOSE = "</think>"


@dataclass(frozen=True, slots=True)
class ContentPiece:
    text: str
    is_reasoning: bool


class _Place(Enum):
    START = auto()
    THINKING = auto()
    TEXT = auto()


class ThinkTags:
    """Splits the content of one answer. Only a ``<think>`` before any other text is thinking; later ones are
    text. What may become a tag is held back; white space before it is not."""

    def __init__(self) -> None:
        self._place = _Place.START
        self._held = ""
        self.has_opened = False
        """Whether the answer began with a think tag."""

    def feed(self, text: str) -> list[ContentPiece]:
        rest = self._held + text
        self._held = ""
        pieces: list[ContentPiece] = []
        if self._place is _Place.START:
            stripped = rest.lstrip()
            blank = rest[: len(rest) - len(stripped)]
            if blank:
                pieces.append(ContentPiece(blank, is_reasoning=False))
            rest = stripped
            if not rest:
                return pieces
            if rest.startswith(_OPEN):
                self._place = _Place.THINKING
                self.has_opened = True
                rest = rest[len(_OPEN) :]
            elif _OPEN.startswith(rest):
                self._held = rest
                return pieces
            else:
                self._place = _Place.TEXT
        if self._place is _Place.THINKING:
            thought, end, after = rest.partition(_CLOSE)
            if not end:
                keep = held_back_length(_CLOSE, rest)
                self._held = rest[len(rest) - keep :]
                thought, after = rest[: len(rest) - keep], ""
            else:
                self._place = _Place.TEXT
            if thought:
                pieces.append(ContentPiece(thought, is_reasoning=True))
            rest = after
        if rest:
            pieces.append(ContentPiece(rest, is_reasoning=False))
        return pieces

    def finish(self) -> list[ContentPiece]:
        """The answer has ended: what was held back is what it looks like."""
        held, self._held = self._held, ""
        return [ContentPiece(held, is_reasoning=self._place is _Place.THINKING)] if held else []

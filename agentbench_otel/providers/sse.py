"""Bytes → server-sent events, fed as they come; how the bytes are cut never changes the events.

Source: the event-stream format of the HTML standard, with what real servers need beyond it: ``data: [DONE]``
counts at its line's end, an ``error`` field is an event, and a body that is no event stream is kept as text.
"""

import re
from dataclasses import dataclass

DONE = "[DONE]"
_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\r|\n")
_TEXT_LIMIT = 65_536  # of a body that is no event stream; it only serves error messages


@dataclass(frozen=True, slots=True, kw_only=True)
class SseEvent:
    """One event. ``data`` holds the values of its data lines; ``is_cut`` tells that the body ended in it."""

    name: str = ""
    data: tuple[str, ...] = ()
    error: str | None = None
    """The value of an ``error`` field."""
    is_cut: bool = False

    @property
    def is_done(self) -> bool:
        return self.data == (DONE,)


class EventDecoder:
    """Feed the reads of one response body in order, then finish."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # of the line that has not ended yet
        self._skip_lf = False  # the last read ended with CR; its LF may be the first byte of the next
        self._is_first_line = True
        self._is_stream: bool | None = None
        self._text: list[str] = []
        self._text_length = 0
        self._name = ""
        self._data: list[str] = []
        self._error: str | None = None

    @property
    def plain_text(self) -> str:
        """What came that is no event stream: a JSON or HTML body, or lines without a known field."""
        return "\n".join(self._text)

    def feed(self, data: bytes) -> list[SseEvent]:
        events: list[SseEvent] = []
        if self._skip_lf and data:
            data = data.removeprefix(b"\n")
            self._skip_lf = False  # of what is left of this read, the end decides anew
        start = 0
        for line_end in _LINE_END.finditer(data):
            self._rest.append(data[start : line_end.start()])
            self._take_line(events)
            start = line_end.end()
        if start < len(data):
            self._rest.append(data[start:])
        if data:
            self._skip_lf = data.endswith(b"\r")
        return events

    def finish(self) -> list[SseEvent]:
        """The body has ended: an unterminated line and an event without its blank line still count."""
        events: list[SseEvent] = []
        if self._rest:
            self._take_line(events)
        self._dispatch(events, is_cut=True)
        return events

    def _take_line(self, events: list[SseEvent]) -> None:
        raw = b"".join(self._rest)
        self._rest.clear()
        if self._is_first_line:
            raw = raw.removeprefix(_BOM)
            self._is_first_line = False
        line = raw.decode("utf-8", "replace")
        if self._is_stream is None and line.strip():
            self._is_stream = line.lstrip()[0] not in "{[<"
        if self._is_stream is False:
            self._keep_text(line)
        elif not line:
            self._dispatch(events)
        else:
            self._take_field(line, events)

    def _take_field(self, line: str, events: list[SseEvent]) -> None:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            if value.strip() == DONE:
                self._dispatch(events)
                events.append(SseEvent(data=(DONE,)))
            elif value:
                self._data.append(value)
        elif field == "event":
            self._name = value
        elif field == "error":
            self._error = value
        elif field not in ("", "id", "retry"):
            self._keep_text(line)

    def _dispatch(self, events: list[SseEvent], *, is_cut: bool = False) -> None:
        if self._data or self._error is not None:
            events.append(SseEvent(name=self._name, data=tuple(self._data), error=self._error, is_cut=is_cut))
        self._name, self._error = "", None
        self._data.clear()

    def _keep_text(self, line: str) -> None:
        if self._text_length < _TEXT_LIMIT:
            self._text.append(line)
            self._text_length += len(line) + 1

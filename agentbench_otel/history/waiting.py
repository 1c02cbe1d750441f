"""What waits to be written, within bounds: a disk that is full for days must not fill the memory too."""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from agentbench_otel.records.cycles import CycleRecord
from agentbench_otel.records.results import RunResult
from agentbench_otel.records.spans import SpanRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The most that may wait. Beyond ``span_count`` the oldest runs lose their spans, beyond ``entry_count``
    the oldest runs and cycles are lost."""

    entry_count: int = 10_000
    span_count: int = 200_000


@dataclass(slots=True, kw_only=True, eq=False)
class WaitingRun:
    result: RunResult
    spans: Sequence[SpanRecord] | None
    """None: dropped, to stay within the bounds."""
    ticket: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class WaitingCycle:
    record: CycleRecord
    ticket: int = 0


Entry = WaitingRun | WaitingCycle


class WaitingLine:
    """First in, first out, from any thread to one that takes. What was taken is in hand until it is done with.

    The entry in hand is outside the bounds, and so are the spans of the newest run: it was in memory anyway.

    Attributes:
        lost_runs: Runs that will never be written.
        lost_spans: Spans of runs that are, or will be, written without them.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._changed = threading.Condition()
        self._entries: deque[Entry] = deque()
        self._with_spans: deque[WaitingRun] = deque()
        self._span_count = 0
        self._in_hand: Entry | None = None
        self._last_ticket = 0
        self._is_closed = False
        self.lost_runs = 0
        self.lost_spans = 0

    def __len__(self) -> int:
        """With the entry in hand."""
        with self._changed:
            return len(self._entries) + (self._in_hand is not None)

    def put(self, entry: Entry) -> None:
        """Never waits. In a closed line the entry is lost."""
        with self._changed:
            if self._is_closed:
                self._lose(entry)
                return
            self._last_ticket += 1
            entry.ticket = self._last_ticket
            self._entries.append(entry)
            if isinstance(entry, WaitingRun) and entry.spans:
                self._with_spans.append(entry)
                self._span_count += len(entry.spans)
            self._keep_bounds()
            self._changed.notify_all()

    def take(self, timeout_s: float) -> Entry | None:
        """The oldest entry, now in hand; None when none came in time or the line is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._entries or self._is_closed, timeout_s)
            if not self._entries:
                return None
            self._in_hand = self._entries.popleft()
            self._forget_spans(self._in_hand)
            return self._in_hand

    def finish(self) -> None:
        """The entry in hand is written."""
        with self._changed:
            self._in_hand = None
            self._changed.notify_all()

    def lose(self) -> None:
        """The entry in hand can't be written, ever."""
        with self._changed:
            if self._in_hand is not None:
                self._lose(self._in_hand)
            self._in_hand = None
            self._changed.notify_all()

    def lose_all(self) -> int:
        """Give up what waits, what is in hand too. Returns how many runs were among it."""
        with self._changed:
            lost_before = self.lost_runs
            for entry in (self._in_hand, *self._entries):
                if entry is not None:
                    self._lose(entry)
            self._in_hand = None
            self._entries.clear()
            self._with_spans.clear()
            self._span_count = 0
            self._changed.notify_all()
            return self.lost_runs - lost_before

    def close(self) -> None:
        """Nothing more comes in."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def wait_until_empty(self, timeout_s: float) -> bool:
        """Whether all that is in the line at the time of the call left it in time."""
        with self._changed:
            last = self._last_ticket
            return self._changed.wait_for(lambda: self._oldest_ticket() > last, timeout_s)

    def _oldest_ticket(self) -> int:
        if self._in_hand is not None:
            return self._in_hand.ticket
        return self._entries[0].ticket if self._entries else self._last_ticket + 1

    def _keep_bounds(self) -> None:
        while self._span_count > self._bounds.span_count and len(self._with_spans) > 1:
            run = self._with_spans[0]
            self.lost_spans += len(run.spans or ())
            self._forget_spans(run)
            run.spans = None
        while len(self._entries) > self._bounds.entry_count:
            oldest = self._entries.popleft()
            self._forget_spans(oldest)
            self._lose(oldest)

    def _forget_spans(self, entry: Entry) -> None:
        """Entries with spans leave in the order in which they came."""
        if self._with_spans and self._with_spans[0] is entry:
            self._span_count -= len(self._with_spans.popleft().spans or ())

    def _lose(self, entry: Entry) -> None:
        if isinstance(entry, WaitingRun):
            self.lost_runs += 1

"""What a recorder keeps: the moments of model calls, and the spans made of them when they are looked at."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain
from secrets import randbits, token_hex
from typing import overload

from agentbench_otel import names
from agentbench_otel.records.chat import GENERATED_KINDS, ItemKind
from agentbench_otel.records.spans import AttributeValue, SpanKind, SpanRecord

_SPAN_ID_MASK = (1 << 64) - 1


class CallMoments:
    """What is kept of a model call while it streams: one tuple and one flag per await, nothing else.

    A tuple is ``(asked_ns, had_ns, arrival_ns, kind)``; ``arrival_ns`` is 0 for the await that ended the
    stream or raised.
    """

    __slots__ = ("awaits", "span_id", "start_ns", "visible_flags")

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.span_id = token_hex(8)
        self.awaits: list[tuple[int, int, int, ItemKind]] = []
        self.visible_flags = bytearray()

    def append(self, asked_ns: int, had_ns: int, arrival_ns: int, kind: ItemKind) -> None:
        self.awaits.append((asked_ns, had_ns, arrival_ns, kind))
        self.visible_flags.append(0)

    def mark_visible(self) -> None:
        """The item handed out last gave non-blank visible text."""
        self.visible_flags[-1] = 1


class _LazySpans(Sequence[SpanRecord]):
    """A sequence whose spans are made one at a time, by ``_at``; its index is within bounds."""

    @overload
    def __getitem__(self, index: int) -> SpanRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[SpanRecord]: ...
    def __getitem__(self, index: int | slice) -> SpanRecord | Sequence[SpanRecord]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        return self._at(range(len(self))[index])

    @abstractmethod
    def _at(self, index: int) -> SpanRecord: ...


class AwaitSpans(_LazySpans):
    """The awaits of an ended call as spans, made when they are looked at.

    100,000 span records at once would weigh some 60 MB; the moments weigh a third and the spans are
    needed one at a time.
    """

    def __init__(self, moments: CallMoments, *, trace_id: str, call_span_id: str) -> None:
        self._moments = moments
        self._trace_id = trace_id
        self._call_span_id = call_span_id
        self._first_id = randbits(64)

    def __len__(self) -> int:
        return len(self._moments.awaits)

    def _at(self, index: int) -> SpanRecord:
        asked_ns, had_ns, arrival_ns, kind = self._moments.awaits[index]
        attributes: dict[str, AttributeValue] = {names.AWAIT_INDEX: index, names.ITEM_KIND: kind.value}
        if arrival_ns:
            attributes[names.ITEM_ARRIVAL] = arrival_ns
            attributes[names.ITEM_GENERATED] = kind in GENERATED_KINDS
            attributes[names.ITEM_VISIBLE] = bool(self._moments.visible_flags[index])
        return SpanRecord(
            trace_id=self._trace_id,
            span_id=f"{(self._first_id + index) & _SPAN_ID_MASK:016x}",
            parent_span_id=self._call_span_id,
            name=names.AWAIT_SPAN,
            kind=SpanKind.INTERNAL,
            start_ns=asked_ns,
            end_ns=had_ns,
            attributes=attributes,
        )


class RecordedSpans(_LazySpans):
    """All spans of a run, the awaits among them lazily; iterate it as often as needed."""

    def __init__(self, parts: Sequence[Sequence[SpanRecord]]) -> None:
        self._parts = tuple(parts)

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[SpanRecord]:
        return chain.from_iterable(self._parts)

    def _at(self, index: int) -> SpanRecord:
        for part in self._parts:
            if index < len(part):
                return part[index]
            index -= len(part)
        raise AssertionError("unreachable: the position was checked")

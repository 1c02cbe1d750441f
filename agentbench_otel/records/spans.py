"""A span as the recorder keeps it and as a spans file holds it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

AttributeValue = str | bool | int | float | Sequence[str]


class SpanKind(StrEnum):
    INTERNAL = "internal"
    CLIENT = "client"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanEvent:
    name: str
    time_ns: int
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRecord:
    """An ended span. Times are Unix nanoseconds on the run's monotonic clock; ids are lower-case hex."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: SpanKind
    start_ns: int
    end_ns: int
    attributes: Mapping[str, AttributeValue]
    events: tuple[SpanEvent, ...] = ()
    error: str | None = None
    """The status description of a span that ended in an error, else None."""

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

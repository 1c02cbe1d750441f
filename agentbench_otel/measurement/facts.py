"""Everything that the spans of one run say, measured once."""

from collections.abc import Iterable
from dataclasses import dataclass

from agentbench_otel import names
from agentbench_otel.errors import MeasurementError
from agentbench_otel.measurement.audit import read_audit
from agentbench_otel.measurement.timing import (
    CallTiming,
    HandlerTiming,
    TurnTiming,
    time_call,
    time_handlers,
    time_turn,
)
from agentbench_otel.measurement.tree import Call, RunTree, read_run
from agentbench_otel.measurement.usage import TokenTotals, total_usage, usage_of
from agentbench_otel.records.chat import CallKind, TokenUsage
from agentbench_otel.records.spans import SpanRecord
from agentbench_otel.records.turn import AuditEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    call: Call
    kind: CallKind
    timing: CallTiming
    usage: TokenUsage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    tree: RunTree
    calls: tuple[CallFacts, ...]
    turn: TurnTiming | None
    handlers: HandlerTiming
    tokens: TokenTotals
    audit: tuple[AuditEntry, ...]

    def call_count(self, kind: CallKind) -> int:
        """Calls of this kind by their spans."""
        return sum(call.kind is kind for call in self.calls)

    @property
    def handler_names(self) -> tuple[str, ...]:
        """The tools of the handler spans, by the order of detection."""
        return tuple(str(span.attributes.get(names.TOOL_NAME)) for span in self.tree.handlers)

    @property
    def has_turn_ended(self) -> bool:
        """Whether the turn put its last message on the queue; False when it raised or never began."""
        return self.tree.turn is not None and names.TURN_END in self.tree.turn.attributes

    @property
    def have_handlers_overlapped(self) -> bool:
        """Read from the intervals of the handler spans; False with fewer than two."""
        return (self.handlers.overlap_ns or 0) > 0


def measure_run(spans: Iterable[SpanRecord]) -> RunFacts:
    """Measure one run from its spans, in any order.

    Raises:
        MeasurementError: The spans do not describe exactly one run.
    """
    tree = read_run(spans)
    calls = tuple(
        CallFacts(
            call=call,
            kind=_kind_of(call),
            timing=time_call(call),
            usage=usage_of(call),
        )
        for call in tree.calls
    )
    return RunFacts(
        tree=tree,
        calls=calls,
        turn=time_turn(tree),
        handlers=time_handlers(tree),
        tokens=total_usage([call.usage for call in calls]),
        audit=read_audit(tree),
    )


def _kind_of(call: Call) -> CallKind:
    kind = call.span.attributes.get(names.CALL_KIND)
    try:
        return CallKind(str(kind))
    except ValueError:
        raise MeasurementError(f"call {call.index} has the unknown kind {kind!r}") from None

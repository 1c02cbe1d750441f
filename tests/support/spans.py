"""Spans of one run, built by hand. Times are absolute ns; ids are counted, so that runs are reproducible."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentbench_otel import names
from agentbench_otel.records.chat import GENERATED_KINDS, CallKind, ItemKind
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.records.spans import AttributeValue, SpanEvent, SpanKind, SpanRecord
from tests.support.clock import T0_NS

TRACE_ID = "0123456789abcdef" * 2

RUN_ATTRIBUTES: Mapping[str, AttributeValue] = {
    names.RUN_ID: "run-1",
    names.CYCLE_ID: "cycle-1",
    names.TARGET: "local",
    names.REQUEST_MODEL: "tiny",
    names.CASE: CaseId.ORDINARY_CHAT.value,
    names.MODE: Mode.DUAL_AGENT.value,
    names.ITERATION: 1,
    names.MOCK: False,
    names.WARMUP: False,
    names.STATUS: "passed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitSketch:
    """One provider await; by default its item arrives when the await ends."""

    start_ns: int
    end_ns: int
    kind: ItemKind = ItemKind.TEXT
    arrival_ns: int | None = None
    is_visible: bool = False

    def attributes(self, index: int) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {names.AWAIT_INDEX: index, names.ITEM_KIND: self.kind.value}
        if self.kind not in (ItemKind.END, ItemKind.ERROR):
            attributes[names.ITEM_ARRIVAL] = self.end_ns if self.arrival_ns is None else self.arrival_ns
            attributes[names.ITEM_GENERATED] = self.kind in GENERATED_KINDS
            attributes[names.ITEM_VISIBLE] = self.is_visible
        return attributes


def item(start_ns: int, end_ns: int, kind: ItemKind = ItemKind.TEXT, **fields: int | bool) -> AwaitSketch:
    """A short way to write an await."""
    arrival_ns = fields.get("arrival_ns")
    return AwaitSketch(
        start_ns=start_ns,
        end_ns=end_ns,
        kind=kind,
        arrival_ns=None if arrival_ns is None else int(arrival_ns),
        is_visible=bool(fields.get("is_visible", False)),
    )


class RunSpans:
    """Collects the spans of one run in the order in which they are added."""

    def __init__(self) -> None:
        self.spans: list[SpanRecord] = []
        self._turn_id: str | None = None
        self._run_id: str | None = None
        self._handler_count = 0
        self._call_count = 0

    def run(
        self,
        start_ns: int = T0_NS,
        end_ns: int = T0_NS + 1_000,
        *,
        attributes: Mapping[str, AttributeValue] = RUN_ATTRIBUTES,
        events: Sequence[SpanEvent] = (),
    ) -> SpanRecord:
        span = self._add(names.RUN_SPAN + " case", None, start_ns, end_ns, attributes, events)
        self._run_id = span.span_id
        return span

    def turn(
        self,
        start_ns: int,
        end_ns: int,
        *,
        attributes: Mapping[str, AttributeValue] | None = None,
        events: Sequence[SpanEvent] = (),
    ) -> SpanRecord:
        span = self._add(
            f"{names.TURN_SPAN} {names.AGENT_NAME}", self._run_id, start_ns, end_ns, attributes or {}, events
        )
        self._turn_id = span.span_id
        return span

    def call(
        self,
        start_ns: int,
        end_ns: int,
        awaits: Sequence[AwaitSketch] = (),
        *,
        kind: CallKind = CallKind.CHAT_COMPLETION,
        phases: Mapping[str, tuple[int, int]] | None = None,
        attributes: Mapping[str, AttributeValue] | None = None,
        error: str | None = None,
    ) -> SpanRecord:
        """A model call with its awaits and phases. ``attributes`` are added to, and may replace, its own."""
        self._call_count += 1
        own: dict[str, AttributeValue] = {
            names.CALL_INDEX: self._call_count,
            names.CALL_KIND: kind.value,
            names.AWAIT_COUNT: len(awaits),
        }
        span = self._add(
            f"{names.MODEL_CALL_SPAN} tiny",
            self._turn_id,
            start_ns,
            end_ns,
            {**own, **(attributes or {})},
            kind=SpanKind.CLIENT,
            error=error,
        )
        for index, one in enumerate(awaits):
            self._add(names.AWAIT_SPAN, span.span_id, one.start_ns, one.end_ns, one.attributes(index))
        for phase, (phase_start_ns, phase_end_ns) in (phases or {}).items():
            self._add(names.PHASE_SPAN_PREFIX + phase, span.span_id, phase_start_ns, phase_end_ns, {})
        return span

    def handler(self, start_ns: int, end_ns: int, tool: str = "tool", *, index: int | None = None) -> SpanRecord:
        """A tool handler; without ``index`` the next one in the order of detection."""
        position = self._handler_count if index is None else index
        self._handler_count += 1
        attributes: dict[str, AttributeValue] = {names.TOOL_NAME: tool, names.EVENT_INDEX: position}
        return self._add(f"{names.TOOL_SPAN} {tool}", self._turn_id, start_ns, end_ns, attributes)

    def _add(
        self,
        name: str,
        parent_span_id: str | None,
        start_ns: int,
        end_ns: int,
        attributes: Mapping[str, AttributeValue],
        events: Sequence[SpanEvent] = (),
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        error: str | None = None,
    ) -> SpanRecord:
        span = SpanRecord(
            trace_id=TRACE_ID,
            span_id=f"{len(self.spans) + 1:016x}",
            parent_span_id=parent_span_id,
            name=name,
            kind=kind,
            start_ns=start_ns,
            end_ns=end_ns,
            attributes=dict(attributes),
            events=tuple(events),
            error=error,
        )
        self.spans.append(span)
        return span

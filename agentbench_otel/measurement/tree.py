"""The spans of one run, sorted into the tree that the rest of the measurement reads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agentbench_otel import names
from agentbench_otel.errors import MeasurementError
from agentbench_otel.measurement.intervals import Interval
from agentbench_otel.records.chat import ItemKind
from agentbench_otel.records.spans import AttributeValue, SpanRecord


@dataclass(frozen=True, slots=True)
class Await:
    """One provider await. ``arrival_ns`` is None when it ended the stream or raised."""

    index: int
    start_ns: int
    end_ns: int
    kind: ItemKind
    arrival_ns: int | None
    is_generated: bool
    is_visible: bool

    @property
    def interval(self) -> Interval:
        return Interval(self.start_ns, self.end_ns)


@dataclass(slots=True, kw_only=True)
class Call:
    """A model call: its span, its awaits in order, the phases of its HTTP exchange by name."""

    span: SpanRecord
    awaits: list[Await] = field(default_factory=list)
    phases: dict[str, Interval] = field(default_factory=dict)

    @property
    def index(self) -> int:
        return _whole(self.span, names.CALL_INDEX)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTree:
    """One run. ``turn`` is None when the run ended before its turn began."""

    run: SpanRecord
    turn: SpanRecord | None
    calls: tuple[Call, ...]
    """By call index."""
    handlers: tuple[SpanRecord, ...]
    """By the index of their events: the order of detection, whatever finished first."""


def _whole(span: SpanRecord, key: str) -> int:
    value = span.attributes.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise MeasurementError(f"span {span.name!r} ({span.span_id}) has no integer {key}")
    return value


def texts_of(value: AttributeValue | None) -> tuple[str, ...]:
    """An attribute that is a list of texts; empty when it is absent or something else."""
    return tuple(value) if isinstance(value, list | tuple) else ()


def is_span(span: SpanRecord, name: str) -> bool:
    """Whether the span is called ``name``, alone or followed by a blank and what it is about."""
    return span.name == name or span.name.startswith(name + " ")


def read_run(spans: Iterable[SpanRecord]) -> RunTree:
    """Sort the spans of exactly one run, given in any order.

    Raises:
        MeasurementError: No run span or several; a child without its call; fewer or more awaits than the
            call says it had, as in a file that was cut.
    """
    found = _Sorted()
    for span in spans:
        found.add(span)
    if len(found.runs) != 1:
        raise MeasurementError(f"expected one {names.RUN_SPAN} span, found {len(found.runs)}")
    told_count = found.runs[0].attributes.get(names.SPAN_COUNT)
    if told_count is not None and told_count != found.count:
        raise MeasurementError(
            f"the run says it has {told_count} spans, but {found.count} are there: the spans are incomplete"
        )
    if len(found.turns) > 1:
        raise MeasurementError(f"expected at most one {names.TURN_SPAN} span, found {len(found.turns)}")
    return RunTree(
        run=found.runs[0],
        turn=found.turns[0] if found.turns else None,
        calls=found.complete_calls(),
        handlers=tuple(sorted(found.handlers, key=lambda span: _whole(span, names.EVENT_INDEX))),
    )


@dataclass(slots=True)
class _Sorted:
    """Spans by what they are; children wait for their calls, which may come later."""

    count: int = 0
    runs: list[SpanRecord] = field(default_factory=list)
    turns: list[SpanRecord] = field(default_factory=list)
    handlers: list[SpanRecord] = field(default_factory=list)
    calls: dict[str, Call] = field(default_factory=dict)
    awaits: list[tuple[str | None, Await]] = field(default_factory=list)
    phases: list[SpanRecord] = field(default_factory=list)

    def add(self, span: SpanRecord) -> None:
        self.count += 1
        if span.name == names.AWAIT_SPAN:
            self.awaits.append((span.parent_span_id, _read_await(span)))
        elif is_span(span, names.RUN_SPAN):
            self.runs.append(span)
        elif is_span(span, names.TURN_SPAN):
            self.turns.append(span)
        elif is_span(span, names.MODEL_CALL_SPAN):
            self.calls[span.span_id] = Call(span=span)
        elif is_span(span, names.TOOL_SPAN):
            self.handlers.append(span)
        elif span.name.startswith(names.PHASE_SPAN_PREFIX):
            self.phases.append(span)

    def complete_calls(self) -> tuple[Call, ...]:
        """The calls by index, each with its awaits and phases."""
        for parent_span_id, one in self.awaits:
            _parent(self.calls, parent_span_id, names.AWAIT_SPAN).awaits.append(one)
        for span in self.phases:
            phase = span.name.removeprefix(names.PHASE_SPAN_PREFIX)
            call = _parent(self.calls, span.parent_span_id, span.name)
            call.phases[phase] = Interval(span.start_ns, span.end_ns)
        for call in self.calls.values():
            call.awaits.sort(key=lambda one: one.index)
            _check_complete(call)
        return tuple(sorted(self.calls.values(), key=lambda call: call.index))


def _parent(calls: Mapping[str, Call], span_id: str | None, child: str) -> Call:
    if span_id is None or span_id not in calls:
        raise MeasurementError(f"a {child} span has no model-call span: the spans are incomplete")
    return calls[span_id]


def _check_complete(call: Call) -> None:
    told = _whole(call.span, names.AWAIT_COUNT)
    if [one.index for one in call.awaits] != list(range(told)):
        raise MeasurementError(
            f"call {call.index} says it had {told} awaits, but {len(call.awaits)} are there: "
            "the spans are incomplete"
        )


def _read_await(span: SpanRecord) -> Await:
    attributes: Mapping[str, AttributeValue] = span.attributes
    kind = attributes.get(names.ITEM_KIND)
    try:
        item_kind = ItemKind(str(kind))
    except ValueError:
        raise MeasurementError(f"await {span.span_id} has the unknown item kind {kind!r}") from None
    return Await(
        index=_whole(span, names.AWAIT_INDEX),
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        kind=item_kind,
        arrival_ns=_whole(span, names.ITEM_ARRIVAL) if names.ITEM_ARRIVAL in attributes else None,
        is_generated=attributes.get(names.ITEM_GENERATED) is True,
        is_visible=attributes.get(names.ITEM_VISIBLE) is True,
    )

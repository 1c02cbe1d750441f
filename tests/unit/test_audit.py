"""The audit log comes back from the turn span as it was written."""

import pytest

from agentbench_otel import names
from agentbench_otel.errors import MeasurementError
from agentbench_otel.measurement.audit import audit_attributes, read_audit
from agentbench_otel.measurement.tree import read_run
from agentbench_otel.records.chat import CallKind
from agentbench_otel.records.spans import AttributeValue, SpanEvent
from agentbench_otel.records.turn import AuditEntry, AuditKind, EventResult, EventSource, EventStatus
from tests.support.clock import T0_NS
from tests.support.spans import RunSpans

ENTRIES = [
    AuditEntry(kind=AuditKind.MODEL_CALL, time_ns=T0_NS, call_kind=CallKind.CHAT_COMPLETION),
    AuditEntry(kind=AuditKind.MODEL_CALL, time_ns=T0_NS + 1, call_kind=CallKind.ARGUMENT_FALLBACK),
    AuditEntry(
        kind=AuditKind.CHAT_EVENT_DETECTED,
        time_ns=T0_NS + 2,
        event_name="device.volume.adjust",
        event_source=EventSource.TEXT_EVENT,
    ),
    AuditEntry(
        kind=AuditKind.UNKNOWN_EVENT,
        time_ns=T0_NS + 3,
        event_name="make.coffee",
        event_source=EventSource.PROVIDER_RESOLVED,
    ),
    AuditEntry(kind=AuditKind.UNTERMINATED_EVENT, time_ns=T0_NS + 4, event_name=""),
    AuditEntry(kind=AuditKind.TOOL_EXECUTION, time_ns=T0_NS + 5, event_name="device.volume.adjust"),
    AuditEntry(
        kind=AuditKind.EVENT_BATCH_RESULTS,
        time_ns=T0_NS + 6,
        results=tuple(EventResult(event_name=f"tool.{status.value}", status=status) for status in EventStatus),
    ),
    AuditEntry(kind=AuditKind.TERMINAL_COMPLETED, time_ns=T0_NS + 7),
]


def read_back(*events: SpanEvent) -> tuple[AuditEntry, ...]:
    run = RunSpans()
    run.run()
    run.turn(T0_NS, T0_NS + 100, events=events)
    return read_audit(read_run(run.spans))


def event_of(entry: AuditEntry) -> SpanEvent:
    return SpanEvent(name=names.AUDIT_EVENT, time_ns=entry.time_ns, attributes=audit_attributes(entry))


def test_the_examples_hold_an_entry_of_every_kind() -> None:
    assert {entry.kind for entry in ENTRIES} == set(AuditKind)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.kind.value)
def test_an_entry_comes_back_as_it_was_written(entry: AuditEntry) -> None:
    assert read_back(event_of(entry)) == (entry,)


def test_entries_keep_their_order() -> None:
    assert list(read_back(*map(event_of, ENTRIES))) == ENTRIES


def test_other_events_of_the_turn_are_no_entries() -> None:
    visible = SpanEvent(name=names.FIRST_VISIBLE_MESSAGE_EVENT, time_ns=T0_NS)
    assert read_back(visible, event_of(ENTRIES[0])) == (ENTRIES[0],)


def test_a_run_without_a_turn_has_an_empty_log() -> None:
    run = RunSpans()
    run.run()
    assert read_audit(read_run(run.spans)) == ()


def test_what_is_not_set_is_not_written() -> None:
    entry = AuditEntry(kind=AuditKind.TERMINAL_COMPLETED, time_ns=T0_NS)
    assert audit_attributes(entry) == {names.AUDIT_ENTRY: "terminal_completed"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({names.AUDIT_ENTRY: "coffee_made"}, "coffee_made"),
        ({names.AUDIT_EVENT_SOURCE: "guess"}, "guess"),
        ({names.AUDIT_CALL_KIND: "letter"}, "letter"),
        ({names.AUDIT_RESULT_NAMES: ("a",), names.AUDIT_RESULT_STATUSES: ("great",)}, "great"),
        ({names.AUDIT_RESULT_NAMES: ("a", "b"), names.AUDIT_RESULT_STATUSES: ("success",)}, "shorter"),
    ],
    ids=["entry", "source", "call kind", "status", "a name without a status"],
)
def test_an_entry_of_another_version_is_a_measurement_error(change: dict[str, AttributeValue], words: str) -> None:
    attributes = {names.AUDIT_ENTRY: "model_call", **change}
    event = SpanEvent(name=names.AUDIT_EVENT, time_ns=T0_NS, attributes=attributes)
    with pytest.raises(MeasurementError, match=f"audit entry that can't be read.*{words}"):
        read_back(event)


def test_an_entry_without_its_kind_is_a_measurement_error() -> None:
    with pytest.raises(MeasurementError, match="audit entry that can't be read"):
        read_back(SpanEvent(name=names.AUDIT_EVENT, time_ns=T0_NS))

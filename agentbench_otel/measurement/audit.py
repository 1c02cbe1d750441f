"""The audit log on its way through the turn span: entries ↔ content-free span events."""

from agentbench_otel import names
from agentbench_otel.errors import MeasurementError
from agentbench_otel.measurement.tree import RunTree, texts_of
from agentbench_otel.records.chat import CallKind
from agentbench_otel.records.spans import AttributeValue, SpanEvent
from agentbench_otel.records.turn import AuditEntry, AuditKind, EventResult, EventSource, EventStatus


def audit_attributes(entry: AuditEntry) -> dict[str, AttributeValue]:
    """The attributes of the `names.AUDIT_EVENT` that stands for this entry."""
    attributes: dict[str, AttributeValue] = {names.AUDIT_ENTRY: entry.kind.value}
    if entry.event_name is not None:
        attributes[names.AUDIT_EVENT_NAME] = entry.event_name
    if entry.event_source is not None:
        attributes[names.AUDIT_EVENT_SOURCE] = entry.event_source.value
    if entry.call_kind is not None:
        attributes[names.AUDIT_CALL_KIND] = entry.call_kind.value
    if entry.results:
        attributes[names.AUDIT_RESULT_NAMES] = tuple(result.event_name for result in entry.results)
        attributes[names.AUDIT_RESULT_STATUSES] = tuple(result.status.value for result in entry.results)
    return attributes


def read_audit(tree: RunTree) -> tuple[AuditEntry, ...]:
    """The audit log that the turn span carries; empty without a turn.

    Raises:
        MeasurementError: An entry that this version does not know.
    """
    events = () if tree.turn is None else tree.turn.events
    try:
        return tuple(_entry(event) for event in events if event.name == names.AUDIT_EVENT)
    except ValueError as error:
        raise MeasurementError(f"the turn span holds an audit entry that can't be read: {error}") from error


def _entry(event: SpanEvent) -> AuditEntry:
    attributes = event.attributes
    event_name = attributes.get(names.AUDIT_EVENT_NAME)
    event_source = attributes.get(names.AUDIT_EVENT_SOURCE)
    call_kind = attributes.get(names.AUDIT_CALL_KIND)
    pairs = zip(
        texts_of(attributes.get(names.AUDIT_RESULT_NAMES)),
        texts_of(attributes.get(names.AUDIT_RESULT_STATUSES)),
        strict=True,
    )
    return AuditEntry(
        kind=AuditKind(str(attributes.get(names.AUDIT_ENTRY))),
        time_ns=event.time_ns,
        event_name=None if event_name is None else str(event_name),
        event_source=None if event_source is None else EventSource(str(event_source)),
        call_kind=None if call_kind is None else CallKind(str(call_kind)),
        results=tuple(EventResult(event_name=name, status=EventStatus(status)) for name, status in pairs),
    )

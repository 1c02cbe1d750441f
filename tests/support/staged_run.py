"""A run by hand that keeps its case's promises; a test breaks one of them and sees what is said about it."""

from dataclasses import dataclass, field

from agentbench_otel import names
from agentbench_otel.cases import CATALOGUE
from agentbench_otel.measurement.audit import audit_attributes
from agentbench_otel.measurement.expectations import SOURCE_OF_MODE, check_expectations
from agentbench_otel.measurement.facts import RunFacts, measure_run
from agentbench_otel.records.chat import CallKind, ItemKind, TokenUsage
from agentbench_otel.records.results import SemanticFailure
from agentbench_otel.records.scenario import Case, CaseId, Mode
from agentbench_otel.records.spans import SpanEvent, SpanRecord
from agentbench_otel.records.turn import (
    AuditEntry,
    AuditKind,
    EventResult,
    EventStatus,
    MessageType,
    OutputMessage,
)
from tests.support.clock import T0_NS
from tests.support.spans import RUN_ATTRIBUTES, RunSpans, item

USAGE = TokenUsage(prompt_tokens=10, completion_tokens=5, total_tokens=15)


def delta(text: str) -> OutputMessage:
    return OutputMessage(type=MessageType.MESSAGE_DELTA, content=text)


def tool_result(event_name: str) -> OutputMessage:
    return OutputMessage(type=MessageType.TOOL_RESULT, event_name=event_name, status=EventStatus.SUCCESS)


@dataclass(slots=True)
class StagedRun:
    """What the run did, by account: the queue, the audit log, and the spans of calls and handlers."""

    case: Case
    mode: Mode
    outputs: list[OutputMessage]
    audit: list[AuditEntry]
    calls: list[tuple[CallKind, TokenUsage | None]]
    handlers: list[tuple[str, int, int]]
    """Tool, start and end after `T0_NS`."""
    is_mock: bool = True
    run_events: list[SpanEvent] = field(default_factory=list)

    def log(self, kind: AuditKind, **fields: object) -> None:
        self.audit.append(AuditEntry(kind=kind, time_ns=T0_NS, **fields))  # type: ignore[arg-type]

    def entries(self, kind: AuditKind) -> list[AuditEntry]:
        return [entry for entry in self.audit if entry.kind is kind]

    def forget(self, kind: AuditKind) -> None:
        """Take the entries of this kind out of the audit log."""
        self.audit = [entry for entry in self.audit if entry.kind is not kind]

    def spans(self) -> list[SpanRecord]:
        run = RunSpans()
        run.run(
            attributes={
                **RUN_ATTRIBUTES,
                names.CASE: self.case.case_id.value,
                names.MODE: self.mode.value,
                names.MOCK: self.is_mock,
            },
            events=self.run_events,
        )
        events = [
            SpanEvent(name=names.AUDIT_EVENT, time_ns=entry.time_ns, attributes=audit_attributes(entry))
            for entry in self.audit
        ]
        attributes = {names.TURN_END: MessageType.TURN_COMPLETED.value}
        run.turn(T0_NS, T0_NS + 1_000, attributes=attributes, events=events)
        for kind, reported in self.calls:
            usage = reported or TokenUsage()
            counts = {
                names.USAGE_INPUT_TOKENS: usage.prompt_tokens,
                names.USAGE_OUTPUT_TOKENS: usage.completion_tokens,
                names.USAGE_TOTAL_TOKENS: usage.total_tokens,
            }
            run.call(
                T0_NS,
                T0_NS + 100,
                [item(T0_NS, T0_NS + 90, is_visible=True), item(T0_NS + 90, T0_NS + 100, ItemKind.END)],
                kind=kind,
                attributes={key: count for key, count in counts.items() if count is not None},
            )
        for tool, start_ns, end_ns in self.handlers:
            run.handler(T0_NS + start_ns, T0_NS + end_ns, tool)
        return run.spans

    def facts(self) -> RunFacts:
        return measure_run(self.spans())

    def failures(self) -> tuple[SemanticFailure, ...]:
        return check_expectations(
            case=self.case, mode=self.mode, facts=self.facts(), outputs=self.outputs, is_mock=self.is_mock
        )


def stage(case_id: CaseId, mode: Mode = Mode.DUAL_AGENT) -> StagedRun:
    """A run of the case in which everything is as expected."""
    case = CATALOGUE[case_id]
    expected = case.expectation
    first, *others = expected.visible_messages
    outputs = [delta(first), *map(tool_result, expected.event_names), *map(delta, others)]
    outputs.append(OutputMessage(type=MessageType.TURN_COMPLETED))
    run = StagedRun(
        case=case,
        mode=mode,
        outputs=outputs,
        audit=[],
        calls=[(CallKind.CHAT_COMPLETION, USAGE)] * expected.model_call_count,
        handlers=[(name, 200, 300) for name in expected.event_names],
    )
    for _ in run.calls:
        run.log(AuditKind.MODEL_CALL, call_kind=CallKind.CHAT_COMPLETION)
    for name in expected.event_names:
        run.log(AuditKind.CHAT_EVENT_DETECTED, event_name=name, event_source=SOURCE_OF_MODE[mode])
        run.log(AuditKind.TOOL_EXECUTION, event_name=name)
    if expected.event_names:
        results = tuple(EventResult(event_name=name, status=EventStatus.SUCCESS) for name in expected.event_names)
        run.log(AuditKind.EVENT_BATCH_RESULTS, results=results)
    if expected.is_terminal:
        run.log(AuditKind.TERMINAL_COMPLETED)
    return run

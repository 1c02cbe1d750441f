"""What the case promised, against what the audit log, the spans and the output queue say happened."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentbench_otel.measurement.facts import RunFacts
from agentbench_otel.records.chat import CallKind
from agentbench_otel.records.results import FailureKind, SemanticFailure
from agentbench_otel.records.scenario import Case, Expectation, Mode
from agentbench_otel.records.turn import (
    AuditEntry,
    AuditKind,
    EventSource,
    EventStatus,
    MessageType,
    OutputMessage,
)

SOURCE_OF_MODE = {
    Mode.DUAL_AGENT: EventSource.TEXT_EVENT,
    Mode.CHAT_AGENT_TOOLS: EventSource.PROVIDER_RESOLVED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The visible texts of a turn, split at tool results and stripped.

    ``blank_count`` stretches had deltas but nothing to read. The positions count messages from 0; None means
    that there was no such message.
    """

    texts: tuple[str, ...]
    blank_count: int
    first_text_position: int | None
    first_tool_position: int | None


def split_answers(outputs: Sequence[OutputMessage]) -> Answers:
    texts: list[str] = []
    stretch: list[str] = []
    blank_count = 0
    first_text_position: int | None = None
    first_tool_position: int | None = None

    def close_stretch() -> None:
        nonlocal blank_count
        text = "".join(stretch).strip()
        if text:
            texts.append(text)
        elif stretch:
            blank_count += 1
        stretch.clear()

    for position, message in enumerate(outputs):
        if message.type is MessageType.MESSAGE_DELTA:
            if first_text_position is None and message.content.strip():
                first_text_position = position
            stretch.append(message.content)
        elif message.type is MessageType.TOOL_RESULT:
            if first_tool_position is None:
                first_tool_position = position
            close_stretch()
    close_stretch()
    return Answers(
        texts=tuple(texts),
        blank_count=blank_count,
        first_text_position=first_text_position,
        first_tool_position=first_tool_position,
    )


def usage_failures(facts: RunFacts) -> tuple[SemanticFailure, ...]:
    """The one failure that is also reported of a run that raised."""
    missing_count = facts.tokens.missing_count
    if not missing_count:
        return ()
    message = f"model usage missing for {missing_count} call(s)"
    return (SemanticFailure(kind=FailureKind.USAGE_MISSING, message=message),)


def check_expectations(
    *, case: Case, mode: Mode, facts: RunFacts, outputs: Sequence[OutputMessage], is_mock: bool
) -> tuple[SemanticFailure, ...]:
    """Everything that a run whose turn ended got wrong, in a fixed order; empty when it passed."""
    expected = case.expectation
    return (
        *_check_answers(expected, split_answers(outputs), is_mock=is_mock),
        *_check_events(expected, mode, facts),
        *_check_counts(expected, facts),
        *_check_ledger(facts),
        *usage_failures(facts),
        *_check_end(expected, facts),
    )


def _failure(kind: FailureKind, message: str) -> SemanticFailure:
    return SemanticFailure(kind=kind, message=message)


def _differs(kind: FailureKind, what: str, expected: object, got: object) -> Iterator[SemanticFailure]:
    if expected != got:
        yield _failure(kind, f"{what} expected {expected!r}, got {got!r}")


def _check_answers(expected: Expectation, answers: Answers, *, is_mock: bool) -> Iterator[SemanticFailure]:
    yield from _differs(FailureKind.ANSWER_COUNT, "answer_count", expected.answer_count, len(answers.texts))
    if answers.blank_count:
        yield _failure(FailureKind.EMPTY_ANSWER, "visible answers must be non-empty")
    if is_mock:
        yield from _differs(
            FailureKind.MOCK_TEXT, "mock visible messages", expected.visible_messages, answers.texts
        )
    if expected.is_reply_before_tool and not (
        answers.first_text_position is not None
        and answers.first_tool_position is not None
        and answers.first_text_position < answers.first_tool_position
    ):
        yield _failure(FailureKind.ANSWER_AFTER_TOOL, "first visible answer must precede tool results")


def _of_kind(facts: RunFacts, kind: AuditKind) -> list[AuditEntry]:
    return [entry for entry in facts.audit if entry.kind is kind]


def _check_events(expected: Expectation, mode: Mode, facts: RunFacts) -> Iterator[SemanticFailure]:
    names_expected = expected.event_names
    detected = _of_kind(facts, AuditKind.CHAT_EVENT_DETECTED)
    results = [result for entry in _of_kind(facts, AuditKind.EVENT_BATCH_RESULTS) for result in entry.results]
    executed = _of_kind(facts, AuditKind.TOOL_EXECUTION)
    yield from _differs(
        FailureKind.EVENT_NAMES, "event names", names_expected, tuple(entry.event_name for entry in detected)
    )
    yield from _differs(
        FailureKind.BATCH_EVENT_NAMES,
        "batch event names",
        names_expected,
        tuple(result.event_name for result in results),
    )
    yield from _differs(
        FailureKind.TOOL_EVENT_NAMES,
        "tool event names",
        names_expected,
        tuple(entry.event_name for entry in executed),
    )
    yield from _differs(
        FailureKind.EVENT_SOURCES,
        "event sources",
        (SOURCE_OF_MODE[mode].value,) * len(names_expected),
        tuple(entry.event_source.value for entry in detected if entry.event_source is not None),
    )
    yield from _differs(
        FailureKind.BATCH_STATUS,
        "event batch statuses",
        tuple((name, EventStatus.SUCCESS.value) for name in names_expected),
        tuple((result.event_name, result.status.value) for result in results),
    )
    for entry in _of_kind(facts, AuditKind.UNKNOWN_EVENT):
        yield _failure(FailureKind.UNKNOWN_EVENT, f"the model asked for the unknown event {entry.event_name!r}")
    for entry in _of_kind(facts, AuditKind.UNTERMINATED_EVENT):
        yield _failure(
            FailureKind.UNTERMINATED_EVENT, f"the text ended inside the event {entry.event_name or '?'!r}"
        )


def _check_counts(expected: Expectation, facts: RunFacts) -> Iterator[SemanticFailure]:
    yield from _differs(FailureKind.TOOL_COUNT, "tool_count", len(expected.event_names), len(facts.tree.handlers))
    for kind, failure, what, count in (
        (
            CallKind.CHAT_COMPLETION,
            FailureKind.MODEL_CALL_COUNT,
            "model_call_count",
            expected.model_call_count,
        ),
        (CallKind.ARGUMENT_FALLBACK, FailureKind.FALLBACK_COUNT, "fallback_count", expected.fallback_count),
    ):
        for account, got in (("ledger", _ledger_count(facts, kind)), ("spans", facts.call_count(kind))):
            if got != count:
                yield _failure(failure, f"{what} expected {count}, {account} got {got}")


def _ledger_count(facts: RunFacts, kind: CallKind) -> int:
    return sum(entry.call_kind is kind for entry in _of_kind(facts, AuditKind.MODEL_CALL))


def _check_ledger(facts: RunFacts) -> Iterator[SemanticFailure]:
    """The audit log and the spans are two accounts of one turn; where they differ, one of them is wrong."""
    for kind, what in (
        (CallKind.CHAT_COMPLETION, "model_call_count"),
        (CallKind.ARGUMENT_FALLBACK, "fallback_count"),
    ):
        ledger, spans = _ledger_count(facts, kind), facts.call_count(kind)
        if ledger != spans:
            yield _failure(FailureKind.LEDGER_MISMATCH, f"{what} ledger={ledger}, spans={spans}")
    executed = tuple(entry.event_name for entry in _of_kind(facts, AuditKind.TOOL_EXECUTION))
    if executed != facts.handler_names:
        yield _failure(
            FailureKind.LEDGER_MISMATCH, f"tool executions ledger={executed!r}, spans={facts.handler_names!r}"
        )


def _check_end(expected: Expectation, facts: RunFacts) -> Iterator[SemanticFailure]:
    if expected.must_overlap and not facts.have_handlers_overlapped:
        yield _failure(FailureKind.NO_OVERLAP, "parallel event handlers did not overlap")
    has_terminated = bool(_of_kind(facts, AuditKind.TERMINAL_COMPLETED))
    yield from _differs(FailureKind.TERMINAL, "terminal", expected.is_terminal, has_terminated)

"""A run that keeps its case's promises passes; each broken promise has its kind and its words."""

from collections.abc import Callable

import pytest

from agentbench_otel.cases import CALENDAR, CATALOGUE, VOLUME
from agentbench_otel.measurement.expectations import split_answers, usage_failures
from agentbench_otel.records.chat import CallKind
from agentbench_otel.records.results import FailureKind
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.records.turn import AuditKind, EventResult, EventSource, EventStatus
from tests.support.staged_run import USAGE, StagedRun, delta, stage, tool_result

Said = set[tuple[FailureKind, str]]


def said(run: StagedRun) -> Said:
    return {(failure.kind, failure.message) for failure in run.failures()}


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("case_id", CaseId)
def test_a_run_that_does_what_its_case_promises_passes(case_id: CaseId, mode: Mode) -> None:
    assert said(stage(case_id, mode)) == set()


def without_the_second_answer() -> tuple[StagedRun, Said]:
    run = stage(CaseId.CALENDAR_SCHEDULE_TEMPLATE)
    confirmation = run.outputs.pop(2)
    assert confirmation.content.startswith("Scheduled")
    run.is_mock = False
    return run, {(FailureKind.ANSWER_COUNT, "answer_count expected 2, got 1")}


def with_a_blank_answer() -> tuple[StagedRun, Said]:
    run = stage(CaseId.DEVICE_VOLUME_SILENT)
    run.outputs.insert(2, delta(" \n"))
    return run, {(FailureKind.EMPTY_ANSWER, "visible answers must be non-empty")}


def with_other_words() -> tuple[StagedRun, Said]:
    run = stage(CaseId.ORDINARY_CHAT)
    run.outputs[0] = delta("Hi!")
    return run, {
        (FailureKind.MOCK_TEXT, "mock visible messages expected ('Ordinary answer.',), got ('Hi!',)"),
    }


def with_the_answer_after_the_tool() -> tuple[StagedRun, Said]:
    run = stage(CaseId.DEVICE_VOLUME_SILENT)
    run.outputs[:2] = reversed(run.outputs[:2])
    return run, {(FailureKind.ANSWER_AFTER_TOOL, "first visible answer must precede tool results")}


def with_a_tool_result_and_no_answer() -> tuple[StagedRun, Said]:
    run = stage(CaseId.DEVICE_VOLUME_SILENT)
    run.outputs = [tool_result(VOLUME)]
    run.is_mock = False
    return run, {
        (FailureKind.ANSWER_COUNT, "answer_count expected 1, got 0"),
        (FailureKind.ANSWER_AFTER_TOOL, "first visible answer must precede tool results"),
    }


def with_an_event_that_was_not_detected() -> tuple[StagedRun, Said]:
    run = stage(CaseId.DEVICE_VOLUME_SILENT)
    run.forget(AuditKind.CHAT_EVENT_DETECTED)
    run.log(AuditKind.CHAT_EVENT_DETECTED, event_name=CALENDAR, event_source=EventSource.TEXT_EVENT)
    words = "event names expected ('device.volume.adjust',), got ('calendar.schedule.create',)"
    return run, {(FailureKind.EVENT_NAMES, words)}


def without_batch_results() -> tuple[StagedRun, Said]:
    run = stage(CaseId.DEVICE_VOLUME_SILENT)
    run.forget(AuditKind.EVENT_BATCH_RESULTS)
    return run, {
        (FailureKind.BATCH_EVENT_NAMES, "batch event names expected ('device.volume.adjust',), got ()"),
        (
            FailureKind.BATCH_STATUS,
            "event batch statuses expected (('device.volume.adjust', 'success'),), got ()",
        ),
    }


def with_executions_in_another_order() -> tuple[StagedRun, Said]:
    run = stage(CaseId.PARALLEL_VOLUME_SCHEDULE)
    run.forget(AuditKind.TOOL_EXECUTION)
    for name in (CALENDAR, VOLUME):
        run.log(AuditKind.TOOL_EXECUTION, event_name=name)
    promised = "('device.volume.adjust', 'calendar.schedule.create')"
    happened = "('calendar.schedule.create', 'device.volume.adjust')"
    return run, {
        (FailureKind.TOOL_EVENT_NAMES, f"tool event names expected {promised}, got {happened}"),
        (FailureKind.LEDGER_MISMATCH, f"tool executions ledger={happened}, spans={promised}"),
    }


def with_an_event_from_the_wrong_source() -> tuple[StagedRun, Said]:
    run = stage(CaseId.DEVICE_VOLUME_SILENT)
    run.mode = Mode.CHAT_AGENT_TOOLS
    return run, {(FailureKind.EVENT_SOURCES, "event sources expected ('provider_resolved',), got ('text_event',)")}


def with_an_event_that_failed() -> tuple[StagedRun, Said]:
    run = stage(CaseId.DEVICE_VOLUME_SILENT)
    run.forget(AuditKind.EVENT_BATCH_RESULTS)
    result = EventResult(event_name=VOLUME, status=EventStatus.TIMEOUT)
    run.log(AuditKind.EVENT_BATCH_RESULTS, results=(result,))
    words = (
        "event batch statuses expected (('device.volume.adjust', 'success'),), "
        "got (('device.volume.adjust', 'timeout'),)"
    )
    return run, {(FailureKind.BATCH_STATUS, words)}


def without_the_handler_span() -> tuple[StagedRun, Said]:
    run = stage(CaseId.DEVICE_VOLUME_SILENT)
    run.handlers.clear()
    return run, {
        (FailureKind.TOOL_COUNT, "tool_count expected 1, got 0"),
        (FailureKind.LEDGER_MISMATCH, "tool executions ledger=('device.volume.adjust',), spans=()"),
    }


def with_a_second_model_call() -> tuple[StagedRun, Said]:
    run = stage(CaseId.ORDINARY_CHAT)
    run.calls.append((CallKind.CHAT_COMPLETION, USAGE))
    run.log(AuditKind.MODEL_CALL, call_kind=CallKind.CHAT_COMPLETION)
    return run, {
        (FailureKind.MODEL_CALL_COUNT, "model_call_count expected 1, ledger got 2"),
        (FailureKind.MODEL_CALL_COUNT, "model_call_count expected 1, spans got 2"),
    }


def with_a_fallback() -> tuple[StagedRun, Said]:
    run = stage(CaseId.DEVICE_VOLUME_SILENT)
    run.calls.append((CallKind.ARGUMENT_FALLBACK, USAGE))
    run.log(AuditKind.MODEL_CALL, call_kind=CallKind.ARGUMENT_FALLBACK)
    return run, {
        (FailureKind.FALLBACK_COUNT, "fallback_count expected 0, ledger got 1"),
        (FailureKind.FALLBACK_COUNT, "fallback_count expected 0, spans got 1"),
    }


def with_a_model_call_that_only_the_spans_know() -> tuple[StagedRun, Said]:
    run = stage(CaseId.ORDINARY_CHAT)
    run.forget(AuditKind.MODEL_CALL)
    return run, {
        (FailureKind.MODEL_CALL_COUNT, "model_call_count expected 1, ledger got 0"),
        (FailureKind.LEDGER_MISMATCH, "model_call_count ledger=0, spans=1"),
    }


def with_a_fallback_that_only_the_audit_log_knows() -> tuple[StagedRun, Said]:
    run = stage(CaseId.ORDINARY_CHAT)
    run.log(AuditKind.MODEL_CALL, call_kind=CallKind.ARGUMENT_FALLBACK)
    return run, {
        (FailureKind.FALLBACK_COUNT, "fallback_count expected 0, ledger got 1"),
        (FailureKind.LEDGER_MISMATCH, "fallback_count ledger=1, spans=0"),
    }


def with_a_silent_provider() -> tuple[StagedRun, Said]:
    run = stage(CaseId.WEB_SEARCH_TWO_ANSWERS)
    run.calls[1] = (CallKind.CHAT_COMPLETION, None)
    return run, {(FailureKind.USAGE_MISSING, "model usage missing for 1 call(s)")}


def with_handlers_one_after_the_other() -> tuple[StagedRun, Said]:
    run = stage(CaseId.PARALLEL_VOLUME_SCHEDULE)
    run.handlers = [(VOLUME, 200, 250), (CALENDAR, 250, 300)]
    return run, {(FailureKind.NO_OVERLAP, "parallel event handlers did not overlap")}


def without_the_end_of_the_session() -> tuple[StagedRun, Said]:
    run = stage(CaseId.SESSION_TERMINATE)
    run.forget(AuditKind.TERMINAL_COMPLETED)
    return run, {(FailureKind.TERMINAL, "terminal expected True, got False")}


def with_an_unexpected_end_of_the_session() -> tuple[StagedRun, Said]:
    run = stage(CaseId.ORDINARY_CHAT)
    run.log(AuditKind.TERMINAL_COMPLETED)
    return run, {(FailureKind.TERMINAL, "terminal expected False, got True")}


def with_an_event_that_does_not_exist() -> tuple[StagedRun, Said]:
    run = stage(CaseId.ORDINARY_CHAT)
    run.log(AuditKind.UNKNOWN_EVENT, event_name="make.coffee", event_source=EventSource.TEXT_EVENT)
    return run, {(FailureKind.UNKNOWN_EVENT, "the model asked for the unknown event 'make.coffee'")}


def with_an_event_that_was_cut() -> tuple[StagedRun, Said]:
    run = stage(CaseId.ORDINARY_CHAT)
    run.log(AuditKind.UNTERMINATED_EVENT, event_name=VOLUME)
    return run, {
        (FailureKind.UNTERMINATED_EVENT, "the text ended inside the event 'device.volume.adjust'"),
    }


def with_an_event_that_was_cut_in_its_tag() -> tuple[StagedRun, Said]:
    run = stage(CaseId.ORDINARY_CHAT)
    run.log(AuditKind.UNTERMINATED_EVENT, event_name="")
    return run, {(FailureKind.UNTERMINATED_EVENT, "the text ended inside the event '?'")}


BROKEN = [
    without_the_second_answer,
    with_a_blank_answer,
    with_other_words,
    with_the_answer_after_the_tool,
    with_a_tool_result_and_no_answer,
    with_an_event_that_was_not_detected,
    without_batch_results,
    with_executions_in_another_order,
    with_an_event_from_the_wrong_source,
    with_an_event_that_failed,
    without_the_handler_span,
    with_a_second_model_call,
    with_a_fallback,
    with_a_model_call_that_only_the_spans_know,
    with_a_fallback_that_only_the_audit_log_knows,
    with_a_silent_provider,
    with_handlers_one_after_the_other,
    without_the_end_of_the_session,
    with_an_unexpected_end_of_the_session,
    with_an_event_that_does_not_exist,
    with_an_event_that_was_cut,
    with_an_event_that_was_cut_in_its_tag,
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda function: function.__name__)
def test_a_broken_promise_is_told_and_nothing_else_is(broken: Callable[[], tuple[StagedRun, Said]]) -> None:
    run, expected = broken()
    assert said(run) == expected


def test_every_kind_of_failure_is_among_the_broken_promises() -> None:
    assert {kind for broken in BROKEN for kind, _ in broken()[1]} == set(FailureKind)


def test_a_live_model_may_say_it_in_its_own_words() -> None:
    run, _ = with_other_words()
    run.is_mock = False
    assert said(run) == set()


def test_failures_come_in_a_fixed_order() -> None:
    run = stage(CaseId.PARALLEL_VOLUME_SCHEDULE)
    run.outputs = []
    run.calls[0] = (CallKind.CHAT_COMPLETION, None)
    run.handlers.clear()
    assert [failure.kind for failure in run.failures()] == [
        FailureKind.ANSWER_COUNT,
        FailureKind.MOCK_TEXT,
        FailureKind.ANSWER_AFTER_TOOL,
        FailureKind.TOOL_COUNT,
        FailureKind.LEDGER_MISMATCH,
        FailureKind.USAGE_MISSING,
        FailureKind.NO_OVERLAP,
    ]


def test_overlap_is_only_asked_of_the_case_that_promises_it() -> None:
    promising = [case.case_id for case in CATALOGUE.values() if case.expectation.must_overlap]
    assert promising == [CaseId.PARALLEL_VOLUME_SCHEDULE]


def test_one_handler_alone_does_not_overlap() -> None:
    run = stage(CaseId.PARALLEL_VOLUME_SCHEDULE)
    run.handlers = [(VOLUME, 200, 300)]
    assert (FailureKind.NO_OVERLAP, "parallel event handlers did not overlap") in said(run)


def test_every_silent_call_is_counted_fallbacks_included() -> None:
    run = stage(CaseId.WEB_SEARCH_TWO_ANSWERS)
    run.calls = [
        (CallKind.CHAT_COMPLETION, None),
        (CallKind.ARGUMENT_FALLBACK, None),
        (CallKind.CHAT_COMPLETION, USAGE),
    ]
    (failure,) = usage_failures(run.facts())
    assert failure.message == "model usage missing for 2 call(s)"


def test_a_run_without_any_model_call_is_not_blamed_for_usage() -> None:
    run = stage(CaseId.ORDINARY_CHAT)
    run.calls.clear()
    assert usage_failures(run.facts()) == ()


# --- answers -----------------------------------------------------------------------------------------------


def test_deltas_between_two_tool_results_are_one_answer() -> None:
    answers = split_answers([delta("Good"), delta("bye."), tool_result("a"), delta("Done.")])
    assert answers.texts == ("Goodbye.", "Done.")


def test_answers_are_stripped() -> None:
    assert split_answers([delta("\n Hello. "), delta(" ")]).texts == ("Hello.",)


def test_a_stretch_without_deltas_is_no_answer_and_not_blank() -> None:
    answers = split_answers([tool_result("a"), tool_result("b")])
    assert (answers.texts, answers.blank_count) == ((), 0)


def test_a_stretch_of_blank_deltas_is_blank_once() -> None:
    assert split_answers([delta(" "), delta("\n"), tool_result("a"), delta("")]).blank_count == 2


def test_positions_are_those_of_the_first_text_and_the_first_tool_result() -> None:
    answers = split_answers([delta(" "), delta("Yes."), tool_result("a"), delta("No."), tool_result("b")])
    assert (answers.first_text_position, answers.first_tool_position) == (1, 2)


def test_without_messages_there_are_no_positions() -> None:
    answers = split_answers([])
    assert answers.first_text_position is answers.first_tool_position is None

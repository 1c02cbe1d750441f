"""One turn of the agent: what it puts on the queue, what it audits, what it asks the model."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from agentbench_otel import names
from agentbench_otel.agent.executor import ConcurrentExecutor
from agentbench_otel.agent.tools import TOOLS
from agentbench_otel.cases import CALENDAR, SEARCH, TERMINATE, VOLUME
from agentbench_otel.errors import AgentError, ErrorKind, ProviderError
from agentbench_otel.ports import ToolHandler
from agentbench_otel.records.chat import CallKind, ChatMessage, ItemKind, StreamItem
from agentbench_otel.records.scenario import Mode
from agentbench_otel.records.spans import SpanRecord
from agentbench_otel.records.turn import AuditKind, EventSource, EventStatus, MessageType, OutputMessage
from tests.support.agent_fakes import (
    ALL_TOOLS,
    Step,
    TickingClock,
    Turn,
    markup,
    piece,
    play,
    run_in_virtual_time,
    text,
    tool_call,
)

ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    VOLUME: {"mode": "absolute", "value": 30},
    CALENDAR: {
        "title": "Design review",
        "start_at": "2026-07-14T09:30:00+08:00",
        "timezone": "Asia/Shanghai",
    },
    SEARCH: {"query": "event batch safety"},
    TERMINATE: {},
}
CONFIRMATION = "Scheduled Design review for 2026-07-14T09:30:00+08:00 (Asia/Shanghai)."
MODES = pytest.mark.parametrize("mode", Mode)
SOURCES = {Mode.DUAL_AGENT: EventSource.TEXT_EVENT, Mode.CHAT_AGENT_TOOLS: EventSource.PROVIDER_RESOLVED}


def event(mode: Mode, name: str, call_id: str = "call-1") -> StreamItem:
    """A whole event with good arguments, as a model writes it in this mode."""
    if mode is Mode.DUAL_AGENT:
        return markup(name, json.dumps(ARGUMENTS[name]))
    return tool_call(name, ARGUMENTS[name], call_id=call_id)


def said(turn: Turn) -> list[str]:
    """The messages in short: the text of a delta, or the type (and the status) of another one."""
    return [in_short(message) for message in turn.messages]


def in_short(message: OutputMessage) -> str:
    if message.type is MessageType.MESSAGE_DELTA:
        return message.content
    if message.type is MessageType.TOOL_RESULT:
        return f"{message.event_name} {message.status}"
    return message.type.value


def statuses(turn: Turn) -> list[EventStatus]:
    return [result.status for entry in turn.audited(AuditKind.EVENT_BATCH_RESULTS) for result in entry.results]


class Handlers:
    """Handlers that note who started, with which id and arguments, and who ended."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.calls: list[tuple[str, Mapping[str, Any]]] = []

    def noting(self, name: str, seconds: float = 0.0, error: Exception | None = None) -> ToolHandler:
        async def handle(event_id: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
            self.log.append(f"{name} starts")
            self.calls.append((event_id, arguments))
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                self.log.append(f"{name} is cancelled")
                raise
            if error is not None:
                raise error
            self.log.append(f"{name} ends")
            return {"from": name}

        return handle


# --- the order of the messages ----------------------------------------------------------------------------


@MODES
def test_an_answer_without_events_is_the_whole_turn(mode: Mode) -> None:
    turn = play([text("Ordinary "), text("answer.")], mode=mode)

    assert said(turn) == ["Ordinary ", "answer.", "turn_completed"]
    assert [entry.kind for entry in turn.audit] == [AuditKind.MODEL_CALL]


@MODES
def test_after_a_silent_tool_nothing_is_said(mode: Mode) -> None:
    turn = play([text("I will set it."), event(mode, VOLUME)], mode=mode)

    assert said(turn) == ["I will set it.", f"{VOLUME} success", "turn_completed"]


@MODES
def test_after_a_template_tool_the_template_is_said(mode: Mode) -> None:
    turn = play([text("I will schedule that."), event(mode, CALENDAR)], mode=mode)

    assert said(turn) == ["I will schedule that.", f"{CALENDAR} success", CONFIRMATION, "turn_completed"]


@MODES
def test_after_a_model_tool_the_model_speaks_again(mode: Mode) -> None:
    turn = play([text("I will check."), event(mode, SEARCH)], [text("Grounded update.")], mode=mode)

    assert said(turn) == ["I will check.", f"{SEARCH} success", "Grounded update.", "turn_completed"]


@MODES
def test_a_terminal_tool_ends_the_turn(mode: Mode) -> None:
    turn = play([text("Goodbye."), event(mode, TERMINATE)], mode=mode)

    assert said(turn) == ["Goodbye.", f"{TERMINATE} success", "turn_completed"]
    assert turn.audit[-1].kind is AuditKind.TERMINAL_COMPLETED


@MODES
def test_the_result_of_the_handler_is_in_its_message(mode: Mode) -> None:
    turn = play([event(mode, VOLUME, "event-1")], mode=mode)
    [result, _] = turn.messages

    assert result.result == {"event_id": "event-1", "level": 30}


@MODES
def test_a_terminal_event_beside_a_model_event_leaves_no_second_call(mode: Mode) -> None:
    turn = play([event(mode, SEARCH), event(mode, TERMINATE, "call-2")], mode=mode)

    assert said(turn) == [f"{SEARCH} success", f"{TERMINATE} success", "turn_completed"]
    assert len(turn.client.requests) == 1


def test_a_session_whose_end_failed_goes_on() -> None:
    failing = Handlers().noting(TERMINATE, error=RuntimeError("still open"))
    turn = play(
        [event(Mode.DUAL_AGENT, TERMINATE), event(Mode.DUAL_AGENT, SEARCH)],
        [text("Here you are.")],
        handlers={TERMINATE: failing},
    )

    assert said(turn) == [f"{TERMINATE} failed", f"{SEARCH} success", "Here you are.", "turn_completed"]
    assert turn.audited(AuditKind.TERMINAL_COMPLETED) == []


def test_one_model_event_in_a_batch_makes_one_second_call() -> None:
    turn = play(
        [event(Mode.DUAL_AGENT, SEARCH), event(Mode.DUAL_AGENT, CALENDAR), event(Mode.DUAL_AGENT, SEARCH)],
        [text("Done.")],
    )

    assert said(turn) == [
        f"{SEARCH} success",
        f"{CALENDAR} success",
        CONFIRMATION,
        f"{SEARCH} success",
        "Done.",
        "turn_completed",
    ]


# --- batches ----------------------------------------------------------------------------------------------


@MODES
def test_the_two_handlers_of_a_batch_run_at_the_same_time(mode: Mode) -> None:
    handlers = Handlers()
    turn = play(
        [event(mode, VOLUME), event(mode, CALENDAR, "call-2")],
        mode=mode,
        handlers={VOLUME: handlers.noting("volume", 0.2), CALENDAR: handlers.noting("calendar", 0.1)},
    )
    volume, calendar = turn.tree.handlers

    assert handlers.log == ["volume starts", "calendar starts", "calendar ends", "volume ends"]
    assert volume.start_ns < calendar.start_ns < calendar.end_ns < volume.end_ns


def test_audit_and_results_keep_the_order_of_detection_whatever_finishes_first() -> None:
    handlers = Handlers()
    turn = play(
        [event(Mode.DUAL_AGENT, name) for name in (VOLUME, CALENDAR, SEARCH)] + [text("Bye.")],
        [text("Found.")],
        handlers={
            VOLUME: handlers.noting("volume", 0.3),
            CALENDAR: handlers.noting("calendar", 0.2),
            SEARCH: handlers.noting("search", 0.1),
        },
        executor=ConcurrentExecutor(3),
    )

    assert handlers.log[3:] == ["search ends", "calendar ends", "volume ends"]
    for kind in (AuditKind.CHAT_EVENT_DETECTED, AuditKind.TOOL_EXECUTION):
        assert [entry.event_name for entry in turn.audited(kind)] == [VOLUME, CALENDAR, SEARCH]
    [batch] = turn.audited(AuditKind.EVENT_BATCH_RESULTS)
    assert [result.event_name for result in batch.results] == [VOLUME, CALENDAR, SEARCH]
    assert [message.event_name for message in turn.messages if message.event_name] == [VOLUME, CALENDAR, SEARCH]


def test_a_batch_starts_after_the_stream_has_ended() -> None:
    turn = play([event(Mode.DUAL_AGENT, VOLUME), text("I did."), piece(ItemKind.FINISH)])
    [call], [handler] = turn.tree.calls, turn.tree.handlers

    assert call.span.end_ns < handler.start_ns


def test_a_handler_that_fails_fails_only_its_event() -> None:
    handlers = Handlers()
    turn = play(
        [event(Mode.DUAL_AGENT, CALENDAR), event(Mode.DUAL_AGENT, VOLUME)],
        handlers={
            CALENDAR: handlers.noting("calendar", error=RuntimeError("the calendar is full")),
            VOLUME: handlers.noting("volume", 0.1),
        },
    )

    assert said(turn) == [f"{CALENDAR} failed", f"{VOLUME} success", "turn_completed"]
    assert turn.messages[0].result == {"error": "RuntimeError: the calendar is full"}
    assert statuses(turn) == [EventStatus.FAILED, EventStatus.SUCCESS]
    assert [span.attributes.get(names.ERROR_TYPE) for span in turn.tree.handlers] == ["RuntimeError", None]


def test_a_timeout_inside_a_handler_is_its_failure() -> None:
    turn = play(
        [event(Mode.DUAL_AGENT, VOLUME)],
        handlers={VOLUME: Handlers().noting("volume", error=TimeoutError("its own"))},
    )

    assert said(turn) == [f"{VOLUME} failed", "turn_completed"]


def test_only_the_slow_handler_of_a_batch_times_out() -> None:
    handlers = Handlers()
    turn = play(
        [event(Mode.DUAL_AGENT, CALENDAR), event(Mode.DUAL_AGENT, VOLUME)],
        handlers={CALENDAR: handlers.noting("calendar", 1.1), VOLUME: handlers.noting("volume", 0.9)},
    )

    assert said(turn) == [f"{CALENDAR} timeout", f"{VOLUME} success", "turn_completed"]
    assert handlers.log == ["calendar starts", "volume starts", "volume ends", "calendar is cancelled"]
    assert statuses(turn) == [EventStatus.TIMEOUT, EventStatus.SUCCESS]
    assert [span.attributes.get(names.ERROR_TYPE) for span in turn.tree.handlers] == ["cancelled", None]
    assert turn.messages[0].result == {"error": "not finished within the batch timeout"}


def test_the_batch_timeout_is_that_of_the_request() -> None:
    slow = {VOLUME: Handlers().noting("volume", 5.0)}

    assert statuses(play([event(Mode.DUAL_AGENT, VOLUME)], handlers=slow, batch_timeout_s=5.1)) == ["success"]
    assert statuses(play([event(Mode.DUAL_AGENT, VOLUME)], handlers=slow, batch_timeout_s=4.9)) == ["timeout"]


def test_an_event_that_never_got_its_turn_times_out_without_having_been_executed() -> None:
    handlers = Handlers()
    turn = play(
        [event(Mode.DUAL_AGENT, CALENDAR), event(Mode.DUAL_AGENT, VOLUME)],
        handlers={CALENDAR: handlers.noting("calendar", 2.0), VOLUME: handlers.noting("volume")},
        executor=ConcurrentExecutor(1),
    )

    assert handlers.log == ["calendar starts", "calendar is cancelled"]
    assert statuses(turn) == [EventStatus.TIMEOUT, EventStatus.TIMEOUT]
    assert [entry.event_name for entry in turn.audited(AuditKind.TOOL_EXECUTION)] == [CALENDAR]
    assert len(turn.tree.handlers) == 1


def test_after_a_failed_template_tool_nothing_is_confirmed() -> None:
    turn = play(
        [event(Mode.DUAL_AGENT, CALENDAR)],
        handlers={CALENDAR: Handlers().noting("calendar", error=RuntimeError("full"))},
    )

    assert said(turn) == [f"{CALENDAR} failed", "turn_completed"]


def test_the_same_event_twice_is_executed_twice() -> None:
    handlers = Handlers()
    turn = play([event(Mode.DUAL_AGENT, VOLUME)] * 2, handlers={VOLUME: handlers.noting("volume")})

    assert [event_id for event_id, _ in handlers.calls] == ["event-1", "event-2"]
    assert statuses(turn) == [EventStatus.SUCCESS, EventStatus.SUCCESS]


# --- events -----------------------------------------------------------------------------------------------


@MODES
def test_an_event_is_audited_and_recorded_with_its_source(mode: Mode) -> None:
    turn = play([event(mode, VOLUME, "event-1")], mode=mode)
    [detected] = turn.audited(AuditKind.CHAT_EVENT_DETECTED)
    [handler] = turn.tree.handlers

    assert (detected.event_name, detected.event_source) == (VOLUME, SOURCES[mode])
    assert handler.attributes == {
        names.OPERATION_NAME: "execute_tool",
        names.TOOL_NAME: VOLUME,
        names.TOOL_TYPE: "function",
        names.TOOL_CALL_ID: "event-1",
        names.EVENT_INDEX: 0,
        names.EVENT_SOURCE: SOURCES[mode].value,
    }


def test_the_handler_gets_the_id_of_the_providers_call() -> None:
    handlers = Handlers()
    play(
        [event(Mode.CHAT_AGENT_TOOLS, VOLUME, "call_Ab9")],
        mode=Mode.CHAT_AGENT_TOOLS,
        handlers={VOLUME: handlers.noting("volume")},
    )

    assert handlers.calls == [("call_Ab9", ARGUMENTS[VOLUME])]


def test_event_markup_is_never_said_however_it_is_cut() -> None:
    written = f'Sure. <event name="{VOLUME}">{json.dumps(ARGUMENTS[VOLUME])}</event> Done.'
    turn = play([text(char) for char in written])

    assert "".join(said(turn)[:-2]) == "Sure.  Done."
    assert said(turn)[-2:] == [f"{VOLUME} success", "turn_completed"]


def test_text_that_only_looked_like_markup_is_said_at_the_end() -> None:
    assert said(play([text("Is 1 <"), text("e")])) == ["Is 1 ", "<e", "turn_completed"]


def test_without_text_events_markup_is_ordinary_text() -> None:
    turn = play([markup(VOLUME, "{}")], mode=Mode.CHAT_AGENT_TOOLS)

    assert said(turn) == [f'<event name="{VOLUME}">{{}}</event>', "turn_completed"]


def test_a_native_call_in_dual_agent_mode_counts_as_what_it_is() -> None:
    turn = play([event(Mode.CHAT_AGENT_TOOLS, VOLUME)], mode=Mode.DUAL_AGENT)
    [detected] = turn.audited(AuditKind.CHAT_EVENT_DETECTED)

    assert detected.event_source is EventSource.PROVIDER_RESOLVED
    assert statuses(turn) == [EventStatus.SUCCESS]


@MODES
@pytest.mark.parametrize("name", ["device.volume", "", VOLUME.replace(".", "_"), CALENDAR])
def test_an_event_that_is_not_enabled_is_audited_and_not_executed(mode: Mode, name: str) -> None:
    item = markup(name, "{}") if mode is Mode.DUAL_AGENT else tool_call(name, {})
    turn = play([text("Hm."), item], mode=mode, tool_names=(VOLUME, SEARCH))
    [unknown] = turn.audited(AuditKind.UNKNOWN_EVENT)

    assert said(turn) == ["Hm.", "turn_completed"]
    assert (unknown.event_name, unknown.event_source) == (name, SOURCES[mode])
    assert turn.audited(AuditKind.EVENT_BATCH_RESULTS) == []


def test_an_unknown_event_does_not_stop_the_known_ones() -> None:
    turn = play([markup("device.light", "{}"), event(Mode.DUAL_AGENT, VOLUME)])

    assert said(turn) == [f"{VOLUME} success", "turn_completed"]
    assert turn.tree.handlers[0].attributes[names.EVENT_INDEX] == 0


def test_a_made_up_event_name_is_cut_to_64_characters() -> None:
    turn = play([markup("x" * 100), text(f'<event name="{"y" * 100}">')])

    assert turn.audited(AuditKind.UNKNOWN_EVENT)[0].event_name == "x" * 64
    assert turn.audited(AuditKind.UNTERMINATED_EVENT)[0].event_name == "y" * 64


def test_an_unterminated_event_is_audited_and_not_executed() -> None:
    turn = play([text("I will. "), text(f'<event name="{VOLUME}">'), text('{"mode":"absolute","val')])
    [unterminated] = turn.audited(AuditKind.UNTERMINATED_EVENT)

    assert said(turn) == ["I will. ", "turn_completed"]
    assert unterminated.event_name == VOLUME
    assert turn.tree.handlers == ()


def test_an_event_body_of_a_thousand_brackets_is_no_crash() -> None:
    turn = play([markup(VOLUME, '{"a":' * 20_000)], [piece(ItemKind.FINISH)])

    assert said(turn) == [f"{VOLUME} invalid_arguments", "turn_completed"]


def test_the_audit_log_holds_no_content() -> None:
    turn = play([text("secret words"), markup(CALENDAR, json.dumps(ARGUMENTS[CALENDAR]))])
    assert turn.tree.turn is not None
    values = json.dumps([dict(event.attributes) for event in turn.tree.turn.events])

    assert "secret" not in values
    assert "Design review" not in values


# --- argument fallback ------------------------------------------------------------------------------------

BAD_BODIES = ["", "30", "[1]", "null", '{"mode":', '{"mode":"absolute"}', "{'mode': 'absolute', 'value': 30}"]


@pytest.mark.parametrize("body", BAD_BODIES)
def test_arguments_that_do_not_validate_are_asked_for_once_more(body: str) -> None:
    handlers = Handlers()
    turn = play(
        [text("Sure."), markup(VOLUME, body)],
        [tool_call(VOLUME, {"mode": "relative", "delta": 5})],
        handlers={VOLUME: handlers.noting("volume")},
    )

    assert said(turn) == ["Sure.", f"{VOLUME} success", "turn_completed"]
    assert handlers.calls == [("event-1", {"mode": "relative", "delta": 5})]
    assert [entry.call_kind for entry in turn.audited(AuditKind.MODEL_CALL)] == [
        CallKind.CHAT_COMPLETION,
        CallKind.ARGUMENT_FALLBACK,
    ]


def test_a_native_call_whose_arguments_were_cut_is_asked_for_once_more() -> None:
    turn = play(
        [tool_call(VOLUME, None, raw='{"mode":"abs'), piece(ItemKind.FINISH)],
        [tool_call(VOLUME, ARGUMENTS[VOLUME])],
        mode=Mode.CHAT_AGENT_TOOLS,
    )

    assert said(turn) == [f"{VOLUME} success", "turn_completed"]
    assert '{"mode":"abs' in turn.client.requests[1].messages[-1].content


@MODES
def test_a_fallback_is_forced_to_the_tool_of_the_event(mode: Mode) -> None:
    item = markup(VOLUME, "{}") if mode is Mode.DUAL_AGENT else tool_call(VOLUME, {})
    turn = play(
        [item],
        [tool_call(VOLUME, ARGUMENTS[VOLUME])],
        mode=mode,
        user_message="Louder!",
        max_tokens=99,
        temperature=0.5,
    )
    fallback = turn.client.requests[1]

    assert fallback.call_kind is CallKind.ARGUMENT_FALLBACK
    assert fallback.forced_tool == VOLUME
    assert fallback.tools == (TOOLS[VOLUME].spec,)
    assert (fallback.max_tokens, fallback.temperature) == (99, 0.5)
    assert [message.role for message in fallback.messages] == ["system", "user"]
    assert fallback.messages[1].content.startswith("Louder!")


def test_a_fallback_says_what_was_given_and_what_was_wrong() -> None:
    turn = play([markup(VOLUME, '{"mode":"loud"}')], [tool_call(VOLUME, ARGUMENTS[VOLUME])])
    plea = turn.client.requests[1].messages[-1].content

    assert '{"mode":"loud"}' in plea
    assert "Input should be 'absolute' or 'relative'" in plea


def test_an_event_without_arguments_is_told_to_have_none() -> None:
    turn = play([markup(VOLUME)], [tool_call(VOLUME, ARGUMENTS[VOLUME])])

    assert "The arguments given before were 'none'" in turn.client.requests[1].messages[-1].content


@pytest.mark.parametrize(
    "answer",
    [
        [tool_call(VOLUME, {"mode": "absolute"})],
        [tool_call(VOLUME, None)],
        [tool_call(CALENDAR, ARGUMENTS[CALENDAR])],
        [tool_call(CALENDAR, ARGUMENTS[VOLUME])],
        [tool_call(VOLUME, {}), tool_call(VOLUME, ARGUMENTS[VOLUME])],
        [text("I would say 30.")],
        [markup(VOLUME, json.dumps(ARGUMENTS[VOLUME]))],
        [],
        [ProviderError(ErrorKind.CONNECT_ERROR, "the connection was lost")],
        [tool_call(VOLUME, ARGUMENTS[VOLUME]), ProviderError(ErrorKind.STREAM_TRUNCATED, "cut")],
    ],
)
def test_a_fallback_that_fails_too_leaves_the_event_with_invalid_arguments(answer: Sequence[Step]) -> None:
    handlers = Handlers()
    turn = play([markup(VOLUME, "{}")], answer, handlers={VOLUME: handlers.noting("volume")})

    assert said(turn) == [f"{VOLUME} invalid_arguments", "turn_completed"]
    assert statuses(turn) == [EventStatus.INVALID_ARGUMENTS]
    assert len(turn.client.requests) == 2
    assert handlers.log == []
    assert turn.tree.handlers == ()
    assert turn.audited(AuditKind.TOOL_EXECUTION) == []


def test_of_the_calls_in_a_fallback_the_one_of_its_tool_is_taken() -> None:
    turn = play(
        [markup(VOLUME, "{}")],
        [tool_call(CALENDAR, ARGUMENTS[CALENDAR]), tool_call(VOLUME, ARGUMENTS[VOLUME])],
    )

    assert said(turn) == [f"{VOLUME} success", "turn_completed"]


def test_a_provider_error_inside_a_fallback_stands_on_that_call_and_not_on_the_turn() -> None:
    turn = play([markup(VOLUME, "{}")], [ProviderError(ErrorKind.IDLE_TIMEOUT, "silent")])
    chat, fallback = turn.tree.calls
    assert turn.tree.turn is not None

    assert fallback.span.attributes[names.ERROR_TYPE] == "idle_timeout"
    assert names.ERROR_TYPE not in chat.span.attributes
    assert names.ERROR_TYPE not in turn.tree.turn.attributes


def test_a_fallback_that_fails_does_not_stop_the_other_events() -> None:
    turn = play(
        [markup(CALENDAR, "{}"), event(Mode.DUAL_AGENT, VOLUME), markup(SEARCH, "{}")],
        [ProviderError(ErrorKind.IDLE_TIMEOUT, "silent")],
        [tool_call(SEARCH, ARGUMENTS[SEARCH])],
        [text("Found.")],
    )

    assert said(turn) == [
        f"{CALENDAR} invalid_arguments",
        f"{VOLUME} success",
        f"{SEARCH} success",
        "Found.",
        "turn_completed",
    ]


def test_a_model_event_with_invalid_arguments_still_gets_its_second_answer() -> None:
    turn = play([markup(SEARCH, "{}")], [text("no")], [text("I could not search.")])

    assert said(turn) == [f"{SEARCH} invalid_arguments", "I could not search.", "turn_completed"]


def test_what_a_model_says_in_a_fallback_is_not_visible() -> None:
    turn = play([markup(VOLUME, "{}")], [text("Of course!"), tool_call(VOLUME, ARGUMENTS[VOLUME])])

    assert said(turn) == [f"{VOLUME} success", "turn_completed"]
    assert not any(one.is_visible for call in turn.tree.calls for one in call.awaits)


@pytest.mark.parametrize("body", ["", "now", '{"reason":"asked"}'])
def test_terminate_needs_no_fallback(body: str) -> None:
    turn = play([markup(TERMINATE, body)])

    assert said(turn) == [f"{TERMINATE} success", "turn_completed"]
    assert len(turn.client.requests) == 1


def test_all_events_are_resolved_before_any_handler_starts() -> None:
    turn = play(
        [event(Mode.DUAL_AGENT, VOLUME), markup(CALENDAR, "{}")],
        [tool_call(CALENDAR, ARGUMENTS[CALENDAR])],
    )
    fallback = turn.tree.calls[1].span

    assert fallback.attributes[names.CALL_KIND] == "argument_fallback"
    assert all(fallback.end_ns < handler.start_ns for handler in turn.tree.handlers)
    assert len(turn.tree.handlers) == 2


def test_a_slow_fallback_is_outside_the_batch_timeout() -> None:
    turn = play(
        [event(Mode.DUAL_AGENT, VOLUME), markup(CALENDAR, "{}")],
        [lambda: asyncio.sleep(30), tool_call(CALENDAR, ARGUMENTS[CALENDAR])],
        handlers={VOLUME: Handlers().noting("volume", 0.9)},
    )

    assert statuses(turn) == [EventStatus.SUCCESS, EventStatus.SUCCESS]


# --- loops ------------------------------------------------------------------------------------------------


@MODES
def test_events_after_the_last_loop_are_audited_and_not_executed(mode: Mode) -> None:
    turn = play([event(mode, SEARCH)], [text("Found."), event(mode, VOLUME)], mode=mode)

    assert said(turn) == [f"{SEARCH} success", "Found.", "turn_completed"]
    assert [entry.event_name for entry in turn.audited(AuditKind.CHAT_EVENT_DETECTED)] == [SEARCH, VOLUME]
    assert len(turn.tree.handlers) == 1


@MODES
def test_more_loops_execute_more_batches(mode: Mode) -> None:
    turn = play(
        [event(mode, SEARCH)],
        [text("More. "), event(mode, SEARCH, "call-2"), event(mode, VOLUME, "call-3")],
        [text("Found."), event(mode, CALENDAR)],
        mode=mode,
        max_event_loops=2,
    )

    assert said(turn) == [
        f"{SEARCH} success",
        "More. ",
        f"{SEARCH} success",
        f"{VOLUME} success",
        "Found.",
        "turn_completed",
    ]
    assert [span.attributes[names.EVENT_INDEX] for span in turn.tree.handlers] == [0, 1, 2]
    assert len(turn.audited(AuditKind.EVENT_BATCH_RESULTS)) == 2


def test_without_loops_nothing_is_executed() -> None:
    turn = play([event(Mode.DUAL_AGENT, VOLUME)], max_event_loops=0)

    assert said(turn) == ["turn_completed"]
    assert len(turn.audited(AuditKind.CHAT_EVENT_DETECTED)) == 1


def test_the_log_tells_the_turn_from_beginning_to_end() -> None:
    turn = play([text("Ok."), event(Mode.DUAL_AGENT, SEARCH)], [text("Found.")])

    assert [entry.kind for entry in turn.audit] == [
        AuditKind.MODEL_CALL,
        AuditKind.CHAT_EVENT_DETECTED,
        AuditKind.TOOL_EXECUTION,
        AuditKind.EVENT_BATCH_RESULTS,
        AuditKind.MODEL_CALL,
    ]
    times_ns = [entry.time_ns for entry in turn.audit]
    assert times_ns == sorted(times_ns)


# --- requests ---------------------------------------------------------------------------------------------


def test_in_dual_agent_mode_the_prompt_tells_the_tools_and_how_to_write_events() -> None:
    [request] = play([text("Hi.")], tool_names=(VOLUME, SEARCH)).client.requests
    prompt = request.messages[0]

    assert request.tools == ()
    assert prompt.role == "system"
    assert '<event name="device.volume.adjust">{"mode":"absolute","value":30}</event>' in prompt.content
    for name in (VOLUME, SEARCH):
        assert f"- {name}: {TOOLS[name].description}" in prompt.content
    assert CALENDAR not in prompt.content


def test_in_tools_mode_the_tools_travel_as_tools() -> None:
    [request] = play([text("Hi.")], mode=Mode.CHAT_AGENT_TOOLS, tool_names=(VOLUME, SEARCH)).client.requests

    assert request.tools == (TOOLS[VOLUME].spec, TOOLS[SEARCH].spec)
    assert request.forced_tool is None
    assert "<event" not in request.messages[0].content


@MODES
def test_the_request_carries_the_users_words_and_the_limits(mode: Mode) -> None:
    [request] = play(
        [text("Hi.")], mode=mode, user_message="Hello.", max_tokens=7, temperature=None
    ).client.requests

    assert request.messages[1:] == (ChatMessage(role="user", content="Hello."),)
    assert request.call_kind is CallKind.CHAT_COMPLETION
    assert (request.max_tokens, request.temperature) == (7, None)


@MODES
def test_a_nonce_stands_before_everything_else(mode: Mode) -> None:
    [request] = play([text("Hi.")], mode=mode, prompt_nonce="f00d").client.requests
    [plain] = play([text("Hi.")], mode=mode).client.requests

    assert request.messages[0].content == f"[f00d]\n{plain.messages[0].content}"


def test_in_tools_mode_the_history_answers_every_call() -> None:
    written = [
        text("I will check."),
        tool_call(SEARCH, ARGUMENTS[SEARCH], call_id="call-1", raw=json.dumps(ARGUMENTS[SEARCH])),
        tool_call("device.light", {}, call_id="call-2"),
        tool_call(VOLUME, ARGUMENTS[VOLUME], call_id="call-3"),
    ]
    turn = play(
        written,
        [text("Found.")],
        mode=Mode.CHAT_AGENT_TOOLS,
        handlers={
            SEARCH: Handlers().noting("search"),
            VOLUME: Handlers().noting("volume", error=RuntimeError("broken")),
        },
    )
    first, second = turn.client.requests
    assistant, *answers = second.messages[2:]

    assert second.messages[:2] == first.messages
    assert (assistant.role, assistant.content) == ("assistant", "I will check.")
    assert {call.id: call.name for call in assistant.tool_calls} == {
        "call-1": SEARCH,
        "call-2": "device.light",
        "call-3": VOLUME,
    }
    assert {answer.role for answer in answers} == {"tool"}
    assert {answer.tool_call_id: json.loads(answer.content) for answer in answers} == {
        "call-1": {"from": "search"},
        "call-2": {"error": "unknown tool"},
        "call-3": {"error": "RuntimeError: broken"},
    }
    assert [answer.tool_call_id for answer in answers] == [call.id for call in assistant.tool_calls]
    assert second.tools == first.tools


def test_in_dual_agent_mode_the_history_holds_the_answer_as_written_and_the_results() -> None:
    written = ["I will check. ", '<event name="knowledge.web.search">', '{"query":"x"}</ev', "ent>"]
    turn = play(
        [*map(text, written), markup("device.light")],
        [text("Found.")],
        handlers={SEARCH: Handlers().noting("search")},
    )
    first, second = turn.client.requests
    assistant, results = second.messages[2:]

    assert second.messages[:2] == first.messages
    assert assistant == ChatMessage(
        role="assistant", content="".join(written) + '<event name="device.light"></event>'
    )
    assert results.role == "user"
    assert f'<event_result name="{SEARCH}">{{"from":"search"}}</event_result>' in results.content
    assert '<event_result name="device.light">{"error":"unknown tool"}</event_result>' in results.content
    assert second.tools == ()


@MODES
def test_each_loop_adds_to_the_history_of_the_one_before(mode: Mode) -> None:
    turn = play(
        [event(mode, SEARCH)], [event(mode, SEARCH, "call-2")], [text("Found.")], mode=mode, max_event_loops=2
    )
    first, second, third = (request.messages for request in turn.client.requests)

    assert len(first) == 2
    assert second[:2] == first
    assert third[: len(second)] == second
    assert len(third) == 6


# --- errors -----------------------------------------------------------------------------------------------


def turn_span(turn: Turn) -> SpanRecord:
    span = turn.tree.turn
    assert span is not None
    return span


@MODES
def test_a_provider_error_is_the_last_message_with_its_kind(mode: Mode) -> None:
    lost = ProviderError(ErrorKind.CONNECT_ERROR, "target x: the connection was lost")
    turn = play([text("I will"), event(mode, VOLUME), lost], mode=mode)
    last = turn.messages[-1]

    assert said(turn) == ["I will", "error"]
    assert (last.error_kind, last.content) == ("connect_error", "target x: the connection was lost")
    assert turn.tree.handlers == ()


def test_a_provider_error_is_the_failure_of_the_turn_span() -> None:
    turn = play([ProviderError("http_429", "slow down")])

    assert turn_span(turn).attributes[names.ERROR_TYPE] == "http_429"
    assert turn_span(turn).error == "slow down"


def test_a_provider_error_in_the_second_call_keeps_what_was_said_before() -> None:
    turn = play(
        [text("I will check."), event(Mode.DUAL_AGENT, SEARCH)],
        [text("Gro"), ProviderError(ErrorKind.STREAM_TRUNCATED, "cut")],
    )

    assert said(turn) == ["I will check.", f"{SEARCH} success", "Gro", "error"]


def test_an_error_of_the_agent_is_the_last_message_too() -> None:
    turn = play([AgentError("cannot go on")])

    assert (turn.messages[-1].type, turn.messages[-1].error_kind) == (MessageType.ERROR, "agent_error")


def test_any_other_exception_is_raised_and_leaves_no_last_message() -> None:
    turn = Turn([text("Hello."), ZeroDivisionError("a bug")])
    with pytest.raises(ZeroDivisionError, match="a bug"):
        run_in_virtual_time(turn.run())

    assert said(turn) == ["Hello."]
    assert turn_span(turn).attributes[names.ERROR_TYPE] == "ZeroDivisionError"
    assert names.TURN_END not in turn_span(turn).attributes


def test_a_bug_inside_a_fallback_is_raised() -> None:
    turn = Turn([markup(VOLUME, "{}")], [ZeroDivisionError("a bug")])
    with pytest.raises(ZeroDivisionError):
        run_in_virtual_time(turn.run())

    assert said(turn) == []


def test_a_cancelled_turn_closes_its_stream_and_leaves_no_last_message() -> None:
    async def cancel_while_it_streams() -> Turn:
        is_streaming = asyncio.Event()

        async def hang() -> None:
            is_streaming.set()
            await asyncio.Event().wait()

        turn = Turn([text("Hello."), hang])
        task = asyncio.create_task(turn.run())
        await is_streaming.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return turn

    turn = asyncio.run(cancel_while_it_streams())
    assert said(turn) == ["Hello."]
    assert turn.client.ended_count == 1
    assert turn_span(turn).attributes[names.ERROR_TYPE] == "cancelled"
    assert names.TURN_END not in turn_span(turn).attributes
    assert [entry.kind for entry in turn.audit] == [AuditKind.MODEL_CALL]


def test_the_turn_span_tells_how_the_turn_ended() -> None:
    completed = play([text("Hello.")])
    failed = play([ProviderError(ErrorKind.IDLE_TIMEOUT, "silent")])

    assert turn_span(completed).attributes[names.TURN_END] == "turn_completed"
    assert turn_span(failed).attributes[names.TURN_END] == "error"
    assert names.ERROR_TYPE not in turn_span(completed).attributes


def test_the_turn_span_names_its_conversation() -> None:
    assert turn_span(play([text("Hello.")])).attributes[names.CONVERSATION_ID] == "conversation-1"


# --- visible text -----------------------------------------------------------------------------------------


def visible_moments(turn: Turn) -> list[int]:
    return [one.time_ns for one in turn_span(turn).events if one.name == names.FIRST_VISIBLE_MESSAGE_EVENT]


class Moments:
    """Steps that note the time of the clock at that place of the script."""

    def __init__(self) -> None:
        self.clock: TickingClock | None = None
        self.times_ns: list[int] = []

    async def note(self) -> None:
        assert self.clock is not None
        self.times_ns.append(self.clock())


def play_noting(moments: Moments, *script: Step, **options: Any) -> Turn:
    turn = Turn(script, **options)
    moments.clock = turn.clock
    return run_in_virtual_time(turn.run())


@pytest.mark.parametrize(
    "blank",
    [
        text(" \n"),
        piece(ItemKind.RAW_CHUNK),
        piece(ItemKind.REASONING, "Let me think."),
        piece(ItemKind.REFUSAL, "I can't."),
        piece(ItemKind.TOOL_CALL_DELTA, '{"a"'),
        markup(VOLUME, json.dumps(ARGUMENTS[VOLUME])),
    ],
)
def test_the_first_visible_message_is_the_first_text_that_is_not_blank(blank: StreamItem) -> None:
    moments = Moments()
    turn = play_noting(moments, blank, moments.note, text("Hello"), moments.note, text(" there."))
    [visible_ns] = visible_moments(turn)
    before_ns, after_ns = moments.times_ns

    assert before_ns < visible_ns < after_ns


def test_a_text_cut_from_a_tag_is_visible_when_it_is_said() -> None:
    moments = Moments()
    turn = play_noting(moments, text("<ev"), moments.note, text("ening"), moments.note)
    [visible_ns] = visible_moments(turn)
    before_ns, after_ns = moments.times_ns

    assert before_ns < visible_ns < after_ns


def test_a_turn_that_shows_nothing_has_no_first_visible_message() -> None:
    turn = play([text("  "), event(Mode.DUAL_AGENT, VOLUME), piece(ItemKind.REASONING, "Hm.")])

    assert visible_moments(turn) == []


def test_the_words_of_a_template_can_be_the_first_visible_message() -> None:
    turn = play([event(Mode.DUAL_AGENT, CALENDAR)])
    [visible_ns], [handler] = visible_moments(turn), turn.tree.handlers

    assert visible_ns > handler.end_ns


@pytest.mark.parametrize("kind", [ItemKind.REASONING, ItemKind.REFUSAL, ItemKind.TOOL_CALL_DELTA])
@MODES
def test_reasoning_refusals_and_deltas_of_calls_are_not_said(mode: Mode, kind: ItemKind) -> None:
    turn = play([piece(kind, "hidden"), text("Shown.")], mode=mode)

    assert said(turn) == ["Shown.", "turn_completed"]


def test_the_await_that_gave_visible_text_is_marked() -> None:
    [call] = play(
        [
            piece(ItemKind.RAW_CHUNK),
            text(" "),
            text("Hello <ev"),
            text("ening"),
            markup(VOLUME, "{}"),
            text("more"),
            piece(ItemKind.REASONING, "hm"),
        ],
        [text("no")],
        tool_names=(CALENDAR,),
    ).tree.calls

    assert [one.is_visible for one in call.awaits] == [False, False, True, True, False, True, False, False]


def test_a_slow_consumer_gets_every_message_in_order() -> None:
    async def consume_slowly() -> tuple[Turn, list[str]]:
        turn = Turn([text("One. "), text("Two. "), event(Mode.DUAL_AGENT, CALENDAR), text("Three.")], queue_size=1)
        got: list[OutputMessage] = []
        async with asyncio.TaskGroup() as group:
            group.create_task(turn.run())
            while not got or got[-1].type is not MessageType.TURN_COMPLETED:
                await asyncio.sleep(10)
                turn.clock.advance_ms(10_000)
                got.append(await turn.output.get())
        return turn, [in_short(message) for message in got]

    turn, got = run_in_virtual_time(consume_slowly())
    [call] = turn.tree.calls
    awaited_ns = sum(one.end_ns - one.start_ns for one in call.awaits)

    assert got == ["One. ", "Two. ", "Three.", f"{CALENDAR} success", CONFIRMATION, "turn_completed"]
    assert awaited_ns < 1_000_000
    assert call.span.duration_ns > 20_000_000_000


def test_a_slow_consumer_does_not_hold_up_the_handlers() -> None:
    async def fill_the_queue() -> list[EventStatus]:
        turn = Turn([text("One."), event(Mode.DUAL_AGENT, VOLUME)], queue_size=1)
        async with asyncio.TaskGroup() as group:
            group.create_task(turn.run())
            await asyncio.sleep(60)
            got = [await turn.output.get() for _ in range(3)]
        return [message.status for message in got if message.status is not None]

    assert run_in_virtual_time(fill_the_queue()) == [EventStatus.SUCCESS]


def test_all_tools_of_the_stage_are_those_of_the_product() -> None:
    assert set(ALL_TOOLS) == TOOLS.keys()

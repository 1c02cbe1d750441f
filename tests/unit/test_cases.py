"""The catalogue, and the rules that a case must keep."""

from typing import Any

import pytest
from pydantic import ValidationError

from agentbench_otel.agent.tools import TOOLS
from agentbench_otel.cases import CALENDAR, CATALOGUE, SEARCH, TERMINATE, VOLUME
from agentbench_otel.records.scenario import Case, CaseId, Expectation, MockEvent

CONFIRMATION = "Scheduled Design review for 2026-07-14T09:30:00+08:00 (Asia/Shanghai)."
APPOINTMENT = '"Design review" at 2026-07-14T09:30:00+08:00 timezone Asia/Shanghai'
ALL_TOOLS = {VOLUME, CALENDAR, SEARCH, TERMINATE}

# case: user message, enabled tools, events, answers, model calls
TABLE: dict[CaseId, tuple[str, set[str], tuple[str, ...], tuple[str, ...], int]] = {
    CaseId.ORDINARY_CHAT: ("Hello.", ALL_TOOLS, (), ("Ordinary answer.",), 1),
    CaseId.DEVICE_VOLUME_SILENT: (
        "set volume to 30",
        {VOLUME},
        (VOLUME,),
        ("I will set the volume to 30.",),
        1,
    ),
    CaseId.CALENDAR_SCHEDULE_TEMPLATE: (
        f"schedule {APPOINTMENT}",
        {CALENDAR},
        (CALENDAR,),
        ("I will schedule that.", CONFIRMATION),
        1,
    ),
    CaseId.WEB_SEARCH_TWO_ANSWERS: (
        "event batch safety",
        {SEARCH},
        (SEARCH,),
        ("I will check.", "Grounded search update."),
        2,
    ),
    CaseId.SESSION_TERMINATE: ("end this session", {TERMINATE}, (TERMINATE,), ("Goodbye.",), 1),
    CaseId.PARALLEL_VOLUME_SCHEDULE: (
        f"set volume to 30 and schedule {APPOINTMENT}",
        {VOLUME, CALENDAR},
        (VOLUME, CALENDAR),
        ("I will set the volume to 30 and schedule that.", CONFIRMATION),
        1,
    ),
}


def test_the_catalogue_has_the_six_cases_in_their_order() -> None:
    assert list(CATALOGUE) == list(CaseId) == list(TABLE)
    assert all(case.case_id is case_id for case_id, case in CATALOGUE.items())


@pytest.mark.parametrize("case_id", CaseId)
def test_a_case_is_as_the_design_says(case_id: CaseId) -> None:
    case = CATALOGUE[case_id]
    user_message, tools, events, answers, model_calls = TABLE[case_id]

    assert case.user_message == user_message
    assert set(case.enabled_tools) == tools
    assert case.expectation.event_names == events
    assert case.expectation.visible_messages == answers
    assert case.expectation.answer_count == len(answers)
    assert case.expectation.model_call_count == len(case.mock_messages) == model_calls


def test_no_case_expects_a_fallback() -> None:
    assert {case.expectation.fallback_count for case in CATALOGUE.values()} == {0}


def test_only_session_terminate_is_terminal() -> None:
    terminal = [case_id for case_id, case in CATALOGUE.items() if case.expectation.is_terminal]
    assert terminal == [CaseId.SESSION_TERMINATE]


def test_only_the_parallel_case_must_overlap() -> None:
    overlapping = [case_id for case_id, case in CATALOGUE.items() if case.expectation.must_overlap]
    assert overlapping == [CaseId.PARALLEL_VOLUME_SCHEDULE]


def test_every_case_with_an_event_answers_before_the_tool() -> None:
    for case in CATALOGUE.values():
        assert case.expectation.is_reply_before_tool == bool(case.expectation.event_names)


@pytest.mark.parametrize("case_id", CaseId)
def test_the_mock_says_what_the_case_expects(case_id: CaseId) -> None:
    case = CATALOGUE[case_id]
    said = [*case.mock_messages]
    said += [
        TOOLS[event.name].template.format_map(dict(event.arguments))
        for event in case.mock_events
        if TOOLS[event.name].template
    ]

    assert tuple(said) == case.expectation.visible_messages


@pytest.mark.parametrize("event", [event for case in CATALOGUE.values() for event in case.mock_events])
def test_the_arguments_of_every_mock_event_fit_its_tool(event: MockEvent) -> None:
    assert TOOLS[event.name].validate(dict(event.arguments)) == dict(event.arguments)


def test_the_catalogue_can_not_be_changed() -> None:
    with pytest.raises(TypeError):
        CATALOGUE[CaseId.ORDINARY_CHAT] = CATALOGUE[CaseId.SESSION_TERMINATE]  # type: ignore[index]


# --- rules ------------------------------------------------------------------------------------------------


def expectation(**changes: Any) -> Expectation:
    fields = {
        "visible_messages": ("Sure.",),
        "event_names": ("a.tool",),
        "answer_count": 1,
        "model_call_count": 1,
    }
    return Expectation(**{**fields, **changes})


def mock_event(**changes: Any) -> MockEvent:
    return MockEvent(**{"id": "event-1", "name": "a.tool", "arguments": (("x", 1),), **changes})


def case(**changes: Any) -> Case:
    fields = {
        "case_id": CaseId.ORDINARY_CHAT,
        "user_message": "Do it.",
        "enabled_tools": ("a.tool", "b.tool"),
        "expectation": expectation(),
        "mock_messages": ("Sure.",),
        "mock_events": (mock_event(),),
    }
    return Case(**{**fields, **changes})


def test_the_case_that_the_rules_are_tried_on_keeps_them() -> None:
    assert case().expectation.event_names == ("a.tool",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answer_count": 2}, "answer_count must match visible_messages"),
        ({"visible_messages": ("Sure.", "Done.")}, "answer_count must match visible_messages"),
        ({"visible_messages": (" \n",)}, "visible_messages must not be blank"),
        ({"visible_messages": ("",)}, "visible_messages must not be blank"),
        ({"must_overlap": True}, "must_overlap needs at least two events"),
        ({"answer_count": 0, "visible_messages": ()}, "greater than or equal to 1"),
        ({"model_call_count": 0}, "greater than or equal to 1"),
        ({"fallback_count": -1}, "greater than or equal to 0"),
        ({"answer_count": "1"}, "valid integer"),
        ({"answers": 1}, "Extra inputs are not permitted"),
    ],
)
def test_an_expectation_that_breaks_a_rule_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        expectation(**changes)


def test_two_events_may_be_asked_to_overlap() -> None:
    assert expectation(must_overlap=True, event_names=("a.tool", "a.tool")).must_overlap


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": " "}, "mock event id must not be empty"),
        ({"name": ""}, "mock event name must not be empty"),
        ({"arguments": ((" ", 1),)}, "mock event argument names must not be empty"),
        ({"arguments": (("x", 1), ("x", 2))}, "mock event arguments must not contain duplicate names"),
        ({"arguments": (("x", [1]),)}, "arguments"),
        ({"args": ()}, "Extra inputs are not permitted"),
    ],
)
def test_a_mock_event_that_breaks_a_rule_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        mock_event(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"user_message": " \n"}, "user_message must not be empty"),
        ({"enabled_tools": ("a.tool", "a.tool")}, "enabled_tools must not contain duplicates"),
        ({"enabled_tools": ("a.tool", " ")}, "enabled_tools must not contain empty names"),
        ({"mock_events": ()}, "mock event order must match expected event order"),
        ({"mock_events": (mock_event(name="b.tool"),)}, "mock event order must match expected event order"),
        (
            {
                "expectation": expectation(event_names=("a.tool", "b.tool")),
                "mock_events": (mock_event(name="b.tool"), mock_event(id="event-2")),
            },
            "mock event order must match expected event order",
        ),
        ({"enabled_tools": ("b.tool",)}, "expected events must be enabled tools"),
        (
            {
                "expectation": expectation(event_names=("a.tool", "a.tool")),
                "mock_events": (mock_event(), mock_event()),
            },
            "mock event ids must be distinct",
        ),
        (
            {
                "expectation": expectation(event_names=(), is_reply_before_tool=True),
                "mock_events": (),
            },
            "is_reply_before_tool requires mock text and at least one event",
        ),
        (
            {"expectation": expectation(is_reply_before_tool=True), "mock_messages": ()},
            "is_reply_before_tool requires mock text and at least one event",
        ),
        ({"case_id": "ordinary_chat"}, "CaseId"),
        ({"title": "x"}, "Extra inputs are not permitted"),
    ],
)
def test_a_case_that_breaks_a_rule_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        case(**changes)


def test_a_case_can_not_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        case().user_message = "Do something else."

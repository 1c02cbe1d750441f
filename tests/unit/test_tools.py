"""Tools: what a model is told of them, which arguments they take, what follows."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from agentbench_otel.agent.adapters import in_memory_handlers
from agentbench_otel.agent.tools import TOOLS, FollowUp, ToolRegistry
from agentbench_otel.cases import CALENDAR, SEARCH, TERMINATE, VOLUME
from agentbench_otel.errors import InvalidArgumentsError

COMMON_WORDS = {
    "type",
    "properties",
    "required",
    "enum",
    "description",
    "minimum",
    "maximum",
    "minLength",
    "items",
}
APPOINTMENT = {"title": "Design review", "start_at": "2026-07-14T09:30:00+08:00", "timezone": "Asia/Shanghai"}


def appointment(**changes: Any) -> dict[str, Any]:
    return {**APPOINTMENT, **changes}


VALID = [
    (VOLUME, {"mode": "absolute", "value": 0}),
    (VOLUME, {"mode": "absolute", "value": 100}),
    (VOLUME, {"mode": "relative", "delta": -100}),
    (VOLUME, {"mode": "relative", "delta": 100}),
    (VOLUME, {"mode": "absolute", "value": 30, "delta": 5}),
    (CALENDAR, APPOINTMENT),
    (CALENDAR, appointment(recurrence="weekly", reminder_minutes=0)),
    (CALENDAR, appointment(start_at="2026-07-14T09:30:00Z", timezone="UTC")),
    (CALENDAR, appointment(start_at="2026-07-14T09:30:00.250-03:30", timezone="America/St_Johns")),
    (SEARCH, {"query": "event batch safety"}),
    (SEARCH, {"query": "🎉"}),
]

INVALID = [
    (VOLUME, {}, "mode: Field required"),
    (VOLUME, {"mode": "loud", "value": 3}, "mode: Input should be 'absolute' or 'relative'"),
    (VOLUME, {"mode": "absolute"}, "absolute needs value, relative needs delta"),
    (VOLUME, {"mode": "absolute", "delta": 5}, "absolute needs value, relative needs delta"),
    (VOLUME, {"mode": "relative", "value": 5}, "absolute needs value, relative needs delta"),
    (VOLUME, {"mode": "absolute", "value": -1}, "value: .* greater than or equal to 0"),
    (VOLUME, {"mode": "absolute", "value": 101}, "value: .* less than or equal to 100"),
    (VOLUME, {"mode": "relative", "delta": -101}, "delta: .* greater than or equal to -100"),
    (VOLUME, {"mode": "relative", "delta": 101}, "delta: .* less than or equal to 100"),
    (VOLUME, {"mode": "absolute", "value": "30"}, "value: .* valid integer"),
    (VOLUME, {"mode": "absolute", "value": 30.5}, "value: .* valid integer"),
    (VOLUME, {"mode": "absolute", "value": True}, "value: .* valid integer"),
    (VOLUME, {"mode": "absolute", "value": 30, "level": 30}, "level: Extra inputs are not permitted"),
    (CALENDAR, {}, "title: Field required; start_at: Field required; timezone: Field required"),
    (CALENDAR, appointment(title=""), "title: .* at least 1 character"),
    (CALENDAR, appointment(title=7), "title: .* valid string"),
    (CALENDAR, appointment(start_at="tomorrow"), "start_at: .*not an RFC 3339 time"),
    (CALENDAR, appointment(start_at="2026-13-14T09:30:00Z"), "start_at: .*not an RFC 3339 time"),
    (CALENDAR, appointment(start_at="2026-07-14T09:30:00"), "start_at: .*has a T and an offset"),
    (CALENDAR, appointment(start_at="2026-07-14"), "start_at: .*has a T and an offset"),
    (CALENDAR, appointment(start_at="2026-07-14 09:30:00+08:00"), "start_at: .*has a T and an offset"),
    (CALENDAR, appointment(timezone="Shanghai"), "timezone: .*not an IANA time zone"),
    (CALENDAR, appointment(timezone=""), "timezone: .*not an IANA time zone"),
    (CALENDAR, appointment(timezone="../etc/passwd"), "timezone: .*not an IANA time zone"),
    (CALENDAR, appointment(reminder_minutes=-1), "reminder_minutes: .* greater than or equal to 0"),
    (CALENDAR, appointment(reminder_minutes="10"), "reminder_minutes: .* valid integer"),
    (CALENDAR, appointment(place="room 1"), "place: Extra inputs are not permitted"),
    (SEARCH, {}, "query: Field required"),
    (SEARCH, {"query": ""}, "query: .* at least 1 character"),
    (SEARCH, {"query": ["a"]}, "query: .* valid string"),
]


@pytest.mark.parametrize(("name", "arguments"), VALID)
def test_valid_arguments_reach_the_handler_as_they_are(name: str, arguments: Mapping[str, Any]) -> None:
    assert TOOLS[name].validate(arguments) == arguments


@pytest.mark.parametrize(("name", "arguments", "problem"), INVALID)
def test_arguments_that_do_not_fit_are_refused_with_the_reason(
    name: str, arguments: Mapping[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidArgumentsError, match=f"^{name}: .*{problem}"):
        TOOLS[name].validate(arguments)


@pytest.mark.parametrize(
    "start_at",
    [
        "20260714T093000+0800",
        "2026-W29-2T09:30:00+08:00",
        "2026-07-14T09:30+08:00",
        "2026-07-14T09+08:00",
        "2026-07-14T09:30:00+08",
        "2026-07-14T09:30:00+08:00:30",
        "2026-07-14T09:30:00,5Z",
        "2026-07-14 09:30:00T+08:00",
    ],
)
def test_other_times_of_iso_8601_are_no_rfc_3339(start_at: str) -> None:
    with pytest.raises(InvalidArgumentsError, match="start_at: "):
        TOOLS[CALENDAR].validate(appointment(start_at=start_at))


@pytest.mark.parametrize("name", [VOLUME, CALENDAR, SEARCH])
def test_an_event_without_arguments_is_refused_where_the_tool_takes_some(name: str) -> None:
    with pytest.raises(InvalidArgumentsError, match="the event has no JSON object as arguments"):
        TOOLS[name].validate(None)


def test_a_refusal_does_not_quote_what_was_given() -> None:
    with pytest.raises(InvalidArgumentsError) as caught:
        TOOLS[SEARCH].validate({"query": {"password": "sesame"}})

    assert "sesame" not in str(caught.value)


def test_optional_arguments_that_were_left_out_stay_out() -> None:
    assert set(TOOLS[CALENDAR].validate(APPOINTMENT)) == {"title", "start_at", "timezone"}


def test_optional_arguments_that_are_null_stay_out_too() -> None:
    arguments = appointment(recurrence=None, reminder_minutes=None)

    assert TOOLS[CALENDAR].validate(arguments) == APPOINTMENT


@pytest.mark.parametrize("arguments", [None, {}, {"reason": "the user asked"}])
def test_terminate_ignores_whatever_is_sent_along(arguments: Mapping[str, Any] | None) -> None:
    assert TOOLS[TERMINATE].validate(arguments) == {}


def test_numbers_that_json_does_not_know_are_refused() -> None:
    with pytest.raises(InvalidArgumentsError):
        TOOLS[VOLUME].validate({"mode": "absolute", "value": float("nan")})


def test_arguments_that_are_nested_without_end_are_refused() -> None:
    arguments: dict[str, Any] = {}
    for _ in range(5_000):
        arguments = {"query": arguments}

    with pytest.raises(InvalidArgumentsError):
        TOOLS[SEARCH].validate(arguments)


def test_text_that_no_json_can_carry_is_refused() -> None:
    with pytest.raises(InvalidArgumentsError):
        TOOLS[SEARCH].validate({"query": "\ud800"})


def test_each_tool_has_its_follow_up() -> None:
    assert {name: tool.follow_up for name, tool in TOOLS.items()} == {
        VOLUME: FollowUp.SILENT,
        CALENDAR: FollowUp.TEMPLATE,
        SEARCH: FollowUp.MODEL,
        TERMINATE: FollowUp.TERMINAL,
    }


def test_the_template_says_what_was_scheduled() -> None:
    words = TOOLS[CALENDAR].template.format_map(APPOINTMENT)

    assert words == "Scheduled Design review for 2026-07-14T09:30:00+08:00 (Asia/Shanghai)."


# --- schemas ----------------------------------------------------------------------------------------------


def schema_words(schema: Mapping[str, Any]) -> Iterator[str]:
    for word, value in schema.items():
        yield word
        if word == "properties":
            for one in value.values():
                yield from schema_words(one)
        elif word == "items":
            yield from schema_words(value)


@pytest.mark.parametrize("name", TOOLS)
def test_a_schema_has_only_words_that_every_provider_takes(name: str) -> None:
    assert set(schema_words(TOOLS[name].spec.parameters)) <= COMMON_WORDS


@pytest.mark.parametrize("name", TOOLS)
def test_a_schema_is_one_of_an_object_and_every_property_has_a_type(name: str) -> None:
    parameters = TOOLS[name].spec.parameters

    assert parameters["type"] == "object"
    assert all(isinstance(one["type"], str) for one in parameters["properties"].values())
    assert set(parameters.get("required", ())) <= set(parameters["properties"])


def test_the_schema_of_the_volume_tells_its_limits() -> None:
    assert TOOLS[VOLUME].spec.parameters == {
        "type": "object",
        "properties": {
            "mode": {"type": "string", "enum": ["absolute", "relative"]},
            "value": {
                "type": "integer",
                "minimum": 0,
                "maximum": 100,
                "description": "the new level, for absolute",
            },
            "delta": {
                "type": "integer",
                "minimum": -100,
                "maximum": 100,
                "description": "the change, for relative",
            },
        },
        "required": ["mode"],
    }


def test_the_schema_of_the_calendar_requires_what_must_be_given() -> None:
    parameters = TOOLS[CALENDAR].spec.parameters

    assert parameters["required"] == ["title", "start_at", "timezone"]
    assert set(parameters["properties"]) == {*parameters["required"], "recurrence", "reminder_minutes"}
    assert parameters["properties"]["title"] == {"type": "string", "minLength": 1}
    assert parameters["properties"]["reminder_minutes"] == {"type": "integer", "minimum": 0}


def test_the_schema_of_terminate_has_no_properties() -> None:
    assert TOOLS[TERMINATE].spec.parameters == {"type": "object", "properties": {}}


# --- registry ---------------------------------------------------------------------------------------------


def test_the_registry_knows_its_tools_only() -> None:
    handlers = in_memory_handlers()
    registry = ToolRegistry({VOLUME: handlers[VOLUME]})

    assert registry.tool(VOLUME) is TOOLS[VOLUME]
    assert registry.handler(VOLUME) is handlers[VOLUME]
    assert registry.tool(CALENDAR) is None
    assert registry.tool("device.volume") is None


def test_specs_come_in_the_order_asked_for() -> None:
    registry = ToolRegistry(in_memory_handlers())

    assert [spec.name for spec in registry.specs((SEARCH, VOLUME))] == [SEARCH, VOLUME]

"""A chat request on the wire."""

import json
from typing import Any

import pytest

from agentbench_otel.agent.tools import TOOLS
from agentbench_otel.cases import CALENDAR, SEARCH, TERMINATE, VOLUME
from agentbench_otel.errors import InputError
from agentbench_otel.providers.wire import WireNames, request_body
from agentbench_otel.records.chat import ChatMessage, ChatRequest, ToolCall, ToolSpec

HELLO = (ChatMessage(role="user", content="Hello."),)


def body_of(**fields: Any) -> dict[str, Any]:
    return request_body(ChatRequest(**{"messages": HELLO, **fields}), "demo-model")


# --- names ------------------------------------------------------------------------------------------------


def test_dots_travel_as_underscores() -> None:
    assert WireNames.to_wire(VOLUME) == "device_volume_adjust"


def test_the_tools_of_the_product_travel_and_come_back() -> None:
    names = WireNames(TOOLS)

    for name in (VOLUME, CALENDAR, SEARCH, TERMINATE):
        assert names.to_domain(names.to_wire(name)) == name


def test_a_name_that_is_not_ours_comes_back_as_it_is() -> None:
    names = WireNames([VOLUME])

    for name in ("device_volume", "get_weather", "", VOLUME, "calendar_schedule_create"):
        assert names.to_domain(name) == name


def test_a_name_may_be_given_twice() -> None:
    assert WireNames([VOLUME, VOLUME]).to_domain("device_volume_adjust") == VOLUME


def test_two_names_that_are_the_same_on_the_wire_are_refused() -> None:
    with pytest.raises(InputError, match=r"a\.b_c and a_b\.c are both a_b_c on the wire|a_b\.c and a\.b_c"):
        WireNames(["a.b_c", "a_b.c"])


@pytest.mark.parametrize(
    "name", ["", "_", ".", "1st.tool", "_tool", "a b", "a/b", "a:b", "é.tool", "tool²", "a\n"]
)
def test_a_name_that_providers_refuse_is_refused_at_once(name: str) -> None:
    with pytest.raises(InputError, match="can't be sent"):
        WireNames([name])


def test_a_name_has_at_most_64_characters() -> None:
    WireNames(["a" * 64])
    with pytest.raises(InputError, match="longer than 64 characters"):
        WireNames(["a" * 65])


# --- body -------------------------------------------------------------------------------------------------


def test_a_request_always_streams_and_asks_for_usage() -> None:
    assert body_of() == {
        "model": "demo-model",
        "messages": [{"role": "user", "content": "Hello."}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_limits_are_sent_only_when_set() -> None:
    body = body_of(max_tokens=128, temperature=0.0)

    assert (body["max_tokens"], body["temperature"]) == (128, 0.0)
    assert not {"max_tokens", "temperature", "tools", "tool_choice"} & body_of().keys()


def test_tools_travel_under_their_wire_names_and_leave_the_choice_to_the_model() -> None:
    spec = ToolSpec(name="a.b", description="Does it.", parameters={"type": "object", "properties": {}})
    body = body_of(tools=(spec,))

    assert body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "a_b",
                "description": "Does it.",
                "parameters": {"type": "object", "properties": {}},
            },
        }
    ]
    assert "tool_choice" not in body


def test_a_forced_tool_is_chosen_by_its_wire_name() -> None:
    body = body_of(tools=(TOOLS[VOLUME].spec,), forced_tool=VOLUME)

    assert body["tool_choice"] == {"type": "function", "function": {"name": "device_volume_adjust"}}


def test_a_history_with_calls_gives_ids_back_unchanged_and_arguments_as_text() -> None:
    calls = (
        ToolCall(id="functions.x:0", name="a.b", raw_arguments='{"n": 1}', arguments={"n": 1, "t": "é"}),
        ToolCall(id="call00002", name="device.light", raw_arguments="{", arguments=None),
    )
    history = (
        ChatMessage(role="assistant", content="", tool_calls=calls),
        ChatMessage(role="tool", content='{"ok":true}', tool_call_id="functions.x:0"),
    )
    assistant, tool = body_of(messages=history)["messages"]

    assert assistant["role"] == "assistant"
    assert assistant["content"] == ""
    assert [(call["id"], call["type"], call["function"]["name"]) for call in assistant["tool_calls"]] == [
        ("functions.x:0", "function", "a_b"),
        ("call00002", "function", "device_light"),
    ]
    assert [call["function"]["arguments"] for call in assistant["tool_calls"]] == ['{"n": 1, "t": "é"}', "{}"]
    assert tool == {"role": "tool", "content": '{"ok":true}', "tool_call_id": "functions.x:0"}


def test_the_system_speaks_as_system() -> None:
    messages = (ChatMessage(role="system", content="Be brief."), *HELLO)

    assert [message["role"] for message in body_of(messages=messages)["messages"]] == ["system", "user"]


def test_the_body_of_every_tool_is_json() -> None:
    body = body_of(tools=tuple(tool.spec for tool in TOOLS.values()))

    assert json.loads(json.dumps(body)) == body

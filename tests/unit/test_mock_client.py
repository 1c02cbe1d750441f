"""The scripted mock: what it says, in which order, and what it says when its script is over."""

import asyncio
import json

import pytest

from agentbench_otel.agent.text_events import EventMarkup, TextEventDecoder
from agentbench_otel.cases import CATALOGUE
from agentbench_otel.errors import ErrorKind, ProviderError
from agentbench_otel.providers.mock import ScriptedChatClient
from agentbench_otel.records.chat import ChatMessage, ChatRequest, Exchange, ItemKind, StreamItem, TokenUsage
from agentbench_otel.records.scenario import CaseId, Mode
from tests.support.agent_fakes import TickingClock

REQUEST = ChatRequest(messages=(ChatMessage(role="user", content="Hello."),))
MODES = pytest.mark.parametrize("mode", Mode)
CASES = pytest.mark.parametrize("case_id", CaseId)


def rounds(case_id: CaseId, mode: Mode, count: int = 1) -> list[list[StreamItem]]:
    """The items of the first calls of a fresh mock."""

    async def play() -> list[list[StreamItem]]:
        client = ScriptedChatClient(CATALOGUE[case_id], mode, TickingClock())
        return [[item async for item in client.stream_chat(REQUEST, Exchange())] for _ in range(count)]

    return asyncio.run(play())


@MODES
def test_an_answer_without_events_is_a_chunk_its_text_the_finish_and_the_usage(mode: Mode) -> None:
    [items] = rounds(CaseId.ORDINARY_CHAT, mode)

    assert [item.kind for item in items] == [
        ItemKind.RAW_CHUNK,
        ItemKind.TEXT,
        ItemKind.FINISH,
        ItemKind.USAGE,
    ]
    assert items[1].text == "Ordinary answer."
    assert items[2].finish_reason == "stop"


def test_in_dual_agent_mode_events_are_markup_after_the_text() -> None:
    [items] = rounds(CaseId.PARALLEL_VOLUME_SCHEDULE, Mode.DUAL_AGENT)

    assert [item.kind for item in items] == [
        ItemKind.RAW_CHUNK,
        *[ItemKind.TEXT] * 3,
        ItemKind.FINISH,
        ItemKind.USAGE,
    ]
    assert items[2].text == '<event name="device.volume.adjust">{"mode":"absolute","value":30}</event>'
    assert items[-2].finish_reason == "stop"


@CASES
def test_the_markup_is_what_the_decoder_reads(case_id: CaseId) -> None:
    [items] = rounds(case_id, Mode.DUAL_AGENT)
    decoder = TextEventDecoder()
    pieces = [piece for item in items for piece in decoder.feed(item.text)] + decoder.finish()
    events = [piece for piece in pieces if isinstance(piece, EventMarkup)]

    assert [(event.name, json.loads(event.body or "{}")) for event in events] == [
        (event.name, dict(event.arguments)) for event in CATALOGUE[case_id].mock_events
    ]


def test_in_tools_mode_events_are_native_calls_each_after_its_delta() -> None:
    [items] = rounds(CaseId.PARALLEL_VOLUME_SCHEDULE, Mode.CHAT_AGENT_TOOLS)

    assert [item.kind for item in items] == [
        ItemKind.RAW_CHUNK,
        ItemKind.TEXT,
        ItemKind.TOOL_CALL_DELTA,
        ItemKind.TOOL_CALL,
        ItemKind.TOOL_CALL_DELTA,
        ItemKind.TOOL_CALL,
        ItemKind.FINISH,
        ItemKind.USAGE,
    ]
    assert items[-2].finish_reason == "tool_calls"


@CASES
def test_native_calls_carry_the_ids_and_arguments_of_the_script(case_id: CaseId) -> None:
    [items] = rounds(case_id, Mode.CHAT_AGENT_TOOLS)
    calls = [item.tool_call for item in items if item.tool_call is not None]
    deltas = [item.text for item in items if item.kind is ItemKind.TOOL_CALL_DELTA]

    assert [(call.id, call.name, call.arguments) for call in calls] == [
        (event.id, event.name, dict(event.arguments)) for event in CATALOGUE[case_id].mock_events
    ]
    assert [call.raw_arguments for call in calls] == deltas
    assert [json.loads(call.raw_arguments) for call in calls] == [call.arguments for call in calls]


@MODES
@CASES
def test_every_call_reports_the_same_usage_last(case_id: CaseId, mode: Mode) -> None:
    for items in rounds(case_id, mode, len(CATALOGUE[case_id].mock_messages)):
        assert items[-1].usage == TokenUsage(
            prompt_tokens=10, completion_tokens=5, total_tokens=15, cached_tokens=2, reasoning_tokens=None
        )
        assert sum(item.usage is not None for item in items) == 1


@MODES
def test_the_second_call_has_the_second_text_and_no_events(mode: Mode) -> None:
    _, items = rounds(CaseId.WEB_SEARCH_TWO_ANSWERS, mode, 2)

    assert [item.text for item in items if item.text] == ["Grounded search update."]
    assert [item.tool_call for item in items if item.tool_call is not None] == []
    assert [item.finish_reason for item in items if item.finish_reason] == ["stop"]


@MODES
@CASES
def test_a_call_more_than_the_script_has_is_an_error(case_id: CaseId, mode: Mode) -> None:
    count = len(CATALOGUE[case_id].mock_messages)
    with pytest.raises(ProviderError) as caught:
        rounds(case_id, mode, count + 1)

    assert str(caught.value) == f"mock benchmark stream exhausted: {case_id.value}"
    assert caught.value.kind == ErrorKind.MOCK_EXHAUSTED


def test_items_arrive_when_they_are_made() -> None:
    async def play() -> tuple[list[int], list[int]]:
        clock = TickingClock()
        client = ScriptedChatClient(CATALOGUE[CaseId.ORDINARY_CHAT], Mode.DUAL_AGENT, clock)
        before_ns, arrivals_ns = [], []
        async for item in client.stream_chat(REQUEST, Exchange()):
            arrivals_ns.append(item.arrival_ns)
            before_ns.append(clock())
            clock.advance_ms(50)
        return before_ns, arrivals_ns

    after_ns, arrivals_ns = asyncio.run(play())
    assert [after - arrival for after, arrival in zip(after_ns, arrivals_ns, strict=True)] == [1_000] * 4


def test_the_answering_model_is_called_mock() -> None:
    async def play() -> Exchange:
        exchange = Exchange()
        client = ScriptedChatClient(CATALOGUE[CaseId.ORDINARY_CHAT], Mode.DUAL_AGENT, TickingClock())
        _ = [item async for item in client.stream_chat(REQUEST, exchange)]
        await client.aclose()
        await client.aclose()
        return exchange

    assert asyncio.run(play()).response_model == "mock"

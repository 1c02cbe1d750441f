"""What every `ChatClient` keeps to: one suite over the scripted mock and the OpenAI client."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import aclosing

import pytest

from agentbench_otel.cases import CATALOGUE
from agentbench_otel.errors import RunError
from agentbench_otel.ports import ChatClient
from agentbench_otel.providers.mock import ScriptedChatClient
from agentbench_otel.records.chat import GENERATED_KINDS, Exchange, ItemKind
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.telemetry.clock import AnchoredClock
from tests.support.chat import HELLO, openai_client, run, stream, stream_and_close
from tests.support.replay_server import Frame, ReplayServer, StreamCase

MakeClient = Callable[[CaseId], ChatClient]

CASES = (CaseId.WEB_SEARCH_TWO_ANSWERS, CaseId.PARALLEL_VOLUME_SCHEDULE)


def frame(delta: object, finish_reason: str | None = None) -> Frame:
    chunk = {
        "id": "c1",
        "model": "demo",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }
    return {"delay_ms": 2, "raw": f"data: {json.dumps(chunk)}\n\n"}


def recorded(case_id: CaseId) -> StreamCase:
    """What a server would send where the mock plays its script."""
    case = CATALOGUE[case_id]
    frames = [frame({"role": "assistant", "content": ""}), frame({"content": case.mock_messages[0]})]
    for index, event in enumerate(case.mock_events):
        arguments = json.dumps(dict(event.arguments))
        call = {
            "index": index,
            "id": event.id,
            "function": {"name": event.name.replace(".", "_"), "arguments": arguments},
        }
        frames.append(frame({"tool_calls": [call]}))
    frames.append(frame({}, "tool_calls"))
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    frames.append({"delay_ms": 2, "raw": f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"})
    frames.append({"delay_ms": 2, "raw": "data: [DONE]\n\n"})
    return StreamCase(
        id=case_id.value,
        title="",
        status=200,
        headers={"content-type": "text/event-stream"},
        frames=tuple(frames),
        close="clean",
        expect={},
    )


@pytest.fixture(scope="module")
def server() -> Iterator[ReplayServer]:
    with ReplayServer([recorded(case_id) for case_id in CASES]) as replay:
        yield replay


@pytest.fixture(params=["mock", "openai"])
def make_client(request: pytest.FixtureRequest, server: ReplayServer) -> MakeClient:
    def make(case_id: CaseId) -> ChatClient:
        if request.param == "mock":
            return ScriptedChatClient(CATALOGUE[case_id], Mode.CHAT_AGENT_TOOLS, AnchoredClock())
        return openai_client(server.base_url(case_id.value))

    return make


def test_the_items_tell_text_calls_finish_and_usage(make_client: MakeClient) -> None:
    streamed = run(stream_and_close(make_client(CaseId.PARALLEL_VOLUME_SCHEDULE)))
    assert streamed.error is None
    assert streamed.text() == "I will set the volume to 30 and schedule that."
    assert [call.name for call in streamed.tool_calls] == ["device.volume.adjust", "calendar.schedule.create"]
    assert [call.id for call in streamed.tool_calls] == ["parallel-volume", "parallel-schedule"]
    assert [dict(call.arguments or {})["mode"] for call in streamed.tool_calls[:1]] == ["absolute"]
    assert streamed.finish_reason == "tool_calls"
    usage = streamed.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens, usage.cached_tokens) == (
        10,
        5,
        15,
        2,
    )


def test_the_first_item_is_a_chunk_without_a_generated_piece(make_client: MakeClient) -> None:
    streamed = run(stream_and_close(make_client(CaseId.WEB_SEARCH_TWO_ANSWERS)))
    assert streamed.kinds[0] is ItemKind.RAW_CHUNK


def test_generated_items_are_never_empty_and_calls_follow_their_deltas(make_client: MakeClient) -> None:
    streamed = run(stream_and_close(make_client(CaseId.PARALLEL_VOLUME_SCHEDULE)))
    assert all(item.text for item in streamed.items if item.kind in GENERATED_KINDS)
    delta_positions = [i for i, kind in enumerate(streamed.kinds) if kind is ItemKind.TOOL_CALL_DELTA]
    call_positions = [i for i, kind in enumerate(streamed.kinds) if kind is ItemKind.TOOL_CALL]
    assert len(delta_positions) == len(call_positions) == 2
    assert delta_positions[0] < call_positions[0]
    assert delta_positions[1] < call_positions[1]


def test_arrivals_lie_between_the_first_pull_and_the_moment_an_item_is_had(make_client: MakeClient) -> None:
    async def timed() -> None:
        clock = AnchoredClock()
        client = make_client(CaseId.PARALLEL_VOLUME_SCHEDULE)
        # Two anchors may differ by the uncertainty of reading the wall clock, which is far below 1 ms.
        start_ns = clock() - 1_000_000
        async with aclosing(client.stream_chat(HELLO, Exchange())) as items:
            async for item in items:
                assert start_ns <= item.arrival_ns <= clock() + 1_000_000
        await client.aclose()

    run(timed())


def test_nothing_happens_before_the_first_pull(make_client: MakeClient, server: ReplayServer) -> None:
    async def not_pulled() -> None:
        client = make_client(CaseId.WEB_SEARCH_TWO_ANSWERS)
        before = len(server.requests(CaseId.WEB_SEARCH_TWO_ANSWERS.value))
        items = client.stream_chat(HELLO, Exchange())
        await asyncio.sleep(0)
        await items.aclose()
        await client.aclose()
        assert len(server.requests(CaseId.WEB_SEARCH_TWO_ANSWERS.value)) == before

    run(not_pulled())


def test_closing_early_leaves_nothing_behind_and_the_next_call_works(make_client: MakeClient) -> None:
    async def close_early() -> None:
        client = make_client(CaseId.WEB_SEARCH_TWO_ANSWERS)
        async with aclosing(client.stream_chat(HELLO, Exchange())) as items:
            await anext(items)
        again = await stream(client)
        assert again.error is None
        assert again.text()
        await client.aclose()
        await client.aclose()

    run(close_early())


def test_cancelling_a_call_is_not_swallowed(make_client: MakeClient) -> None:
    async def cancel() -> None:
        client = make_client(CaseId.WEB_SEARCH_TWO_ANSWERS)

        async def consume() -> None:
            async with aclosing(client.stream_chat(HELLO, Exchange())) as items:
                async for _ in items:
                    await asyncio.Event().wait()

        task = asyncio.create_task(consume())
        await asyncio.wait([task], timeout=0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.aclose()

    run(cancel())


def test_a_failure_is_a_run_error_with_a_kind() -> None:
    async def exhausted() -> None:
        client = ScriptedChatClient(CATALOGUE[CaseId.ORDINARY_CHAT], Mode.DUAL_AGENT, AnchoredClock())
        assert (await stream(client)).error is None
        failed = await stream(client)
        assert isinstance(failed.error, RunError)
        assert failed.error.kind == "mock_exhausted"
        assert str(failed.error) == "mock benchmark stream exhausted: ordinary_chat"

    run(exhausted())
    refused = run(stream_and_close(openai_client("http://127.0.0.1:9/v1")))
    assert isinstance(refused.error, RunError)
    assert refused.error.kind == "connect_error"

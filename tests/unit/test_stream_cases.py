"""The recorded answers of real servers, through the whole way from bytes to items, without a socket."""

from collections.abc import Iterable, Iterator
from typing import Any

import httpx
import pytest

from agentbench_otel.config import Target
from agentbench_otel.providers.failures import status_failure
from agentbench_otel.records.chat import ItemKind, TokenUsage, ToolCall
from tests.support.answers import Heard
from tests.support.answers import hear as hear_reads
from tests.support.replay_server import StreamCase, frame_bytes, load_cases

NEEDS_A_SOCKET = {
    "s31_stall": "the silence between two frames is the case, and only a socket has silence",
    "s46_gzip_stream": "the HTTP client decodes the body",
    "s47_brotli_stream": "the HTTP client refuses the encoding",
}
WARNED_NOT_FAILED = {
    # The stream is whole and the call says that it has no arguments: the agent asks for them once more.
    "c39_arguments_cut_length": "tool_arguments_invalid",
}

CASES = load_cases()
REFUSALS = [case for case in CASES if case.status != 200]
STREAMS = [case for case in CASES if case.status == 200 and case.id not in NEEDS_A_SOCKET]

_FIRST_ITEM_WORDS = {
    ItemKind.REASONING: "reasoning",
    ItemKind.TEXT: "text",
    ItemKind.REFUSAL: "refusal",
    ItemKind.TOOL_CALL_DELTA: "tool_call",
}


def hear(case: StreamCase, reads: Iterable[bytes]) -> Heard:
    return hear_reads(reads, cut="the connection was lost" if case.close == "abort" else None)


def one_by_one(data: bytes) -> Iterator[bytes]:
    return (data[position : position + 1] for position in range(len(data)))


def call_document(call: ToolCall) -> dict[str, Any]:
    """A call in the words of the case files; an id that we made up is none."""
    return {
        "id": None if call.has_local_id else call.id,
        "name": call.name,
        "arguments": call.arguments,
        "raw_arguments": call.raw_arguments,
    }


def parameters(cases: Iterable[StreamCase]) -> list[Any]:
    return [pytest.param(case, id=case.id) for case in cases]


def test_every_recorded_answer_but_the_listed_ones_is_heard_here() -> None:
    assert len(CASES) == 120
    assert {case.id for case in CASES} - {case.id for case in STREAMS + REFUSALS} == set(NEEDS_A_SOCKET)


@pytest.mark.parametrize("case", parameters(STREAMS))
def test_a_recorded_stream_gives_the_right_items(case: StreamCase) -> None:
    heard = hear(case, map(frame_bytes, case.frames))
    expect = case.expect

    assert heard.text_of(ItemKind.TEXT) + heard.exchange.unstreamed_text == expect["visible_text"]
    if "reasoning_text" in expect:
        assert heard.text_of(ItemKind.REASONING) == expect["reasoning_text"]
    if "refusal_text" in expect:
        assert heard.text_of(ItemKind.REFUSAL) == expect["refusal_text"]
    first = heard.generated[0].kind if heard.generated else None
    assert (None if first is None else _FIRST_ITEM_WORDS[first]) == expect["first_item"]


@pytest.mark.parametrize("case", parameters(STREAMS))
def test_a_recorded_stream_gives_its_finish_reason(case: StreamCase) -> None:
    heard = hear(case, map(frame_bytes, case.frames))
    reasons = [item.finish_reason for item in heard.items if item.kind is ItemKind.FINISH]

    assert (reasons[-1] if reasons else None) == case.expect["finish_reason"]


@pytest.mark.parametrize("case", parameters(STREAMS))
def test_a_recorded_stream_gives_its_tool_calls(case: StreamCase) -> None:
    heard = hear(case, map(frame_bytes, case.frames))
    calls = [call_document(item.tool_call) for item in heard.items if item.tool_call is not None]
    expected = case.expect["tool_calls"]

    assert len(calls) == len(expected)
    for call, wanted in zip(calls, expected, strict=True):
        assert {key: call[key] for key in wanted} == wanted


@pytest.mark.parametrize("case", parameters(STREAMS))
def test_a_recorded_stream_gives_its_usage(case: StreamCase) -> None:
    heard = hear(case, map(frame_bytes, case.frames))
    usages = [item.usage for item in heard.items if item.usage is not None]
    expected = case.expect["usage"]

    if expected is None:
        assert usages == []
    else:
        assert usages[-1] == TokenUsage(**{**dict.fromkeys(expected), **expected})


@pytest.mark.parametrize("case", parameters(STREAMS))
def test_a_recorded_stream_gives_its_error(case: StreamCase) -> None:
    failure = hear(case, map(frame_bytes, case.frames)).failure

    expected = None if case.id in WARNED_NOT_FAILED else case.expect["error"]

    assert (None if failure is None else failure.kind) == expected
    if failure is not None and "error_code" in case.expect:
        assert failure.code == case.expect["error_code"]


def test_arguments_that_are_cut_are_left_out_with_a_warning() -> None:
    case = next(case for case in STREAMS if case.id in WARNED_NOT_FAILED)
    heard = hear(case, map(frame_bytes, case.frames))
    [call] = [item.tool_call for item in heard.items if item.tool_call is not None]
    [warning] = heard.exchange.warnings

    assert case.expect["error"] == WARNED_NOT_FAILED[case.id]
    assert call.arguments is None
    assert "device_volume_adjust" in warning
    assert "finish_reason length" in warning


def test_a_lost_connection_is_told_in_the_words_of_the_transport() -> None:
    [case] = [case for case in STREAMS if case.close == "abort"]

    assert str(hear(case, map(frame_bytes, case.frames)).failure).startswith("the connection was lost")


def test_a_json_body_instead_of_a_stream_generates_nothing_but_its_text_is_kept() -> None:
    case = next(case for case in STREAMS if case.id == "e11_json_with_sse_header")
    heard = hear(case, map(frame_bytes, case.frames))

    assert heard.generated == []
    assert heard.exchange.unstreamed_text == "Lamp is on."


@pytest.mark.parametrize(
    "case", parameters(case for case in STREAMS if any(key.endswith("_frame") for key in case.expect))
)
def test_items_arrive_with_the_read_that_brought_them(case: StreamCase) -> None:
    heard = hear(case, map(frame_bytes, case.frames))
    visible = [item for item in heard.items if item.kind is ItemKind.TEXT and item.text.strip()]
    frames = {
        "first_item_frame": heard.generated[0].arrival_ns,
        "first_visible_frame": visible[0].arrival_ns if visible else None,
        "last_item_frame": heard.generated[-1].arrival_ns,
        "end_frame": heard.end_read,
    }
    expected = {key: frame for key, frame in case.expect.items() if key in frames}

    assert {key: frames[key] for key in expected} == expected


@pytest.mark.parametrize("case", parameters(STREAMS))
def test_how_the_bytes_are_cut_changes_nothing(case: StreamCase) -> None:
    frames = [frame_bytes(frame) for frame in case.frames]
    by_frame = hear(case, frames).without_arrivals()

    assert hear(case, [b"".join(frames)]).without_arrivals() == by_frame
    assert hear(case, one_by_one(b"".join(frames))).without_arrivals() == by_frame


@pytest.mark.parametrize("case", parameters(REFUSALS))
def test_a_recorded_refusal_gives_its_status_code_and_parameter(case: StreamCase) -> None:
    target = Target(name="replayed", base_url="http://127.0.0.1:1/v1", model="demo-model")
    body = b"".join(map(frame_bytes, case.frames)).decode("utf-8", "replace")
    failure = status_failure(httpx.Response(case.status, headers=dict(case.headers)), body, target)

    assert (failure.kind, failure.http_status) == (case.expect["error"], case.status)
    if "error_code" in case.expect:
        assert failure.code == case.expect["error_code"]
    if "error_param" in case.expect:
        assert failure.param == case.expect["error_param"]
    assert failure.retry_after_s == case.expect.get("retry_after_s")
    if "retryable" in case.expect:
        assert failure.is_retryable == case.expect["retryable"]
    assert "<" not in str(failure)

"""The OpenAI client against llmock, a mock server of another project that breaks its answers on demand."""

import statistics
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import pytest

from agentbench_otel.agent.tools import TOOLS
from agentbench_otel.app import probe_endpoint
from agentbench_otel.cases import VOLUME
from agentbench_otel.errors import ErrorKind, http_error_kind
from agentbench_otel.records.chat import TokenUsage, ToolSpec
from agentbench_otel.records.results import ProbeError, ProbeResult
from tests.stack.servers import RunningLlmock, StartLlmock
from tests.support.chat import target

pytestmark = pytest.mark.stack

LATENCY_MS, CHUNK_DELAY_MS, SLOW_FIRST_TOKEN_MS = 80, 20, 300
EARLY_MS, LATE_MS = 3, 40  # how far from its time a chunk may come: the server's timers, and the machine's load
STREAM_COUNT = 3  # of a timed stream; load only delays, so the earliest one tells
MESSAGE = "Hello, how are you?"
WORDS = ["The ", "sea ", "is ", "calm ", "today ", "and ", "the ", "sun ", "is ", "warm."]
CHUNKS_BEFORE_FAULT = 4  # the role and three words
TEXT_BEFORE_FAULT = "The sea is "
ANSWER = {"type": "reply", "text": "".join(WORDS)}


@pytest.fixture(scope="module")
def server(llmock: StartLlmock) -> RunningLlmock:
    return llmock(latency_ms=LATENCY_MS, stream_chunk_delay_ms=CHUNK_DELAY_MS)


def probe(server: RunningLlmock, *tools: ToolSpec, idle_s: float = 30.0) -> ProbeResult:
    asked = target(server.base_url, timeouts={"idle_s": idle_s})
    return probe_endpoint(asked, api_key=None, message=MESSAGE, tools=tools)


def broken_stream(server: RunningLlmock, kind: str, *, stall_s: float = 0.0, idle_s: float = 30.0) -> ProbeError:
    """The error of a stream that is broken after three words, which must have been kept."""
    fault = {
        "type": "stream_fault",
        "kind": kind,
        "after_chunks": CHUNKS_BEFORE_FAULT,
        "stall_seconds": stall_s,
    }
    server.script(ANSWER, fault)
    result = probe(server, idle_s=idle_s)
    assert result.visible_text == TEXT_BEFORE_FAULT
    assert result.first_item == "text"
    assert result.token_ttft_ms is not None
    assert result.http_status == 200
    assert (result.finish_reason, result.usage) == (None, None)
    assert result.error is not None
    return result.error


def timed_streams(server: RunningLlmock, *behaviors: Mapping[str, Any]) -> list[ProbeResult]:
    results = []
    for _ in range(STREAM_COUNT):
        server.script(ANSWER, *behaviors)
        results.append(probe(server))
    assert [result.error for result in results] == [None] * STREAM_COUNT
    return results


def assert_on_time(measured_ms: Iterable[float | None], expected_ms: float, *, late_ms: float = LATE_MS) -> None:
    earliest_ms = min(one for one in measured_ms if one is not None)
    assert expected_ms - EARLY_MS < earliest_ms < expected_ms + late_ms


def test_a_healthy_stream_has_the_gaps_that_were_set_and_the_servers_usage(server: RunningLlmock) -> None:
    results = timed_streams(server)
    prompt, completion = len(MESSAGE) // 4, len("".join(WORDS)) // 4
    usage = TokenUsage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)
    medians_ms = []
    for result in results:
        assert (result.visible_text, result.finish_reason, result.usage) == ("".join(WORDS), "stop", usage)
        gaps_ms = [later.at_ms - earlier.at_ms for earlier, later in pairwise(result.reads)]
        medians_ms.append(statistics.median(gaps_ms))
        assert result.max_chunk_gap_ms is not None
        assert result.max_chunk_gap_ms >= CHUNK_DELAY_MS - EARLY_MS
    assert_on_time(medians_ms, CHUNK_DELAY_MS, late_ms=15)
    read_items = [items for read in results[0].reads for items in read.items]
    assert read_items == ["raw_chunk", *["text"] * len(WORDS), "finish", "usage"]  # the first chunk is the role


def test_the_first_byte_and_the_first_token_come_when_the_server_was_told_to_send_them(
    server: RunningLlmock,
) -> None:
    results = timed_streams(server, {"type": "slow_first_token", "seconds": SLOW_FIRST_TOKEN_MS / 1000})
    assert_on_time((result.first_byte_ms for result in results), LATENCY_MS)
    # llmock calls its first chunk a token; it carries only the role, and the text follows one delay later.
    first_chunk_ms = LATENCY_MS + SLOW_FIRST_TOKEN_MS
    assert_on_time((result.provider_ttft_ms for result in results), first_chunk_ms)
    assert_on_time((result.token_ttft_ms for result in results), first_chunk_ms + CHUNK_DELAY_MS)
    for result in results:
        assert result.visible_ttft_ms == result.token_ttft_ms


def test_a_connection_lost_in_the_stream_is_a_truncated_stream(server: RunningLlmock) -> None:
    error = broken_stream(server, "disconnect")
    assert error.kind == ErrorKind.STREAM_TRUNCATED
    assert "connection was lost" in error.message
    assert error.retryable


def test_a_body_that_ends_too_soon_is_a_truncated_stream(server: RunningLlmock) -> None:
    error = broken_stream(server, "truncate")
    assert error.kind == ErrorKind.STREAM_TRUNCATED
    assert error.message == "the body ended without finish_reason and without [DONE]"
    assert error.retryable


def test_a_chunk_that_is_no_json_ends_the_stream_and_is_quoted(server: RunningLlmock) -> None:
    error = broken_stream(server, "malformed")
    assert error.kind == ErrorKind.MALFORMED_JSON
    assert error.message.startswith('a chunk is no JSON: {"id":"chatcmpl-')
    assert not error.retryable


def test_a_stalled_stream_ends_at_idle_s(server: RunningLlmock) -> None:
    error = broken_stream(server, "stall", stall_s=0.8, idle_s=0.3)
    assert error.kind == ErrorKind.IDLE_TIMEOUT
    assert "idle_s = 0.3" in error.message
    assert error.retryable


def test_a_rate_limit_says_when_to_come_back_and_the_next_call_succeeds(server: RunningLlmock) -> None:
    limit = {"type": "fail", "status": 429, "message": "Slow down.", "code": "rate_limit_exceeded"}
    server.script({**limit, "retry_after": 1.5}, ANSWER)
    result = probe(server)
    assert result.error == ProbeError(
        kind=http_error_kind(429),
        message="target under-test: HTTP 429: Slow down. (code rate_limit_exceeded)",
        status=429,
        code="rate_limit_exceeded",
        param=None,
        retry_after_s=1.5,
        retryable=True,
    )
    assert (result.visible_text, result.reads, result.adaptations) == ("", (), ())
    assert result.first_byte_ms is not None
    # Nothing was repeated behind our back: the answer is still queued.
    assert probe(server).visible_text == "".join(WORDS)


def test_cut_arguments_of_a_tool_call_are_not_repaired(server: RunningLlmock) -> None:
    server.script({"type": "tool_fault", "kind": "malformed_arguments"})
    result = probe(server, TOOLS[VOLUME].spec)
    assert (result.first_item, result.finish_reason) == ("tool_call", "tool_calls")
    (call,) = result.tool_calls
    assert (call.raw_arguments, call.arguments) == ('{"mode": "absolute", "', None)
    assert result.error is not None
    assert result.error.kind == ErrorKind.TOOL_ARGUMENTS_INVALID

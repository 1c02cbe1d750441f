"""The OpenAI client against a real model: native tool calls, and the ways in which the server refuses."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from agentbench_otel.agent.tools import TOOLS
from agentbench_otel.cases import SEARCH, VOLUME
from agentbench_otel.errors import ErrorKind, ProviderError, http_error_kind
from agentbench_otel.providers.adaptation import EndpointProfile
from agentbench_otel.providers.wire import WireNames
from agentbench_otel.records.chat import ChatMessage, ChatRequest, ItemKind, ToolCall
from tests.stack.servers import RunningServer
from tests.stack.test_real_model import run_cli
from tests.support.chat import Streamed, openai_client, run, stream_and_close

pytestmark = pytest.mark.stack

REQUIRED = {"tool_choice": "required"}
TOKENS_OF_A_CUT_CALL = 30  # the call takes some 42: its name is complete by then, its arguments have begun


class WithFields(EndpointProfile):
    """Adds ``fields`` to each body: a `ChatRequest` can only force a tool by its name, which llama.cpp ignores
    with HTTP 200; it enforces "required". A profile is where a body is made to fit its endpoint."""

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__()
        self._fields = fields

    def adapt(self, body: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        return super().adapt({**body, **self._fields})


def ask(
    server: RunningServer,
    message: str,
    *tools: str,
    max_tokens: int = 160,
    fields: Mapping[str, Any] | None = None,
) -> Streamed:
    request = ChatRequest(
        messages=(ChatMessage(role="user", content=message),),
        tools=tuple(TOOLS[name].spec for name in tools),
        max_tokens=max_tokens,
        temperature=0,
    )
    # A prompt from the cache has other rounding errors, and now and then another answer.
    profile = WithFields({"cache_prompt": False, **(fields or {})})
    return run(stream_and_close(openai_client(server.base_url, profile=profile, model=server.model), request))


def as_streamed(call: ToolCall) -> str:
    """The texts of its deltas; llama.cpp sends the name in the first one."""
    return WireNames.to_wire(call.name) + call.raw_arguments


def test_a_required_tool_call_arrives_in_pieces_and_is_complete_and_valid(llama_cpp: RunningServer) -> None:
    streamed = ask(llama_cpp, "set volume to 30", VOLUME, fields=REQUIRED)
    assert streamed.error is None
    (call,) = streamed.tool_calls
    assert call.name == VOLUME
    assert TOOLS[VOLUME].validate(call.arguments)["value"] == 30
    assert streamed.text(ItemKind.TOOL_CALL_DELTA) == as_streamed(call)
    assert call.id
    assert not call.has_local_id
    assert streamed.finish_reason == "tool_calls"
    # The first chunk is the role; the name and the arguments follow as deltas, and no text.
    deltas = streamed.kinds.count(ItemKind.TOOL_CALL_DELTA)
    assert deltas > 2
    assert streamed.kinds == [
        ItemKind.RAW_CHUNK,
        *[ItemKind.TOOL_CALL_DELTA] * deltas,
        ItemKind.FINISH,
        ItemKind.USAGE,
        ItemKind.TOOL_CALL,
    ]
    assert streamed.usage is not None
    assert streamed.usage.prompt_tokens
    assert streamed.usage.completion_tokens
    assert streamed.usage.completion_tokens > deltas  # a chunk is not a token


def test_two_parallel_tool_calls_keep_their_order_and_their_arguments(llama_cpp: RunningServer) -> None:
    message = "set volume to 30 and search the web for the height of Mont Blanc"
    # Without a penalty the model repeats its calls until max_tokens.
    parallel = {"parallel_tool_calls": True, "frequency_penalty": 0.3}
    streamed = ask(llama_cpp, message, VOLUME, SEARCH, fields=REQUIRED | parallel)
    assert streamed.error is None
    first, second = streamed.tool_calls
    assert (first.name, second.name) == (VOLUME, SEARCH)
    assert first.id != second.id
    assert TOOLS[VOLUME].validate(first.arguments)["value"] == 30
    assert TOOLS[SEARCH].validate(second.arguments)["query"].strip()
    assert streamed.text(ItemKind.TOOL_CALL_DELTA) == as_streamed(first) + as_streamed(second)
    assert streamed.finish_reason == "tool_calls"


def test_an_error_inside_http_200_fails_the_call_and_keeps_what_had_come(llama_cpp: RunningServer) -> None:
    # llama.cpp can't read a call that max_tokens cut, and says so in the stream that it had begun.
    streamed = ask(llama_cpp, "set volume to 30", VOLUME, max_tokens=TOKENS_OF_A_CUT_CALL, fields=REQUIRED)
    error = streamed.error
    assert isinstance(error, ProviderError)
    assert error.kind == ErrorKind.IN_STREAM_ERROR
    assert "Invalid diff" in str(error)
    assert error.code == 500
    assert not error.is_retryable
    assert streamed.exchange.http_status == 200
    assert ItemKind.TOOL_CALL_DELTA in streamed.kinds
    (call,) = streamed.tool_calls
    assert call.name == VOLUME
    assert call.raw_arguments.startswith('{"mode":')
    assert call.arguments is None
    assert (streamed.finish_reason, streamed.usage) == (None, None)


def test_a_prompt_longer_than_the_context_is_refused_in_the_servers_words(llama_cpp: RunningServer) -> None:
    streamed = ask(llama_cpp, "The sea is calm. " * 1200)
    error = streamed.error
    assert isinstance(error, ProviderError)
    assert (error.kind, error.http_status, error.code) == (http_error_kind(400), 400, 400)
    assert "exceeds the available context size (4096 tokens" in str(error)
    assert not error.is_retryable
    assert streamed.items == []
    # Adaptation must not take max_tokens for the culprit.
    assert streamed.exchange.adaptations == []


def test_probe_shows_what_the_model_said_and_when(llama_cpp: RunningServer) -> None:
    options = ("--base-url", llama_cpp.base_url, "--model", llama_cpp.model, "--max-tokens", "24")
    done = run_cli("probe", *options, "--format", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["visible_text"].strip()
    assert result["first_item"] == "text"
    assert result["error"] is None
    assert result["http_status"] == 200
    assert result["response_model"] == llama_cpp.model
    usage = result["usage"]
    assert 0 < usage["completion_tokens"] <= 24
    assert usage["prompt_tokens"] + usage["completion_tokens"] == usage["total_tokens"]
    assert result["chunk_count"] > 1
    assert 0 < result["provider_ttft_ms"] <= result["token_ttft_ms"] <= result["visible_ttft_ms"]
    assert result["visible_ttft_ms"] < result["stream_ms"]
    assert [phase["name"] for phase in result["phases"]] == ["connect", "send", "first_byte"]

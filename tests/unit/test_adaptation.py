"""Which refusals change which requests, and which do not."""

from typing import Any

import pytest

from agentbench_otel.errors import ProviderError
from agentbench_otel.providers.adaptation import EndpointProfile

BODY: dict[str, Any] = {
    "model": "demo",
    "messages": [],
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_tokens": 128,
    "temperature": 0.0,
    "tools": [],
    "tool_choice": {"type": "function"},
}


def refusal(
    message: str, *, status: int = 400, param: str | None = None, code: str | None = None
) -> ProviderError:
    return ProviderError(f"http_{status}", message, http_status=status, param=param, code=code)


@pytest.mark.parametrize(
    ("error", "parameter", "change"),
    [
        (refusal("no", param="stream_options"), "stream_options", "stream_options left out"),
        (refusal("no", param="stream_options.include_usage"), "stream_options", "stream_options left out"),
        (
            refusal("key include_usage is not allowed here", status=500),
            "stream_options",
            "stream_options left out",
        ),
        (
            refusal("Use 'max_completion_tokens' instead of the unsupported 'max_tokens'", param="max_tokens"),
            "max_tokens",
            "max_completion_tokens instead of max_tokens",
        ),
        (
            refusal("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
            "max_tokens",
            "max_completion_tokens instead of max_tokens",
        ),
        (refusal("temperature: only the default (1) is supported"), "temperature", "temperature left out"),
        (refusal("tool_choice is not supported", status=422), "tool_choice", "tool_choice left out"),
    ],
)
def test_a_refused_parameter_is_adapted(error: ProviderError, parameter: str, change: str) -> None:
    profile = EndpointProfile()
    assert profile.learn(error, BODY) == parameter
    adapted, changes = profile.adapt(BODY)
    assert changes == [change]
    assert parameter not in adapted
    assert BODY["max_tokens"] == 128  # what was given is left as it is
    if parameter == "max_tokens":
        assert adapted["max_completion_tokens"] == 128


def test_the_same_refusal_again_is_no_news() -> None:
    profile = EndpointProfile()
    error = refusal("no", param="temperature")
    assert profile.learn(error, BODY) == "temperature"
    assert profile.learn(error, BODY) is None
    assert profile.adaptation_count == 1


def test_an_endpoint_that_takes_neither_cap_gets_none() -> None:
    profile = EndpointProfile()
    profile.learn(refusal("no", param="max_tokens"), BODY)
    adapted, _ = profile.adapt(BODY)
    assert profile.learn(refusal("no", param="max_completion_tokens"), adapted) == "max_completion_tokens"
    again, changes = profile.adapt(BODY)
    assert "max_tokens" not in again
    assert "max_completion_tokens" not in again
    assert changes == ["max_tokens left out"]


@pytest.mark.parametrize(
    "error",
    [
        refusal("max_tokens is too large: 128, at most 64 are allowed", param="max_tokens"),
        refusal("bad tool name", param="tools[1].function.name"),
        refusal("no such model", status=404, param="model"),
        refusal("temperature not allowed", status=401),
        refusal("temperature not allowed", status=429),
        refusal("messages must not be empty", param="messages"),
        refusal("stream is not supported", param="stream"),
        refusal("the GPU's temperature is 95 degrees", status=500),
        refusal("something failed"),
        refusal("unknown model m (the request had temperature 0)", param="model"),
        refusal("unexpected EOF in the upstream connection after 3 s; the request was sent with max_tokens=128"),
        ProviderError("in_stream_error", "temperature is not supported"),
    ],
)
def test_other_errors_change_nothing(error: ProviderError) -> None:
    profile = EndpointProfile()
    assert profile.learn(error, BODY) is None
    assert profile.adapt(BODY) == (BODY, [])


def test_a_parameter_that_was_not_sent_cannot_have_been_refused() -> None:
    body = {key: value for key, value in BODY.items() if key != "temperature"}
    assert EndpointProfile().learn(refusal("no", param="temperature"), body) is None

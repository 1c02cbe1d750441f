"""What servers say when they refuse, as short and safe words."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentbench_otel.errors import ProviderError
from agentbench_otel.providers.answer import Answer, Inbox
from agentbench_otel.providers.error_bodies import (
    ServerError,
    read_body_error,
    read_error,
    read_error_body,
    short_words,
)
from agentbench_otel.providers.sockets import ExchangeMarks
from agentbench_otel.providers.wire import WireNames
from agentbench_otel.records.chat import Exchange
from agentbench_otel.redaction import redact

# --- shapes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (
            {"error": {"message": "no limit", "type": "invalid", "param": "max_tokens", "code": "unsupported"}},
            ServerError(message="no limit", code="unsupported", param="max_tokens"),
        ),
        (
            {"error": {"message": "busy", "type": "server_error", "code": None}},
            ServerError(message="busy", code="server_error"),
        ),
        ({"error": {"code": 429, "message": "busy"}}, ServerError(message="busy", code=429)),
        (
            {"error": {"code": 404, "status": "NOT_FOUND", "details": [], "message": "gone"}},
            ServerError(message="gone", code=404),
        ),
        ({"error": "out of memory"}, ServerError(message="out of memory")),
        ({"error": "busy", "code": 7}, ServerError(message="busy", code=7)),
        ({"error": {}, "message": "x"}, None),
        ({"error": {"code": 1}, "message": "outer"}, ServerError(message="outer", code=1)),
        ({"error": {"code": 1}}, ServerError(message="error without a message", code=1)),
        (
            {"object": "error", "message": "too long", "type": "BadRequestError", "param": None, "code": 400},
            ServerError(message="too long", code=400),
        ),
        (
            {"object": "error", "message": {"detail": [1]}, "code": 400},
            ServerError(message='{"detail": [1]}', code=400),
        ),
        ({"error_code": "BAD_REQUEST", "message": "no"}, ServerError(message="no", code="BAD_REQUEST")),
        (
            {"success": False, "errors": [{"code": 7000, "message": "unknown path"}, {"code": 1}]},
            ServerError(message="unknown path", code=7000),
        ),
        ({"success": False, "errors": ["unknown path"]}, ServerError(message="unknown path")),
        ({"detail": "Not Found"}, ServerError(message="Not Found")),
        (
            {"detail": [{"loc": ["body", "max_tokens"], "msg": "no", "type": "extra"}]},
            ServerError(
                message='[{"loc": ["body", "max_tokens"], "msg": "no", "type": "extra"}]', param="max_tokens"
            ),
        ),
    ],
)
def test_known_shapes_of_errors_are_read(payload: Any, error: ServerError | None) -> None:
    assert read_error(payload) == error


@pytest.mark.parametrize(
    "payload",
    [
        None,
        "error",
        7,
        [],
        {},
        {"error": None},
        {"error": ""},
        {"choices": [], "usage": None},
        {"object": "chat.completion.chunk", "choices": []},
        {"message": "hello"},
        {"success": True, "errors": ["x"]},
        {"success": False, "errors": []},
        {"id": "x", "error": None, "choices": [{"delta": {"content": "error"}}]},
    ],
)
def test_what_is_no_error_is_none(payload: Any) -> None:
    assert read_error(payload) is None


def test_a_whole_body_may_hold_its_error_in_a_list() -> None:
    assert read_body_error([{"error": {"code": 503, "message": "busy"}}]) == ServerError(message="busy", code=503)
    assert read_body_error([]) is None


def test_a_filter_that_refused_is_the_error_of_a_whole_body() -> None:
    verdict = {"error": {"code": "content_filter", "message": "filtered"}}
    body = {"choices": [{"message": {}}, {"content_filter_results": verdict}]}

    assert read_body_error(body) == ServerError(message="filtered", code="content_filter")
    assert read_error(body) is None


# --- bodies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"error":{"message":"busy"}}', "busy"),
        ('\ufeff{"error":"busy"}\n', "busy"),
        ('data: {"error":{"message":"busy"}}\n\ndata: [DONE]\n\n', "busy"),
        ("<html><head><TITLE>502 Bad\n Gateway</TITLE></head>…</html>", "an HTML page: 502 Bad Gateway"),
        ("<html><body>no title</body></html>", "an HTML page"),
        ("Internal Server Error", "Internal Server Error"),
        ("upstream\r\n  connect error", "upstream connect error"),
        ("", ""),
        (" \n", ""),
        ("null", "null"),
        ('{"choices":[]}', '{"choices":[]}'),
        ('{"error":', '{"error":'),
    ],
)
def test_a_refusal_is_read_whatever_its_body_is(body: str, message: str) -> None:
    assert short_words(read_error_body(body).message) == message


def test_an_html_page_is_never_shown_whole() -> None:
    page = "<!doctype html><title>403</title>" + "<p>secret dashboard</p>" * 100

    assert read_error_body(page) == ServerError(message="an HTML page: 403")


@pytest.mark.parametrize("body", ["[" * 60_000, '{"error":' * 20_000])
def test_a_body_of_very_many_brackets_is_no_crash(body: str) -> None:
    assert read_error_body(body) == ServerError(message=body)


# --- words ------------------------------------------------------------------------------------------------


def test_words_are_one_line() -> None:
    assert short_words(" a\n\n b\t\x00c\u2028d\x1b[31m ") == "a b c d [31m"


@pytest.mark.parametrize("char", ["\x7f", "\x9b", "\u200b", "\u202e", "\u2029", "\ud800"])
def test_invisible_characters_are_taken_out(char: str) -> None:
    assert short_words(f"a{char}b") == "a b"


def test_long_words_are_cut_at_300_characters() -> None:
    assert short_words("x" * 300) == "x" * 300
    assert short_words("x" * 301) == "x" * 299 + "…"


@given(st.text())
@example("a" * 1_000)
@example("\ud800" * 400)
def test_words_can_always_be_printed_and_written(text: str) -> None:
    words = short_words(text)

    assert len(words) <= 300
    assert "\n" not in words
    words.encode()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ServerError(message="busy"), "busy"),
        (ServerError(message="busy\n", code=429), "busy (code 429)"),
        (ServerError(message="busy", code="over\nloaded", param="x"), "busy (code over loaded)"),
        (ServerError(message=""), "no message"),
        (ServerError(message="key sk-1", code="sk-1"), "key [redacted] (code [redacted])"),
    ],
)
def test_an_error_is_told_with_its_code(error: ServerError, words: str) -> None:
    assert error.words(["sk-1"]) == words


# --- secrets ----------------------------------------------------------------------------------------------


def test_secrets_are_taken_out_wherever_they_stand() -> None:
    assert redact("key sk-1 is not sk-1; x-org acme", ["sk-1", "acme"]) == (
        "key [redacted] is not [redacted]; x-org [redacted]"
    )


def test_an_empty_secret_takes_nothing_out() -> None:
    assert redact("abc", [""]) == "abc"


def test_a_secret_that_begins_with_another_one_leaves_no_rest() -> None:
    assert "-long" not in redact("you sent sk-1-long", ["sk-1", "sk-1-long"])


SECRET = "sk-abcdefghijklmnopqrstuvwxyz"


def failure_of(body: str, error: ProviderError | None = None) -> ProviderError:
    """The failure of an answer with this body to a request that carried the secret."""
    inbox: Inbox = asyncio.Queue()
    answer = Answer(marks=ExchangeMarks(), exchange=Exchange(), inbox=inbox, names=WireNames(()), secrets=[SECRET])
    answer.take(body.encode())
    answer.end(error)
    failure = [inbox.get_nowait() for _ in range(inbox.qsize())][-1]
    assert isinstance(failure, ProviderError)
    return failure


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"error": {"message": f"bad key {SECRET}", "code": f"bad-{SECRET}", "param": SECRET}}),
        f'data: {{"error":{{"message":"bad key {SECRET}","code":"{SECRET}"}}}}\n\n',
        f"error: bad key {SECRET}\n\n",
        f"data: error: bad key {SECRET}\n\n",
        f"data: {{ {SECRET}\n\n",
        f"<title>{SECRET}</title>",
        f"{SECRET} is no key\n",
    ],
)
def test_a_key_that_a_server_quotes_goes_no_further(body: str) -> None:
    failure = failure_of(body)

    assert "[redacted]" in str(failure)
    assert SECRET not in f"{failure} {failure.code} {failure.param}"


def test_a_key_in_a_refusal_goes_no_further_and_nothing_else_is_lost() -> None:
    refusal = ProviderError(
        "http_401", f"bad key {SECRET}", http_status=401, code=7, param=SECRET, retry_after_s=1.5
    )
    failure = failure_of("", refusal)

    assert str(failure) == "bad key [redacted]"
    assert (failure.kind, failure.http_status, failure.code) == ("http_401", 401, 7)
    assert (failure.param, failure.retry_after_s) == ("[redacted]", 1.5)


@pytest.mark.parametrize("length", [272, 284, 288])
def test_a_key_at_the_place_where_words_are_cut_goes_no_further(length: int) -> None:
    message = "x" * length + SECRET
    failure = failure_of(f'data: {{"error":{{"message":"{message}"}}}}\n\n')

    assert SECRET[:8] not in str(failure)

"""The OpenAI client against everything that goes wrong on real sockets: one kind each, and nothing is lost."""

import asyncio
import gzip
import json
import time
from contextlib import aclosing

import brotli  # type: ignore[import-untyped]
import pytest

from agentbench_otel.providers import openai
from agentbench_otel.records.chat import Exchange, ItemKind
from tests.support.chat import HELLO, Streamed, openai_client, run, stream_and_close
from tests.support.raw_server import DripServer, RawServer, http_answer
from tests.support.schedule_server import ScheduleServer

QUICK = {"connect_s": 0.5, "first_byte_s": 0.3, "idle_s": 0.2}
KEY = "sk-SECRET-0123456789"


def streamed_from(base_url: str, **settings: object) -> Streamed:
    return run(stream_and_close(openai_client(base_url, **{"timeouts": QUICK, **settings})))  # type: ignore[arg-type]


def failure_of(streamed: Streamed) -> tuple[str, str]:
    assert streamed.error is not None
    return streamed.error.kind, str(streamed.error)


def sse(*payloads: object) -> str:
    return "".join(f"data: {json.dumps(payload)}\n\n" for payload in payloads)


def text_chunk(text: str, finish_reason: str | None = None) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}]}


def test_nobody_listens() -> None:
    kind, words = failure_of(streamed_from("http://127.0.0.1:9/v1"))
    assert kind == "connect_error"
    assert "under-test" in words
    assert "refused" in words


def test_the_host_has_no_address() -> None:
    kind, words = failure_of(streamed_from("http://no-such-host.invalid/v1"))
    assert kind == "connect_error"
    assert words == "target under-test: connection failed: the host of base_url has no address"


def test_the_server_accepts_and_says_nothing() -> None:
    with RawServer(stays_silent=True) as server:
        start_s = time.monotonic()
        kind, words = failure_of(streamed_from(server.base_url))
        assert kind == "first_byte_timeout"
        assert "first_byte_s = 0.3" in words
        assert 0.25 < time.monotonic() - start_s < 2


def test_headers_come_and_no_body() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    with RawServer(head, stays_silent=True) as server:
        kind, _ = failure_of(streamed_from(server.base_url))
        assert kind == "first_byte_timeout"


def test_a_stream_that_falls_silent_keeps_what_had_come() -> None:
    with ScheduleServer() as server:
        streamed = streamed_from(server.base_url, model="truth-ttft20-itl5-n10-stall60000at4")
    kind, _ = failure_of(streamed)
    assert kind == "idle_timeout"
    assert streamed.kinds.count(ItemKind.TEXT) == 4


def test_keep_alive_comments_do_not_hide_that_the_model_is_silent() -> None:
    comments = b"".join(b"f\r\n: keep-alive..\n\r\n" for _ in range(3))
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + comments
    with RawServer(head, stays_silent=True) as server:
        kind, _ = failure_of(streamed_from(server.base_url))
    assert kind == "idle_timeout"


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9.2\r\n", b"\x15\x03\x01\x00\x02\x02\x50", b"HTTP/9 what\r\n\r\n"]
)
def test_what_answers_is_not_http(answer: bytes) -> None:
    with RawServer(answer) as server:
        kind, _ = failure_of(streamed_from(server.base_url))
    assert kind == "not_a_stream"


def test_the_connection_is_closed_without_an_answer() -> None:
    with RawServer(b"") as server:
        kind, words = failure_of(streamed_from(server.base_url))
    assert kind == "empty_response"
    assert words == "target under-test: the server closed the connection without an answer"


def test_an_html_page_at_status_200_is_no_stream() -> None:
    with RawServer(http_answer("<html><head><title>Welcome</title></head></html>")) as server:
        kind, words = failure_of(streamed_from(server.base_url))
    assert kind == "not_a_stream"
    assert "Welcome" in words


def test_of_an_html_error_page_only_its_title_is_told() -> None:
    page = "<html><head><title>502 Bad Gateway</title></head><body>" + "x" * 5000 + "</body></html>"
    with RawServer(http_answer(page, status="502 Bad Gateway")) as server:
        kind, words = failure_of(streamed_from(server.base_url))
    assert kind == "http_502"
    assert "502 Bad Gateway" in words
    assert len(words) < 200


def test_a_stream_that_is_reset_keeps_what_had_come() -> None:
    with ScheduleServer() as server:
        streamed = streamed_from(server.base_url, model="truth-ttft20-itl5-n40-cut6")
    kind, _ = failure_of(streamed)
    assert kind == "stream_truncated"
    assert 1 <= streamed.kinds.count(ItemKind.TEXT) <= 6  # a reset may overtake what was sent last


def test_a_clean_end_without_a_finish_reason_is_no_success() -> None:
    with RawServer(http_answer(sse(text_chunk("Hello")))) as server:
        streamed = streamed_from(server.base_url)
    assert failure_of(streamed)[0] == "stream_truncated"
    assert streamed.text() == "Hello"


def test_silence_after_the_finish_reason_is_the_end_and_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "_FINISH_GRACE_S", 0.1)
    body = sse(text_chunk("Hello", "stop")).encode()
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"%x\r\n" % len(body) + body + b"\r\n"
    with RawServer(head, stays_silent=True) as server:
        streamed = streamed_from(server.base_url)
    assert streamed.error is None
    assert streamed.text() == "Hello"


def test_a_refused_key_is_not_repeated_in_any_word() -> None:
    body = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}", "code": f"bad {KEY}"}})
    with RawServer(http_answer(body, status="401 Unauthorized")) as server:
        streamed = streamed_from(server.base_url, api_key=KEY)
        assert f"authorization: bearer {KEY}".lower() in server.requests[0].decode().lower()
    kind, words = failure_of(streamed)
    assert kind == "http_401"
    assert "[redacted]" in words
    assert KEY not in words
    assert KEY not in repr(streamed.error)
    assert KEY not in str(getattr(streamed.error, "code", ""))


def test_an_error_in_the_stream_that_quotes_a_secret_header_is_redacted() -> None:
    with RawServer(http_answer(sse({"error": {"message": "token hush-hush is over quota"}}))) as server:
        streamed = streamed_from(server.base_url, headers={"X-Token": "hush-hush"})
    kind, words = failure_of(streamed)
    assert kind == "in_stream_error"
    assert "hush-hush" not in words


def test_a_redirect_is_not_followed_with_the_key() -> None:
    with RawServer(http_answer("")) as elsewhere:
        location = f"location: {elsewhere.base_url}/chat/completions\r\n"
        with RawServer(http_answer("", status="307 Temporary Redirect", headers=location)) as server:
            kind, words = failure_of(streamed_from(server.base_url, api_key=KEY))
        assert elsewhere.requests == []
    assert kind == "http_307"
    assert "not followed" in words


def test_a_404_without_v1_hints_at_it_and_a_missing_model_does_not() -> None:
    with RawServer(http_answer('{"detail":"Not Found"}', status="404 Not Found")) as server:
        _, words = failure_of(streamed_from(server.base_url.removesuffix("/v1")))
    assert words.endswith("does base_url lack a /v1?")
    missing = json.dumps({"error": {"message": "no such model", "code": "model_not_found"}})
    with RawServer(http_answer(missing, status="404 Not Found")) as server:
        _, words = failure_of(streamed_from(server.base_url.removesuffix("/v1")))
    assert "/v1?" not in words


def test_a_gzip_stream_is_decoded_though_identity_was_asked_for() -> None:
    body = gzip.compress(sse(text_chunk("Hello", "stop")).encode() + b"data: [DONE]\n\n")
    with RawServer(http_answer(body, headers="content-encoding: gzip\r\n")) as server:
        streamed = streamed_from(server.base_url)
        assert b"accept-encoding: identity" in server.requests[0].lower()
    assert streamed.error is None
    assert streamed.text() == "Hello"


def test_an_encoding_that_cannot_be_decoded_is_an_error_and_never_garbage() -> None:
    with RawServer(http_answer(b"\x28\xb5\x2f\xfd", headers="content-encoding: zstd\r\n")) as server:
        streamed = streamed_from(server.base_url)
    assert failure_of(streamed)[0] == "not_a_stream"
    assert streamed.items == []


def test_an_endless_answer_ends_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "RESPONSE_LIMIT_BYTES", 1 << 20)
    with RawServer(http_answer("data: " + "x" * (2 << 20))) as server:
        streamed = streamed_from(server.base_url)
    assert failure_of(streamed)[0] == "response_too_large"


def test_no_authorization_header_without_a_key() -> None:
    with RawServer(http_answer("")) as server:
        streamed_from(server.base_url)
        assert b"authorization" not in server.requests[0].lower()


def test_no_proxy_or_netrc_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with RawServer(http_answer(sse(text_chunk("Hello", "stop")))) as server:
        assert streamed_from(server.base_url).error is None


def test_a_bug_in_reading_reaches_the_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bool:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("agentbench_otel.providers.answer.Answer.take", broken)
    with RawServer(http_answer(sse(text_chunk("Hello")))) as server, pytest.raises(ZeroDivisionError):
        streamed_from(server.base_url)


def test_a_bug_in_ending_an_answer_reaches_the_consumer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("agentbench_otel.providers.answer.Answer.end", broken)
    with RawServer(http_answer(sse(text_chunk("Hello")))) as server, pytest.raises(ZeroDivisionError):
        streamed_from(server.base_url)


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


def test_an_error_body_in_very_many_pieces_is_read_in_linear_time() -> None:
    head = b"HTTP/1.1 500 X\r\ntransfer-encoding: chunked\r\n\r\n"
    with RawServer(head + chunked(*[b"x"] * 60_000) + b"0\r\n\r\n") as server:
        start_s = time.process_time()
        kind, words = failure_of(streamed_from(server.base_url, timeouts={**QUICK, "first_byte_s": 10}))
        assert time.process_time() - start_s < 8
    assert kind == "http_500"
    assert len(words) < 400


@pytest.mark.parametrize("encoding", ["gzip", "br"])
def test_a_small_body_that_stands_for_a_huge_one_ends_at_the_limit(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai, "RESPONSE_LIMIT_BYTES", 4 << 20)
    huge = b": " + b"x" * (64 << 20)
    body = gzip.compress(huge) if encoding == "gzip" else brotli.compress(huge)
    assert len(body) < 1 << 20
    with RawServer(http_answer(body, headers=f"content-encoding: {encoding}\r\n")) as server:
        kind, _ = failure_of(streamed_from(server.base_url, timeouts={**QUICK, "first_byte_s": 10, "idle_s": 10}))
    assert kind == "response_too_large"


def test_an_answer_of_very_many_items_ends_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "ITEM_LIMIT", 1_000)
    with RawServer(http_answer(sse(*[text_chunk("x")] * 5_000))) as server:
        streamed = streamed_from(server.base_url)
    assert failure_of(streamed)[0] == "response_too_large"
    assert len(streamed.items) < 2_000


def test_headers_that_come_drop_by_drop_end_at_a_limit() -> None:
    with DripServer(b"HTTP/1.1 200 OK\r\nx-y: " + b"z" * 1000, interval_s=0.05) as server:
        limits = {"connect_s": 0.2, "first_byte_s": 0.3, "idle_s": 0.3}
        start_s = time.monotonic()
        kind, _ = failure_of(streamed_from(server.base_url, timeouts=limits))
        assert time.monotonic() - start_s < 3
    assert kind == "first_byte_timeout"


@pytest.mark.parametrize("stays_silent", [False, True], ids=["cut", "stalled"])
def test_a_refusal_keeps_its_status_whatever_becomes_of_its_body(stays_silent: bool) -> None:
    head = b"HTTP/1.1 503 X\r\nretry-after: 3\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(b"model is l")
    with RawServer(head, stays_silent=stays_silent) as server:
        streamed = streamed_from(server.base_url)
    kind, words = failure_of(streamed)
    assert kind == "http_503"
    assert "model is l" in words
    assert getattr(streamed.error, "retry_after_s", None) == 3


@pytest.mark.parametrize("value", ["inf", "nan", "1e999", "9" * 400, "-5", "soon"])
def test_a_retry_after_that_is_no_time_is_none(value: str) -> None:
    answer = http_answer("{}", status="429 X", headers=f"retry-after-ms: {value}\r\n")
    with RawServer(answer) as server:
        streamed = streamed_from(server.base_url)
    assert getattr(streamed.error, "retry_after_s", None) in (None, 0)


def test_what_came_before_the_end_of_the_body_did_not_arrive_with_it() -> None:
    """A last event without its blank line is known only at the end, which may be long after its bytes."""
    event = f"data: {json.dumps(text_chunk('Hello', 'stop'))}"
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(event.encode())
    with RawServer(head, then=b"0\r\n\r\n", after_s=0.15) as server:
        streamed = streamed_from(server.base_url, timeouts={**QUICK, "idle_s": 1})
    assert streamed.text() == "Hello"
    first_byte = streamed.exchange.phases[-1]
    assert max(item.arrival_ns for item in streamed.items) - first_byte.end_ns < 100_000_000


def test_a_cancelled_call_keeps_its_phases() -> None:
    async def cancelled() -> Exchange:
        client = openai_client(server.base_url)
        exchange = Exchange()

        async def consume() -> None:
            async with aclosing(client.stream_chat(HELLO, exchange)) as items:
                async for _ in items:
                    pass

        task = asyncio.create_task(consume())
        await asyncio.wait([task], timeout=0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.aclose()
        return exchange

    with RawServer(stays_silent=True) as server:
        exchange = run(cancelled())
    assert [phase.name for phase in exchange.phases] == ["connect", "send"]
    assert exchange.is_connection_reused is False


@pytest.mark.parametrize("odd", [{"error_code": 0}, {"error_code": None}, {"detail": None}, {"detail": "high"}])
def test_a_good_chunk_with_an_odd_field_is_no_error(odd: dict[str, object]) -> None:
    with RawServer(http_answer(sse({**text_chunk("Hello", "stop"), **odd}))) as server:
        streamed = streamed_from(server.base_url)
    assert streamed.error is None


def test_a_short_header_value_changes_nothing_of_what_the_model_says() -> None:
    with RawServer(http_answer(sse(text_chunk("11 is one", "stop")))) as server:
        streamed = streamed_from(server.base_url, headers={"X-Flag": "1"}, api_key=KEY)
    assert streamed.text() == "11 is one"

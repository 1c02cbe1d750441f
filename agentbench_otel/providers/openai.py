"""The client for OpenAI-compatible endpoints: streaming ``/chat/completions`` over httpx.

A reader task takes the bytes off the socket as they come and never waits for the consumer; the iterator that
the agent pulls from only hands over what has arrived. So arrivals tell of the provider and awaits of the pull.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any, cast

import httpx
from pydantic import SecretStr

from agentbench_otel import __version__
from agentbench_otel.config import Target
from agentbench_otel.config.secrets import secret_texts
from agentbench_otel.errors import ErrorKind, ProviderError
from agentbench_otel.ports import Clock
from agentbench_otel.providers.adaptation import EndpointProfile
from agentbench_otel.providers.answer import Answer, Inbox
from agentbench_otel.providers.decoding import Decoder, decoder_for
from agentbench_otel.providers.error_bodies import short_words
from agentbench_otel.providers.failures import TRANSPORT_ERRORS, cut_words, status_failure, transport_failure
from agentbench_otel.providers.sockets import begin_exchange
from agentbench_otel.providers.transport import ArrivalTransport
from agentbench_otel.providers.wire import WireNames, request_body
from agentbench_otel.records.chat import ChatRequest, Exchange, StreamItem

logger = logging.getLogger(__name__)

RESPONSE_LIMIT_BYTES = 64 << 20
ITEM_LIMIT = 400_000
_ERROR_BODY_LIMIT_BYTES = 64 << 10
_ERROR_BODY_LIMIT_S = 5.0
_FINISH_GRACE_S = 5.0  # between finish_reason and the usage chunk; comments do not extend it
_DRAIN_LIMIT_S = 0.025  # after [DONE]: the end of the body usually comes at once, and keeps the connection
_LIMIT_SLACK = 0.1  # a silence may be noticed late by this share: moving a timer at each read costs 8 µs


class OpenAIChatClient:
    """One per run. Calls follow one another; the second may reuse the connection of the first."""

    def __init__(
        self,
        target: Target,
        *,
        api_key: SecretStr | None,
        names: WireNames,
        profile: EndpointProfile,
        clock: Clock,
    ) -> None:
        """``profile``: what is known of the endpoint; all clients of a target share it."""
        self._target = target
        self._names = names
        self._profile = profile
        key = api_key.get_secret_value() if api_key is not None else ""
        headers = {name: value.get_secret_value() for name, value in target.headers.items()}
        self._secrets = secret_texts(target, api_key)
        if key:
            headers["Authorization"] = f"Bearer {key}"
        base_url = target.base_url.rstrip("/")
        self._url = base_url if base_url.endswith("/chat/completions") else base_url + "/chat/completions"
        tls = httpx.create_ssl_context() if self._url.startswith("https:") else None
        self._http = httpx.AsyncClient(
            transport=ArrivalTransport(clock, tls=tls),
            headers={
                "Accept": "text/event-stream",
                "Accept-Encoding": "identity",
                "User-Agent": f"agentbench-otel/{__version__}",
                **headers,
            },
            trust_env=False,  # a proxy or a .netrc that the config does not name would change what is measured
            follow_redirects=False,
        )
        self._readers: set[asyncio.Task[None]] = set()

    async def stream_chat(self, request: ChatRequest, exchange: Exchange) -> AsyncGenerator[StreamItem, None]:
        inbox: Inbox = asyncio.Queue()
        reader = asyncio.create_task(self._read_answer(request, exchange, inbox))
        self._readers.add(reader)
        reader.add_done_callback(partial(_tell_the_end, inbox))
        is_over = False
        try:
            while (item := await inbox.get()) is not None:
                if isinstance(item, Exception):
                    is_over = True
                    raise item
                yield item
            is_over = True  # the reader may still drain the end of the body; `aclose` waits for it
        finally:
            if not is_over:  # closed early or cancelled: nobody wants the rest
                await self._end_readers()

    async def aclose(self) -> None:
        await self._end_readers()
        await self._http.aclose()

    async def _end_readers(self) -> None:
        readers = list(self._readers)
        self._readers.clear()
        for reader in readers:
            reader.cancel()
        if readers:
            await asyncio.wait(readers)

    async def _read_answer(self, request: ChatRequest, exchange: Exchange, inbox: Inbox) -> None:
        answer = Answer(
            marks=begin_exchange(),
            exchange=exchange,
            inbox=inbox,
            names=self._names,
            secrets=self._secrets,
        )
        sent, exchange.adaptations = self._profile.adapt(request_body(request, self._target.model))
        try:
            try:
                response = await self._send(sent, exchange.traceparent)
                try:
                    answer.note_exchange(response.status_code)
                    body = aiter(cast("httpx.AsyncByteStream", response.stream))
                    await self._read_body(response, body, answer)
                    answer.end()
                    await _drain(body)
                finally:
                    await response.aclose()
            except TRANSPORT_ERRORS as error:
                raise transport_failure(error, self._target, has_read=answer.has_read) from error
        except ProviderError as error:
            if parameter := self._profile.learn(error, sent):
                logger.warning("target %s refuses %s; it is adapted from now on", self._target.name, parameter)
            answer.end(error)
        except Exception as error:  # also a bug of ours must reach the consumer, not vanish in this task
            if answer.has_ended:  # only the drain was left to do
                logger.warning("target %s: draining an answer failed", self._target.name, exc_info=error)
            answer.end(error)
        finally:
            answer.note_exchange()  # also of a call that was cancelled

    async def _send(self, body: dict[str, Any], traceparent: str | None) -> httpx.Response:
        limits = self._target.timeouts
        timeout = {
            "connect": limits.connect_s,
            "read": limits.first_byte_s,
            "write": limits.first_byte_s,
            "pool": None,
        }
        http_request = self._http.build_request(
            "POST",
            self._url,
            json=body,
            headers={"traceparent": traceparent} if traceparent and self._target.propagate_trace else None,
            extensions={"timeout": timeout},
        )
        # The limits above hold for each read and write; headers that come drop by drop need one for them all.
        whole_s = 2 * limits.connect_s + limits.first_byte_s
        try:
            async with asyncio.timeout(whole_s):
                response = await self._http.send(http_request, stream=True)
        except TimeoutError:
            raise ProviderError(
                ErrorKind.FIRST_BYTE_TIMEOUT,
                f"target {self._target.name}: no whole answer header within {whole_s:g} s "
                "(twice connect_s and first_byte_s)",
            ) from None
        timeout["read"] = None  # the body has limits of its own, which keep-alive comments can't outwit
        return response

    async def _read_body(self, response: httpx.Response, body: AsyncIterator[bytes], answer: Answer) -> None:
        """Feed the body to the answer until it is over, however that comes about.

        Raises:
            ProviderError: Another status than 200, an encoding that nobody reads, too large, too silent.
        """
        limits = self._target.timeouts
        encoding = response.headers.get("content-encoding", "")
        decoder = decoder_for(encoding)
        if response.status_code != 200:
            raise await self._refusal(response, body, decoder)
        if decoder is None:
            raise self._unreadable(f"is encoded as {short_words(encoding)}, though identity was asked for")
        slack_s = limits.idle_s * _LIMIT_SLACK
        loop = asyncio.get_running_loop()
        silence = _Silence(max(limits.first_byte_s, limits.idle_s), loop.time())
        try:
            async with asyncio.timeout_at(loop.time() + limits.first_byte_s) as limit:
                async for data in body:
                    has_items = await self._take(data, decoder, answer)
                    if answer.is_over:
                        return
                    silence.note(loop.time(), has_items=has_items, has_finished=answer.has_finished)
                    wanted_s = min(loop.time() + limits.idle_s, silence.ends_s)
                    if not wanted_s <= (limit.when() or 0.0) <= wanted_s + slack_s:
                        limit.reschedule(wanted_s + slack_s)
        except TimeoutError:
            if not answer.has_finished:  # else it is complete but for usage and the sentinel
                raise self._timed_out(answer.byte_count) from None
        except TRANSPORT_ERRORS as error:
            if not answer.byte_count:
                raise
            answer.cut = f"the connection was lost ({cut_words(error)})"

    async def _take(self, data: bytes, decoder: Decoder, answer: Answer) -> bool:
        """Hand one read over, in pieces that leave the loop to others in between; whether it gave items."""
        had_count = answer.item_count
        is_first = True
        try:
            for piece in decoder.decode(data):
                if not is_first:
                    await asyncio.sleep(0)
                is_first = False
                answer.byte_count += len(piece)
                if answer.byte_count > RESPONSE_LIMIT_BYTES or answer.item_count > ITEM_LIMIT:
                    raise self._too_large()
                answer.take(piece)
                if answer.is_over:
                    break
        except ValueError as error:
            raise self._unreadable(f"can't be decoded: it is {error}") from error
        return answer.item_count > had_count

    async def _refusal(
        self, response: httpx.Response, body: AsyncIterator[bytes], decoder: Decoder | None
    ) -> ProviderError:
        """The status counts, whatever becomes of the body: what had come of it serves the message."""
        parts: list[bytes] = []
        size = 0
        with contextlib.suppress(TimeoutError, ValueError, *TRANSPORT_ERRORS):
            async with asyncio.timeout(min(self._target.timeouts.first_byte_s, _ERROR_BODY_LIMIT_S)):
                async for data in body:
                    for piece in decoder.decode(data) if decoder is not None else ():
                        parts.append(piece)
                        size += len(piece)
                        if size > _ERROR_BODY_LIMIT_BYTES:
                            break
                    if size > _ERROR_BODY_LIMIT_BYTES:
                        break
        text = b"".join(parts).decode("utf-8", "replace")
        return status_failure(response, text, self._target, secrets=self._secrets)

    def _unreadable(self, words: str) -> ProviderError:
        return ProviderError(ErrorKind.NOT_A_STREAM, f"target {self._target.name}: the answer {words}")

    def _too_large(self) -> ProviderError:
        return ProviderError(
            ErrorKind.RESPONSE_TOO_LARGE,
            f"target {self._target.name}: the answer is larger than {RESPONSE_LIMIT_BYTES >> 20} MiB "
            f"or {ITEM_LIMIT:,} items",
        )

    def _timed_out(self, byte_count: int) -> ProviderError:
        limits, where = self._target.timeouts, f"target {self._target.name}"
        if not byte_count:
            return ProviderError(
                ErrorKind.FIRST_BYTE_TIMEOUT,
                f"{where}: the answer had no body within first_byte_s = {limits.first_byte_s:g}",
            )
        return ProviderError(
            ErrorKind.IDLE_TIMEOUT,
            f"{where}: the stream fell silent (idle_s = {limits.idle_s:g}, first_byte_s = "
            f"{limits.first_byte_s:g}) after {byte_count} bytes",
        )


class _Silence:
    """How long the model may go without an item, whatever keep-alive bytes come meanwhile. Times of the loop.

    After finish_reason only usage is still to come, and the grace for it is not extended by anything.
    """

    def __init__(self, limit_s: float, now_s: float) -> None:
        self._limit_s = limit_s
        self._has_finished = False
        self.ends_s = now_s + limit_s

    def note(self, now_s: float, *, has_items: bool, has_finished: bool) -> None:
        if has_finished and not self._has_finished:
            self._has_finished = True
            self.ends_s = now_s + min(_FINISH_GRACE_S, self._limit_s)
        elif has_items and not self._has_finished:
            self.ends_s = now_s + self._limit_s


def _tell_the_end(inbox: Inbox, reader: asyncio.Task[None]) -> None:
    """Whatever ended the reader, its consumer does not wait for ever: also a bug in ending the answer is told."""
    if reader.cancelled():
        inbox.put_nowait(ProviderError(ErrorKind.CANCELLED, "the client was closed while it streamed"))
        return
    error = reader.exception()
    inbox.put_nowait(error if isinstance(error, Exception) else None)


async def _drain(body: AsyncIterator[bytes]) -> None:
    """Read on to the end of a body that is over for us, so that its connection can be used again.

    Nothing that happens here matters: the answer was complete, only its connection may be lost.
    """
    with contextlib.suppress(TimeoutError, *TRANSPORT_ERRORS):
        async with asyncio.timeout(_DRAIN_LIMIT_S):
            async for _ in body:
                pass

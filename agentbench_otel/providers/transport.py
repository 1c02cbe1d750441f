"""An httpx transport that stamps each socket read where it returns, before anything is parsed.

Stamping after httpx has decoded the body would give the chunks of one read as many different times, each late
by the parsing of the ones before.
"""

import encodings.idna  # noqa: F401 - see `ArrivalTransport`
import ssl
from collections.abc import AsyncIterator, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.streams.tls
import anyio.to_thread
import httpcore
import httpx

from agentbench_otel.ports import Clock
from agentbench_otel.records.chat import Phase


@dataclass(slots=True)
class ExchangeMarks:
    """The moments of one HTTP exchange, in ns; 0 is "not yet"."""

    connect_start: int = 0
    connect_end: int = 0
    tls_start: int = 0
    tls_end: int = 0
    send_start: int = 0
    send_end: int = 0
    first_read: int = 0
    last_read: int = 0

    @property
    def is_connection_reused(self) -> bool | None:
        """None when there was no connection."""
        if self.connect_start:
            return False if self.connect_end else None
        return True if self.send_start else None

    def phases(self) -> list[Phase]:
        """The phases that have ended, in their order. ``send`` ends with the request's last byte;
        ``first_byte`` is from there to the read that brought the first byte of the answer."""
        spans = (
            ("connect", self.connect_start, self.connect_end),
            ("tls", self.tls_start, self.tls_end),
            ("send", self.send_start, self.send_end),
            ("first_byte", self.send_end, self.first_read),
        )
        return [Phase(name=name, start_ns=start, end_ns=end) for name, start, end in spans if start and end]


_MARKS: ContextVar[ExchangeMarks] = ContextVar("marks of the exchange that this task runs")
"""By task, because the end of one answer may still be drained while the next request is sent."""


def begin_exchange() -> ExchangeMarks:
    """From now on the socket operations of this task are stamped into the marks returned."""
    marks = ExchangeMarks()
    _MARKS.set(marks)
    return marks


class ArrivalTransport(httpx.AsyncBaseTransport):
    """Raises the exceptions of httpcore; the client translates them.

    httpcore, anyio and the resolver import modules at their first use: 20 to 30 ms that would be counted as
    the provider's in the first call. The imports above and the lock below have them imported here.
    """

    def __init__(self, clock: Clock, *, tls: ssl.SSLContext | None) -> None:
        anyio.Lock()
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=2,  # the second only while the first one's end is still being drained
            keepalive_expiry=4.0,  # servers close idle connections after 5 s; be the first
            http2=False,
            network_backend=_StampingBackend(clock),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._pool.handle_async_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(
            status_code=response.status,
            headers=response.headers,
            stream=_ResponseStream(response),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class _ResponseStream(httpx.AsyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._response.aiter_stream():
            yield data

    async def aclose(self) -> None:
        await self._response.aclose()


class _StampingBackend(httpcore.AsyncNetworkBackend):
    def __init__(self, clock: Clock) -> None:
        self._backend = httpcore.AnyIOBackend()
        self._clock = clock

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        marks = _MARKS.get()
        marks.connect_start = self._clock()
        stream = await self._backend.connect_tcp(host, port, timeout, local_address, socket_options)
        marks.connect_end = self._clock()
        return _StampingStream(stream, self._clock)

    async def sleep(self, seconds: float) -> None:
        await self._backend.sleep(seconds)


class _StampingStream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: httpcore.AsyncNetworkStream, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._stream.read(max_bytes, timeout)
        now_ns = self._clock()
        if data:
            marks = _MARKS.get()
            marks.last_read = now_ns
            marks.first_read = marks.first_read or now_ns
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        marks = _MARKS.get()
        marks.send_start = marks.send_start or self._clock()
        await self._stream.write(buffer, timeout)
        if not marks.first_read:
            marks.send_end = self._clock()

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        marks = _MARKS.get()
        marks.tls_start = self._clock()
        stream = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        marks.tls_end = self._clock()
        return _StampingStream(stream, self._clock)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

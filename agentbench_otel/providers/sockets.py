"""Sockets for httpcore that stamp each read in the event loop's own callback, on asyncio alone.

httpcore's own backend stamps nothing, and it (anyio) takes two system calls and a task switch per read more.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

import httpcore

from agentbench_otel.ports import Clock
from agentbench_otel.records.chat import Phase

_READ_AHEAD_LIMIT_BYTES = 4 << 20  # what may wait unread before the socket is not read any further


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


class StampingBackend(httpcore.AsyncNetworkBackend):
    """Opens connections whose operations are stamped into the marks of the task that makes them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        del local_address, socket_options  # httpcore passes none unless its pool was told to
        marks = _MARKS.get()
        marks.connect_start = self._clock()
        try:
            async with asyncio.timeout(timeout):
                transport, protocol = await asyncio.get_running_loop().create_connection(
                    lambda: _Protocol(self._clock), host, port, happy_eyeballs_delay=0.25
                )
        except TimeoutError as error:
            raise httpcore.ConnectTimeout from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        marks.connect_end = self._clock()
        return _Stream(transport, protocol, self._clock)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Protocol(asyncio.Protocol):
    """Keeps what was read with the time of each read, until it is asked for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._reads: deque[tuple[bytes, int]] = deque()
        self._waiting_bytes = 0
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._is_write_paused = False
        self.has_ended = False
        self.failure: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        now_ns = self._clock()
        self._reads.append((data, now_ns))
        self._waiting_bytes += len(data)
        if self._waiting_bytes > _READ_AHEAD_LIMIT_BYTES and self._transport is not None:
            self._transport.pause_reading()
        self._wake(self._reader)

    def eof_received(self) -> bool:
        self.has_ended = True
        self._wake(self._reader)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.has_ended = True
        self.failure = exc
        self._wake(self._reader)
        self._wake(self._writer)

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._wake(self._writer)

    @property
    def has_news(self) -> bool:
        """Whether a read would return at once: data, or the end."""
        return bool(self._reads) or self.has_ended

    async def wait_for_news(self) -> None:
        while not self.has_news:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader

    async def drain(self) -> None:
        while self._is_write_paused and not self.has_ended:
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer

    def take(self, max_bytes: int) -> tuple[bytes, int]:
        """The next read, or as much of it as is wanted, with its time; empty at the end."""
        if not self._reads:
            return b"", 0
        data, time_ns = self._reads.popleft()
        if len(data) > max_bytes:
            self._reads.appendleft((data[max_bytes:], time_ns))
            data = data[:max_bytes]
        was_full = self._waiting_bytes > _READ_AHEAD_LIMIT_BYTES
        self._waiting_bytes -= len(data)
        if was_full and self._waiting_bytes <= _READ_AHEAD_LIMIT_BYTES and self._transport is not None:
            self._transport.resume_reading()
        return data, time_ns

    @staticmethod
    def _wake(waiter: asyncio.Future[None] | None) -> None:
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, transport: asyncio.Transport, protocol: _Protocol, clock: Clock) -> None:
        self._transport = transport
        self._protocol = protocol
        self._clock = clock

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        protocol = self._protocol
        if not protocol.has_news:
            if timeout is None:
                await protocol.wait_for_news()
            else:
                try:
                    async with asyncio.timeout(timeout):
                        await protocol.wait_for_news()
                except TimeoutError as error:
                    raise httpcore.ReadTimeout from error
        data, read_ns = protocol.take(max_bytes)
        if data:
            marks = _MARKS.get()
            marks.last_read = read_ns
            marks.first_read = marks.first_read or read_ns
        elif protocol.failure is not None:
            raise httpcore.ReadError(str(protocol.failure)) from protocol.failure
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        marks = _MARKS.get()
        marks.send_start = marks.send_start or self._clock()
        self._transport.write(buffer)
        try:
            async with asyncio.timeout(timeout):
                await self._protocol.drain()
        except TimeoutError as error:
            raise httpcore.WriteTimeout from error
        if self._protocol.failure is not None:
            raise httpcore.WriteError(str(self._protocol.failure)) from self._protocol.failure
        if not marks.first_read:
            marks.send_end = self._clock()

    async def aclose(self) -> None:
        self._transport.close()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        marks = _MARKS.get()
        protocol = _Protocol(self._clock)
        marks.tls_start = self._clock()
        try:
            async with asyncio.timeout(timeout):
                transport = await asyncio.get_running_loop().start_tls(
                    self._transport, protocol, ssl_context, server_hostname=server_hostname
                )
        except TimeoutError as error:
            raise httpcore.ConnectTimeout from error
        except (OSError, ssl.SSLError) as error:
            raise httpcore.ConnectError(str(error)) from error
        marks.tls_end = self._clock()
        if transport is None:
            raise httpcore.ConnectError("the connection was lost in the TLS handshake")
        protocol.connection_made(transport)
        return _Stream(transport, protocol, self._clock)

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # httpcore asks it of an idle connection: then any news is bad news
            return self._protocol.has_news
        return self._transport.get_extra_info(
            {"client_addr": "sockname", "server_addr": "peername"}.get(info, info)
        )

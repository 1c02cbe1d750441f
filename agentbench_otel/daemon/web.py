"""The HTTP interface, on a server of its own thread: what it does never delays the loop that measures."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from agentbench_otel.config.model import Web, WebTls
from agentbench_otel.daemon.auth import host_of, is_loopback
from agentbench_otel.daemon.site import WebLimits, make_app
from agentbench_otel.daemon.view import DaemonDesk
from agentbench_otel.errors import InputError

CONNECTION_LIMIT = 512
_KEEP_ALIVE_S = 5
_END_S = 1
"""For requests in flight when the server is told to stop."""
_HEAD_SIZE_BYTES = 16_384


class WebServer:
    """Serves one desk. `start` is called once, `stop` as often as one likes, from any thread."""

    def __init__(self, desk: DaemonDesk, web: Web, *, limits: WebLimits | None = None) -> None:
        self._desk = desk
        self._web = web
        self._limits = limits or WebLimits()
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> tuple[str, int]:
        """Listen; the host and port that were bound.

        Raises:
            InputError: The address can't be had, or the TLS files can't be used.
        """
        tls = None if self._web.tls is None else _tls_context(self._web.tls)
        listener = _listen(self._web.listen)
        host, port = listener.getsockname()[:2]
        config = uvicorn.Config(
            make_app(self._desk, self._web, bound_host=host, limits=self._limits),
            http=_protocol(self._limits),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",  # below are only words about what strangers send
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTION_LIMIT,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_END_S,
            h11_max_incomplete_event_size=_HEAD_SIZE_BYTES,
        )
        config.load()
        config.ssl = tls
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._serve, args=(self._server, listener), daemon=True, name="agentbench-web"
        )
        self._thread.start()
        return str(host), int(port)

    def _serve(self, server: uvicorn.Server, listener: socket.socket) -> None:
        with asyncio.Runner(loop_factory=lambda: _Loop(self._limits.request_s)) as runner:
            runner.run(server.serve(sockets=[listener]))

    def stop(self, deadline_s: float) -> None:
        """Close the address at once; requests in flight have a second. Returns by the deadline in any case."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(deadline_s)


def listen_warning(web: Web) -> str | None:
    """What is unsafe about the address, in words; None when nothing is."""
    if is_loopback(host_of(web.listen)):
        return None
    is_missing = {"web.basic_auth": not web.basic_auth, "web.tls": web.tls is None}
    lacks = " and ".join(name for name, missing in is_missing.items() if missing)
    return f"web.listen {web.listen} is open to the network without {lacks}" if lacks else None


def _tls_context(tls: WebTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for name, file in (("cert_file", tls.cert_file), ("key_file", tls.key_file)):
        if not Path(file).is_file():
            raise InputError(f"web.tls.{name}: {file}: there is no such file")

    def ask_for_password() -> str:
        raise InputError(f"web.tls.key_file: {tls.key_file}: the key has a password; give one that has none")

    try:
        context.load_cert_chain(tls.cert_file, tls.key_file, ask_for_password)
    except ssl.SSLError as error:
        reason = error.reason or "they are not in PEM form"
    except OSError as error:
        reason = error.strerror or type(error).__name__
    else:
        return context
    raise InputError(
        f"web.tls: {tls.cert_file} and {tls.key_file} can't be used: {reason}; give a certificate and its key"
    )


def _listen(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InputError(f"web.listen {address}: can't be had: {error.strerror}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise InputError(f"web.listen {address}: can't be had: {error.strerror}") from None
    return listener


class _Loop(asyncio.SelectorEventLoop):
    """Its servers wait less for a TLS handshake than asyncio's minute."""

    def __init__(self, handshake_s: float) -> None:
        super().__init__()
        self._handshake_s = handshake_s

    async def create_server(  # type: ignore[override]  # the overloads are about arguments that pass through
        self, *args: Any, ssl: ssl.SSLContext | None = None, **options: Any
    ) -> asyncio.Server:
        if ssl is not None:
            options["ssl_handshake_timeout"] = self._handshake_s
        return await super().create_server(*args, ssl=ssl, **options)


def _protocol(limits: WebLimits) -> type[asyncio.Protocol]:
    """uvicorn's protocol with limits that it lacks: it waits for ever for the rest of a request, and for a client
    to read the answer."""

    class GuardedProtocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._request_limit = _Limit(self.loop, limits.request_s, transport.close)
            self._answer_limit = _Limit(self.loop, limits.answer_s, transport.abort)
            self._request_limit.start()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
                self._request_limit.start()
            else:
                self._request_limit.stop()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._answer_limit.start()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._answer_limit.stop()

        def connection_lost(self, exc: Exception | None) -> None:
            self._request_limit.stop()
            self._answer_limit.stop()
            super().connection_lost(exc)

    return GuardedProtocol


class _Limit:
    """A timer that goes on when it is started again."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_s: float, end: Callable[[], object]) -> None:
        self._loop = loop
        self._limit_s = limit_s
        self._end = end
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._limit_s, self._end)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

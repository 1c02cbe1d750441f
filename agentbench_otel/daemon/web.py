"""The HTTP interface, on a server of its own thread: what it does never delays the loop that measures."""

import asyncio
import json
import secrets
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from agentbench_otel import __version__
from agentbench_otel.config.model import Web, WebTls
from agentbench_otel.daemon.auth import PasswordCheck, host_of, is_cross_site, is_loopback
from agentbench_otel.daemon.pages import render_problem, render_run, render_status
from agentbench_otel.daemon.scheduler import CycleRequest
from agentbench_otel.daemon.view import DaemonDesk
from agentbench_otel.errors import InputError
from agentbench_otel.records.cycles import RunQuery
from agentbench_otel.records.results import Status
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.telemetry.otlp_json import encode_lines

CONNECTION_LIMIT = 512
REQUEST_HEAD_LIMIT_S = 10.0
"""For a connection to send a whole request head: one that only hangs on is closed."""
_KEEP_ALIVE_S = 5
_HEAD_SIZE_BYTES = 16_384
_BODY_SIZE_BYTES = 4_096
_BODY_LIMIT_S = 5.0
_RELOAD_LIMIT_S = 30.0
_OVERVIEW_POINTS = 30
_LONGEST_LIST = 500
_SHOWN_VALUE = 64

Endpoint = Callable[[Request], Response | Awaitable[Response]]


class WebServer:
    """Serves one desk. `start` and `stop` are called once each, from any thread."""

    def __init__(self, desk: DaemonDesk, web: Web, *, head_limit_s: float = REQUEST_HEAD_LIMIT_S) -> None:
        self._web = web
        self._head_limit_s = head_limit_s
        self._app = make_app(desk, web)
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> tuple[str, int]:
        """Listen; the host and port that were bound.

        Raises:
            InputError: The address can't be had, or the TLS files can't be used.
        """
        tls = self._web.tls
        if tls is not None:
            _check_tls(tls)
        listener = _listen(self._web.listen)
        host, port = listener.getsockname()[:2]
        config = uvicorn.Config(
            self._app,
            http=_protocol(self._head_limit_s),
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=CONNECTION_LIMIT,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=_HEAD_SIZE_BYTES,
            ssl_certfile=None if tls is None else tls.cert_file,
            ssl_keyfile=None if tls is None else tls.key_file,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([listener],), daemon=True, name="agentbench-web"
        )
        self._thread.start()
        return str(host), int(port)

    def stop(self, deadline_s: float) -> None:
        """Close the address; requests in flight have until the deadline."""
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        self._thread.join(deadline_s)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(1)


def listen_warning(web: Web) -> str | None:
    """What is unsafe about the address, in words; None when nothing is."""
    if is_loopback(host_of(web.listen)):
        return None
    lacks = [
        name
        for name, is_missing in (("web.basic_auth", not web.basic_auth), ("web.tls", web.tls is None))
        if is_missing
    ]
    return f"web.listen {web.listen} is open to the network without {' and '.join(lacks)}" if lacks else None


def _check_tls(tls: WebTls) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name, file in (("cert_file", tls.cert_file), ("key_file", tls.key_file)):
        if not Path(file).is_file():
            raise InputError(f"web.tls.{name}: {file}: there is no such file")
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        raise InputError(
            f"web.tls: {tls.cert_file} and {tls.key_file} can't be used: {reason}; give a certificate and its key"
        ) from None


def _listen(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InputError(f"web.listen {address}: can't be had: {error.strerror or error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise InputError(f"web.listen {address}: can't be had: {error.strerror}") from None
    return listener


def _protocol(head_limit_s: float) -> type[asyncio.Protocol]:
    """uvicorn's protocol with a limit that it lacks: it waits for ever for a request that never comes."""

    class GuardedProtocol(H11Protocol):
        _head_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._watch_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is h11.IDLE:
                self._watch_head()
            else:
                self._stop_watching()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_watching()
            super().connection_lost(exc)

        def _watch_head(self) -> None:
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(head_limit_s, self.transport.close)

        def _stop_watching(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

    return GuardedProtocol


# --- the application -------------------------------------------------------------------------------------------


def make_app(desk: DaemonDesk, web: Web) -> Starlette:
    site = _Site(desk, web)
    guard = _Guard(PasswordCheck(web.basic_auth), host_of(web.listen))
    return Starlette(
        routes=[
            Route("/", site.status),
            Route("/runs/{run_id}", site.run),
            Route("/metrics", site.metrics),
            Route("/-/healthy", site.healthy),
            Route("/-/ready", site.ready),
            Route("/-/reload", site.reload, methods=["POST"]),
            Route("/api/v1/runs", site.list_runs),
            Route("/api/v1/runs/{run_id}", site.show_run),
            Route("/api/v1/runs/{run_id}/spans", site.show_spans),
            Route("/api/v1/cycles", site.request_cycle, methods=["POST"]),
        ],
        middleware=[
            Middleware(_Headers),
            Middleware(_GuardMiddleware, guard=guard),
            Middleware(GZipMiddleware, minimum_size=1_000, compresslevel=1),
        ],
        exception_handlers={InputError: _history_problem, HTTPException: _http_problem},
    )


class _Site:
    """The endpoints. Plain functions run on threads, so that a slow disk holds nobody else up."""

    def __init__(self, desk: DaemonDesk, web: Web) -> None:
        self._desk = desk
        self._has_lifecycle = web.enable_lifecycle

    def status(self, request: Request) -> Response:
        now = datetime.now(UTC)
        overview = self._desk.past.overview(since=now - timedelta(hours=24), points=_OVERVIEW_POINTS)
        return _html(lambda nonce: render_status(self._desk.view(), overview, now, nonce))

    def run(self, request: Request) -> Response:
        run_id = request.path_params["run_id"]
        result = self._desk.past.find(run_id)
        if result is None:
            words = f"No run {run_id[:_SHOWN_VALUE]} is recorded; old runs are removed after history.keep."
            return _html(lambda nonce: render_problem("No such run", words, nonce), status_code=404)
        spans = self._desk.past.spans_of(result.run_id)
        return _html(lambda nonce: render_run(result, spans, datetime.now(UTC), nonce))

    def metrics(self, request: Request) -> Response:
        page = self._desk.metrics(request.headers.get("accept", ""))
        return Response(page.body, headers={"content-type": page.content_type})

    async def healthy(self, request: Request) -> Response:
        return _state(self._desk.why_unhealthy())

    async def ready(self, request: Request) -> Response:
        return _state(self._desk.why_not_ready())

    def list_runs(self, request: Request) -> Response:
        query = read_query(request.query_params.multi_items())
        runs = self._desk.past.runs(query)
        is_last = len(runs) < query.limit
        return JSONResponse(
            {
                "runs": [run.model_dump(mode="json") for run in runs],
                "next_before": None if is_last else runs[-1].run_id,
            }
        )

    def show_run(self, request: Request) -> Response:
        result = self._desk.past.find(request.path_params["run_id"])
        if result is None:
            raise HTTPException(404, "no run with this id is recorded")
        return JSONResponse(result.model_dump(mode="json"))

    def show_spans(self, request: Request) -> Response:
        result = self._desk.past.find(request.path_params["run_id"])
        spans = None if result is None else self._desk.past.spans_of(result.run_id)
        if spans is None:
            raise HTTPException(404, "no run with this id is recorded, or its spans are no longer kept")
        resource = {"service.name": "agentbench-otel", "service.version": __version__}
        lines = "".join(f"{line}\n" for line in encode_lines(spans, resource))
        return Response(lines, media_type="application/jsonl")

    async def reload(self, request: Request) -> Response:
        self._need_lifecycle()
        try:
            problem = await asyncio.wait_for(asyncio.wrap_future(self._desk.reload()), _RELOAD_LIMIT_S)
        except TimeoutError:
            raise HTTPException(503, f"the reload took longer than {_RELOAD_LIMIT_S:g} s") from None
        return PlainTextResponse(
            "reloaded\n" if problem is None else f"{problem}\n", 200 if problem is None else 400
        )

    async def request_cycle(self, request: Request) -> Response:
        self._need_lifecycle()
        target = read_target(await _body(request))
        answer = await run_in_threadpool(self._desk.request_cycle, target)
        status_code, words = _CYCLE_ANSWERS[answer]
        return JSONResponse({"target": target, "result": answer.value, "message": words}, status_code)

    def _need_lifecycle(self) -> None:
        if not self._has_lifecycle:
            raise HTTPException(403, "this is allowed only with web.enable_lifecycle: true in the config")


_CYCLE_ANSWERS: Mapping[CycleRequest, tuple[int, str]] = {
    CycleRequest.ACCEPTED: (202, "the cycle starts as soon as its turn comes"),
    CycleRequest.IS_RUNNING: (409, "a cycle of this target is running"),
    CycleRequest.IS_WAITING: (409, "a cycle of this target waits for its turn"),
    CycleRequest.NO_BUDGET_LEFT: (429, "the target's budget of the day is used up"),
    CycleRequest.UNKNOWN_TARGET: (404, "no such target is configured"),
    CycleRequest.STOPPING: (503, "the daemon is stopping"),
}


def read_query(parameters: Sequence[tuple[str, str]]) -> RunQuery:
    """Raises:
    HTTPException: A parameter that is unknown, given twice, or has a value that is not allowed.
    """
    known = {"target", "case", "mode", "status", "limit", "before"}
    given: dict[str, str] = {}
    for name, value in parameters:
        if name not in known:
            raise _bad(name[:_SHOWN_VALUE], "is no parameter", sorted(known))
        if name in given:
            raise _bad(name, "is given twice", ["once"])
        given[name] = value
    return RunQuery(
        target=given.get("target"),
        case_id=None if "case" not in given else CaseId(_one_of("case", given["case"], list(CaseId))),
        mode=None if "mode" not in given else Mode(_one_of("mode", given["mode"], list(Mode))),
        status=None if "status" not in given else Status(_one_of("status", given["status"], list(Status))),
        before_run_id=given.get("before"),
        limit=_limit(given.get("limit", "50")),
    )


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _LONGEST_LIST and len(text) < 10):
        raise _bad("limit", f"is {text[:_SHOWN_VALUE]!r}", [f"1 to {_LONGEST_LIST}"])
    return int(text)


def _one_of(name: str, value: str, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise _bad(name, f"is {value[:_SHOWN_VALUE]!r}", allowed)
    return value


def _bad(name: str, words: str, allowed: Sequence[str]) -> HTTPException:
    return HTTPException(400, f"{name}: {words}; allowed: {', '.join(map(str, allowed))}")


def read_target(body: bytes) -> str:
    """Raises:
    HTTPException: The body is no JSON object with a target and nothing else.
    """
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or set(document) != {"target"} or not isinstance(document["target"], str):
        raise HTTPException(400, 'the body must be JSON such as {"target": "local-llama"}')
    return document["target"]


async def _body(request: Request) -> bytes:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "the content type must be application/json")
    body = b""
    try:
        async with asyncio.timeout(_BODY_LIMIT_S):
            async for piece in request.stream():
                body += piece
                if len(body) > _BODY_SIZE_BYTES:
                    raise HTTPException(413, f"the body is larger than {_BODY_SIZE_BYTES} bytes")
    except TimeoutError:
        raise HTTPException(408, f"the body did not come within {_BODY_LIMIT_S:g} s") from None
    return body


# --- answers ---------------------------------------------------------------------------------------------------


def _html(render: Callable[[str], str], *, status_code: int = 200) -> Response:
    """A page whose one style element is allowed by a nonce, and nothing else is."""
    nonce = secrets.token_urlsafe(16)
    nothing = "'none'; ".join(("default-src ", "base-uri ", "form-action ", "frame-ancestors "))
    policy = f"{nothing}'none'; style-src 'nonce-{nonce}'"
    return HTMLResponse(render(nonce), status_code, headers={"content-security-policy": policy})


def _state(problem: str | None) -> Response:
    return PlainTextResponse("ok\n" if problem is None else f"{problem}\n", 200 if problem is None else 503)


def _history_problem(request: Request, error: Exception) -> Response:
    return _told(request, 503, str(error), {})


def _http_problem(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    return _told(request, error.status_code, error.detail, dict(error.headers or {}))


def _told(request: Request, status_code: int, words: str, headers: Mapping[str, str]) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": words}, status_code, headers=dict(headers))
    return PlainTextResponse(f"{words}\n", status_code, headers=dict(headers))


class _Guard:
    """Whether a request is let in: right host, not from another site, right password."""

    def __init__(self, check: PasswordCheck, listen_host: str) -> None:
        self._check = check
        self._listen_host = listen_host

    async def refusal(self, request: Request) -> Response | None:
        """None: it is let in."""
        if is_loopback(self._listen_host) and not self._is_our_host(request.headers.get("host", "")):
            # A page of another site whose name leads here (DNS rebinding) would be the same origin.
            return PlainTextResponse("this is not the host that you asked for\n", 421)
        if request.method not in ("GET", "HEAD") and is_cross_site(request.headers):
            return PlainTextResponse("requests from other sites are refused\n", 403)
        if self._check.is_needed:
            authorization = request.headers.get("authorization", "")
            is_right = self._check.knows(authorization) or await run_in_threadpool(
                self._check.is_right, authorization
            )
            if not is_right:
                challenge = {"www-authenticate": 'Basic realm="agentbench-otel", charset="UTF-8"'}
                return PlainTextResponse("user or password is wrong\n", 401, headers=challenge)
        return None

    def _is_our_host(self, host: str) -> bool:
        name = host_of(host)
        return not name or name == self._listen_host or is_loopback(name)


class _GuardMiddleware:
    def __init__(self, app: ASGIApp, guard: _Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = await self._guard.refusal(Request(scope)) if scope["type"] == "http" else None
        await (self._app if refusal is None else refusal)(scope, receive, send)


class _Headers:
    """What every answer says to browsers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_SAFE_HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _encoded(headers: Mapping[str, str]) -> Iterator[tuple[bytes, bytes]]:
    for name, value in headers.items():
        yield name.encode(), value.encode()


_SAFE_HEADERS = tuple(
    _encoded(
        {
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cache-control": "no-store",
        }
    )
)

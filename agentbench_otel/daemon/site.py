"""What the HTTP interface answers: pages for people, an API for programs, metrics, health."""

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentbench_otel import __version__
from agentbench_otel.config.model import Web
from agentbench_otel.daemon.auth import Guard, host_of
from agentbench_otel.daemon.pages import render_problem, render_run, render_status
from agentbench_otel.daemon.scheduler import CycleRequest
from agentbench_otel.daemon.view import DaemonDesk
from agentbench_otel.errors import InputError
from agentbench_otel.records.cycles import RunQuery
from agentbench_otel.records.results import Status
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.telemetry.otlp_json import encode_lines

_BODY_SIZE_BYTES = 4_096
_OVERVIEW_POINTS = 30
_LONGEST_LIST = 500
_SHOWN_VALUE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class WebLimits:
    """How long is waited for others, in seconds."""

    request_s: float = 10.0
    """For a TLS handshake, and for a whole request: a connection that only hangs on is closed."""
    body_s: float = 5.0
    """For the body of a request that has to have one."""
    answer_s: float = 60.0
    """For a client that does not read what it asked for."""
    reload_s: float = 30.0


def make_app(desk: DaemonDesk, web: Web, *, bound_host: str, limits: WebLimits) -> Starlette:
    site = _Site(desk, limits, has_lifecycle=web.enable_lifecycle)
    app = Starlette(
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
            Middleware(_SafeHeaders),
            Middleware(Guard, basic_auth=web.basic_auth, listen_host=host_of(web.listen), bound_host=bound_host),
            Middleware(GZipMiddleware, minimum_size=1_000, compresslevel=1),
        ],
        exception_handlers={InputError: _history_problem, HTTPException: _http_problem},
    )
    app.router.redirect_slashes = False
    return app


class _Site:
    """The endpoints. Plain functions run on threads, so that a slow disk holds nobody else up."""

    def __init__(self, desk: DaemonDesk, limits: WebLimits, *, has_lifecycle: bool) -> None:
        self._desk = desk
        self._limits = limits
        self._has_lifecycle = has_lifecycle

    def status(self, request: Request) -> Response:
        now = datetime.now(UTC)
        overview = self._desk.past.overview(since=now - timedelta(hours=24), points=_OVERVIEW_POINTS)
        return _html(lambda nonce: render_status(self._desk.view(), overview, now, nonce))

    def run(self, request: Request) -> Response:
        run_id = request.path_params["run_id"]
        result = self._desk.past.find(run_id)
        if result is None:
            raise HTTPException(
                404, f"No run {run_id[:_SHOWN_VALUE]} is recorded; old runs are removed after history.keep."
            )
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
        reloading = asyncio.wrap_future(self._desk.reload())
        await asyncio.wait([reloading], timeout=self._limits.reload_s)  # never cancels it half-way
        if not reloading.done():
            raise HTTPException(503, f"the reload takes longer than {self._limits.reload_s:g} s; it goes on")
        problem = reloading.result()
        if problem is not None:
            raise HTTPException(400, problem)
        return PlainTextResponse("reloaded\n")

    async def request_cycle(self, request: Request) -> Response:
        self._need_lifecycle()
        target = read_target(await _body(request, self._limits.body_s))
        problem = self._desk.why_not_ready()
        if problem is not None:
            raise HTTPException(503, f"the daemon is not ready: {problem}")
        try:
            answer = await run_in_threadpool(self._desk.request_cycle, target)
        except TimeoutError:
            raise HTTPException(503, "the daemon is too busy to answer; the cycle may start yet") from None
        status_code, words = _CYCLE_ANSWERS[answer]
        if answer is not CycleRequest.ACCEPTED:
            raise HTTPException(status_code, words)
        return JSONResponse({"result": answer.value, "message": words}, status_code)

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
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_LONGEST_LIST))
    if not is_number or not 1 <= int(text) <= _LONGEST_LIST:
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


async def _body(request: Request, limit_s: float) -> bytes:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "the content type must be application/json")
    body = b""
    try:
        async with asyncio.timeout(limit_s):
            async for piece in request.stream():
                body += piece
                if len(body) > _BODY_SIZE_BYTES:
                    raise HTTPException(413, f"the body is larger than {_BODY_SIZE_BYTES} bytes")
    except TimeoutError:
        raise HTTPException(408, f"the body did not come within {limit_s:g} s") from None
    return body


# --- answers ---------------------------------------------------------------------------------------------------


def _html(
    render: Callable[[str], str], *, status_code: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A page whose one style element is allowed by a nonce, and nothing else is."""
    nonce = secrets.token_urlsafe(16)
    policy = (
        f"default-src 'none'; style-src 'nonce-{nonce}'; img-src 'none'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
    return HTMLResponse(render(nonce), status_code, headers={**(headers or {}), "content-security-policy": policy})


def _state(problem: str | None) -> Response:
    return PlainTextResponse("ok\n" if problem is None else f"{problem}\n", 200 if problem is None else 503)


def _history_problem(request: Request, error: Exception) -> Response:
    return _told(request, HTTPException(503, str(error)))


def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  # Starlette's type is wider than what it hands over
    return _told(request, error)


def _told(request: Request, problem: HTTPException) -> Response:
    """A problem in the form of its place: JSON in the API, a page for people, otherwise a line of text."""
    path, status_code, words = request.url.path, problem.status_code, problem.detail
    if path.startswith("/api/"):
        return JSONResponse({"error": words}, status_code, headers=problem.headers)
    if path == "/" or path.startswith("/runs/"):
        title = HTTPStatus(status_code).phrase
        return _html(
            lambda nonce: render_problem(title, words, nonce), status_code=status_code, headers=problem.headers
        )
    return PlainTextResponse(f"{words}\n", status_code, headers=problem.headers)


class _SafeHeaders:
    """What every answer says to browsers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_SAFE_HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)


_SAFE_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}

"""A daemon's counter with answers that a test sets, and a web server in front of it."""

import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import httpx

from agentbench_otel.config.model import Web
from agentbench_otel.daemon.scheduler import CycleRequest
from agentbench_otel.daemon.site import WebLimits
from agentbench_otel.daemon.view import DaemonView, MetricsPage, TargetView
from agentbench_otel.daemon.web import WebServer
from agentbench_otel.records.cycles import RunQuery, SeriesOverview
from agentbench_otel.records.results import RunResult
from agentbench_otel.records.spans import SpanRecord
from tests.support.history import NOW

LOCAL = "127.0.0.1:0"


def reloaded(problem: str | None = None) -> "Future[str | None]":
    future: Future[str | None] = Future()
    future.set_result(problem)
    return future


@dataclass(slots=True, kw_only=True)
class FakePast:
    """A history in memory; ``known`` is newest first. ``fault`` is raised by whatever is asked."""

    known: Sequence[RunResult] = ()
    spans: Mapping[str, tuple[SpanRecord, ...]] = field(default_factory=dict)
    fault: Exception | None = None
    queries: list[RunQuery] = field(default_factory=list)
    overviews: list[tuple[datetime, int]] = field(default_factory=list)

    def runs(self, query: RunQuery) -> list[RunResult]:
        self._fail()
        self.queries.append(query)
        ids = [run.run_id for run in self.known]
        start = 0 if query.before_run_id is None else ids.index(query.before_run_id) + 1
        return list(self.known[start : start + query.limit])

    def find(self, run_id: str) -> RunResult | None:
        self._fail()
        return next((run for run in self.known if run.run_id == run_id), None)

    def spans_of(self, run_id: str) -> tuple[SpanRecord, ...] | None:
        self._fail()
        return self.spans.get(run_id)

    def overview(self, *, since: datetime, points: int) -> list[SeriesOverview]:
        self._fail()
        self.overviews.append((since, points))
        return [
            SeriesOverview(
                target=run.target,
                case_id=run.case_id,
                mode=run.mode,
                last=run,
                visible_ttft_ms=(run.visible_ttft_ms,),
                counted=1,
                passed=1,
                last_failure=None,
            )
            for run in self.known[:1]
        ]

    def _fail(self) -> None:
        if self.fault is not None:
            raise self.fault


@dataclass(slots=True, kw_only=True)
class FakeDesk:
    """Implements `DaemonDesk`. ``wishes``: what was asked for beyond reading. ``on_call`` holds up `metrics` and
    `request_cycle` for as long as it takes."""

    past: FakePast = field(default_factory=FakePast)
    metrics_body: bytes = b"# a page\n"
    unhealthy: str | None = None
    not_ready: str | None = None
    cycle_answer: CycleRequest | Exception = CycleRequest.ACCEPTED
    reload_answer: "Future[str | None]" = field(default_factory=reloaded)
    accepts: list[str] = field(default_factory=list)
    wishes: list[str] = field(default_factory=list)
    on_call: Callable[[], object] = lambda: None

    def forget(self) -> None:
        """What was asked."""
        for asked in (self.accepts, self.wishes, self.past.queries, self.past.overviews):
            asked.clear()

    def view(self) -> DaemonView:
        target = TargetView(
            name="local",
            model="tiny",
            next_cycle_at=NOW,
            interval_s=300.0,
            is_running=False,
            stretch=1,
            is_budget_exhausted=False,
        )
        return DaemonView(
            version="1.2.3",
            started_at=NOW,
            is_mock=True,
            config_file=None,
            last_reload_problem=None,
            targets=[target],
            series=[(run.target, run.case_id, run.mode) for run in self.past.known[:1]],
        )

    def metrics(self, accept: str) -> MetricsPage:
        self.accepts.append(accept)
        self.on_call()
        return MetricsPage(body=self.metrics_body, content_type="application/openmetrics-text; version=1.0.0")

    def why_unhealthy(self) -> str | None:
        return self.unhealthy

    def why_not_ready(self) -> str | None:
        return self.not_ready

    def reload(self) -> "Future[str | None]":
        self.wishes.append("reload")
        return self.reload_answer

    def request_cycle(self, target: str) -> CycleRequest:
        self.wishes.append(f"cycle of {target}")
        self.on_call()
        if isinstance(self.cycle_answer, Exception):
            raise self.cycle_answer
        return self.cycle_answer


class Site:
    """A client of a running server. It keeps its connections."""

    def __init__(self, desk: FakeDesk, server: WebServer, address: tuple[str, int], client: httpx.Client) -> None:
        self.desk = desk
        self.server = server
        self.address = address
        self._client = client

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self._client.get(path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self._client.post(path, **options)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._client.request(method, path, **options)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=10)

    def say(self, data: bytes) -> bytes:
        """What comes back on a connection of its own until the server closes it."""
        with self.connect() as connection:
            connection.sendall(data)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    """What comes until the other side closes, be it by a reset."""
    received = b""
    try:
        while piece := connection.recv(65_536):
            received += piece
    except ConnectionResetError:
        pass
    return received


@contextmanager
def a_site(
    desk: FakeDesk | None = None,
    *,
    limits: WebLimits | None = None,
    verify: ssl.SSLContext | bool = False,
    scheme: str = "http",
    auth: tuple[str, str] | None = None,
    **web: Any,
) -> Iterator[Site]:
    """A server on loopback, or where ``listen`` says; ``web`` are keys of the config."""
    desk = desk or FakeDesk()
    server = WebServer(desk, Web.model_validate({"listen": LOCAL, **web}), limits=limits)
    host, port = server.start()
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    client = httpx.Client(
        base_url=f"{scheme}://{authority}", verify=verify, auth=auth, trust_env=False, timeout=10
    )
    try:
        with client:
            yield Site(desk, server, (host, port), client)
    finally:
        server.stop(5)

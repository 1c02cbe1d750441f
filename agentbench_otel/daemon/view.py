"""What the HTTP interface may ask of the daemon. Every method answers at once, from any thread."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from agentbench_otel.daemon.scheduler import CycleRequest
from agentbench_otel.records.cycles import RunQuery, SeriesOverview
from agentbench_otel.records.results import RunResult
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.records.spans import SpanRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetView:
    """A configured target as a page shows it."""

    name: str
    model: str
    next_cycle_at: datetime | None
    """None: none is planned."""
    interval_s: float
    is_running: bool
    stretch: int
    """Only every so many slots run, because the endpoint refused the key or asked for less."""
    is_budget_exhausted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonView:
    """The state at one moment. ``series`` are those that the config asks for, whether they ran or not."""

    version: str
    started_at: datetime
    is_mock: bool
    config_file: str | None
    last_reload_problem: str | None
    targets: Sequence[TargetView]
    series: Sequence[tuple[str, CaseId, Mode]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsPage:
    body: bytes
    content_type: str


class Past(Protocol):
    """The history, read-only."""

    def runs(self, query: RunQuery) -> list[RunResult]: ...

    def find(self, run_id: str) -> RunResult | None: ...

    def spans_of(self, run_id: str) -> tuple[SpanRecord, ...] | None: ...

    def overview(self, *, since: datetime, points: int) -> list[SeriesOverview]: ...


class DaemonDesk(Protocol):
    """The counter at which the web threads ask."""

    @property
    def past(self) -> Past: ...

    def view(self) -> DaemonView: ...

    def metrics(self, accept: str) -> MetricsPage: ...

    def why_unhealthy(self) -> str | None:
        """None: the event loop's heart beats."""
        ...

    def why_not_ready(self) -> str | None:
        """None: config loaded, history open, schedule started, not stopping."""
        ...

    def reload(self) -> Future[str | None]:
        """Done when the reload is; its result is the problem in words, None without one."""
        ...

    def request_cycle(self, target: str) -> CycleRequest:
        """Ask for a cycle out of turn."""
        ...

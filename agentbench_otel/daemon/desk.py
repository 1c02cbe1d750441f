"""The counter between the web threads and the event loop: reads are snapshots, wishes are taken to the loop."""

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from agentbench_otel import __version__
from agentbench_otel.daemon.scheduler import CycleRequest
from agentbench_otel.daemon.timer import TargetState
from agentbench_otel.daemon.view import DaemonView, MetricsPage, Past, TargetView

if TYPE_CHECKING:
    from concurrent.futures import Future

    from agentbench_otel.config.model import Target
    from agentbench_otel.daemon.service import Daemon

HEARTBEAT_LIMIT_S = 15.0
_ANSWER_LIMIT_S = 5.0


class Desk:
    """Implements `DaemonDesk` for one daemon."""

    def __init__(self, daemon: "Daemon", loop: asyncio.AbstractEventLoop) -> None:
        self._daemon = daemon
        self._loop = loop

    @property
    def past(self) -> Past:
        return self._daemon.past

    def view(self) -> DaemonView:
        daemon = self._daemon
        config, states = daemon.settings.config, daemon.scheduler_state().targets
        return DaemonView(
            version=__version__,
            started_at=daemon.started_at,
            is_mock=daemon.settings.is_mock,
            config_file=daemon.config_file,
            last_reload_problem=daemon.state.reload_problem,
            targets=[
                self._target_view(target, states[target.name])
                for target in config.targets
                if target.name in states
            ],
            series=[
                (target.name, case_id, mode)
                for target in config.targets
                for case_id in config.benchmark.cases
                for mode in config.benchmark.modes
            ],
        )

    def _target_view(self, target: "Target", state: TargetState) -> TargetView:
        next_s = state.next_slot_unix_s
        return TargetView(
            name=target.name,
            model=target.model,
            next_cycle_at=None if next_s is None else datetime.fromtimestamp(next_s, UTC),
            interval_s=state.interval_s,
            is_running=state.is_running,
            stretch=state.stretch,
            is_budget_exhausted=target.name in self._daemon.state.exhausted_targets,
        )

    def metrics(self, accept: str) -> MetricsPage:
        body, content_type = self._daemon.page.render(accept)
        return MetricsPage(body=body, content_type=content_type)

    def why_unhealthy(self) -> str | None:
        age_s = self._daemon.heartbeat_age_s()
        return None if age_s < HEARTBEAT_LIMIT_S else f"the event loop has not run for {age_s:.0f} s"

    def why_not_ready(self) -> str | None:
        return self._daemon.why_not_ready()

    def reload(self) -> "Future[str | None]":
        return asyncio.run_coroutine_threadsafe(self._daemon.reload(), self._loop)

    def request_cycle(self, target: str) -> CycleRequest:
        async def ask() -> CycleRequest:
            return self._daemon.request_cycle(target)

        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(_ANSWER_LIMIT_S)

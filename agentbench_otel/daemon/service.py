"""The life of the daemon, top to bottom: open, run, reload, stop."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path

from agentbench_otel import __version__, names
from agentbench_otel.config.model import Config
from agentbench_otel.daemon.chores import CollectGarbage
from agentbench_otel.daemon.cycles import CycleMaker, CycleSummary
from agentbench_otel.daemon.desk import Desk
from agentbench_otel.daemon.journal import Journal
from agentbench_otel.daemon.manners import Budgets, utc_day
from agentbench_otel.daemon.notify import Supervisor
from agentbench_otel.daemon.own_state import OwnState, single
from agentbench_otel.daemon.past import last_slots, restored_series
from agentbench_otel.daemon.quiet import QuietMoments
from agentbench_otel.daemon.scheduler import CycleRequest, Scheduler, SchedulerState
from agentbench_otel.daemon.settings import Settings
from agentbench_otel.daemon.telemetry import DaemonTelemetry, Sources
from agentbench_otel.daemon.timekeeper import SystemTime, Timekeeper
from agentbench_otel.daemon.timer import ScheduledTarget
from agentbench_otel.daemon.web import WebServer, listen_warning
from agentbench_otel.errors import ErrorKind, InputError
from agentbench_otel.history.reader import HistoryReader
from agentbench_otel.history.retention import Retention
from agentbench_otel.history.writer import HistoryWriter
from agentbench_otel.records.cycles import CycleOutcome
from agentbench_otel.records.results import RunResult
from agentbench_otel.records.spans import SpanRecord
from agentbench_otel.runner import CANCEL_GRACE_S
from agentbench_otel.telemetry.bounded import run_in_thread
from agentbench_otel.telemetry.metrics_page import MetricsPage

logger = logging.getLogger(__name__)

_TICK_S = 1.0
_CLOSE_HISTORY_S = 5.0
_STOP_WEB_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonOptions:
    """``load`` reads the config anew, and raises `InputError` when it can't be used."""

    load: Callable[[], Settings]
    config_file: str | None
    environment: Mapping[str, str]
    run_now: bool


class Daemon:
    """One process, from `serve` to its end. All but what only reads is called on the event loop."""

    def __init__(self, options: DaemonOptions) -> None:
        """Raises:
        InputError: The config, the history or a variable can't be used; nothing is left open.
        """
        self._options = options
        self._time: Timekeeper = SystemTime()
        self._settings = options.load()
        config = self._settings.config
        self._supervisor = Supervisor(options.environment)
        self._telemetry = DaemonTelemetry(config, options.environment)
        self._telemetry.run_metrics.plan(self._settings.planned_series())
        self._journal = Journal()
        self._garbage = CollectGarbage()
        self._quiet = QuietMoments([*self._telemetry.chores, self._garbage], self._time.monotonic_s)
        self._reloading = asyncio.Lock()
        self._stop_signals: asyncio.Queue[int] = asyncio.Queue()
        self._is_signalled = self._is_stopping = self._is_started = False
        self.started_at = datetime.fromtimestamp(self._time.wall_s(), UTC)
        self.state = OwnState(config, now_unix_s=self._time.wall_s())
        self._history = HistoryWriter(Path(config.history.path), retention=_retention(config))
        try:
            self.past = HistoryReader(Path(config.history.path))
            self._budgets = self._restored_budgets()
            self._scheduler = self._make_scheduler()
            self._restore_gauges()
        except BaseException:
            self._history.close(_CLOSE_HISTORY_S)
            raise
        self._maker = CycleMaker(
            sinks=[self._history, *self._telemetry.sinks, self._journal, _StuckCount(self.state)],
            quiet=self._quiet,
            budgets=self._budgets,
            wall_s=self._time.wall_s,
            is_stopping=lambda: self._is_stopping,
        )
        self.state.scheduler_state = self.scheduler_state
        self._telemetry.watch({**self.state.sources(), **self._other_sources()})

    def _make_scheduler(self) -> Scheduler:
        return Scheduler(
            self._settings.scheduled_targets(),
            time=self._time,
            run_cycle=self._run_cycle,
            on_outcome=self._on_outcome,
            is_budget_left=lambda scheduled: self._budgets.is_left(
                self._settings.target(scheduled.name), self._time.wall_s()
            ),
            max_parallel_targets=self._settings.config.daemon.max_parallel_targets,
            last_slot_of=last_slots(self.past),
            run_now=self._options.run_now,
        )

    def _restored_budgets(self) -> Budgets:
        today = utc_day(self._time.wall_s())
        midnight = datetime.combine(today, datetime.min.time(), UTC)
        return Budgets(today, self.past.spending_since(midnight))

    def _restore_gauges(self) -> None:
        keys = [key for planned in self._settings.planned_series() for key in planned.series()]
        self._telemetry.run_metrics.restore(restored_series(self.past, keys))
        self.state.last_cycles = self.past.last_cycles()

    # --- life ----------------------------------------------------------------------------------------------

    async def serve(self) -> int:
        """Run until a signal or a fault; the exit code: 0, or 1 for a supervisor that should start us anew.

        Raises:
            InputError: The web address can't be had.
        """
        async with self._open_history(), self._open_web(), self._signals():
            tasks = [
                asyncio.create_task(self._scheduler.run(), name="scheduler"),
                asyncio.create_task(self._tick(), name="ticks"),
                asyncio.create_task(self._do_chores(), name="chores"),
            ]
            signalled = asyncio.create_task(self._stop_signals.get(), name="stop signal")
            self._garbage.take_over()
            self._is_started = True
            self._tell_ready()
            await asyncio.wait({*tasks, signalled}, return_when=asyncio.FIRST_COMPLETED)
            is_fault = not signalled.done()
            signalled.cancel()
            await self._stop(*tasks)
            return 1 if self._tell_faults(tasks) or is_fault else 0

    async def _stop(self, scheduling: asyncio.Task[None], *others: asyncio.Task[None]) -> None:
        """Start nothing more, give the run in flight its time, abort it otherwise, and let the telemetry leave."""
        self._is_stopping = True
        self._supervisor.stopping()
        logger.info("stopping: the run in flight may end", extra={"fields": {"grace_s": self._grace_s}})
        await self._scheduler.stop()
        await asyncio.wait({scheduling}, timeout=self._grace_s)
        for task in (scheduling, *others):
            task.cancel()
        await asyncio.wait({scheduling, *others}, timeout=2 * CANCEL_GRACE_S)
        await run_in_thread(self._telemetry.flush)

    @property
    def _grace_s(self) -> float:
        return self._settings.config.daemon.shutdown_grace

    def _tell_faults(self, tasks: Sequence[asyncio.Task[None]]) -> bool:
        """Whether one of them ended by a bug; its traceback is in the log."""
        faults = [task for task in tasks if task.done() and not task.cancelled() and task.exception() is not None]
        for task in faults:
            logger.error("%s ended by a bug of agentbench-otel", task.get_name(), exc_info=task.exception())
        return bool(faults)

    @asynccontextmanager
    async def _open_history(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            lost_count = await run_in_thread(lambda: self._history.close(_CLOSE_HISTORY_S))
            if lost_count:
                logger.error("runs were not written to the history", extra={"fields": {"lost_runs": lost_count}})

    @asynccontextmanager
    async def _open_web(self) -> AsyncIterator[None]:
        web = self._settings.config.web
        server = WebServer(Desk(self, asyncio.get_running_loop()), web)
        host, port = server.start()
        warning = listen_warning(web)
        if warning is not None:
            logger.warning(warning)
        fields = {"address": f"{host}:{port}", "version": __version__, "mock": self._settings.is_mock}
        logger.info("agentbench-otel serves", extra={"fields": fields})
        try:
            yield
        finally:
            await run_in_thread(lambda: server.stop(_STOP_WEB_S))

    @asynccontextmanager
    async def _signals(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as reloads:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self._on_stop_signal, number)
            loop.add_signal_handler(signal.SIGHUP, lambda: reloads.create_task(self.reload()) and None)
            try:
                yield
            finally:
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    loop.remove_signal_handler(number)

    def _on_stop_signal(self, number: int) -> None:
        if self._is_signalled:
            logger.warning("a second signal: leaving at once")
            os._exit(128 + number)
        self._is_signalled = True
        self._stop_signals.put_nowait(number)

    async def _tick(self) -> None:
        """Each second: the loop's own health. Ends when too many runs are stuck."""
        while self.state.stuck_runs < self._settings.config.daemon.max_stuck_runs:
            due_s = self._time.monotonic_s() + _TICK_S
            await self._time.sleep(_TICK_S)
            now_s = self._time.wall_s()
            self.state.note_lag(max(0.0, self._time.monotonic_s() - due_s), now_s)
            self.state.exhausted_targets = frozenset(
                target.name for target in self._settings.config.targets if not self._budgets.is_left(target, now_s)
            )
            self._supervisor.alive()
        logger.error("too many runs are stuck: leaving, to be started anew")

    async def _do_chores(self) -> None:
        while True:
            await self._quiet.use()
            await self._time.sleep(_TICK_S)

    # --- cycles --------------------------------------------------------------------------------------------

    async def _run_cycle(self, scheduled: ScheduledTarget, slot_s: float, ends_before_s: float) -> None:
        settings = self._settings
        try:
            await self._maker.make(
                settings,
                settings.target(scheduled.name),
                slot_s=slot_s,
                ends_before_s=ends_before_s,
                stretch=self._scheduler.state.targets[scheduled.name].stretch,
                on_end=self._end_cycle,
            )
        except Exception:
            logger.exception(
                "a cycle failed by a bug of agentbench-otel", extra={"fields": {"target": scheduled.name}}
            )

    def _end_cycle(self, summary: CycleSummary) -> None:
        record, backoff = summary.record, summary.backoff
        self.state.note_cycle(record)
        self._history.record_cycle(record)
        self._journal.note_cycle(record)
        self._scheduler.set_backoff(
            record.target, stretch=backoff.stretch, not_before_unix_s=backoff.not_before_unix_s
        )

    def _on_outcome(self, target: str, outcome: CycleOutcome, count: int) -> None:
        self.state.cycles[target, outcome] += count
        logger.info(
            "slots did not run", extra={"fields": {"target": target, "why": outcome.value, "slots": count}}
        )

    def request_cycle(self, target: str) -> CycleRequest:
        """Ask for a cycle of a target out of turn."""
        return self._scheduler.request_cycle(target)

    # --- config --------------------------------------------------------------------------------------------

    async def reload(self) -> str | None:
        """Read the config again and take it, or change nothing; returns what is wrong with it, if anything."""
        async with self._reloading:
            self._supervisor.reloading()
            try:
                settings = await run_in_thread(self._options.load)
            except InputError as error:
                self.state.reload_problem = str(error)
                logger.warning("the config was not taken: %s", error)
            else:
                await self._take(settings)
            self._tell_ready()
            return self.state.reload_problem

    async def _take(self, settings: Settings) -> None:
        before, config = self._settings.config, settings.config
        fixed = [key for key in _FIXED if attrgetter(key)(before) != attrgetter(key)(config)]
        if fixed:
            logger.warning("changes of these need a restart: %s", ", ".join(fixed))
        await run_in_thread(lambda: self._telemetry.run_metrics.plan(settings.planned_series()))
        self._settings = settings
        self.state.config = config
        self.state.reload_problem = None
        self.state.reloaded_unix_s = self._time.wall_s()
        self._scheduler.update(settings.scheduled_targets())
        logger.info("the config was taken", extra={"fields": {"targets": len(config.targets)}})

    def _tell_ready(self) -> None:
        self._supervisor.ready(f"measures {len(self._settings.config.targets)} target(s)")

    # --- what others ask -----------------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def config_file(self) -> str | None:
        return self._options.config_file

    @property
    def page(self) -> MetricsPage:
        return self._telemetry.page

    def scheduler_state(self) -> SchedulerState:
        return self._scheduler.state

    def heartbeat_age_s(self) -> float:
        """Since the scheduler last looked at the clocks."""
        return self._time.monotonic_s() - self._scheduler.heartbeat_s

    def why_not_ready(self) -> str | None:
        if self._is_stopping:
            return "stopping"
        return None if self._is_started else "starting"

    def _other_sources(self) -> Sources:
        return {
            names.TELEMETRY_LOUD: single(lambda: self._quiet.loud_count),
            names.HISTORY_WRITE_ERRORS: single(lambda: self._history.write_errors),
            names.HISTORY_LOST_RUNS: single(lambda: self._history.lost_runs),
            names.HISTORY_WAITING: single(lambda: self._history.waiting),
        }


class _StuckCount:
    """A sink that counts the runs that ignored their cancellation."""

    def __init__(self, state: OwnState) -> None:
        self._state = state

    def accept(self, result: RunResult, spans: Sequence[SpanRecord]) -> None:
        del spans
        self._state.stuck_runs += result.error is not None and result.error.kind == ErrorKind.STUCK


_FIXED = (
    "history",
    "web",
    "daemon.max_parallel_targets",
    "telemetry.otlp",
    "telemetry.semconv",
)
"""Keys of the config that are read once, at the start."""


def _retention(config: Config) -> Retention:
    return Retention(keep_s=config.history.keep, keep_spans_s=config.history.keep_spans)

"""What the daemon knows of itself, as the sources of its own metrics. Written on the loop, read on any thread."""

import platform
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from agentbench_otel import __version__, names
from agentbench_otel.config.model import Config, Target
from agentbench_otel.daemon.timer import TargetState
from agentbench_otel.names import Metric
from agentbench_otel.records.cycles import CycleOutcome, CycleRecord
from agentbench_otel.telemetry.own_metrics import Readings

if TYPE_CHECKING:
    from agentbench_otel.daemon.scheduler import SchedulerState

_LAG_WINDOW = 60  # seconds, one reading each

Value = Callable[[], float | None]


class OwnState:
    """Attributes are replaced whole or counted up; nothing here is ever half written.

    Attributes:
        reload_problem: Why the last reload was refused; None when it was taken.
        reloaded_unix_s: When a config was taken last.
        heartbeat_unix_s: When the event loop last ran.
    """

    def __init__(self, config: Config, *, now_unix_s: float) -> None:
        self.config = config
        self.scheduler_state: Callable[[], SchedulerState] | None = None
        self.exhausted_targets: frozenset[str] = frozenset()
        self.last_cycles: Mapping[str, CycleRecord] = {}
        self.cycles: Counter[tuple[str, CycleOutcome]] = Counter()
        self.missed_runs: Counter[str] = Counter()
        self.stuck_runs = 0
        self.reload_problem: str | None = None
        self.reloaded_unix_s = now_unix_s
        self.heartbeat_unix_s = now_unix_s
        self._lags_s: deque[float] = deque(maxlen=_LAG_WINDOW)

    def note_lag(self, lag_s: float, now_unix_s: float) -> None:
        self._lags_s.append(lag_s)
        self.heartbeat_unix_s = now_unix_s

    def note_cycle(self, record: CycleRecord) -> None:
        self.last_cycles = {**self.last_cycles, record.target: record}
        self.cycles[record.target, record.outcome] += 1
        self.missed_runs[record.target] += record.missed_run_count

    def sources(self) -> dict[Metric, Callable[[], Readings]]:
        of_target: dict[Metric, Callable[[TargetState], float | None]] = {
            names.NEXT_CYCLE_TIMESTAMP: lambda state: state.next_slot_unix_s,
            names.CYCLE_INTERVAL: lambda state: state.interval_s,
            names.CYCLE_STRETCH: lambda state: state.stretch,
            names.SCHEDULE_LATENESS: lambda state: state.last_lateness_s,
        }
        of_last_cycle: dict[Metric, Callable[[CycleRecord], float]] = {
            names.LAST_CYCLE_TIMESTAMP: lambda record: record.started_at.timestamp(),
            names.CYCLE_DURATION: lambda record: (record.ended_at - record.started_at).total_seconds(),
        }
        return {
            **{metric: self._scheduled(read) for metric, read in of_target.items()},
            **{metric: self._of_last_cycle(read) for metric, read in of_last_cycle.items()},
            names.CYCLES: self._cycle_counts,
            names.MISSED_RUNS: lambda: [(self.missed_runs[one.name], _of(one)) for one in self.config.targets],
            names.BUDGET_EXHAUSTED: lambda: [
                (float(one.name in self.exhausted_targets), _of(one)) for one in self.config.targets
            ],
            names.TARGET_INFO: lambda: [
                (1, {**_of(one), "model": one.model, "provider": one.provider}) for one in self.config.targets
            ],
            names.BUILD_INFO: lambda: [(1, {"version": __version__, "python": platform.python_version()})],
            names.STUCK_RUNS: single(lambda: self.stuck_runs),
            names.RELOAD_SUCCESSFUL: single(lambda: float(self.reload_problem is None)),
            names.RELOAD_TIMESTAMP: single(lambda: self.reloaded_unix_s),
            names.LOOP_LAG: single(lambda: max(tuple(self._lags_s), default=None)),
            names.LOOP_HEARTBEAT: single(lambda: self.heartbeat_unix_s),
            names.CLOCK_STEPS: single(
                lambda: 0 if self.scheduler_state is None else self.scheduler_state().clock_steps
            ),
        }

    def _scheduled(self, read: Callable[[TargetState], float | None]) -> Callable[[], Readings]:
        def readings() -> Iterator[tuple[float, Mapping[str, str]]]:
            states = {} if self.scheduler_state is None else self.scheduler_state().targets
            for target in self.config.targets:
                value = read(states[target.name]) if target.name in states else None
                if value is not None:
                    yield value, _of(target)

        return readings

    def _of_last_cycle(self, read: Callable[[CycleRecord], float]) -> Callable[[], Readings]:
        def readings() -> Iterable[tuple[float, Mapping[str, str]]]:
            known = self.last_cycles
            return [(read(known[one.name]), _of(one)) for one in self.config.targets if one.name in known]

        return readings

    def _cycle_counts(self) -> Readings:
        """Every outcome from 0 on: an alert on the first miss needs the step."""
        for target in self.config.targets:
            for outcome in CycleOutcome:
                yield self.cycles[target.name, outcome], {**_of(target), names.L_OUTCOME: outcome.value}


def single(read: Value) -> Callable[[], Readings]:
    """The source of a metric without labels; None is no reading."""

    def readings() -> Readings:
        value = read()
        return [] if value is None else [(value, {})]

    return readings


def _of(target: Target) -> dict[str, str]:
    return {names.L_TARGET: target.name}

"""What the daemon measures with: a config, and how its targets are reached. A reload makes new ones."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentbench_otel.config.model import Config, Target
from agentbench_otel.daemon.slots import Slots, make_slots
from agentbench_otel.daemon.timer import ScheduledTarget
from agentbench_otel.ports import ChatClient, Clock
from agentbench_otel.runner import CANCEL_GRACE_S, RunPlan
from agentbench_otel.telemetry.run_metrics import PlannedSeries


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What cycles are made with: a config, and how its targets are reached. A reload makes new ones.

    Attributes:
        make_client, adaptation_count, secrets_of, cancel_grace_s: As in `Runner`.
    """

    config: Config
    make_client: Callable[[RunPlan, Clock], ChatClient]
    adaptation_count: Callable[[RunPlan], int]
    secrets_of: Callable[[RunPlan], Sequence[str]]
    is_mock: bool
    cancel_grace_s: float = CANCEL_GRACE_S

    def target(self, name: str) -> Target:
        return next(target for target in self.config.targets if target.name == name)

    def fingerprint(self, target: Target) -> str:
        """Of all that a cycle of the target depends on, its key and headers too; it tells nothing of them."""
        benchmark = self.config.benchmark
        plan = RunPlan(target=target, case_id=benchmark.cases[0], mode=benchmark.modes[0], iteration=1)
        content = (target.model_dump_json(), benchmark.model_dump_json(), *self.secrets_of(plan))
        return hashlib.sha256("\0".join(content).encode()).hexdigest()

    @property
    def longest_run_s(self) -> float:
        return self.config.benchmark.run_deadline_s + self.cancel_grace_s

    def slots(self, target: Target) -> Slots:
        return make_slots(target.schedule or self.config.schedule, target.name)

    def scheduled_targets(self) -> list[ScheduledTarget]:
        """The targets as the scheduler sees them."""
        return [
            ScheduledTarget(
                name=target.name,
                slots=self.slots(target),
                fingerprint=self.fingerprint(target),
                longest_run_s=self.longest_run_s,
            )
            for target in self.config.targets
        ]

    def planned_series(self) -> list[PlannedSeries]:
        """The targets as the metrics see them."""
        return [
            PlannedSeries(
                target=target,
                benchmark=self.config.benchmark,
                interval_s=self.slots(target).interval_s,
                is_mock=self.is_mock,
            )
            for target in self.config.targets
        ]

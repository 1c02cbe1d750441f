"""One cycle of one target: its runs, one after the other, as far as time and budget go."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from agentbench_otel.config.model import Target
from agentbench_otel.daemon.manners import Backoff, Budgets, Refusals
from agentbench_otel.daemon.quiet import QuietMoments
from agentbench_otel.daemon.settings import Settings
from agentbench_otel.ports import Sink
from agentbench_otel.records.cycles import CycleOutcome, CycleRecord
from agentbench_otel.records.results import RunResult
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.records.spans import SpanRecord
from agentbench_otel.runner import Runner, RunPlan, plan_runs

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleSummary:
    record: CycleRecord
    backoff: Backoff


@dataclass(slots=True, kw_only=True)
class CycleMaker:
    """Makes cycles. ``sinks`` get each result; ``is_stopping`` True: no further run starts."""

    sinks: Sequence[Sink]
    quiet: QuietMoments
    budgets: Budgets
    wall_s: Callable[[], float]
    is_stopping: Callable[[], bool]
    _first_of: dict[str, tuple[CaseId, Mode]] = field(default_factory=dict)
    """Where the next cycle of a target begins: with what its last one had no time for."""

    async def make(
        self,
        settings: Settings,
        target: Target,
        *,
        slot_s: float,
        ends_before_s: float,
        stretch: int,
        on_end: Callable[[CycleSummary], None],
    ) -> None:
        """Make one cycle; ``on_end`` hears of it, however it ended. Every run is in the sinks by then.

        ``ends_before_s``: runs that might not have ended by then are not started; they count as missed.

        Raises:
            asyncio.CancelledError: The run in flight was aborted; its result says so.
        """
        refusals = Refusals()
        runner = Runner(
            settings.config,
            client_factory=settings.make_client,
            adaptation_count=settings.adaptation_count,
            secrets_of=settings.secrets_of,
            is_mock=settings.is_mock,
            cancel_grace_s=settings.cancel_grace_s,
            sinks=[_Noting(refusals, self.budgets, self.wall_s), *self.sinks],
        )
        plans = self._rotated(plan_runs([target], settings.config.benchmark), target.name)
        started_s = self.wall_s()
        run_count, missed = 0, 0
        outcome = CycleOutcome.ABORTED
        try:
            for plan in plans:
                if self.is_stopping():
                    break
                if self.wall_s() + settings.longest_run_s > ends_before_s:
                    missed = self._note_missed(target.name, plans[run_count:])
                if missed or not self.budgets.is_left(target, self.wall_s()):
                    break
                run_count += 1
                async with self.quiet.run():
                    await runner.run(plan)
                await self.quiet.use()
            if not self.is_stopping() or run_count == len(plans):
                outcome = CycleOutcome.COMPLETED
        finally:
            record = CycleRecord(
                cycle_id=runner.cycle_id,
                target=target.name,
                slot_at=_utc(slot_s),
                started_at=_utc(started_s),
                ended_at=_utc(self.wall_s()),
                outcome=outcome,
                run_count=run_count,
                missed_run_count=missed,
            )
            on_end(CycleSummary(record=record, backoff=refusals.backoff(stretch, self.wall_s())))

    def _rotated(self, plans: list[RunPlan], target: str) -> list[RunPlan]:
        """The same runs from where the last cycle ended: else the last cases of a long list would never run."""
        first = self._first_of.pop(target, None)
        start = next((index for index, plan in enumerate(plans) if (plan.case_id, plan.mode) == first), 0)
        return plans[start:] + plans[:start]

    def _note_missed(self, target: str, missed: Sequence[RunPlan]) -> int:
        self._first_of[target] = missed[0].case_id, missed[0].mode
        logger.warning(
            "runs were not started, because they might not have ended before the next cycle;"
            " lengthen the interval or shorten run_deadline_s",
            extra={"fields": {"target": target, "missed_runs": len(missed)}},
        )
        return len(missed)


class _Noting:
    """The sink that keeps account of what the endpoint was asked and answered."""

    def __init__(self, refusals: Refusals, budgets: Budgets, wall_s: Callable[[], float]) -> None:
        self._refusals = refusals
        self._budgets = budgets
        self._wall_s = wall_s

    def accept(self, result: RunResult, spans: Sequence[SpanRecord]) -> None:
        del spans
        self._refusals.note(result)
        self._budgets.spend(result, self._wall_s())


def _utc(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)

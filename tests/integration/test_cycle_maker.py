"""One cycle of one target, with real runs against the scripted mock on a clock that the test moves."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from agentbench_otel import app
from agentbench_otel.config.model import Benchmark, Budget, Config, Target
from agentbench_otel.daemon.cycles import CycleMaker, CycleSummary
from agentbench_otel.daemon.manners import Budgets, utc_day
from agentbench_otel.daemon.quiet import QuietMoments
from agentbench_otel.daemon.settings import Settings
from agentbench_otel.errors import ProviderError
from agentbench_otel.ports import ChatClient, Clock
from agentbench_otel.records.chat import ChatRequest, Exchange, StreamItem
from agentbench_otel.records.cycles import CycleOutcome
from agentbench_otel.records.results import RunResult
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.records.spans import SpanRecord
from agentbench_otel.runner import CANCEL_GRACE_S, RunPlan

NOW_S = 1_800_000_000.0
RUN_DEADLINE_S = 20.0
LONGEST_RUN_S = RUN_DEADLINE_S + CANCEL_GRACE_S
CASES = (CaseId.ORDINARY_CHAT, CaseId.SESSION_TERMINATE, CaseId.DEVICE_VOLUME_SILENT)


@dataclass
class World:
    """A cycle maker with its surroundings. Each run takes ``run_s`` on the wall clock."""

    run_s: float = 1.0
    budget: Budget | None = None
    warmup_runs: int = 0
    now_s: float = NOW_S
    is_stopping: bool = False
    stop_after: int | None = None
    make_client: Any = None
    results: list[RunResult] = field(default_factory=list)
    summaries: list[CycleSummary] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.target = Target(name="local", base_url="http://mock.invalid/v1", model="small", budget=self.budget)
        self.settings = Settings(
            config=Config(
                schema_version=1,
                targets=(self.target,),
                benchmark=Benchmark(
                    cases=CASES,
                    modes=(Mode.DUAL_AGENT,),
                    run_deadline_s=RUN_DEADLINE_S,
                    warmup_runs=self.warmup_runs,
                ),
            ),
            make_client=self.make_client or app.make_mock_client,
            adaptation_count=lambda plan: 0,
            secrets_of=lambda plan: ("the-secret-key",),
            is_mock=True,
        )
        self.quiet = QuietMoments((), lambda: 0.0)
        self.maker = CycleMaker(
            sinks=[self],
            quiet=self.quiet,
            budgets=Budgets(utc_day(NOW_S), {}),
            wall_s=lambda: self.now_s,
            is_stopping=lambda: self.is_stopping,
        )

    def accept(self, result: RunResult, spans: Sequence[SpanRecord]) -> None:
        assert spans
        self.results.append(result)
        self.now_s += self.run_s
        if len(self.results) == self.stop_after:
            self.is_stopping = True

    def cycle(self, *, ends_after_s: float = 300.0, stretch: int = 1) -> CycleSummary:
        asyncio.run(self.make(ends_after_s=ends_after_s, stretch=stretch))
        return self.summaries[-1]

    async def make(self, *, ends_after_s: float = 300.0, stretch: int = 1) -> None:
        await self.maker.make(
            self.settings,
            self.target,
            slot_s=self.now_s - 2,
            ends_before_s=self.now_s + ends_after_s,
            stretch=stretch,
            on_end=self.summaries.append,
        )

    def cases(self) -> list[str]:
        return [result.case_id.value for result in self.results]


def test_a_cycle_makes_every_run_of_its_target_and_tells_of_itself() -> None:
    world = World()
    record = world.cycle().record
    assert world.cases() == [case.value for case in CASES]
    assert {result.cycle_id for result in world.results} == {record.cycle_id}
    assert record.target == "local"
    assert record.slot_at.timestamp() == NOW_S - 2
    assert record.started_at.timestamp() == NOW_S
    assert record.ended_at.timestamp() == NOW_S + 3
    assert (record.outcome, record.run_count, record.missed_run_count) == (CycleOutcome.COMPLETED, 3, 0)


def test_a_run_that_might_not_end_before_the_next_slot_is_not_started_and_counts_as_missed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    record = world.cycle(ends_after_s=LONGEST_RUN_S + 1.5).record
    assert (record.outcome, record.run_count, record.missed_run_count) == (CycleOutcome.COMPLETED, 2, 1)
    assert "not started" in caplog.text


def test_the_last_moment_at_which_a_run_fits_is_used() -> None:
    world = World()
    assert world.cycle(ends_after_s=LONGEST_RUN_S + 2).record.missed_run_count == 0


def test_the_next_cycle_begins_with_what_was_missed() -> None:
    world = World(run_s=2)
    for _ in range(3):
        world.cycle(ends_after_s=LONGEST_RUN_S + 3)
    first, second, third = (case.value for case in CASES)
    assert world.cases() == [first, second, third, first, second, third]


def test_a_case_that_was_missed_begins_with_its_warm_up_again() -> None:
    world = World(warmup_runs=1)
    world.cycle(ends_after_s=LONGEST_RUN_S + 2)  # the third run is the second case's warm-up
    world.results.clear()
    world.cycle()
    assert [(result.case_id, result.warmup) for result in world.results[:2]] == [
        (CASES[1], True),
        (CASES[1], False),
    ]
    assert len(world.results) == 6


def test_a_budget_ends_the_cycle_and_misses_nothing() -> None:
    world = World(budget=Budget(max_runs_per_day=2))
    record = world.cycle().record
    assert (record.outcome, record.run_count, record.missed_run_count) == (CycleOutcome.COMPLETED, 2, 0)


def test_a_stop_ends_the_cycle_after_the_run_in_flight() -> None:
    world = World(stop_after=1)
    record = world.cycle().record
    assert (record.outcome, record.run_count) == (CycleOutcome.ABORTED, 1)


def test_a_stop_in_the_last_run_does_not_spoil_the_cycle() -> None:
    world = World(stop_after=3)
    assert world.cycle().record.outcome is CycleOutcome.COMPLETED


class Hanging:
    """Never answers."""

    async def stream_chat(self, request: ChatRequest, exchange: Exchange) -> AsyncGenerator[StreamItem, None]:
        await asyncio.Event().wait()
        yield  # type: ignore[misc]  # unreachable: it makes this a generator

    async def aclose(self) -> None:
        """Nothing is open."""


def test_a_cancelled_cycle_keeps_its_aborted_run_and_tells_of_itself() -> None:
    world = World(make_client=lambda plan, clock: Hanging())

    async def cancel() -> None:
        task = asyncio.create_task(world.make())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    (result,) = world.results
    assert result.error is not None
    assert result.error.kind == "aborted"
    (summary,) = world.summaries
    assert summary.record.outcome is CycleOutcome.ABORTED


class Refusing(Hanging):
    async def stream_chat(self, request: ChatRequest, exchange: Exchange) -> AsyncGenerator[StreamItem, None]:
        nothing: list[StreamItem] = []
        for item in nothing:
            yield item
        raise ProviderError("http_429", "HTTP 429", http_status=429, retry_after_s=60.0)


def test_a_refusal_is_what_the_next_cycle_learns_of() -> None:
    world = World(make_client=lambda plan, clock: Refusing())
    summary = world.cycle(stretch=2)
    assert summary.backoff.stretch == 4
    assert summary.backoff.not_before_unix_s == NOW_S + 3 + 60


def test_no_run_is_in_flight_between_runs_and_one_is_while_it_runs() -> None:
    seen: list[int] = []

    def make_client(plan: RunPlan, clock: Clock) -> ChatClient:
        seen.append(world.quiet._in_flight)
        return app.make_mock_client(plan, clock)

    world = World(make_client=make_client)
    world.cycle()
    assert seen == [1, 1, 1]
    assert world.quiet._in_flight == 0


def test_a_fingerprint_changes_with_all_that_a_cycle_depends_on_and_tells_no_secret() -> None:
    world = World()
    ours = world.settings.fingerprint(world.target)
    assert "the-secret-key" not in ours
    assert ours == World().settings.fingerprint(world.target)
    assert ours != World(warmup_runs=1).settings.fingerprint(world.target)
    assert ours != world.settings.fingerprint(world.target.model_copy(update={"model": "other"}))

"""The scheduler on a virtual clock: what happens to the time, against what starts when.

All times are seconds since the beginning of a test, which is a full hour on the wall clock. ``Start.at_s`` is real
time, as a stopwatch outside the machine has it; ``Start.slot_s`` is on the wall clock, whatever was done to it.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentbench_otel.config.model import Schedule
from agentbench_otel.daemon.scheduler import CycleRequest, Scheduler
from agentbench_otel.daemon.slots import EverySlots, make_slots
from agentbench_otel.daemon.timekeeper import SystemTime
from agentbench_otel.daemon.timer import ScheduledTarget, TargetState
from agentbench_otel.records.cycles import CycleOutcome
from tests.support.virtual_time import VirtualTime

T0 = 1_700_006_400
TEN_YEARS_S = 315_576_000
INTERVAL_S = 300

MISSED = CycleOutcome.MISSED
OVERLAP = CycleOutcome.SKIPPED_OVERLAP
BACKOFF = CycleOutcome.SKIPPED_BACKOFF
BUDGET = CycleOutcome.SKIPPED_BUDGET


class Start(NamedTuple):
    at_s: float
    slot_s: float


def target(
    name: str = "a",
    phase_s: int = 60,
    *,
    interval_s: int = INTERVAL_S,
    fingerprint: str = "as it was",
    longest_run_s: float = 130,
) -> ScheduledTarget:
    """With the defaults, its slots are at 60, 360, 660 …"""
    slots = EverySlots(interval_s=interval_s, phase_s=phase_s)
    return ScheduledTarget(name=name, slots=slots, fingerprint=fingerprint, longest_run_s=longest_run_s)


def all_just_run(targets: Sequence[ScheduledTarget]) -> dict[str, float]:
    """A history in which nothing is due."""
    return {one.name: one.slots.last_until(T0) - T0 for one in targets}


class Stage:
    """A scheduler with cycles that take as long as a test says, and what came of it."""

    def __init__(
        self,
        targets: Sequence[ScheduledTarget],
        *,
        ran: Mapping[str, float] | None = None,
        takes_s: Mapping[str, float] | None = None,
        max_parallel_targets: int = 1,
        run_now: bool = False,
    ) -> None:
        self.time = VirtualTime(T0)
        self._begin_s = self.time.boottime_s()
        self.takes_s: dict[str, float] = dict(takes_s or {})
        self.broke: set[str] = set()
        self.order: list[str] = []
        self.starts_of: dict[str, list[Start]] = {}
        self.settings_of: dict[str, list[str]] = {}
        self.times_left_s: list[float] = []
        self.outcomes: Counter[tuple[str, CycleOutcome]] = Counter()
        self.answers: list[CycleRequest] = []
        self.running: list[str] = []
        self.most_running = 0
        ran = all_just_run(targets) if ran is None else ran
        self.scheduler = Scheduler(
            targets,
            time=self.time,
            run_cycle=self._run_cycle,
            on_outcome=self._note,
            is_budget_left=lambda target: target.name not in self.broke,
            max_parallel_targets=max_parallel_targets,
            last_slot_of={name: T0 + slot_s for name, slot_s in ran.items()},
            run_now=run_now,
        )

    @property
    def starts(self) -> list[Start]:
        """Of the only target."""
        (starts,) = self.starts_of.values()
        return starts

    @property
    def at_s(self) -> float:
        return self.time.boottime_s() - self._begin_s

    def state(self, name: str = "a") -> TargetState:
        return self.scheduler.state.targets[name]

    async def _run_cycle(self, target: ScheduledTarget, slot_s: float, ends_before_s: float) -> None:
        self.order.append(target.name)
        self.starts_of.setdefault(target.name, []).append(Start(self.at_s, slot_s - T0))
        self.settings_of.setdefault(target.name, []).append(target.fingerprint)
        self.times_left_s.append(ends_before_s - self.time.wall_s())
        self.running.append(target.name)
        self.most_running = max(self.most_running, len(self.running))
        try:
            if takes_s := self.takes_s.get(target.name, 0):
                await self.time.sleep(takes_s)
        finally:
            self.running.remove(target.name)

    def _note(self, name: str, outcome: CycleOutcome, count: int) -> None:
        assert count > 0
        self.outcomes[name, outcome] += count


Event = Callable[[Stage], Awaitable[None]]


def advance(seconds: float) -> Event:
    return lambda stage: stage.time.advance(seconds)


def step_wall(seconds: float) -> Event:
    return lambda stage: stage.time.step_wall(seconds)


def suspend(seconds: float) -> Event:
    return lambda stage: stage.time.suspend(seconds)


def block(seconds: float) -> Event:
    return lambda stage: stage.time.block(seconds)


def do(action: Callable[[Stage], object]) -> Event:
    async def event(stage: Stage) -> None:
        action(stage)
        await stage.time.settle()

    return event


def takes(seconds: float, name: str = "a") -> Event:
    return do(lambda stage: stage.takes_s.update({name: seconds}))


def request(name: str = "a") -> Event:
    return do(lambda stage: stage.answers.append(stage.scheduler.request_cycle(name)))


def backoff(stretch: int, not_before_s: float | None = None, name: str = "a") -> Event:
    not_before = None if not_before_s is None else T0 + not_before_s
    return do(lambda stage: stage.scheduler.set_backoff(name, stretch=stretch, not_before_unix_s=not_before))


def spend_all(name: str = "a") -> Event:
    return do(lambda stage: stage.broke.add(name))


def update(*targets: ScheduledTarget) -> Event:
    return do(lambda stage: stage.scheduler.update(targets))


def check(condition: Callable[[Stage], bool]) -> Event:
    def verify(stage: Stage) -> None:
        assert condition(stage)

    return do(verify)


async def stop(stage: Stage) -> None:
    await stage.scheduler.stop()


def play(
    events: Sequence[Event],
    targets: Sequence[ScheduledTarget] = (target(),),
    *,
    ran: Mapping[str, float] | None = None,
    takes_s: Mapping[str, float] | None = None,
    max_parallel_targets: int = 1,
    run_now: bool = False,
) -> Stage:
    """Let a scheduler live through the events, then end it."""

    async def live() -> Stage:
        stage = Stage(
            targets, ran=ran, takes_s=takes_s, max_parallel_targets=max_parallel_targets, run_now=run_now
        )
        running = asyncio.create_task(stage.scheduler.run())
        for event in events:
            await event(stage)
        running.cancel()
        await asyncio.wait({running})
        if not running.cancelled():
            running.result()
        return stage

    return asyncio.run(live())


@dataclass(frozen=True, kw_only=True)
class Row:
    """One target with its slots at 60, 360, 660 …, whose slot at −240 has run before the beginning."""

    what: str
    events: Sequence[Event]
    starts: Sequence[tuple[float, float]]
    takes_s: float = 0
    outcomes: Mapping[CycleOutcome, int] | None = None
    clock_steps: int = 0


TABLE = [
    Row(
        what="an idle target starts at its slots",
        events=[advance(1000)],
        starts=[(60, 60), (360, 360), (660, 660), (960, 960)],
    ),
    Row(
        what="a slot between two looks at the clock is met on time",
        events=[block(1.25), advance(400)],
        starts=[(60, 60), (360, 360)],
    ),
    Row(
        what="a slot that comes while the cycle runs is skipped",
        takes_s=700,
        events=[advance(1000)],
        starts=[(60, 60), (960, 960)],
        outcomes={OVERLAP: 2},
    ),
    Row(
        what="a cycle that ends with the next slot does not overlap it",
        takes_s=299.5,
        events=[advance(700)],
        starts=[(60, 60), (360, 360), (660, 660)],
    ),
    Row(
        what="an hour back: the next slot on the new clock, within an interval",
        events=[advance(100), step_wall(-3500), advance(500)],
        starts=[(60, 60), (260, -3240), (560, -2940)],
        clock_steps=1,
    ),
    Row(
        what="ten seconds back: the slot that has just run does not run again",
        events=[advance(65), step_wall(-10), advance(400)],
        starts=[(60, 60), (370, 360)],
        clock_steps=1,
    ),
    Row(
        what="most of an interval back: the slot comes again in time, and runs",
        events=[advance(65), step_wall(-200), advance(400)],
        starts=[(60, 60), (260, 60)],
        clock_steps=1,
    ),
    Row(
        what="ten seconds back after a skipped slot: it is not dealt with again",
        takes_s=400,
        events=[advance(365), step_wall(-10), advance(200)],
        starts=[(60, 60)],
        outcomes={OVERLAP: 1},
        clock_steps=1,
    ),
    Row(
        what="ten years on: one run, one step, none missed",
        events=[advance(230), step_wall(TEN_YEARS_S + 100), advance(29)],
        starts=[(60, 60), (231, TEN_YEARS_S + 60)],
        clock_steps=1,
    ),
    Row(
        what="… and then on the new clock, though not at once again",
        events=[advance(230), step_wall(TEN_YEARS_S + 100), advance(500)],
        starts=[(60, 60), (231, TEN_YEARS_S + 60), (381, TEN_YEARS_S + 360), (560, TEN_YEARS_S + 660)],
        clock_steps=1,
    ),
    Row(
        what="ten years on right after a start: the slots jumped over are let go",
        events=[advance(65), step_wall(TEN_YEARS_S), advance(300)],
        starts=[(60, 60), (360, TEN_YEARS_S + 360)],
        clock_steps=1,
    ),
    Row(
        what="ten years on while the cycle runs: nothing overlaps",
        takes_s=100,
        events=[advance(65), step_wall(TEN_YEARS_S), advance(300)],
        starts=[(60, 60), (360, TEN_YEARS_S + 360)],
        clock_steps=1,
    ),
    Row(
        what="a few seconds on, over a slot: it runs at once",
        events=[advance(355), step_wall(10), advance(300)],
        starts=[(60, 60), (356, 360), (650, 660)],
        clock_steps=1,
    ),
    Row(
        what="the clock is nudged by a second: no step",
        events=[advance(100), step_wall(1), advance(300), step_wall(-1), advance(300)],
        starts=[(60, 60), (359, 360), (660, 660)],
    ),
    Row(
        what="a second back right after a start: neither a step nor a second run",
        events=[advance(60), step_wall(-1), advance(300), step_wall(1), advance(10)],
        starts=[(60, 60), (361, 360)],
    ),
    Row(
        what="the clock is nudged again and again: together that is a step",
        events=[advance(100), step_wall(-1), advance(10), step_wall(-1), advance(10), step_wall(-1), advance(300)],
        starts=[(60, 60), (363, 360)],
        clock_steps=1,
    ),
    Row(
        what="three hours asleep: one run, the other slots missed",
        events=[advance(100), suspend(10_800), advance(1), advance(100)],
        starts=[(60, 60), (10_901, 10_860)],
        outcomes={MISSED: 35},
    ),
    Row(
        what="asleep over one slot: it runs late and none is missed",
        events=[advance(100), suspend(400), advance(200)],
        starts=[(60, 60), (501, 360), (660, 660)],
    ),
    Row(
        what="asleep while the cycle runs: the newest slot overlaps, the others are missed",
        takes_s=50,
        events=[advance(100), suspend(10_800), advance(100)],
        starts=[(60, 60)],
        outcomes={OVERLAP: 1, MISSED: 35},
    ),
    Row(
        what="asleep, and the clock is wrong afterwards: what passed is missed, what was jumped over is not",
        events=[advance(100), suspend(10_800), step_wall(TEN_YEARS_S), advance(10)],
        starts=[(60, 60), (10_901, 10_860)],
        outcomes={MISSED: 35},
        clock_steps=1,
    ),
    Row(
        what="the event loop hangs: as if asleep",
        events=[advance(100), block(1000), advance(200)],
        starts=[(60, 60), (1100, 960), (1260, 1260)],
        outcomes={MISSED: 2},
    ),
    Row(
        what="a slot that comes too soon after a late start is held back by half an interval",
        events=[advance(100), suspend(550), advance(500)],
        starts=[(60, 60), (651, 360), (801, 660), (960, 960)],
    ),
    Row(
        what="a user's cycle runs at once and leaves the schedule as it is",
        events=[advance(345), request(), advance(400)],
        starts=[(60, 60), (345, 345), (360, 360), (660, 660)],
    ),
    Row(
        what="a slot that comes while a user's cycle runs is skipped",
        takes_s=30,
        events=[advance(345), request(), advance(400)],
        starts=[(60, 60), (345, 345), (660, 660)],
        outcomes={OVERLAP: 1},
    ),
    Row(
        what="stretched by four: every fourth slot",
        events=[advance(100), backoff(4), advance(2700)],
        starts=[(60, 60), (1260, 1260), (2460, 2460)],
        outcomes={BACKOFF: 7},
    ),
    Row(
        what="stretched by two, then no more",
        events=[advance(100), backoff(2), advance(800), backoff(1), advance(700)],
        starts=[(60, 60), (660, 660), (960, 960), (1260, 1260), (1560, 1560)],
        outcomes={BACKOFF: 1},
    ),
    Row(
        what="stretched and asleep: the newest slot runs when it is far enough",
        events=[advance(100), backoff(8), suspend(10_800), advance(10)],
        starts=[(60, 60), (10_901, 10_860)],
        outcomes={MISSED: 35},
    ),
    Row(
        what="stretched, and an hour back: the count begins again there",
        events=[advance(100), backoff(2), step_wall(-3600), advance(600)],
        starts=[(60, 60), (660, -2940)],
        outcomes={BACKOFF: 1},
        clock_steps=1,
    ),
    Row(
        what="told to wait until a moment: the slots before it are skipped, one at that moment is not",
        events=[advance(100), backoff(1, 960), advance(900)],
        starts=[(60, 60), (960, 960)],
        outcomes={BACKOFF: 2},
    ),
    Row(
        what="told to wait, and an hour back: the wait is as long as it was",
        events=[advance(100), backoff(1, 600), step_wall(-3600), advance(600)],
        starts=[(60, 60), (660, -2940)],
        outcomes={BACKOFF: 1},
        clock_steps=1,
    ),
    Row(
        what="the budget is used up: slots are skipped until it is not",
        events=[advance(100), spend_all(), advance(600), do(lambda stage: stage.broke.clear()), advance(300)],
        starts=[(60, 60), (960, 960)],
        outcomes={BUDGET: 2},
    ),
    Row(
        what="overlap goes before backoff and budget",
        takes_s=400,
        events=[advance(100), backoff(4), spend_all(), advance(300)],
        starts=[(60, 60)],
        outcomes={OVERLAP: 1},
    ),
]


@pytest.mark.parametrize("row", TABLE, ids=[row.what for row in TABLE])
def test_what_happens_to_the_time_against_what_starts_when(row: Row) -> None:
    stage = play(row.events, takes_s={"a": row.takes_s})
    assert stage.starts == row.starts
    assert stage.outcomes == {("a", outcome): count for outcome, count in (row.outcomes or {}).items()}
    assert stage.scheduler.state.clock_steps == row.clock_steps


# Beginning


def test_without_a_history_the_newest_slot_is_due_at_once() -> None:
    assert play([advance(10)], ran={}).starts == [(0, -240)]


def test_a_slot_that_the_history_lacks_is_due_at_once_and_those_before_it_are_not_missed() -> None:
    stage = play([advance(10)], ran={"a": -3540})
    assert stage.starts == [(0, -240)]
    assert not stage.outcomes


def test_a_restart_does_not_double_a_slot() -> None:
    assert play([advance(400)], ran={"a": -240}).starts == [(60, 60), (360, 360)]


def test_a_history_of_a_clock_that_was_fast_does_not_silence_a_target() -> None:
    assert play([advance(100)], ran={"a": TEN_YEARS_S}).starts == [(60, 60)]


def test_after_a_late_first_run_the_next_slot_keeps_its_distance() -> None:
    assert play([advance(500)], ran={}).starts == [(0, -240), (150, 60), (360, 360)]


def test_run_now_runs_what_is_not_due() -> None:
    assert play([advance(100)], run_now=True).starts == [(0, 0), (60, 60)]


def test_run_now_runs_what_is_due_once() -> None:
    assert play([advance(10)], ran={}, run_now=True).starts == [(0, -240)]


def test_the_budget_holds_at_the_beginning_too() -> None:
    async def live() -> Stage:
        stage = Stage([target()], ran={}, run_now=True)
        stage.broke.add("a")
        running = asyncio.create_task(stage.scheduler.run())
        await stage.time.advance(10)
        running.cancel()
        await asyncio.wait({running})
        return stage

    stage = asyncio.run(live())
    assert not stage.starts_of
    assert stage.outcomes == {("a", BUDGET): 1}


# Several targets


def test_turns_are_given_in_the_order_in_which_slots_came() -> None:
    targets = [target("a", 70), target("b", 60), target("c", 80), target("d", 65)]
    stage = play([advance(300)], targets, takes_s=dict.fromkeys("abcd", 40))
    assert stage.order == ["b", "d", "a", "c"]
    assert stage.most_running == 1


def test_of_slots_found_in_one_look_the_oldest_has_the_first_turn() -> None:
    targets = [target("a", 70), target("b", 60), target("c", 80), target("d", 65)]
    assert play([advance(1)], targets, ran={}).order == ["b", "d", "a", "c"]


def test_a_target_that_has_just_run_does_not_get_in_before_one_that_waits() -> None:
    targets = [target("a", 10, interval_s=200), target("b", 20, interval_s=200)]
    stage = play([advance(1200)], targets, takes_s={"a": 150, "b": 150})
    assert stage.order == ["a", "b", "a", "b", "a", "b", "a", "b"]


def test_as_many_targets_run_side_by_side_as_are_allowed() -> None:
    targets = [target(name, 60) for name in "abcd"]
    stage = play([advance(300)], targets, takes_s=dict.fromkeys("abcd", 10), max_parallel_targets=3)
    assert stage.most_running == 3
    assert [stage.starts_of[name][0].at_s for name in "abcd"] == [60, 60, 60, 70]


def test_a_hung_cycle_delays_its_own_target_only() -> None:
    targets = [target("hung", 60), target("a", 90)]
    stage = play([advance(1000)], targets, takes_s={"hung": inf}, max_parallel_targets=2)
    assert stage.starts_of == {"hung": [(60, 60)], "a": [(90, 90), (390, 390), (690, 690), (990, 990)]}
    assert stage.outcomes == {("hung", OVERLAP): 3}


def test_a_hung_cycle_does_not_stop_the_timers_of_those_that_wait() -> None:
    stage = play([advance(1000)], [target("hung", 60), target("a", 90)], takes_s={"hung": inf})
    assert stage.outcomes == {("hung", OVERLAP): 3, ("a", OVERLAP): 3}


def test_a_wait_longer_than_the_interval_skips_that_slot_and_goes_for_the_newest() -> None:
    stage = play([advance(800)], [target("slow", 60), target("a", 90)], takes_s={"slow": 700})
    assert stage.starts_of["a"] == [(760, 690)]
    assert stage.outcomes == {("slow", OVERLAP): 2, ("a", OVERLAP): 2}
    assert stage.state("a").last_lateness_s == 70


def test_who_waits_keeps_the_place_when_a_newer_slot_comes() -> None:
    targets = [target("slow", 10), target("a", 20), target("b", 30)]
    stage = play([advance(340)], targets, takes_s={"slow": 315})
    assert stage.order == ["slow", "a", "b"]


def test_twenty_idle_targets_wake_the_loop_once_a_second() -> None:
    targets = [target(f"t{number}", 1000 + number, interval_s=3600) for number in range(20)]
    stage = play([advance(600)], targets)
    assert stage.time.sleep_count == 601


# The time that a cycle has


def test_a_cycle_has_to_end_before_the_next_slot() -> None:
    assert play([advance(400)]).times_left_s == [300, 300]


def test_a_cycle_that_starts_a_little_late_still_ends_before_the_next_slot() -> None:
    targets = [target("a", 10), target("b", 20)]
    stage = play([advance(150)], targets, takes_s={"a": 100})
    assert stage.times_left_s == [300, 210]


def test_a_cycle_that_starts_late_in_its_interval_has_the_next_one_too() -> None:
    targets = [target("a", 10, longest_run_s=10), target("b", 20, longest_run_s=10)]
    stage = play([advance(250)], targets, takes_s={"a": 200})
    assert stage.times_left_s == [300, 410]


def test_a_cycle_always_has_the_time_for_one_run() -> None:
    targets = [target("a", 10, longest_run_s=250), target("b", 20, longest_run_s=250)]
    stage = play([advance(150)], targets, takes_s={"a": 100})
    assert stage.times_left_s == [300, 510]


def test_a_users_cycle_has_the_time_for_one_run() -> None:
    stage = play([advance(350), request(), advance(1)])
    assert stage.starts == [(60, 60), (350, 350)]
    assert stage.times_left_s[-1] == 310


# Cycles that a user asks for


def test_a_request_says_what_becomes_of_it() -> None:
    targets = [target("a", 60), target("b", 90)]
    events = [
        advance(5),
        request("a"),
        request("a"),
        request("b"),
        request("b"),
        request("nobody"),
        advance(50),
        spend_all("a"),
        request("a"),
        stop,
        request("a"),
    ]
    stage = play(events, targets, takes_s={"a": 10})
    assert stage.answers == [
        CycleRequest.ACCEPTED,
        CycleRequest.IS_RUNNING,
        CycleRequest.ACCEPTED,
        CycleRequest.IS_WAITING,
        CycleRequest.UNKNOWN_TARGET,
        CycleRequest.NO_BUDGET_LEFT,
        CycleRequest.STOPPING,
    ]
    assert stage.starts_of == {"a": [(5, 5)], "b": [(15, 5)]}


def test_a_users_cycle_runs_in_spite_of_backoff() -> None:
    assert play([advance(100), backoff(8, 5000), request(), advance(1)]).starts == [(60, 60), (100, 100)]


def test_stretched_slots_count_from_a_users_cycle() -> None:
    stage = play([advance(100), backoff(2), advance(400), request(), advance(500)])
    assert stage.starts == [(60, 60), (500, 500), (960, 960)]


def test_a_slot_that_comes_while_a_users_cycle_waits_is_served_by_it() -> None:
    targets = [target("slow", 10), target("a", 60)]
    stage = play([advance(20), request("a"), advance(250)], targets, takes_s={"slow": 200})
    assert stage.starts_of["a"] == [(210, 60)]
    assert not stage.outcomes


def test_a_slot_held_back_stays_so_while_a_users_cycle_waits() -> None:
    events = [advance(100), suspend(550), advance(5), request("slow"), request("a"), advance(200)]
    stage = play(events, [target("a", 60), target("slow", 3000, interval_s=3600)], takes_s={"slow": 100})
    assert stage.starts_of["a"] == [(60, 60), (651, 360), (755, 655), (801, 660)]


# Reload


def test_an_unchanged_target_goes_on_as_if_nothing_had_been() -> None:
    events = [advance(100), backoff(2), update(target()), advance(600)]
    stage = play(events)
    assert stage.starts == [(60, 60), (660, 660)]
    assert stage.outcomes == {("a", BACKOFF): 1}


def test_a_running_unchanged_target_still_does_not_overlap() -> None:
    stage = play([advance(100), update(target()), advance(300)], takes_s={"a": 400})
    assert stage.starts == [(60, 60)]
    assert stage.outcomes == {("a", OVERLAP): 1}


def test_an_added_target_starts_as_the_history_says() -> None:
    added = [target("new", 90), target("old", 90)]
    stage = play([advance(1), update(target(), *added), advance(100)], ran={"a": -240, "old": -210})
    assert stage.starts_of["new"] == [(2, -210)]
    assert stage.starts_of["old"] == [(90, 90)]


def test_a_removed_target_is_gone_and_takes_its_place_in_the_queue_with_it() -> None:
    targets = [target("slow", 10), target("a", 60)]
    stage = play([advance(70), update(targets[0]), advance(600)], targets, takes_s={"slow": 100})
    assert "a" not in stage.starts_of
    assert set(stage.scheduler.state.targets) == {"slow"}
    assert not stage.outcomes


def test_a_removed_target_ends_its_cycle_first() -> None:
    events = [
        advance(70),
        update(),
        check(lambda stage: stage.state().is_running and stage.state().next_slot_unix_s is None),
        request(),
        advance(600),
        check(lambda stage: not stage.running and not stage.scheduler.state.targets),
    ]
    stage = play(events, takes_s={"a": 400})
    assert stage.starts == [(60, 60)]
    assert not stage.outcomes
    assert stage.answers == [CycleRequest.UNKNOWN_TARGET]


def test_a_target_that_comes_back_does_not_double_its_slot() -> None:
    stage = play([advance(70), update(), advance(10), update(target()), advance(300)])
    assert stage.starts == [(60, 60), (360, 360)]


def test_a_target_that_comes_back_while_its_cycle_runs_stays() -> None:
    events = [advance(70), update(), advance(700), update(target()), advance(300)]
    stage = play(events, takes_s={"a": 800})
    assert stage.starts == [(60, 60), (960, 960)]
    assert not stage.outcomes


def test_a_changed_idle_target_runs_its_next_slot_under_the_new_settings_and_without_backoff() -> None:
    events = [advance(70), backoff(8), update(target(fingerprint="new")), advance(300)]
    stage = play(events)
    assert stage.starts == [(60, 60), (360, 360)]
    assert stage.settings_of["a"] == ["as it was", "new"]


def test_a_changed_running_target_ends_its_cycle_first() -> None:
    events = [advance(70), update(target(fingerprint="new")), advance(1000)]
    stage = play(events, takes_s={"a": 400})
    assert stage.starts == [(60, 60), (660, 660)]
    assert stage.settings_of["a"] == ["as it was", "new"]
    assert stage.outcomes == {("a", OVERLAP): 2}


def test_what_the_old_settings_were_refused_does_not_slow_the_new_ones() -> None:
    events = [advance(70), update(target(fingerprint="new key")), backoff(8), advance(300)]
    assert play(events, takes_s={"a": 100}).starts == [(60, 60), (360, 360)]


def test_a_changed_waiting_target_keeps_its_place_under_the_new_settings() -> None:
    targets = [target("slow", 10), target("a", 60), target("b", 70)]
    changed = target("a", 55, fingerprint="new")
    events = [advance(80), update(targets[0], changed, targets[2]), advance(200)]
    stage = play(events, targets, takes_s={"slow": 100})
    assert stage.order == ["slow", "a", "b"]
    assert stage.starts_of["a"] == [(110, 60)]
    assert stage.settings_of["a"] == ["new"]


def test_a_new_schedule_is_due_when_its_newest_slot_is_newer_than_what_ran() -> None:
    stage = play([advance(590), update(target(phase_s=30, interval_s=100)), advance(60)])
    assert stage.starts == [(60, 60), (360, 360), (591, 530), (641, 630)]


def test_a_new_schedule_is_not_due_when_its_newest_slot_is_older_than_what_ran() -> None:
    stage = play([advance(370), update(target(phase_s=30, interval_s=100)), advance(70)])
    assert stage.starts == [(60, 60), (360, 360), (430, 430)]


def test_a_new_schedule_of_a_running_target_begins_when_the_cycle_has_ended() -> None:
    events = [advance(70), update(target(phase_s=30, interval_s=100)), advance(500)]
    stage = play(events, takes_s={"a": 50})
    assert stage.starts == [(60, 60), (130, 130), (230, 230), (330, 330), (430, 430), (530, 530)]


# The end


def test_a_stop_starts_nothing_more_and_lets_the_running_cycle_end() -> None:
    async def live() -> tuple[Stage, bool]:
        stage = Stage([target("a", 60), target("b", 70)], takes_s={"a": 100})
        running = asyncio.create_task(stage.scheduler.run())
        await stage.time.advance(80)
        await stage.scheduler.stop()
        was_done = running.done()
        await stage.time.advance(600)
        await running
        return stage, was_done

    stage, was_done = asyncio.run(live())
    assert not was_done
    assert stage.starts_of == {"a": [(60, 60)]}
    assert not stage.state("b").is_waiting


def test_a_stop_before_the_beginning_is_one_too() -> None:
    async def live() -> Stage:
        stage = Stage([target()], ran={})
        await stage.scheduler.stop()
        await stage.scheduler.run()
        return stage

    assert not asyncio.run(live()).starts_of


def test_a_cancellation_ends_the_running_cycles_and_is_raised_again() -> None:
    async def live() -> Stage:
        stage = Stage([target(name, 60) for name in "abc"], takes_s={"a": inf, "b": inf}, max_parallel_targets=2)
        running = asyncio.create_task(stage.scheduler.run())
        await stage.time.advance(70)
        assert stage.running == ["a", "b"]
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()
        assert len(asyncio.all_tasks()) == 1
        return stage

    stage = asyncio.run(live())
    assert not stage.running
    assert "c" not in stage.starts_of


def test_a_cancelled_cycle_ends_alone() -> None:
    async def cancel_cycle(stage: Stage) -> None:
        (cycle,) = [task for task in asyncio.all_tasks() if task.get_name() == "cycle of a"]
        cycle.cancel()
        await stage.time.settle()

    stage = play([advance(70), cancel_cycle, takes(0), advance(300)], takes_s={"a": inf})
    assert stage.starts == [(60, 60), (360, 360)]


def test_a_bug_in_a_cycle_ends_the_scheduler_loudly() -> None:
    async def fall_over(_target: ScheduledTarget, _slot_s: float, _ends_before_s: float) -> None:
        raise RuntimeError("a bug")

    async def live() -> None:
        time = VirtualTime(T0)
        scheduler = Scheduler(
            [target(), target("b")],
            time=time,
            run_cycle=fall_over,
            on_outcome=lambda *_: None,
            is_budget_left=lambda _: True,
            max_parallel_targets=1,
            last_slot_of={},
        )
        running = asyncio.create_task(scheduler.run())
        await time.advance(1)
        await running

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(live())
    assert [str(error) for error in caught.value.exceptions] == ["a bug"]


# What others read


def next_slot_is(expected_s: float) -> Event:
    return check(lambda stage: stage.state().next_slot_unix_s == T0 + expected_s)


def test_the_state_tells_when_the_next_cycle_will_run() -> None:
    events = [
        next_slot_is(60),
        advance(100),
        next_slot_is(360),
        backoff(4),
        next_slot_is(1260),
        advance(300),
        next_slot_is(1260),
        backoff(2, 1000.5),
        next_slot_is(1260),
        backoff(1, 960),
        next_slot_is(960),
        advance(600),
        next_slot_is(1260),
    ]
    play(events)


def test_the_next_cycle_is_known_again_right_after_a_step_of_the_clock() -> None:
    play([advance(100), backoff(2), step_wall(-3600), advance(1), next_slot_is(-2940)])
    play([advance(100), backoff(1, 650), next_slot_is(660), step_wall(20), advance(1), next_slot_is(960)])


def test_a_slot_that_is_held_back_stands_with_the_moment_of_its_run() -> None:
    play([advance(100), suspend(550), advance(1), next_slot_is(801), advance(20), next_slot_is(801)])


def test_the_state_tells_who_runs_and_who_waits() -> None:
    def phases(stage: Stage) -> list[tuple[bool, bool]]:
        return [(stage.state(name).is_running, stage.state(name).is_waiting) for name in "ab"]

    events = [
        check(lambda stage: phases(stage) == [(False, False), (False, False)]),
        advance(70),
        check(lambda stage: phases(stage) == [(True, False), (False, True)]),
        advance(100),
        check(lambda stage: phases(stage) == [(False, False), (True, False)]),
    ]
    play(events, [target("a", 60), target("b", 70)], takes_s={"a": 50, "b": 200})


def test_the_state_tells_of_the_newest_cycle() -> None:
    events = [
        check(lambda stage: stage.state().last_slot_unix_s == T0 - 240 and stage.state().last_lateness_s is None),
        advance(100),
        suspend(300),
        advance(1),
        backoff(2),
    ]
    state = play(events).state()
    assert state.last_slot_unix_s == T0 + 360
    assert state.last_lateness_s == 41
    assert state.interval_s == 300
    assert state.stretch == 2


def test_a_step_of_the_clock_makes_no_start_ten_years_late() -> None:
    targets = [target("slow", 10), target("a", 60)]
    events = [advance(100), step_wall(TEN_YEARS_S), advance(200)]
    stage = play(events, targets, takes_s={"slow": 200})
    assert stage.starts_of["a"] == [(210, 60)]
    assert stage.state("a").last_lateness_s == 150


def test_a_state_that_was_read_does_not_change() -> None:
    seen: list[TargetState] = []
    events = [do(lambda stage: seen.append(stage.state())), advance(100)]
    stage = play(events)
    assert seen[0].next_slot_unix_s == T0 + 60
    assert stage.state() != seen[0]


def test_the_heartbeat_is_at_most_a_second_old_while_cycles_run() -> None:
    def is_fresh(stage: Stage) -> bool:
        return stage.time.monotonic_s() - stage.scheduler.heartbeat_s <= 1

    play([event for _ in range(40) for event in (advance(7.3), check(is_fresh))], takes_s={"a": 100})


def test_a_stretch_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="stretch is 0"):
        play([backoff(0)])


# A schedule in a time zone


def test_a_cron_schedule_follows_its_zone_through_the_change_of_clocks() -> None:
    nine_in_berlin = make_slots(Schedule(cron="0 9 * * *", timezone="Europe/Berlin"), "a")
    daily = ScheduledTarget(name="a", slots=nine_in_berlin, fingerprint="", longest_run_s=130)
    hour, day = 3600, 86_400
    # The tests begin on 2023-11-15 at 00:00 UTC; in Berlin clocks go forward on 2024-03-31, day 137.
    noon_of_day_135 = [suspend(135 * day + 12 * hour), advance(10)]
    eight_of_day_136 = [suspend(20 * hour - 20), advance(20)]
    seven_of_day_137 = [suspend(23 * hour - 20), advance(20)]
    stage = play([*noon_of_day_135, *eight_of_day_136, *seven_of_day_137], [daily])
    assert stage.starts[1:] == [(136 * day + 8 * hour,) * 2, (137 * day + 7 * hour,) * 2]


# Whatever happens

disturbances = st.one_of(
    st.builds(suspend, st.sampled_from([5, 250, 2000])),
    st.builds(block, st.sampled_from([3, 250])),
    st.builds(request, st.sampled_from("ab")),
    st.builds(takes, st.sampled_from([0, 20, 170, 500]), st.sampled_from("ab")),
    st.builds(backoff, st.sampled_from([1, 2]), st.none(), st.sampled_from("ab")),
)
steps = st.builds(step_wall, st.sampled_from([-4000, -170, -20, -1, 1, 20, 170, 4000, TEN_YEARS_S]))
whiles = st.builds(advance, st.sampled_from([1, 40, 110, 160, 300, 700]))


def lives(disturbances: st.SearchStrategy[Event]) -> st.SearchStrategy[list[Event]]:
    """Disturbances with some time after each."""
    return st.lists(st.tuples(disturbances, whiles), min_size=5, max_size=15).map(
        lambda pairs: [advance(0.5), *(event for pair in pairs for event in pair)]
    )


pairs_of_targets = st.builds(
    lambda a, b: [target("a", a, interval_s=200, longest_run_s=60), target("b", b)],
    st.integers(min_value=0, max_value=199),
    st.integers(min_value=0, max_value=299),
)


def slot_starts(stage: Stage, one: ScheduledTarget) -> list[Start]:
    """Those of the schedule: these tests begin with half a second, so that users ask at no slot's second."""
    return [start for start in stage.starts_of.get(one.name, []) if start.slot_s % 1 == 0]


@settings(max_examples=60)
@given(lives(disturbances), pairs_of_targets, st.integers(min_value=1, max_value=2))
def test_every_slot_that_passes_is_accounted_for_once(
    events: Sequence[Event], targets: Sequence[ScheduledTarget], max_parallel_targets: int
) -> None:
    calm = [takes(0, "a"), takes(0, "b"), advance(1500)]
    stage = play([*events, *calm], targets, max_parallel_targets=max_parallel_targets)
    for one in targets:
        starts = slot_starts(stage, one)
        skipped = sum(count for (name, _), count in stage.outcomes.items() if name == one.name)
        passed = one.slots.count_between(T0, stage.time.wall_s())
        assert len(starts) + skipped == passed
        assert len({start.slot_s for start in starts}) == len(starts)


@settings(max_examples=60)
@given(lives(disturbances | steps), pairs_of_targets, st.integers(min_value=1, max_value=2))
def test_whatever_happens_no_more_run_than_may_and_slots_keep_their_distance(
    events: Sequence[Event], targets: Sequence[ScheduledTarget], max_parallel_targets: int
) -> None:
    stage = play(events, targets, max_parallel_targets=max_parallel_targets)
    assert stage.most_running <= max_parallel_targets
    for one in targets:
        starts = [start.at_s for start in slot_starts(stage, one)]
        assert all(later_s - earlier_s >= one.slots.interval_s / 2 for earlier_s, later_s in pairwise(starts))


@settings(max_examples=60)
@given(lives(disturbances | steps), steps, pairs_of_targets)
def test_after_any_step_an_idle_target_runs_within_one_and_a_half_intervals(
    events: Sequence[Event], step: Event, targets: Sequence[ScheduledTarget]
) -> None:
    calm = [takes(0, name) for name in "ab"] + [backoff(1, None, name) for name in "ab"] + [advance(1000)]
    counts: list[int] = []
    count_starts = do(lambda stage: counts.extend(len(stage.starts_of.get(one.name, [])) for one in targets))
    play([*events, *calm, count_starts, step, advance(452), count_starts], targets, max_parallel_targets=2)
    assert counts[2] > counts[0]
    assert counts[3] > counts[1]


def test_the_clocks_of_this_machine_go_forward() -> None:
    async def read() -> None:
        time = SystemTime()
        before = (time.wall_s(), time.monotonic_s(), time.boottime_s())
        await time.sleep(0)
        assert time.monotonic_s() >= before[1]
        assert time.boottime_s() >= max(before[1:])
        assert time.wall_s() > T0

    asyncio.run(read())

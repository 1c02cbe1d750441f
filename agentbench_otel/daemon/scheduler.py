"""When each target's cycles start. One loop looks at the clocks at least once a second; each target is a small
state machine: idle → waits for its turn → runs → idle.

What it promises:

- A slot of an idle target starts at most a second late, never twice, and not sooner than half an interval after
  the target's slot before it: such a slot is held back. Cycles that a user asked for are outside this rule.
- A cycle never overlaps itself, and a slow one delays the others only by the turns it takes.
- Of slots that passed unseen (the machine slept, the event loop hung) the newest runs and the others are counted
  as missed. A clock that was set is noticed as a step: slots jumped over are no slots that passed, and slots that
  come again do so within an interval, or one and a half when the newest has just been seen.
- Slots that passed while no daemon ran are not counted. The newest of them is due at the start, unless the history
  has it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from types import MappingProxyType

from agentbench_otel.daemon.timekeeper import Timekeeper
from agentbench_otel.daemon.timer import Moment, Phase, ScheduledTarget, TargetState, Timer
from agentbench_otel.records.cycles import CycleOutcome

GRAIN_S = 1.0
"""The longest wait between two looks at the clocks: so late may a change of the wall clock be noticed."""

CLOCK_STEP_S = 1.5
"""A wall clock that parts from the time since boot by more was set. Below it, NTP is at its daily work."""

_SHORTEST_WAIT_S = 0.001  # a timer that fires a hair too early must not spin


class CycleRequest(StrEnum):
    """What becomes of a cycle that a user asks for."""

    ACCEPTED = "accepted"
    IS_RUNNING = "is_running"
    IS_WAITING = "is_waiting"
    NO_BUDGET_LEFT = "no_budget_left"
    UNKNOWN_TARGET = "unknown_target"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerState:
    targets: Mapping[str, TargetState]
    clock_steps: int
    """How often the wall clock was found set."""


RunCycle = Callable[[ScheduledTarget, float, float], Awaitable[None]]
"""Makes the cycle of (target, slot, moment before which it has to end), the times in Unix seconds."""

OutcomeListener = Callable[[str, CycleOutcome, int], None]
"""Hears of slots that did not run: (target name, why, how many)."""


class Scheduler:
    """Starts the cycles of all targets. `state` and `heartbeat_s` may be read on any thread; everything else is
    called on the thread of the event loop, the callbacks too."""

    def __init__(
        self,
        targets: Iterable[ScheduledTarget],
        *,
        time: Timekeeper,
        run_cycle: RunCycle,
        on_outcome: OutcomeListener,
        is_budget_left: Callable[[ScheduledTarget], bool],
        max_parallel_targets: int,
        last_slot_of: Mapping[str, float],
        run_now: bool = False,
    ) -> None:
        """
        Args:
            run_cycle: Handles the failures of its runs; what it raises ends `run`.
            is_budget_left: Asked at each slot that would run, and for each cycle that a user asks for.
            last_slot_of: From the history: the newest slot that ran, in Unix seconds, of targets that have one.
            run_now: Run every target at once, due or not.
        """
        self._time = time
        self._run_cycle = run_cycle
        self._on_outcome = on_outcome
        self._is_budget_left = is_budget_left
        self._max_parallel_targets = max_parallel_targets
        self._last_slot_of = dict(last_slot_of)
        self._run_now = run_now
        self._queue: deque[Timer] = deque()
        self._wake = asyncio.Event()
        self._ticker: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._clock_steps = 0
        self._heartbeat_s = time.monotonic_s()
        now = self._now()
        self._wall_of_boot_s = now.wall_s - now.boot_s
        self._timers = {target.name: self._new_timer(target, now) for target in targets}
        self._publish(now)

    @property
    def state(self) -> SchedulerState:
        return self._state

    @property
    def heartbeat_s(self) -> float:
        """When the loop last looked at the clocks, on the monotonic one."""
        return self._heartbeat_s

    async def run(self) -> None:
        """Start cycles until `stop`, then wait for those that run. Cancelled, it cancels them."""
        async with asyncio.TaskGroup() as tasks:
            self._ticker = tasks.create_task(self._tick_for_ever(), name="scheduler ticks")
            try:
                await self._start_cycles(tasks)
            finally:
                self._ticker.cancel()

    async def stop(self) -> None:
        """Start nothing any more and forget the cycles that wait. `run` returns when those that run have ended."""
        self._is_stopping = True
        while self._queue:
            self._queue.popleft().end(self._now())
        self._wake.set()
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.wait({self._ticker})
        self._publish(self._now())

    def request_cycle(self, name: str) -> CycleRequest:
        """Ask for a cycle out of turn. Accepted, it starts as soon as its turn among the targets comes."""
        timer = self._timers.get(name)
        if self._is_stopping:
            return CycleRequest.STOPPING
        if timer is None or timer.is_leaving:
            return CycleRequest.UNKNOWN_TARGET
        if timer.phase is Phase.RUNNING:
            return CycleRequest.IS_RUNNING
        if timer.phase is Phase.WAITING:
            return CycleRequest.IS_WAITING
        if not self._is_budget_left(timer.target):
            return CycleRequest.NO_BUDGET_LEFT
        now = self._now()
        self._enqueue(timer, now.wall_s, now, is_asked=True)
        self._publish(now)
        return CycleRequest.ACCEPTED

    def set_backoff(self, name: str, *, stretch: int, not_before_unix_s: float | None = None) -> None:
        """Run every ``stretch``-th slot from the last one run, and none before a moment. 1 and None end it."""
        if stretch < 1:
            raise ValueError(f"stretch is {stretch}; it counts slots, from 1")
        self._timers[name].back_off(stretch, -inf if not_before_unix_s is None else not_before_unix_s)
        self._publish(self._now())

    def update(self, targets: Iterable[ScheduledTarget]) -> None:
        """Take over the targets of a new config. A running cycle ends under the settings that it began with."""
        now = self._now()
        wanted = {target.name: target for target in targets}
        for name, timer in list(self._timers.items()):
            if name in wanted:
                self._keep(timer, wanted[name], now)
            else:
                self._remove(timer)
        for name, target in wanted.items():
            if name not in self._timers:
                self._timers[name] = self._new_timer(target, now)
        self._publish(now)

    def _keep(self, timer: Timer, target: ScheduledTarget, now: Moment) -> None:
        if timer.is_leaving:
            timer.see(now.wall_s)
        timer.is_leaving, timer.successor = False, None
        if target == timer.target:
            return
        if timer.phase is Phase.RUNNING:
            timer.successor = target
        else:
            timer.change(target, now)

    def _remove(self, timer: Timer) -> None:
        if timer.phase is Phase.RUNNING:
            timer.is_leaving = True
            return
        if timer.phase is Phase.WAITING:
            self._queue.remove(timer)
        self._forget(timer)

    def _forget(self, timer: Timer) -> None:
        del self._timers[timer.target.name]
        if timer.last_slot_s is not None:
            self._last_slot_of[timer.target.name] = timer.last_slot_s

    def _new_timer(self, target: ScheduledTarget, now: Moment) -> Timer:
        timer = Timer(target=target, last_slot_s=self._last_slot_of.get(target.name))
        timer.see_history(now)
        return timer

    async def _tick_for_ever(self) -> None:
        if self._run_now:
            for name in self._timers:
                self.request_cycle(name)  # one that is due takes its place over at once
        while True:
            await self._time.sleep(self._tick())

    def _tick(self) -> float:
        """Look at the clocks and deal with what has come; returns the seconds until the next look."""
        now = self._now()
        self._heartbeat_s = self._time.monotonic_s()
        expected_wall_s = self._wall_of_boot_s + now.boot_s
        if abs(now.wall_s - expected_wall_s) > CLOCK_STEP_S:
            self._deal_with_slots(replace(now, wall_s=expected_wall_s))
            self._clock_steps += 1
            self._wall_of_boot_s = now.wall_s - now.boot_s
            for timer in self._timers.values():
                timer.re_anchor(now, expected_wall_s)
        self._deal_with_slots(now)
        self._publish(now)
        waits_s = [timer.wait_s(now) for timer in self._timers.values() if not timer.is_leaving]
        return min(max(_SHORTEST_WAIT_S, min(waits_s, default=GRAIN_S)), GRAIN_S)

    def _deal_with_slots(self, now: Moment) -> None:
        for timer in sorted(self._timers.values(), key=lambda timer: timer.next_slot_s):
            if timer.wait_s(now) <= 0 and not timer.is_leaving:
                self._deal_with_newest_slot(timer, now)

    def _deal_with_newest_slot(self, timer: Timer, now: Moment) -> None:
        newest_s = timer.target.slots.last_until(now.wall_s)
        missed_count = timer.target.slots.count_between(timer.seen_until_s, newest_s) - 1
        if missed_count > 0:
            self._on_outcome(timer.target.name, CycleOutcome.MISSED, missed_count)
        skipped = self._why_skipped(timer, newest_s)
        timer.see(newest_s)
        if skipped is not None:
            self._on_outcome(timer.target.name, skipped, 1)
        if timer.phase is Phase.WAITING:
            timer.queue(newest_s, now, is_asked=False)  # it keeps its place, with the newest slot
        elif skipped is None:
            self._enqueue(timer, newest_s, now, is_asked=False)

    def _why_skipped(self, timer: Timer, slot_s: float) -> CycleOutcome | None:
        """Why a slot does not run; of a target that waits, why the slot that it waits for does not."""
        if timer.phase is Phase.RUNNING:
            return CycleOutcome.SKIPPED_OVERLAP
        if timer.phase is Phase.WAITING:
            return None if timer.is_asked else CycleOutcome.SKIPPED_OVERLAP
        if slot_s < timer.allowed_slot_s:
            return CycleOutcome.SKIPPED_BACKOFF
        if not self._is_budget_left(timer.target):
            return CycleOutcome.SKIPPED_BUDGET
        return None

    def _enqueue(self, timer: Timer, slot_s: float, now: Moment, *, is_asked: bool) -> None:
        timer.queue(slot_s, now, is_asked=is_asked)
        self._queue.append(timer)
        self._wake.set()

    async def _start_cycles(self, tasks: asyncio.TaskGroup) -> None:
        """Give turns in the order in which they were asked for."""
        while not self._is_stopping:
            while self._queue and self._running_count() < self._max_parallel_targets:
                self._start_cycle(tasks, self._queue.popleft())
            await self._wake.wait()
            self._wake.clear()

    def _running_count(self) -> int:
        return sum(timer.phase is Phase.RUNNING for timer in self._timers.values())

    def _start_cycle(self, tasks: asyncio.TaskGroup, timer: Timer) -> None:
        now = self._now()
        cycle = self._run(timer, timer.slot_s, ends_before_s=timer.start(now))
        tasks.create_task(cycle, name=f"cycle of {timer.target.name}")
        self._publish(now)

    async def _run(self, timer: Timer, slot_s: float, ends_before_s: float) -> None:
        try:
            await self._run_cycle(timer.target, slot_s, ends_before_s)
        finally:
            now = self._now()
            timer.end(now)
            if timer.is_leaving:
                self._forget(timer)
            self._publish(now)
            self._wake.set()

    def _now(self) -> Moment:
        return Moment(wall_s=self._time.wall_s(), boot_s=self._time.boottime_s())

    def _publish(self, now: Moment) -> None:
        targets = {name: timer.state(now) for name, timer in self._timers.items()}
        self._state = SchedulerState(targets=MappingProxyType(targets), clock_steps=self._clock_steps)

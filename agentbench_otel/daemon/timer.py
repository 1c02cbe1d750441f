"""The state machine of one target: idle → waits for its turn → runs → idle. Pure: the moments are given to it."""

from dataclasses import dataclass, field
from enum import Enum, auto
from math import ceil, inf

from agentbench_otel.daemon.slots import Slots


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledTarget:
    """A target as the scheduler sees it. An equal one after a reload goes on as if nothing had been."""

    name: str
    slots: Slots
    fingerprint: str
    """Of all that a cycle of it depends on."""
    longest_run_s: float
    """What one run may take, its deadline and grace. A cycle has the time for at least one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetState:
    """One target at one moment. Times are Unix seconds on the wall clock of that moment."""

    interval_s: float
    next_slot_unix_s: float | None
    """When its next slot will run, those that backoff skips left out; None: the target was removed, and its last
    cycle is running. A slot that is held back stands with the moment at which it will run. The budget may still
    skip it."""
    is_waiting: bool
    is_running: bool
    stretch: int
    last_slot_unix_s: float | None
    """Of the newest cycle that started, in this process or before it."""
    last_lateness_s: float | None
    """How long after its slot, or after the user asked, the newest cycle started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    wall_s: float
    boot_s: float


class Phase(Enum):
    IDLE = auto()
    WAITING = auto()
    RUNNING = auto()


@dataclass(slots=True, kw_only=True)
class Timer:
    """The state machine of one target."""

    target: ScheduledTarget
    last_slot_s: float | None
    phase: Phase = Phase.IDLE
    slot_s: float = -inf
    """Of the cycle that waits or runs; a user's cycle has the moment of the wish."""
    is_asked: bool = False
    """Whether that cycle is a user's, not of a slot of the schedule."""
    due_boot_s: float = -inf
    slot_started_boot_s: float = -inf
    last_lateness_s: float | None = None
    stretch: int = 1
    not_before_s: float = -inf
    successor: ScheduledTarget | None = None
    """Its changed settings, for when the running cycle has ended."""
    is_leaving: bool = False
    seen_until_s: float = field(init=False, default=-inf)
    """Slots up to here need no more attention."""
    next_slot_s: float = field(init=False, default=-inf)
    """The first one after that."""
    allowed_slot_s: float = field(init=False, default=-inf)
    """The first one after that which backoff does not skip."""

    def see(self, until_s: float) -> None:
        self.seen_until_s = until_s
        self.next_slot_s = self.target.slots.next_after(until_s)
        self._apply_backoff()

    def see_history(self, now: Moment) -> None:
        """Make the newest slot due, unless it has run already."""
        newest_s = self.target.slots.last_until(now.wall_s)
        has_run = self.last_slot_s is not None and self.last_slot_s >= newest_s
        self.see(newest_s if has_run or self.phase is Phase.WAITING else _before(newest_s))

    def wait_s(self, now: Moment) -> float:
        """Until the next slot is to be dealt with; 0 or less: it is time."""
        return max(self.next_slot_s - now.wall_s, self.hold_s(now))

    def hold_s(self, now: Moment) -> float:
        if self.phase is Phase.RUNNING:
            return 0.0
        return max(0.0, self.slot_started_boot_s + self.target.slots.interval_s / 2 - now.boot_s)

    def queue(self, slot_s: float, now: Moment, *, is_asked: bool) -> None:
        """Let a cycle wait for its turn."""
        self.phase, self.slot_s, self.is_asked = Phase.WAITING, slot_s, is_asked
        self.due_boot_s = now.boot_s - (now.wall_s - slot_s)

    def start(self, now: Moment) -> float:
        """Start the waiting cycle; returns the moment before which it has to end.

        That is the next slot, or the one after it when a late start leaves neither half an interval nor the time
        for one run: else targets that wait long for their turn would start cycles without a run, for ever.
        """
        self.phase, self.last_slot_s = Phase.RUNNING, self.slot_s
        self.last_lateness_s = now.boot_s - self.due_boot_s
        if not self.is_asked:
            self.slot_started_boot_s = now.boot_s
        self._apply_backoff()
        slots = self.target.slots
        return slots.next_after(now.wall_s + max(slots.interval_s / 2, self.target.longest_run_s))

    def end(self, now: Moment) -> None:
        self.phase = Phase.IDLE
        if self.successor is not None:
            self.change(self.successor, now)
            self.successor = None

    def change(self, target: ScheduledTarget, now: Moment) -> None:
        """Go on under new settings. They may have mended what the endpoint refused: the backoff ends."""
        has_new_slots = target.slots != self.target.slots
        self.target = target
        self.back_off(1, -inf)
        if has_new_slots:
            self.see_history(now)

    def back_off(self, stretch: int, not_before_s: float) -> None:
        self.stretch, self.not_before_s = stretch, not_before_s
        self._apply_backoff()

    def _apply_backoff(self) -> None:
        slot_s = self.next_slot_s
        if self.not_before_s > slot_s:
            slot_s = self.target.slots.next_after(_before(self.not_before_s))
        if self.stretch > 1 and self.last_slot_s is not None:
            nth_s = self.last_slot_s
            for _ in range(self.stretch):
                nth_s = self.target.slots.next_after(nth_s)
            slot_s = max(slot_s, nth_s)
        self.allowed_slot_s = slot_s

    def re_anchor(self, now: Moment, expected_wall_s: float) -> None:
        """Find the place in the schedule again after the wall clock was set."""
        step_s = now.wall_s - expected_wall_s
        self.not_before_s += step_s
        if step_s > 0:
            self._jump_forward(now)
        else:
            self._fall_back(now, step_s)
        self._apply_backoff()

    def _jump_forward(self, now: Moment) -> None:
        """Of the slots jumped over the newest is due, when nothing speaks against it; none is missed."""
        newest_s = self.target.slots.last_until(now.wall_s)
        if newest_s > self.seen_until_s:
            is_free = self.phase is Phase.IDLE and self.hold_s(now) == 0
            self.see(_before(newest_s) if is_free else newest_s)

    def _fall_back(self, now: Moment, step_s: float) -> None:
        """Slots come again, except one that was seen less than half an interval ago."""
        newest_seen_s = self.seen_until_s
        self.see(now.wall_s)
        again_s = self.next_slot_s
        if again_s <= newest_seen_s and again_s - newest_seen_s - step_s < self.target.slots.interval_s / 2:
            self.see(again_s)
        if self.last_slot_s is not None:
            self.last_slot_s = min(self.last_slot_s, self.seen_until_s)

    def state(self, now: Moment) -> TargetState:
        next_slot_s = max(self.allowed_slot_s, now.wall_s + self.hold_s(now))
        return TargetState(
            interval_s=self.target.slots.interval_s,
            next_slot_unix_s=None if self.is_leaving else next_slot_s,
            is_waiting=self.phase is Phase.WAITING,
            is_running=self.phase is Phase.RUNNING,
            stretch=self.stretch,
            last_slot_unix_s=self.last_slot_s,
            last_lateness_s=self.last_lateness_s,
        )


def _before(slot_s: float) -> float:
    """A moment just before: what comes at it or later comes after this one, for slots are whole seconds."""
    return ceil(slot_s) - 1.0

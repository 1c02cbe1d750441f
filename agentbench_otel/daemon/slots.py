"""The slots of a schedule: the moments at which a target's cycles are due. Arithmetic on Unix times, no clock.

A slot is a whole second on the wall clock and the same after every restart. It has no memory of what ran.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from hashlib import sha256
from itertools import islice, pairwise, takewhile
from math import floor
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim

from agentbench_otel.config.model import Schedule
from agentbench_otel.errors import InputError

MAX_CRON_COUNT = 10_000
"""Slots of a cron expression are walked one by one, so their count ends here; more reads as this number."""

_GAPS_LOOKED_AT = 50
_REFERENCE_UNIX_S = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
"""Gaps of a cron expression are looked at from here, so that the same config gives the same interval each day."""


class Slots(Protocol):
    """When a schedule is due. All times are Unix seconds; slots are whole seconds."""

    @property
    def interval_s(self) -> float:
        """From one slot to the next; of unequal gaps the shortest."""

    def next_after(self, unix_s: float) -> float:
        """The first slot strictly after a moment."""

    def last_until(self, unix_s: float) -> float:
        """The newest slot at or before a moment."""

    def count_between(self, after_s: float, until_s: float) -> int:
        """How many slots lie in (after_s, until_s]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EverySlots:
    """Slot k is at ``k * interval_s + phase_s`` since the Unix epoch: UTC, so that no time zone moves it."""

    interval_s: int
    phase_s: int

    def next_after(self, unix_s: float) -> float:
        return float((self._number_until(unix_s) + 1) * self.interval_s + self.phase_s)

    def last_until(self, unix_s: float) -> float:
        return float(self._number_until(unix_s) * self.interval_s + self.phase_s)

    def count_between(self, after_s: float, until_s: float) -> int:
        return max(0, self._number_until(until_s) - self._number_until(after_s))

    def _number_until(self, unix_s: float) -> int:
        """The number k of the newest slot; in whole numbers, which do not round."""
        return (floor(unix_s) - self.phase_s) // self.interval_s


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSlots:
    """The moments of a cron expression in a time zone, as ``cronsim`` reads it, which follows Debian's cron.

    When clocks go forward, an hour that does not exist is made up for: ``30 2 * * *`` comes at 03:00 that day.
    When they go back, a named hour comes once, the first time (``30 2 * * *``); with ``*`` in the minute or the
    hour (``*/10 * * * *``) slots keep their distance in real time through both.
    """

    expression: str
    timezone: tzinfo
    interval_s: float

    def next_after(self, unix_s: float) -> float:
        return _first(_walk(self.expression, self.timezone, unix_s), self.expression)

    def last_until(self, unix_s: float) -> float:
        slot_s = self._some_slot_until(unix_s)
        later = _walk(self.expression, self.timezone, slot_s)
        return max((slot_s, *takewhile(lambda later_s: later_s <= unix_s, later)))

    def count_between(self, after_s: float, until_s: float) -> int:
        """As promised by `Slots`, up to ``MAX_CRON_COUNT``."""
        slots = islice(_walk(self.expression, self.timezone, after_s), MAX_CRON_COUNT)
        return sum(1 for _ in takewhile(lambda slot_s: slot_s <= until_s, slots))

    def _some_slot_until(self, unix_s: float) -> float:
        """A slot at or before a moment, near it: going back, cronsim passes over slots that a zone has moved."""
        moment = datetime.fromtimestamp(floor(unix_s), self.timezone)
        backwards = (slot.timestamp() for slot in CronSim(self.expression, moment, reverse=True))
        return _first((slot_s for slot_s in backwards if slot_s <= unix_s), self.expression)


def make_slots(schedule: Schedule, target_name: str) -> Slots:
    """The slots of a target.

    ``every`` gets a phase from a hash of the target's name, anywhere in the interval: targets of one config
    spread over all of it, and the phase is the same after a restart.

    Raises:
        InputError: The cron expression never comes.
    """
    if schedule.cron is not None:
        return _cron_slots(schedule.cron, schedule.timezone)
    interval_s = _every_s(schedule)
    digest = sha256(target_name.encode()).digest()
    return EverySlots(interval_s=interval_s, phase_s=int.from_bytes(digest, "big") % interval_s)


def check_run_fits(schedule: Schedule, run_deadline_s: float, grace_s: float) -> str | None:
    """Why a run of this schedule may not have ended when the next slot comes; None when it fits.

    Args:
        grace_s: For a run that is cancelled at its deadline to end.
    Raises:
        InputError: The cron expression never comes.
    """
    interval_s = make_slots(schedule, "").interval_s
    longest_s = run_deadline_s + grace_s
    if longest_s <= interval_s:
        return None
    return (
        f"one run may take {longest_s:g} s (run_deadline_s + {grace_s:g} s), longer than the interval of "
        f"{interval_s:g} s; make the interval longer or benchmark.run_deadline_s shorter"
    )


def _every_s(schedule: Schedule) -> int:
    if schedule.every is None:
        raise ValueError("a schedule has one of every and cron")  # its model sees to that
    return schedule.every


def _cron_slots(expression: str, zone_name: str) -> CronSlots:
    # cronsim takes a shorter way when it meets this very object.
    timezone = UTC if zone_name == "UTC" else ZoneInfo(zone_name)
    _first(_walk(expression, timezone, _REFERENCE_UNIX_S), expression)
    slots = islice(_walk(expression, timezone, _REFERENCE_UNIX_S), _GAPS_LOOKED_AT + 1)
    interval_s = min(later_s - earlier_s for earlier_s, later_s in pairwise(slots))
    return CronSlots(expression=expression, timezone=timezone, interval_s=interval_s)


def _walk(expression: str, timezone: tzinfo, after_s: float) -> Iterator[float]:
    """Slots after a moment, each later than the one before. It ends where cronsim sees none for 50 years.

    From inside the hour that comes twice cronsim would lead back into its first coming.
    """
    newest_s = after_s
    for slot in CronSim(expression, datetime.fromtimestamp(floor(after_s), timezone)):
        slot_s = slot.timestamp()
        if slot_s > newest_s:
            newest_s = slot_s
            yield slot_s


def _first(slots: Iterator[float], expression: str) -> float:
    slot_s = next(slots, None)
    if slot_s is None:
        raise InputError(
            f'the cron expression "{expression}" never comes: no day in 50 years fits it; '
            "check its day of the month, month and day of the week"
        )
    return slot_s

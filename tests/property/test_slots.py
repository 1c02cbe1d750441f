"""Slots against a walk that visits them one by one."""

from bisect import bisect_right
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from agentbench_otel.config.model import Schedule
from agentbench_otel.daemon.slots import EverySlots, Slots, make_slots

LIMIT_S = 500

every_slots = st.integers(min_value=1, max_value=97).flatmap(
    lambda interval_s: st.builds(
        EverySlots, interval_s=st.just(interval_s), phase_s=st.integers(min_value=0, max_value=interval_s - 1)
    )
)
moments = st.floats(min_value=-LIMIT_S, max_value=LIMIT_S) | st.integers(min_value=-LIMIT_S, max_value=LIMIT_S)


def walk(slots: EverySlots) -> list[float]:
    """All slots of some minutes around the epoch, counted off from the phase both ways."""
    forth = range(slots.phase_s, 2 * LIMIT_S, slots.interval_s)
    back = range(slots.phase_s - slots.interval_s, -2 * LIMIT_S, -slots.interval_s)
    return sorted(float(slot_s) for slot_s in (*forth, *back))


def assert_agrees_with_walk(slots: Slots, walked: list[float], moment_s: float, later_s: float) -> None:
    assert slots.next_after(moment_s) == walked[bisect_right(walked, moment_s)]
    assert slots.last_until(moment_s) == walked[bisect_right(walked, moment_s) - 1]
    assert slots.count_between(moment_s, later_s) == sum(moment_s < slot_s <= later_s for slot_s in walked)


@given(every_slots, moments, moments)
def test_slots_of_an_interval_are_those_of_a_walk(slots: EverySlots, moment_s: float, later_s: float) -> None:
    assert_agrees_with_walk(slots, walk(slots), moment_s, later_s)


@given(st.integers(min_value=1, max_value=10**6), st.text(max_size=20), st.integers(min_value=0, max_value=2**33))
def test_slots_of_a_name_are_an_interval_apart_and_do_not_drift(interval_s: int, name: str, moment_s: int) -> None:
    slots = make_slots(Schedule.model_validate({"every": f"{interval_s}s"}), name)
    slot_s = slots.next_after(moment_s)
    assert 0 < slot_s - moment_s <= interval_s
    assert slots.next_after(slot_s) == slot_s + interval_s
    assert slots.last_until(slot_s) == slot_s
    assert slots.next_after(moment_s + 1000 * interval_s) == slot_s + 1000 * interval_s


EXPRESSIONS = (
    "*/10 * * * *",
    "7-59/13 * * * *",
    "30 2 * * *",
    "0,30 1-3 * * *",
    "15 */2 * * *",
    "45 0,2,3 * * 0",
    "0 9 * * 1-5",
)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")
CHANGES = ("2026-03-08", "2026-03-29", "2026-10-25", "2026-11-01", "2026-06-15")
"""Sundays on which New York and Berlin change their clocks, and a plain day."""


@cache
def walked_weeks(expression: str, zone: str, day: str) -> tuple[float, ...]:
    """One walk of cronsim itself, from three weeks before a day to three weeks after it."""
    timezone = UTC if zone == "UTC" else ZoneInfo(zone)
    noon = datetime.fromisoformat(day).replace(hour=12, tzinfo=UTC)
    begin_s, end_s = noon.timestamp() - 21 * 86_400, noon.timestamp() + 21 * 86_400
    slots: list[float] = []
    for slot in CronSim(expression, datetime.fromtimestamp(begin_s, timezone)):
        if slot.timestamp() > end_s:
            return tuple(slots)
        slots.append(slot.timestamp())
    raise AssertionError("the walk ended early")


@given(
    expression=st.sampled_from(EXPRESSIONS),
    zone=st.sampled_from(ZONES),
    day=st.sampled_from(CHANGES),
    offset_s=st.floats(min_value=-86_400, max_value=86_400),
    length_s=st.floats(min_value=0, max_value=2 * 86_400),
)
def test_cron_slots_are_those_of_one_long_walk(
    expression: str, zone: str, day: str, offset_s: float, length_s: float
) -> None:
    slots = make_slots(Schedule(cron=expression, timezone=zone), "a")
    moment_s = datetime.fromisoformat(day).replace(hour=2, tzinfo=UTC).timestamp() + offset_s
    walked = list(walked_weeks(expression, zone, day))
    assert_agrees_with_walk(slots, walked, moment_s, moment_s + length_s)


@given(
    expression=st.sampled_from(EXPRESSIONS),
    zone=st.sampled_from(ZONES),
    day=st.sampled_from(CHANGES),
    data=st.data(),
)
def test_at_a_cron_slot_it_is_the_last_and_the_one_after_it_the_next(
    expression: str, zone: str, day: str, data: st.DataObject
) -> None:
    slots = make_slots(Schedule(cron=expression, timezone=zone), "a")
    earlier_s, later_s = data.draw(st.sampled_from(list(pairwise(walked_weeks(expression, zone, day)))))
    assert slots.last_until(earlier_s) == earlier_s
    assert slots.next_after(earlier_s) == later_s

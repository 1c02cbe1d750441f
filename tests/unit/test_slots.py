"""The slots of a schedule."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from agentbench_otel.config.model import Schedule
from agentbench_otel.daemon.slots import MAX_CRON_COUNT, EverySlots, Slots, check_run_fits, make_slots
from agentbench_otel.errors import InputError


def every(text: str) -> Schedule:
    return Schedule.model_validate({"every": text})


def cron(expression: str, timezone: str = "UTC") -> Slots:
    return make_slots(Schedule(cron=expression, timezone=timezone), "a")


def unix(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def utc_slots(slots: Slots, *, after: str, count: int) -> list[str]:
    """The next slots as ``day hour:minute`` in UTC."""
    moment_s, found = unix(after), []
    for _ in range(count):
        moment_s = slots.next_after(moment_s)
        found.append(f"{datetime.fromtimestamp(moment_s, UTC):%d %H:%M}")
    return found


def test_the_next_slot_is_strictly_later() -> None:
    slots = EverySlots(interval_s=300, phase_s=60)
    assert [slots.next_after(moment_s) for moment_s in (59.9, 60.0, 60.1)] == [60.0, 360.0, 360.0]


def test_the_last_slot_may_be_now() -> None:
    slots = EverySlots(interval_s=300, phase_s=60)
    assert [slots.last_until(moment_s) for moment_s in (59.9, 60.0, 359.9)] == [-240.0, 60.0, 60.0]


def test_a_count_has_its_end_and_not_its_beginning() -> None:
    slots = EverySlots(interval_s=300, phase_s=60)
    assert slots.count_between(60, 660) == 2
    assert slots.count_between(59, 659) == 2
    assert slots.count_between(660, 60) == 0


def test_ten_years_of_slots_are_counted_without_a_walk() -> None:
    assert EverySlots(interval_s=1, phase_s=0).count_between(0, 315_576_000) == 315_576_000


def test_the_phase_is_the_hash_of_the_name_and_the_same_for_ever() -> None:
    assert make_slots(every("5m"), "local-llama") == EverySlots(interval_s=300, phase_s=134)
    assert make_slots(every("1h"), "local-llama") == EverySlots(interval_s=3600, phase_s=1334)


def test_phases_spread_over_the_whole_interval() -> None:
    thirds = [int(make_slots(every("1d"), f"target-{n}").next_after(0) // 28_800) for n in range(300)]
    assert all(thirds.count(third) > 70 for third in range(3))


def test_cron_slots_have_no_phase() -> None:
    assert utc_slots(cron("*/20 8 * * *"), after="2026-03-01 00:00", count=4) == [
        "01 08:00",
        "01 08:20",
        "01 08:40",
        "02 08:00",
    ]


def test_cron_slots_are_strictly_later_than_now_and_at_most_now() -> None:
    slots, nine = cron("0 9 * * *"), unix("2026-03-01 09:00")
    assert slots.next_after(nine) == nine + 86_400
    assert slots.next_after(nine - 0.5) == nine
    assert slots.last_until(nine) == nine
    assert slots.last_until(nine - 0.5) == nine - 86_400


def test_a_cron_hour_that_does_not_exist_is_made_up_for_at_once() -> None:
    slots = cron("30 2 * * *", "Europe/Berlin")  # on 2026-03-29 02:00 becomes 03:00, which is 01:00 UTC
    assert utc_slots(slots, after="2026-03-28 00:00", count=3) == ["28 01:30", "29 01:00", "30 00:30"]


def test_a_cron_hour_that_comes_twice_is_taken_the_first_time() -> None:
    slots = cron("30 2 * * *", "Europe/Berlin")  # on 2026-10-25 03:00 becomes 02:00, at 01:00 UTC
    assert utc_slots(slots, after="2026-10-24 00:00", count=3) == ["24 00:30", "25 00:30", "26 01:30"]


@pytest.mark.parametrize("moment", ["2026-10-25 00:45", "2026-10-25 01:10", "2026-10-25 01:45"])
def test_from_inside_the_hour_that_comes_twice_the_next_slot_is_tomorrow(moment: str) -> None:
    slots = cron("30 2 * * *", "Europe/Berlin")
    assert utc_slots(slots, after=moment, count=1) == ["26 01:30"]
    assert slots.last_until(unix(moment)) == unix("2026-10-25 00:30")


@pytest.mark.parametrize("after", ["2026-03-29 00:30", "2026-10-25 00:30"])
def test_cron_steps_keep_their_distance_when_clocks_change(after: str) -> None:
    slots = cron("*/20 * * * *", "Europe/Berlin")
    moments = [unix(after)]
    for _ in range(6):
        moments.append(slots.next_after(moments[-1]))
    assert [moment_s - moments[0] for moment_s in moments[1:]] == [600, 1800, 3000, 4200, 5400, 6600]


def test_a_working_day_follows_the_zone() -> None:
    slots = cron("0 9 * * 1-5", "Europe/Berlin")
    assert utc_slots(slots, after="2026-03-27 00:00", count=2) == ["27 08:00", "30 07:00"]


def test_the_interval_of_a_cron_schedule_is_its_shortest_gap() -> None:
    assert cron("0 9 * * 1-5").interval_s == 86_400
    assert cron("0,10 * * * *").interval_s == 600
    assert cron("0 0 1 * *").interval_s == 28 * 86_400


def test_the_count_of_cron_slots_ends_at_a_limit() -> None:
    slots = cron("* * * * *")
    assert slots.count_between(0, 600) == 10
    assert slots.count_between(0, 60 * (MAX_CRON_COUNT + 5)) == MAX_CRON_COUNT


NEVER = "0 0 */15 2 MON#5"  # the 1st, 16th or 31st of February that is its fifth Monday


def test_a_cron_expression_that_never_comes_is_refused_in_words() -> None:
    with pytest.raises(InputError, match=r'"0 0 \*/15 2 MON#5" never comes: no day in 50 years fits it; check'):
        cron(NEVER)


def test_a_leap_day_comes() -> None:
    assert cron("0 0 29 2 *").next_after(unix("2026-01-01 00:00")) == unix("2028-02-29 00:00")


def test_a_run_that_ends_with_its_interval_fits() -> None:
    assert check_run_fits(every("130s"), 120, 10) is None


def test_a_run_longer_than_the_interval_is_refused_with_both_numbers() -> None:
    assert check_run_fits(every("1m"), 120, 10) == (
        "one run may take 130 s (run_deadline_s + 10 s), longer than the interval of 60 s; "
        "make the interval longer or benchmark.run_deadline_s shorter"
    )


def test_a_run_must_fit_the_shortest_gap_of_a_cron_schedule() -> None:
    words = check_run_fits(Schedule(cron="0,2 * * * *"), 120, 10)
    assert words is not None
    assert "the interval of 120 s" in words

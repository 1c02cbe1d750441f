"""One wall anchor, then the monotonic counter alone."""

import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from agentbench_otel.telemetry.clock import AnchoredClock

HOUR_NS = 3_600 * 10**9


class SteppedWall:
    """``time.time_ns`` of a machine whose wall clock NTP may set."""

    def __init__(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self.read_count = 0

    def __call__(self) -> int:
        self.read_count += 1
        return self.now_ns


def counter_of(*readings_ns: int) -> Callable[[], int]:
    """``time.perf_counter_ns`` that gives these readings, then fails."""
    return iter(readings_ns).__next__


def test_a_reading_is_the_anchor_plus_the_counters_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", SteppedWall(1_000_000))
    monkeypatch.setattr(time, "perf_counter_ns", counter_of(500, 500, 507, 600))
    clock = AnchoredClock()
    assert clock() == 1_000_007
    assert clock() == 1_000_100


def test_the_anchor_lies_in_the_middle_of_two_counter_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", SteppedWall(1_000_000))
    monkeypatch.setattr(time, "perf_counter_ns", counter_of(500, 540, 540))
    assert AnchoredClock()() == 1_000_020


@pytest.mark.parametrize("step_ns", [HOUR_NS, -HOUR_NS, 1_000])
def test_a_step_of_the_wall_clock_bends_no_interval(monkeypatch: pytest.MonkeyPatch, step_ns: int) -> None:
    wall = SteppedWall(1_700_000_000 * 10**9)
    monkeypatch.setattr(time, "time_ns", wall)
    monkeypatch.setattr(time, "perf_counter_ns", counter_of(0, 0, 100, 350))
    clock = AnchoredClock()
    start_ns = clock()
    wall.now_ns += step_ns
    assert clock() - start_ns == 250


def test_the_wall_clock_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = SteppedWall(1_000_000)
    monkeypatch.setattr(time, "time_ns", wall)
    clock = AnchoredClock()
    for _ in range(10):
        clock()
    assert wall.read_count == 1


def test_it_never_runs_backwards() -> None:
    clock = AnchoredClock()
    readings = [clock() for _ in range(10_000)]
    assert all(earlier <= later for earlier, later in pairwise(readings))


def test_it_tells_the_time_of_day() -> None:
    before_ns = time.time_ns()
    reading_ns = AnchoredClock()()
    after_ns = time.time_ns()
    margin_ns = 50_000_000  # the two clocks may drift apart by a few µs between the readings
    assert before_ns - margin_ns <= reading_ns <= after_ns + margin_ns

"""The clock of a run: one wall anchor and the monotonic counter."""

import time


class AnchoredClock:
    """Unix nanoseconds that no NTP step can bend.

    The wall clock is read once, between two readings of the monotonic counter; every later reading is that
    anchor plus the counter's advance. One instance per run: intervals of different instances can't be mixed.
    """

    __slots__ = ("_offset_ns",)

    def __init__(self) -> None:
        before_ns = time.perf_counter_ns()
        wall_ns = time.time_ns()
        after_ns = time.perf_counter_ns()
        self._offset_ns = wall_ns - (before_ns + after_ns) // 2

    def __call__(self) -> int:
        return time.perf_counter_ns() + self._offset_ns

"""Arithmetic of closed-open intervals in integer nanoseconds."""

from collections.abc import Iterable
from typing import NamedTuple


class Interval(NamedTuple):
    """``[start_ns, end_ns)``; an end before its start is empty."""

    start_ns: int
    end_ns: int


def merge(intervals: Iterable[Interval]) -> list[Interval]:
    """The union as disjoint, sorted, non-empty intervals; ones that touch become one."""
    merged: list[Interval] = []
    for interval in sorted(interval for interval in intervals if interval.end_ns > interval.start_ns):
        if merged and interval.start_ns <= merged[-1].end_ns:
            if interval.end_ns > merged[-1].end_ns:
                merged[-1] = Interval(merged[-1].start_ns, interval.end_ns)
        else:
            merged.append(interval)
    return merged


def union_ns(intervals: Iterable[Interval]) -> int:
    """Time covered by at least one interval; what is covered twice counts once."""
    return sum(interval.end_ns - interval.start_ns for interval in merge(intervals))


def clip(intervals: Iterable[Interval], to: Interval) -> list[Interval]:
    """The parts inside ``to``."""
    return [Interval(max(start, to.start_ns), min(end, to.end_ns)) for start, end in intervals]


def _depth_changes(intervals: Iterable[Interval]) -> list[tuple[int, int]]:
    """Times with +1 or -1, ends before starts: intervals that only touch never overlap."""
    changes = []
    for start_ns, end_ns in intervals:
        if end_ns > start_ns:
            changes += [(start_ns, 1), (end_ns, -1)]
    return sorted(changes)


def overlaps(intervals: Iterable[Interval]) -> list[Interval]:
    """Where at least two of the intervals are, as disjoint, sorted, non-empty intervals."""
    found: list[Interval] = []
    depth = previous_ns = 0
    for time_ns, change in _depth_changes(intervals):
        if depth >= 2 and time_ns > previous_ns:
            found.append(Interval(previous_ns, time_ns))
        depth += change
        previous_ns = time_ns
    return merge(found)


def overlap_ns(intervals: Iterable[Interval]) -> int:
    """Time covered by at least two of the intervals."""
    return sum(interval.end_ns - interval.start_ns for interval in overlaps(intervals))


def max_concurrency(intervals: Iterable[Interval]) -> int:
    """The largest number of intervals that cover one moment; 0 when all are empty."""
    depth = deepest = 0
    for _, change in _depth_changes(intervals):
        depth += change
        deepest = max(deepest, depth)
    return deepest

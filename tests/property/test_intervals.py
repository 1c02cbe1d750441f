"""Interval arithmetic against a timeline that is painted moment by moment."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from agentbench_otel.measurement.intervals import Interval, clip, max_concurrency, merge, overlap_ns, union_ns

LENGTH = 24

moments = st.integers(min_value=0, max_value=LENGTH)
intervals = st.lists(st.builds(Interval, moments, moments), max_size=7)  # some end before their start: empty


def paint(timeline: Sequence[Interval]) -> list[int]:
    """How many intervals cover each moment."""
    return [sum(one.start_ns <= moment < one.end_ns for one in timeline) for moment in range(LENGTH)]


@given(intervals)
def test_the_union_is_the_number_of_painted_moments(timeline: list[Interval]) -> None:
    assert union_ns(timeline) == sum(depth > 0 for depth in paint(timeline))


@given(intervals)
def test_the_overlap_is_the_number_of_moments_painted_at_least_twice(timeline: list[Interval]) -> None:
    assert overlap_ns(timeline) == sum(depth >= 2 for depth in paint(timeline))


@given(intervals)
def test_the_concurrency_is_the_thickest_paint(timeline: list[Interval]) -> None:
    assert max_concurrency(timeline) == max(paint(timeline))


@given(intervals)
def test_merging_paints_the_same_moments_once(timeline: list[Interval]) -> None:
    assert paint(merge(timeline)) == [min(depth, 1) for depth in paint(timeline)]


@given(intervals)
def test_merged_intervals_are_sorted_and_do_not_even_touch(timeline: list[Interval]) -> None:
    merged = merge(timeline)
    assert all(one.start_ns < one.end_ns for one in merged)
    assert all(earlier.end_ns < later.start_ns for earlier, later in pairwise(merged))


@given(intervals)
def test_merging_twice_changes_nothing(timeline: list[Interval]) -> None:
    assert merge(merge(timeline)) == merge(timeline)


@given(intervals, moments, moments)
def test_clipping_keeps_the_paint_inside_and_nothing_outside(
    timeline: list[Interval], start_ns: int, end_ns: int
) -> None:
    inside = range(start_ns, end_ns)
    expected = [depth if moment in inside else 0 for moment, depth in enumerate(paint(timeline))]
    assert paint(clip(timeline, Interval(start_ns, end_ns))) == expected


@given(intervals.flatmap(lambda timeline: st.tuples(st.just(timeline), st.permutations(timeline))))
def test_the_order_of_the_intervals_does_not_matter(orders: tuple[list[Interval], list[Interval]]) -> None:
    given_order, other_order = orders
    functions: list[Callable[[list[Interval]], object]] = [merge, union_ns, overlap_ns, max_concurrency]
    for function in functions:
        assert function(given_order) == function(other_order)


@given(intervals)
def test_overlap_is_at_most_the_union_and_the_union_at_most_the_sum(timeline: list[Interval]) -> None:
    total_ns = sum(max(0, one.end_ns - one.start_ns) for one in timeline)
    assert 0 <= overlap_ns(timeline) <= union_ns(timeline) <= total_ns


@given(intervals)
def test_there_is_overlap_exactly_when_two_run_at_once(timeline: list[Interval]) -> None:
    assert (overlap_ns(timeline) > 0) == (max_concurrency(timeline) >= 2)


@given(st.lists(moments, min_size=2, max_size=8))
def test_intervals_that_follow_each_other_never_overlap(bounds: list[int]) -> None:
    ordered = sorted(bounds)
    chain = [Interval(start_ns, end_ns) for start_ns, end_ns in pairwise(ordered)]
    assert overlap_ns(chain) == 0
    assert union_ns(chain) == ordered[-1] - ordered[0]


@given(intervals, st.integers(min_value=-(10**19), max_value=10**19))
def test_moving_all_intervals_together_changes_no_length(timeline: list[Interval], shift_ns: int) -> None:
    moved = [Interval(start_ns + shift_ns, end_ns + shift_ns) for start_ns, end_ns in timeline]
    assert union_ns(moved) == union_ns(timeline)
    assert overlap_ns(moved) == overlap_ns(timeline)

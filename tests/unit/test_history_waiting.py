"""What waits for the writer: in order, within bounds, and nothing is lost without being counted."""

import threading

from agentbench_otel.history.waiting import Bounds, Entry, WaitingCycle, WaitingLine, WaitingRun
from tests.support.history import PATIENCE_S, a_cycle, a_run, some_spans


def run(number: int, span_count: int = 0) -> WaitingRun:
    return WaitingRun(result=a_run(number), spans=some_spans()[:span_count])


def line_of(*entries: Entry, bounds: Bounds | None = None) -> WaitingLine:
    line = WaitingLine(bounds or Bounds())
    for entry in entries:
        line.put(entry)
    return line


def drain(line: WaitingLine) -> list[Entry]:
    entries = []
    while (entry := line.take(0.0)) is not None:
        entries.append(entry)
        line.finish()
    return entries


def test_what_came_first_is_taken_first() -> None:
    entries: list[Entry] = [run(1), WaitingCycle(record=a_cycle(1)), run(2)]
    assert drain(line_of(*entries)) == entries


def test_an_empty_line_gives_nothing() -> None:
    assert WaitingLine(Bounds()).take(0.0) is None


def test_the_entry_in_hand_counts_as_waiting() -> None:
    line = line_of(run(1), run(2))
    line.take(0.0)
    assert len(line) == 2
    line.finish()
    assert len(line) == 1


def test_beyond_the_bound_the_oldest_are_lost_and_counted() -> None:
    entries = [run(number) for number in range(5)]
    line = line_of(*entries, bounds=Bounds(entry_count=3))
    assert line.lost_runs == 2
    assert drain(line) == entries[2:]


def test_a_lost_cycle_is_no_lost_run() -> None:
    line = line_of(WaitingCycle(record=a_cycle(1)), run(1), bounds=Bounds(entry_count=1))
    assert (line.lost_runs, len(line)) == (0, 1)


def test_beyond_the_bound_of_spans_the_oldest_runs_lose_theirs_and_are_kept() -> None:
    first, second, third = run(1, 3), run(2, 3), run(3, 3)
    line = line_of(first, second, third, bounds=Bounds(span_count=7))
    assert (first.spans, len(second.spans or ()), len(third.spans or ())) == (None, 3, 3)
    assert (line.lost_spans, line.lost_runs, len(line)) == (3, 0, 3)


def test_spans_are_dropped_before_runs() -> None:
    entries = [run(number, 2) for number in range(4)]
    line = line_of(*entries, bounds=Bounds(entry_count=4, span_count=2))
    assert (line.lost_runs, line.lost_spans) == (0, 6)


def test_the_newest_run_keeps_its_spans_however_many() -> None:
    line = line_of(run(1, 2), run(2, 6), bounds=Bounds(span_count=5))
    older, newer = drain(line)
    assert isinstance(older, WaitingRun)
    assert isinstance(newer, WaitingRun)
    assert (older.spans, len(newer.spans or ())) == (None, 6)


def test_spans_of_a_lost_run_make_room_for_others() -> None:
    line = line_of(run(1, 4), run(2, 4), bounds=Bounds(entry_count=1, span_count=7))
    line.put(run(3, 3))
    (kept,) = drain(line)
    assert isinstance(kept, WaitingRun)
    assert len(kept.spans or ()) == 3


def test_spans_of_a_taken_run_make_room_for_others() -> None:
    line = line_of(run(1, 5), bounds=Bounds(span_count=7))
    line.take(0.0)
    line.put(run(2, 3))
    line.put(run(3, 3))
    assert line.lost_spans == 0


def test_the_entry_in_hand_is_outside_the_bounds() -> None:
    line = line_of(run(1), bounds=Bounds(entry_count=1))
    line.take(0.0)
    line.put(run(2))
    assert (line.lost_runs, len(line)) == (0, 2)


def test_what_comes_to_a_closed_line_is_lost() -> None:
    line = line_of(run(1))
    line.close()
    line.put(run(2))
    assert line.lost_runs == 1
    assert len(drain(line)) == 1


def test_giving_up_loses_what_is_in_hand_too() -> None:
    line = line_of(run(1), run(2), WaitingCycle(record=a_cycle(1)))
    line.take(0.0)
    assert line.lose_all() == 2
    assert (line.lost_runs, len(line)) == (2, 0)


def test_giving_up_an_empty_line_loses_nothing() -> None:
    line = line_of(run(1))
    drain(line)
    assert line.lose_all() == 0


def test_waiting_for_the_line_ends_when_what_was_in_it_then_is_done() -> None:
    line = line_of(run(1))
    assert not line.wait_until_empty(0.0)
    line.take(0.0)
    assert not line.wait_until_empty(0.0)
    line.finish()
    assert line.wait_until_empty(0.0)


def test_waiting_for_the_line_is_not_for_what_comes_later() -> None:
    line = line_of(run(1))
    is_empty: list[bool] = []
    waiter = threading.Thread(target=lambda: is_empty.append(line.wait_until_empty(PATIENCE_S)))
    waiter.start()
    line.take(PATIENCE_S)
    line.finish()
    waiter.join(PATIENCE_S)
    line.put(run(2))
    assert is_empty == [True]


def test_a_taker_is_woken_by_what_comes() -> None:
    line = WaitingLine(Bounds())
    taken: list[Entry | None] = []
    taker = threading.Thread(target=lambda: taken.append(line.take(PATIENCE_S)))
    taker.start()
    entry = run(1)
    line.put(entry)
    taker.join(PATIENCE_S)
    assert taken == [entry]


def test_a_taker_is_woken_by_the_end() -> None:
    line = WaitingLine(Bounds())
    taken: list[Entry | None] = []
    taker = threading.Thread(target=lambda: taken.append(line.take(PATIENCE_S)))
    taker.start()
    line.close()
    taker.join(PATIENCE_S)
    assert taken == [None]

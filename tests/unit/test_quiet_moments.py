"""What disturbs a measurement waits for a moment without one."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from agentbench_otel.daemon.quiet import QuietMoments


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


class Chore:
    """Due and overdue as it is told; ``gate`` holds its work up."""

    def __init__(self, *, is_due: bool = True, is_overdue: bool = False) -> None:
        self.due, self.overdue = is_due, is_overdue
        self.done_count = 0
        self.started = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        self.thread: threading.Thread | None = None

    def is_due(self, now_s: float) -> bool:
        return self.due

    def is_overdue(self, now_s: float) -> bool:
        return self.overdue

    def do(self, now_s: float) -> None:
        self.thread = threading.current_thread()
        self.started.set()
        assert self.gate.wait(5)
        self.done_count += 1


def moments(*chores: Chore) -> QuietMoments:
    return QuietMoments(chores, lambda: 0.0)


async def started(chore: Chore) -> None:
    assert await asyncio.to_thread(chore.started.wait, 5)


@in_loop
async def test_what_is_due_is_done_when_no_run_is_in_flight() -> None:
    chore, idle = Chore(), Chore(is_due=False)
    quiet = moments(chore, idle)
    await quiet.use()
    assert (chore.done_count, idle.done_count) == (1, 0)
    assert quiet.loud_count == 0


@in_loop
async def test_the_work_is_done_on_another_thread() -> None:
    chore = Chore()
    await moments(chore).use()
    assert chore.thread not in (None, threading.main_thread())


@in_loop
async def test_while_a_run_is_in_flight_nothing_is_done() -> None:
    chore = Chore()
    quiet = moments(chore)
    async with quiet.run(), quiet.run():
        await quiet.use()
    assert chore.done_count == 0
    await quiet.use()
    assert chore.done_count == 1


@in_loop
async def test_a_run_that_failed_is_no_longer_in_flight() -> None:
    chore = Chore()
    quiet = moments(chore)
    with pytest.raises(RuntimeError):
        async with quiet.run():
            raise RuntimeError
    await quiet.use()
    assert chore.done_count == 1


@in_loop
async def test_what_is_overdue_is_done_anyway_and_counted() -> None:
    chore = Chore(is_overdue=True)
    quiet = moments(chore)
    async with quiet.run():
        await quiet.use()
    assert (chore.done_count, quiet.loud_count) == (1, 1)


@in_loop
async def test_a_run_waits_for_the_chore_that_has_begun() -> None:
    chore = Chore()
    chore.gate.clear()
    quiet = moments(chore)
    work = asyncio.create_task(quiet.use())
    await started(chore)
    has_run = asyncio.Event()

    async def run() -> None:
        async with quiet.run():
            has_run.set()

    running = asyncio.create_task(run())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not has_run.is_set()
    chore.gate.set()
    await asyncio.gather(work, running)
    assert has_run.is_set()


@in_loop
async def test_two_callers_do_not_do_the_same_work_twice() -> None:
    chore = Chore()
    chore.gate.clear()
    quiet = moments(chore)
    first = asyncio.create_task(quiet.use())
    await started(chore)
    await quiet.use()  # returns at once
    chore.gate.set()
    await first
    assert chore.done_count == 1


@in_loop
async def test_a_bug_in_a_chore_is_told_and_the_next_one_is_done(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Chore):
        def do(self, now_s: float) -> None:
            raise ZeroDivisionError

    after = Chore()
    await moments(Broken(), after).use()
    assert after.done_count == 1
    assert "Broken failed by a bug" in caplog.text

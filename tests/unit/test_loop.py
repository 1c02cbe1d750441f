"""The event loop ends, whatever its tasks do; its result and its errors are those of the main coroutine."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from agentbench_otel import loop
from agentbench_otel.loop import run_loop
from tests.support.cli import environment

LIMIT_S = 0.1


@pytest.fixture(autouse=True)
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_LEFT_TASKS_LIMIT_S", LIMIT_S)
    monkeypatch.setattr(loop, "_left", [])


def test_the_result_of_the_main_coroutine_is_returned() -> None:
    async def main() -> str:
        await asyncio.sleep(0)
        return "done"

    assert run_loop(main()) == "done"


def test_an_error_of_the_main_coroutine_is_raised() -> None:
    async def main() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        run_loop(main())


def test_a_task_that_was_left_is_cancelled_and_may_clean_up() -> None:
    ended: list[str] = []

    async def left() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.append("cleaned up")

    async def main() -> "asyncio.Task[None]":
        task = asyncio.create_task(left())
        await asyncio.sleep(0)
        return task

    task = run_loop(main())
    assert ended == ["cleaned up"]
    assert task.cancelled()


async def ignore_cancellation(cancelled: list[int]) -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)


def test_a_task_that_ignores_its_cancellation_is_not_waited_for() -> None:
    cancelled: list[int] = []

    async def main() -> "asyncio.Task[None]":
        task = asyncio.create_task(ignore_cancellation(cancelled))
        await asyncio.sleep(0)
        return task

    start_s = time.monotonic()
    task = run_loop(main())
    assert LIMIT_S <= time.monotonic() - start_s < LIMIT_S + 1
    assert cancelled == [1]
    assert not task.done()
    left: Any = task
    left._log_destroy_pending = False  # asyncio would say it when the task is collected, in another test


def test_a_generator_that_was_left_is_closed() -> None:
    ended: list[str] = []

    async def pieces() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            ended.append("closed")

    async def main() -> AsyncGenerator[int, None]:
        left = pieces()
        assert await anext(left) == 1
        return left

    assert run_loop(main()) is not None
    assert ended == ["closed"]


def test_no_loop_is_left_behind() -> None:
    async def main() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    first, second = run_loop(main()), run_loop(main())
    assert first is not second
    assert first.is_closed()
    assert second.is_closed()


# --- leaving the process: in one of its own, for a process that is left at once takes the tests with it ----------


def run_python(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=20,
        check=False,
    )


NOTHING_LEFT = """
import asyncio, atexit
from agentbench_otel.loop import leave, run_loop

atexit.register(print, "cleaned up")
run_loop(asyncio.sleep(0))
leave({exit_code})
"""


@pytest.mark.parametrize("exit_code", [0, 3])
def test_where_nothing_was_left_the_process_ends_in_the_usual_way(exit_code: int) -> None:
    process = run_python(NOTHING_LEFT.format(exit_code=exit_code))
    assert (process.returncode, process.stdout, process.stderr) == (exit_code, "cleaned up\n", "")


LEFT_BEHIND = """
import asyncio, threading, time
from agentbench_otel.loop import leave, run_loop
from tests.unit.test_loop import ignore_cancellation

async def main():
    task = asyncio.create_task(ignore_cancellation([]))
    await asyncio.sleep(0)
    threading.Thread(target=threading.Event().wait).start()  # Python would wait for it at its end
    return task

start_s = time.monotonic()
run_loop(main())
print(time.monotonic() - start_s)
leave(3)
"""


def test_where_a_task_was_left_the_process_ends_within_a_second_with_all_it_has_said() -> None:
    process = run_python(LEFT_BEHIND)
    assert process.returncode == 3
    assert 1.0 <= float(process.stdout) < 3.0  # a busy machine may add to it
    assert process.stderr == ""

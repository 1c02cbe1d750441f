"""Work on threads of its own: waited for only so long, and keeping nobody alive."""

import asyncio
import threading
import time

import pytest

from agentbench_otel.loop import run_loop
from agentbench_otel.telemetry.bounded import run_bounded, run_in_thread


def test_work_that_ends_in_time_has_ended() -> None:
    done: list[threading.Thread] = []
    assert run_bounded(lambda: done.append(threading.current_thread()), 5)
    assert done[0] is not threading.main_thread()
    assert done[0].daemon


def test_work_that_hangs_is_waited_for_only_so_long() -> None:
    gate = threading.Event()
    start_s = time.monotonic()
    assert not run_bounded(lambda: assert_set(gate), 0.05)
    assert time.monotonic() - start_s < 2
    gate.set()


def assert_set(gate: threading.Event) -> None:
    assert gate.wait(5)


def test_the_result_of_a_thread_is_awaited() -> None:
    assert run_loop(run_in_thread(threading.current_thread)) is not threading.main_thread()


def test_the_error_of_a_thread_is_raised_where_it_is_awaited() -> None:
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        run_loop(run_in_thread(fail))


def test_the_loop_goes_on_meanwhile() -> None:
    gate = threading.Event()

    async def main() -> str:
        work = asyncio.create_task(run_in_thread(lambda: assert_set(gate)))
        await asyncio.sleep(0.01)
        gate.set()
        await work
        return "done"

    assert run_loop(main()) == "done"


def test_who_is_cancelled_meanwhile_is_cancelled_and_the_thread_disturbs_nobody(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gate, ended = threading.Event(), threading.Event()

    def work() -> None:
        assert_set(gate)
        ended.set()

    async def main() -> None:
        task = asyncio.create_task(run_in_thread(work))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_loop(main())
    gate.set()  # only now: the loop is closed
    assert ended.wait(5)
    time.sleep(0.05)
    assert capsys.readouterr().err == ""

"""In-memory tool handlers, the rendezvous, and the executor that runs the handlers of a batch."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from agentbench_otel.agent.adapters import (
    InMemoryCalendar,
    InMemorySearch,
    InMemoryVolume,
    Rendezvous,
    end_session,
    in_memory_handlers,
)
from agentbench_otel.agent.executor import ConcurrentExecutor
from agentbench_otel.agent.tools import TOOLS
from agentbench_otel.ports import ToolHandler
from tests.support.agent_fakes import run_in_virtual_time

# --- handlers ---------------------------------------------------------------------------------------------


def test_an_absolute_volume_is_set() -> None:
    volume = InMemoryVolume()
    result = asyncio.run(volume("event-1", {"mode": "absolute", "value": 30}))

    assert result == {"event_id": "event-1", "level": 30}
    assert volume.level == 30


def test_a_relative_volume_changes_the_level() -> None:
    volume = InMemoryVolume()
    asyncio.run(volume("event-1", {"mode": "absolute", "value": 40}))

    assert asyncio.run(volume("event-2", {"mode": "relative", "delta": -15}))["level"] == 25


@pytest.mark.parametrize(("delta", "level"), [(100, 100), (-100, 0)])
def test_the_volume_stays_between_0_and_100(delta: int, level: int) -> None:
    assert asyncio.run(InMemoryVolume()("event-1", {"mode": "relative", "delta": delta}))["level"] == level


def test_the_calendar_keeps_what_was_scheduled() -> None:
    calendar = InMemoryCalendar()
    arguments = {"title": "Design review", "start_at": "2026-07-14T09:30:00+08:00", "timezone": "Asia/Shanghai"}
    result = asyncio.run(calendar("event-1", arguments))

    assert result == {"event_id": "event-1", **arguments}
    assert calendar.entries == [arguments]


def test_the_search_gives_the_same_facts_for_every_query() -> None:
    first = asyncio.run(InMemorySearch()("event-1", {"query": "one"}))
    second = asyncio.run(InMemorySearch()("event-1", {"query": "two"}))

    assert (first["query"], second["query"]) == ("one", "two")
    assert first["results"] == second["results"]
    assert len(first["results"]) == 2


def test_ending_the_session_needs_no_arguments() -> None:
    assert asyncio.run(end_session("event-1", {})) == {"event_id": "event-1", "ended": True}


def test_every_tool_has_an_in_memory_handler() -> None:
    assert in_memory_handlers().keys() == TOOLS.keys()


def test_each_run_gets_fresh_handlers() -> None:
    first, second = in_memory_handlers(), in_memory_handlers()
    name = "device.volume.adjust"
    asyncio.run(first[name]("event-1", {"mode": "absolute", "value": 1}))

    assert asyncio.run(second[name]("event-1", {"mode": "relative", "delta": 0}))["level"] == 50


# --- rendezvous -------------------------------------------------------------------------------------------


def noting(log: list[str], name: str) -> ToolHandler:
    async def handler(event_id: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        log.append(f"{name} {event_id} {arguments['value']}")
        return {"from": name}

    return handler


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_handlers_that_meet_go_on_at_once(order: str) -> None:
    async def meet() -> tuple[list[str], list[Mapping[str, Any]], float]:
        log: list[str] = []
        rendezvous = Rendezvous(2)
        handlers = {name: rendezvous.wrap(noting(log, name)) for name in "ab"}

        async def come_later() -> Mapping[str, Any]:
            await asyncio.sleep(0.04)
            assert log == []
            return await handlers[order[1]]("event-2", {"value": 2})

        start_s = asyncio.get_running_loop().time()
        results = await asyncio.gather(handlers[order[0]]("event-1", {"value": 1}), come_later())
        return log, list(results), asyncio.get_running_loop().time() - start_s

    log, results, took_s = run_in_virtual_time(meet())
    assert sorted(log) == sorted([f"{order[0]} event-1 1", f"{order[1]} event-2 2"])
    assert results == [{"from": order[0]}, {"from": order[1]}]
    assert took_s == pytest.approx(0.04)


def test_three_handlers_wait_for_the_third() -> None:
    async def meet() -> float:
        rendezvous = Rendezvous(3)
        handler = rendezvous.wrap(noting([], "a"))

        async def come_after(delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            await handler("event", {"value": 1})

        start_s = asyncio.get_running_loop().time()
        await asyncio.gather(*map(come_after, (0.0, 0.01, 0.02)))
        return asyncio.get_running_loop().time() - start_s

    assert run_in_virtual_time(meet()) == pytest.approx(0.02)


def test_a_handler_that_nobody_meets_gives_up_after_50_ms_and_runs() -> None:
    async def wait_alone() -> tuple[Mapping[str, Any], float]:
        start_s = asyncio.get_running_loop().time()
        result = await Rendezvous(2).wrap(noting([], "a"))("event-1", {"value": 1})
        return result, asyncio.get_running_loop().time() - start_s

    result, took_s = run_in_virtual_time(wait_alone())
    assert result == {"from": "a"}
    assert took_s == pytest.approx(0.05)


def test_how_long_a_handler_waits_can_be_set() -> None:
    async def wait_alone() -> float:
        start_s = asyncio.get_running_loop().time()
        await Rendezvous(2, give_up_s=7).wrap(noting([], "a"))("event-1", {"value": 1})
        return asyncio.get_running_loop().time() - start_s

    assert run_in_virtual_time(wait_alone()) == pytest.approx(7)


def test_under_a_serial_executor_only_the_first_waits() -> None:
    async def one_after_the_other() -> float:
        rendezvous = Rendezvous(2)
        first, second = rendezvous.wrap(noting([], "a")), rendezvous.wrap(noting([], "b"))
        await first("event-1", {"value": 1})
        start_s = asyncio.get_running_loop().time()
        await second("event-2", {"value": 2})
        return asyncio.get_running_loop().time() - start_s

    assert run_in_virtual_time(one_after_the_other()) == 0


def test_how_long_the_handler_itself_takes_is_not_limited() -> None:
    async def run_alone() -> tuple[Mapping[str, Any], list[str]]:
        log: list[str] = []

        async def slow(event_id: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
            log.append("starts")
            await asyncio.sleep(3)
            return {"event_id": event_id}

        return await Rendezvous(1).wrap(slow)("event-1", {}), log

    assert run_in_virtual_time(run_alone()) == ({"event_id": "event-1"}, ["starts"])


def test_an_exception_of_the_handler_passes_through_the_rendezvous_once() -> None:
    calls: list[str] = []

    async def fail(event_id: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        calls.append(event_id)
        raise TimeoutError("the handler's own")

    with pytest.raises(TimeoutError, match="the handler's own"):
        run_in_virtual_time(call(Rendezvous(1).wrap(fail)))
    assert calls == ["event-1"]


async def call(handler: ToolHandler) -> Mapping[str, Any]:
    return await handler("event-1", {})


# --- executor ---------------------------------------------------------------------------------------------

Job = Callable[[], Awaitable[None]]


class Counted:
    """Jobs that note when they start and how many run, and that hold until a test lets them go."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.running = 0
        self.peak = 0
        self.release = asyncio.Event()

    def job(self, name: str) -> Job:
        async def run() -> None:
            self.log.append(name)
            self.running += 1
            self.peak = max(self.peak, self.running)
            await self.release.wait()
            self.running -= 1

        return run


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("max_parallel", "started"), [(1, "a"), (2, "ab"), (3, "abc"), (9, "abcd")])
def test_at_most_max_parallel_jobs_run_and_they_start_in_order(max_parallel: int, started: str) -> None:
    async def run() -> Counted:
        counted = Counted()
        batch = asyncio.create_task(ConcurrentExecutor(max_parallel).run([counted.job(name) for name in "abcd"]))
        await settle()
        assert "".join(counted.log) == started
        assert not batch.done()
        counted.release.set()
        await batch
        return counted

    counted = run_in_virtual_time(run())
    assert "".join(counted.log) == "abcd"
    assert counted.peak == len(started)
    assert counted.running == 0


def test_a_free_place_goes_to_the_next_in_line() -> None:
    async def run() -> list[str]:
        log: list[str] = []
        second_may_end, third_may_end = asyncio.Event(), asyncio.Event()

        def job(name: str, gate: asyncio.Event | None) -> Job:
            async def noted() -> None:
                log.append(f"{name} starts")
                if gate is not None:
                    await gate.wait()
                log.append(f"{name} ends")

            return noted

        batch = asyncio.create_task(
            ConcurrentExecutor(2).run([job("a", None), job("b", second_may_end), job("c", third_may_end)])
        )
        await settle()
        third_may_end.set()
        await settle()
        second_may_end.set()
        await batch
        return log

    assert run_in_virtual_time(run()) == ["a starts", "a ends", "b starts", "c starts", "c ends", "b ends"]


def test_an_empty_batch_is_over_at_once() -> None:
    run_in_virtual_time(ConcurrentExecutor(2).run([]))


def test_cancelling_the_batch_cancels_its_jobs() -> None:
    async def run() -> list[str]:
        ended: list[str] = []

        async def job() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("job")

        batch = asyncio.create_task(ConcurrentExecutor(2).run([job]))
        await settle()
        batch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await batch
        return ended

    assert run_in_virtual_time(run()) == ["job"]

"""The mock for a first look: as a case's script says, but slow, drifting, and failing now and then."""

import asyncio
from random import Random

import pytest

from agentbench_otel import app
from agentbench_otel.cases import CATALOGUE
from agentbench_otel.providers.lively_mock import FAILURES_PER_RUN, LivelyChatClient
from agentbench_otel.providers.mock import ScriptedChatClient
from agentbench_otel.records.chat import ChatRequest, Exchange, ItemKind
from agentbench_otel.records.results import RunResult
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.runner import Runner, RunPlan, plan_runs
from tests.support.clock import ManualClock


def runs(count: int, *, seed: str = "seed") -> list[RunResult]:
    """``count`` times all cases in both modes but the parallel one: the manual clock stands still in handlers."""
    results: list[RunResult] = []

    class Keep:
        def accept(self, result: RunResult, spans: object) -> None:
            results.append(result)

    config = app.mock_config()
    number = 0

    def make_client(plan: RunPlan, clock: object) -> LivelyChatClient:
        nonlocal number
        number += 1
        assert isinstance(clock, ManualClock)

        async def sleep(seconds: float) -> None:
            clock.now_ns += round(seconds * 1e9)

        inner = ScriptedChatClient(CATALOGUE[plan.case_id], plan.mode, clock)
        return LivelyChatClient(inner, clock, Random(f"{seed}/{number}"), sleep=sleep)

    runner = Runner(config, client_factory=make_client, is_mock=True, sinks=[Keep()], clock_factory=ManualClock)

    async def all_runs() -> None:
        for plan in plan_runs(config.targets, config.benchmark) * count:
            if plan.case_id is not CaseId.PARALLEL_VOLUME_SCHEDULE:
                await runner.run(plan)

    asyncio.run(all_runs())
    return results


@pytest.fixture(scope="module")
def many() -> list[RunResult]:
    return runs(40)


def test_most_runs_pass_and_a_few_fail_in_each_way(many: list[RunResult]) -> None:
    failed = [run for run in many if run.status.value == "failed"]
    assert 0.5 * FAILURES_PER_RUN < len(failed) / len(many) < 2 * FAILURES_PER_RUN
    kinds = {run.error.kind if run.error else run.semantic_failures[0].kind.value for run in failed}
    assert kinds == {"http_503", "stream_truncated", "usage_missing"}


def test_times_vary_and_are_those_of_an_endpoint(many: list[RunResult]) -> None:
    times_ms = sorted(run.visible_ttft_ms for run in many if run.visible_ttft_ms is not None)
    assert 20 < times_ms[0] < times_ms[len(times_ms) // 2] < times_ms[-1] < 3000
    assert times_ms[-1] > 2 * times_ms[len(times_ms) // 2]


def test_connecting_takes_time_and_tokens_are_counted(many: list[RunResult]) -> None:
    passed = next(run for run in many if run.status.value == "passed")
    assert passed.model_calls[0].connect_ms is not None
    assert passed.total_tokens == (passed.prompt_tokens or 0) + (passed.completion_tokens or 0) > 15


def test_the_same_seed_gives_the_same_runs() -> None:
    def numbers(seed: str) -> list[object]:
        return [(run.status, run.turn_wall_time_ms, run.total_tokens) for run in runs(1, seed=seed)]

    assert numbers("a") == numbers("a") != numbers("b")


def test_every_case_says_all_of_its_script_word_by_word() -> None:
    clock = ManualClock()

    async def no_sleep(seconds: float) -> None:
        clock.advance_ms(1)

    async def texts(case_id: CaseId) -> list[str]:
        inner = ScriptedChatClient(CATALOGUE[case_id], Mode.DUAL_AGENT, clock)
        client = LivelyChatClient(inner, clock, Random(1), sleep=no_sleep)
        request = ChatRequest(messages=())
        return [item.text async for item in client.stream_chat(request, Exchange()) if item.kind is ItemKind.TEXT]

    for case_id in CaseId:
        pieces = asyncio.run(texts(case_id))
        assert "".join(pieces).startswith(CATALOGUE[case_id].mock_messages[0])
        assert len(pieces) > 1 or case_id is CaseId.SESSION_TERMINATE

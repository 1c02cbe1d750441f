"""Whole runs: the runner with the scripted mock, and with clients that fail in every way a client can."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from itertools import chain, count, repeat
from typing import Any

import pytest

from agentbench_otel import names
from agentbench_otel.cases import CATALOGUE
from agentbench_otel.config import Benchmark, Config, Target
from agentbench_otel.errors import ProviderError
from agentbench_otel.measurement.assemble import assemble
from agentbench_otel.ports import ChatClient, Clock
from agentbench_otel.providers.mock import ScriptedChatClient
from agentbench_otel.records.chat import ChatRequest
from agentbench_otel.records.results import FailureKind, RunFault, RunResult, Status
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.records.spans import SpanRecord
from agentbench_otel.runner import ClientFactory, Runner, RunPlan, plan_runs
from agentbench_otel.telemetry.otlp_json import decode_line, encode_lines
from tests.support.agent_fakes import run_in_virtual_time
from tests.support.cli import environment
from tests.support.clients import FaultyClient

TARGET = Target(name="mock", base_url="http://mock.invalid/v1", model="mock")


class KeptRuns:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.results: list[RunResult] = []
        self.spans: list[Sequence[SpanRecord]] = []

    def accept(self, result: RunResult, spans: Sequence[SpanRecord]) -> None:
        self.results.append(result)
        self.spans.append(spans)

    @property
    def result(self) -> RunResult:
        (result,) = self.results
        return result


class SerialExecutor:
    """One handler after the other: what the parallel case is there to find out."""

    async def run(self, jobs: Sequence[Callable[[], Awaitable[None]]]) -> None:
        for job in jobs:
            await job()


def mock_client(plan: RunPlan, clock: Clock) -> ScriptedChatClient:
    return ScriptedChatClient(CATALOGUE[plan.case_id], plan.mode, clock)


def faulty(**faults: Any) -> ClientFactory:
    """Mock clients with these faults; see `FaultyClient`."""
    return lambda plan, clock: FaultyClient(mock_client(plan, clock), **faults)


def only_first(factory: ClientFactory) -> ClientFactory:
    """The first run has a client of this factory, the others are sound."""
    numbers = count()
    return lambda plan, clock: factory(plan, clock) if next(numbers) == 0 else mock_client(plan, clock)


def plan_of(case_id: CaseId = CaseId.ORDINARY_CHAT, mode: Mode = Mode.DUAL_AGENT) -> RunPlan:
    return RunPlan(target=TARGET, case_id=case_id, mode=mode, iteration=1)


def make_runner(
    sink: KeptRuns, factory: ClientFactory = mock_client, *, is_mock: bool = True, **options: Any
) -> Runner:
    """Options of `Runner` go to it, the others are the benchmark's."""
    for_runner = {
        key: options.pop(key)
        for key in ("executor_factory", "adaptation_count", "clock_factory", "cancel_grace_s")
        if key in options
    }
    config = Config(schema_version=1, targets=(TARGET,), benchmark=Benchmark(**options))
    return Runner(config, client_factory=factory, is_mock=is_mock, sinks=[sink], **for_runner)


async def run_plans(runner: Runner, plans: Sequence[RunPlan]) -> None:
    for plan in plans:
        await runner.run(plan)


def run(*plans: RunPlan, factory: ClientFactory = mock_client, **options: Any) -> KeptRuns:
    """Make these runs, or the one of `plan_of`, in time that passes at once."""
    sink = KeptRuns()
    run_in_virtual_time(run_plans(make_runner(sink, factory, **options), plans or [plan_of()]))
    return sink


def all_plans() -> list[RunPlan]:
    return plan_runs([TARGET], Benchmark())


def failure_kinds(result: RunResult) -> list[FailureKind]:
    return [failure.kind for failure in result.semantic_failures]


# --- the mock ----------------------------------------------------------------------------------------------


def test_all_twelve_runs_of_the_mock_pass() -> None:
    sink = KeptRuns()
    asyncio.run(run_plans(make_runner(sink), all_plans()))
    assert len(sink.results) == 12
    assert not any(result.warmup for result in sink.results)
    assert [(result.status, result.error, result.semantic_failures) for result in sink.results] == [
        (Status.PASSED, None, ())
    ] * 12


def test_every_number_of_a_mock_run_is_measured() -> None:
    for result in run(*all_plans()).results:
        times = [
            value for key, value in result.model_dump().items() if key.endswith("_ms") and key != "overlap_ms"
        ]
        assert None not in times
        assert result.prompt_tokens == 10 * result.model_call_count
        assert result.total_tokens == 15 * result.model_call_count
        assert result.reasoning_tokens is None  # the mock does not report them


def test_parts_of_the_turn_sum_to_its_wall() -> None:
    for result in run(*all_plans()).results:
        parts = (result.turn_provider_ms, result.turn_handler_ms, result.harness_ms)
        known = [part for part in parts if part is not None]
        assert len(known) == 3
        assert sum(known) == pytest.approx(result.turn_wall_time_ms, abs=0.002)


def test_parallel_handlers_overlap_by_their_spans() -> None:
    results = run(*all_plans()).results
    overlapped = {
        result.case_id: (result.parallel_events_overlapped, result.max_handler_concurrency) for result in results
    }
    assert overlapped.pop(CaseId.PARALLEL_VOLUME_SCHEDULE) == (True, 2)
    assert {verdict for verdict, _ in overlapped.values()} == {None}


def test_a_serial_executor_fails_exactly_the_parallel_runs_by_no_overlap_alone() -> None:
    results = run(*all_plans(), executor_factory=SerialExecutor).results
    failed = [result for result in results if result.status is Status.FAILED]
    assert [(result.case_id, result.mode) for result in failed] == [
        (CaseId.PARALLEL_VOLUME_SCHEDULE, Mode.DUAL_AGENT),
        (CaseId.PARALLEL_VOLUME_SCHEDULE, Mode.CHAT_AGENT_TOOLS),
    ]
    for result in failed:
        assert [(one.kind, one.message) for one in result.semantic_failures] == [
            (FailureKind.NO_OVERLAP, "parallel event handlers did not overlap")
        ]
        assert result.error is None
        assert result.parallel_events_overlapped is False
        assert (result.overlap_ms, result.max_handler_concurrency) == (0.0, 1)


def test_a_serial_executor_fails_on_the_real_clock_too() -> None:
    sink = KeptRuns()
    runner = make_runner(sink, executor_factory=SerialExecutor)
    asyncio.run(run_plans(runner, [plan_of(CaseId.PARALLEL_VOLUME_SCHEDULE)]))
    assert failure_kinds(sink.result) == [FailureKind.NO_OVERLAP]


def test_a_run_that_asks_the_mock_too_often_is_exhausted() -> None:
    case = CATALOGUE[CaseId.WEB_SEARCH_TWO_ANSWERS].model_copy(update={"mock_messages": ("I will check.",)})
    sink = run(plan_of(case.case_id), factory=lambda plan, clock: ScriptedChatClient(case, plan.mode, clock))
    assert sink.result.status is Status.FAILED
    assert sink.result.error == RunFault(
        kind="mock_exhausted", message="mock benchmark stream exhausted: web_search_two_answers"
    )


# --- usage -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("silent_call", [1, 2])
def test_one_silent_call_makes_the_totals_null_and_the_run_fail(silent_call: int) -> None:
    sink = run(plan_of(CaseId.WEB_SEARCH_TWO_ANSWERS), factory=faulty(silent_call=silent_call))
    result = sink.result
    assert result.status is Status.FAILED
    assert result.error is None
    assert [(one.kind, one.message) for one in result.semantic_failures] == [
        (FailureKind.USAGE_MISSING, "model usage missing for 1 call(s)")
    ]
    totals = (
        result.prompt_tokens,
        result.completion_tokens,
        result.total_tokens,
        result.cached_tokens,
        result.reasoning_tokens,
    )
    assert totals == (None,) * 5
    assert [call.usage is None for call in result.model_calls] == [silent_call == 1, silent_call == 2]


def test_a_run_that_never_called_is_not_blamed_for_usage() -> None:
    def refuse(plan: RunPlan, clock: Clock) -> ChatClient:
        raise ProviderError("tls_error", "no certificate")

    assert run(factory=refuse).result.semantic_failures == ()


# --- providers that fail -----------------------------------------------------------------------------------


def lost() -> ProviderError:
    return ProviderError("stream_truncated", "the stream ended too early")


def test_a_provider_error_is_the_error_of_the_run_and_of_its_call() -> None:
    result = run(factory=faulty(raise_after=2, error=lost())).result
    fault = RunFault(kind="stream_truncated", message="the stream ended too early")
    assert result.status is Status.FAILED
    assert result.error == fault
    assert [call.error for call in result.model_calls] == [fault]


def test_a_provider_that_raises_after_two_items_keeps_its_numbers() -> None:
    result = run(factory=faulty(raise_after=2, error=lost())).result
    (call,) = result.model_calls
    assert call.await_count == 3
    assert call.first_item_kind == "raw_chunk"
    for value in (
        result.initial_provider_ttft_ms,
        result.token_ttft_ms,
        result.visible_ttft_ms,
        result.turn_wall_time_ms,
        result.provider_await_ms,
        result.provider_stream_ms,
    ):
        assert value is not None
        assert value > 0


def test_the_run_after_a_failed_one_passes() -> None:
    results = run(plan_of(), plan_of(), factory=only_first(faulty(raise_after=2, error=lost()))).results
    assert [result.status for result in results] == [Status.FAILED, Status.PASSED]


def test_a_turn_that_ended_in_an_error_is_checked_in_full() -> None:
    result = run(plan_of(CaseId.DEVICE_VOLUME_SILENT), factory=faulty(raise_after=1, error=lost())).result
    assert failure_kinds(result) == [
        FailureKind.ANSWER_COUNT,
        FailureKind.MOCK_TEXT,
        FailureKind.ANSWER_AFTER_TOOL,
        FailureKind.EVENT_NAMES,
        FailureKind.BATCH_EVENT_NAMES,
        FailureKind.TOOL_EVENT_NAMES,
        FailureKind.EVENT_SOURCES,
        FailureKind.BATCH_STATUS,
        FailureKind.TOOL_COUNT,
        FailureKind.USAGE_MISSING,
    ]


# --- bugs --------------------------------------------------------------------------------------------------


def test_a_bug_is_an_internal_error_with_its_traceback_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    bug = ZeroDivisionError("odd")
    result = run(factory=faulty(raise_after=2, error=bug)).result
    assert result.status is Status.FAILED
    assert result.error == RunFault(kind="internal", message="ZeroDivisionError: odd")
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.exc_info is not None
    assert record.exc_info[1] is bug
    assert record.getMessage() == "run mock/ordinary_chat/dual_agent #1 failed by a bug of agentbench-otel"


def test_a_run_that_raised_is_blamed_for_missing_usage_alone_and_keeps_its_numbers() -> None:
    result = run(
        plan_of(CaseId.DEVICE_VOLUME_SILENT), factory=faulty(raise_after=2, error=ZeroDivisionError())
    ).result
    assert failure_kinds(result) == [FailureKind.USAGE_MISSING]
    assert result.turn_wall_time_ms is not None
    assert result.token_ttft_ms is not None


def test_overlap_is_not_told_of_a_run_that_raised() -> None:
    plan = plan_of(CaseId.PARALLEL_VOLUME_SCHEDULE)
    assert (
        run(plan, factory=faulty(raise_after=1, error=ZeroDivisionError())).result.parallel_events_overlapped
        is None
    )


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ZeroDivisionError("odd"), "internal", "ZeroDivisionError: odd"),
        (ProviderError("tls_error", "no certificate"), "tls_error", "no certificate"),
        (TimeoutError("too slow"), "internal", "TimeoutError: too slow"),
    ],
    ids=["bug", "provider error", "timeout of its own"],
)
def test_a_factory_that_raises_fails_its_run_and_the_next_goes_on(
    error: Exception, kind: str, message: str
) -> None:
    def broken(plan: RunPlan, clock: Clock) -> ChatClient:
        raise error

    first, second = run(plan_of(), plan_of(), factory=only_first(broken)).results
    assert first.error == RunFault(kind=kind, message=message)
    assert first.turn_wall_time_ms is None
    assert first.model_calls == ()
    assert second.status is Status.PASSED


def test_a_timeout_that_is_not_the_deadline_is_a_bug() -> None:
    result = run(factory=faulty(raise_after=1, error=TimeoutError("odd"))).result
    assert result.error == RunFault(kind="internal", message="TimeoutError: odd")


# --- deadline and cancellation -----------------------------------------------------------------------------


def never() -> Coroutine[Any, Any, bool]:
    return asyncio.Event().wait()


def test_a_run_beyond_its_deadline_fails_with_it() -> None:
    result = run(factory=faulty(stop=never), run_deadline_s=1.0).result
    assert result.status is Status.FAILED
    assert result.error == RunFault(kind="run_deadline", message="the run took longer than run_deadline_s = 1")
    assert failure_kinds(result) == [FailureKind.USAGE_MISSING]


def test_the_call_that_the_deadline_cut_keeps_its_numbers() -> None:
    (call,) = run(factory=faulty(stop=never), run_deadline_s=1.0).result.model_calls
    assert call.error is not None
    assert call.error.kind == "cancelled"
    assert call.provider_ttft_ms is not None
    assert call.await_count == 2


def test_the_run_after_a_deadline_passes() -> None:
    results = run(plan_of(), plan_of(), factory=only_first(faulty(stop=never)), run_deadline_s=1.0).results
    assert [result.status for result in results] == [Status.FAILED, Status.PASSED]


async def cancel_in_flight(
    sink: KeptRuns, *, adaptation_count: Callable[[RunPlan], int] = lambda plan: 0, **faults: Any
) -> list[FaultyClient]:
    """Cancel a run once its provider has given one item; the clients it had."""
    is_streaming = asyncio.Event()
    clients: list[FaultyClient] = []

    async def stop() -> None:
        is_streaming.set()
        await never()

    def make_client(plan: RunPlan, clock: Clock) -> FaultyClient:
        clients.append(FaultyClient(mock_client(plan, clock), stop=stop, **faults))
        return clients[-1]

    runner = make_runner(sink, make_client, adaptation_count=adaptation_count)
    task = asyncio.create_task(runner.run(plan_of()))
    await is_streaming.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return clients


def test_a_cancelled_run_is_aborted_in_the_sink_and_the_cancellation_goes_on() -> None:
    sink = KeptRuns()
    asyncio.run(cancel_in_flight(sink))
    assert sink.result.status is Status.FAILED
    assert sink.result.error == RunFault(kind="aborted", message="the run was aborted before it ended")
    assert failure_kinds(sink.result) == [FailureKind.USAGE_MISSING]
    assert sink.result.initial_provider_ttft_ms is not None


def test_the_client_of_a_cancelled_run_is_closed() -> None:
    (client,) = asyncio.run(cancel_in_flight(KeptRuns()))
    assert client.close_count == 1


def test_a_close_failure_is_appended_to_an_abortion() -> None:
    sink = KeptRuns()
    asyncio.run(cancel_in_flight(sink, close_error=OSError("gone")))
    assert sink.result.error == RunFault(
        kind="aborted", message="the run was aborted before it ended; close failed: gone"
    )


def test_a_run_that_is_cancelled_while_it_closes_is_aborted_too() -> None:
    sink = KeptRuns()

    async def cancel_the_closing() -> None:
        is_closing = asyncio.Event()

        class Slow(FaultyClient):
            async def aclose(self) -> None:
                is_closing.set()
                await never()

        runner = make_runner(sink, lambda plan, clock: Slow(mock_client(plan, clock)))
        task = asyncio.create_task(runner.run(plan_of()))
        await is_closing.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_the_closing())
    assert sink.result.error == RunFault(kind="aborted", message="the run was aborted before it ended")
    assert sink.result.total_tokens == 15


# --- what ignores its cancellation -------------------------------------------------------------------------


class Stubborn:
    """Waits on, however often it is cancelled, until it is let go. It is a client's fault and an executor."""

    def __init__(self) -> None:
        self.is_let_go = asyncio.Event()
        self.cancel_count = 0

    async def wait(self) -> None:
        while not self.is_let_go.is_set():
            try:
                await self.is_let_go.wait()
            except asyncio.CancelledError:
                self.cancel_count += 1

    async def run(self, jobs: Sequence[Callable[[], Awaitable[None]]]) -> None:
        del jobs
        await self.wait()


def run_stubbornly(*plans: RunPlan, stubborn: Stubborn, **options: Any) -> tuple[KeptRuns, KeptRuns]:
    """Make these runs; what the sink has before and after the stubborn code is let go."""
    sink, before = KeptRuns(), KeptRuns()

    async def main() -> None:
        await run_plans(make_runner(sink, run_deadline_s=1.0, cancel_grace_s=2.0, **options), plans)
        before.results, before.spans = list(sink.results), list(sink.spans)
        stubborn.is_let_go.set()
        await asyncio.sleep(1)  # it has time to end

    run_in_virtual_time(main())
    return before, sink


STUCK = RunFault(kind="stuck", message="the run did not end within 2 s of its cancellation, and was left")


def test_a_client_that_ignores_its_cancellation_is_left_and_the_next_run_passes() -> None:
    stubborn = Stubborn()
    factory = only_first(faulty(stop=stubborn.wait))
    before, _ = run_stubbornly(plan_of(), plan_of(), stubborn=stubborn, factory=factory)
    stuck, following = before.results
    assert (stuck.status, stuck.error) == (Status.FAILED, STUCK)
    assert (following.status, following.error) == (Status.PASSED, None)
    assert stubborn.cancel_count == 2  # by its deadline, and when it was left


def test_a_handler_that_ignores_its_cancellation_is_left_and_the_next_run_passes() -> None:
    stubborn = Stubborn()
    plans = (plan_of(CaseId.DEVICE_VOLUME_SILENT), plan_of(CaseId.ORDINARY_CHAT))
    before, _ = run_stubbornly(*plans, stubborn=stubborn, executor_factory=lambda: stubborn)
    assert [(result.status, result.error) for result in before.results] == [
        (Status.FAILED, STUCK),
        (Status.PASSED, None),
    ]


def test_of_a_run_that_was_left_only_its_start_and_its_end_are_told() -> None:
    before, _ = run_stubbornly(plan_of(), stubborn=(stubborn := Stubborn()), factory=faulty(stop=stubborn.wait))
    ((run_span,),) = before.spans
    assert before.result == assemble([run_span])
    assert (before.result.semantic_failures, before.result.model_calls) == ((), ())
    assert before.result.turn_wall_time_ms is None
    assert before.result.total_tokens is None
    assert run_span.error == STUCK.message


def test_the_span_of_a_run_that_was_left_is_as_long_as_it_took() -> None:
    stubborn = Stubborn()
    clocks: list[Clock] = []

    def make_clock() -> Clock:
        loop = asyncio.get_running_loop()
        clocks.append(lambda: round(loop.time() * 1e9))
        return clocks[-1]

    before, _ = run_stubbornly(
        plan_of(), stubborn=stubborn, factory=faulty(stop=stubborn.wait), clock_factory=make_clock
    )
    ((run_span,),) = before.spans
    assert run_span.duration_ns == 3_000_000_000
    assert len(clocks) == 1


def test_what_a_run_that_was_left_does_later_is_no_second_result() -> None:
    stubborn = Stubborn()
    before, after = run_stubbornly(plan_of(), stubborn=stubborn, factory=faulty(stop=stubborn.wait))
    assert stubborn.is_let_go.is_set()
    assert len(before.results) == 1
    assert after.results == before.results


def test_a_run_that_ends_late_but_within_its_grace_is_not_left() -> None:
    """Closing a client may take longer than its run had left."""

    class Slow(FaultyClient):
        async def aclose(self) -> None:
            await asyncio.sleep(1.9)

    factory = only_first(lambda plan, clock: Slow(mock_client(plan, clock), stop=never))
    before, _ = run_stubbornly(plan_of(), stubborn=Stubborn(), factory=factory)
    assert before.result.error == RunFault(
        kind="run_deadline", message="the run took longer than run_deadline_s = 1"
    )
    assert len(before.result.model_calls) == 1


def test_an_aborted_run_that_ignores_it_is_left_too_and_the_cancellation_goes_on() -> None:
    sink, stubborn = KeptRuns(), Stubborn()

    async def main() -> None:
        is_streaming = asyncio.Event()

        async def stop() -> None:
            is_streaming.set()
            await stubborn.wait()

        runner = make_runner(sink, faulty(stop=stop), cancel_grace_s=2.0)
        task = asyncio.create_task(runner.run(plan_of()))
        await is_streaming.wait()
        start_s = asyncio.get_running_loop().time()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.get_running_loop().time() - start_s == pytest.approx(2.0)
        stubborn.is_let_go.set()

    run_in_virtual_time(main())
    assert sink.result.error == STUCK


def test_a_run_that_is_cancelled_twice_is_aborted_and_its_result_is_kept() -> None:
    """Two signals in a row, while the run cleans up after the first."""
    sink = KeptRuns()

    async def main() -> None:
        is_streaming = asyncio.Event()

        async def stop() -> None:
            is_streaming.set()
            try:
                await never()
            finally:
                await asyncio.sleep(1)

        task = asyncio.create_task(make_runner(sink, faulty(stop=stop)).run(plan_of()))
        await is_streaming.wait()
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0.1)
        with pytest.raises(asyncio.CancelledError):
            await task

    run_in_virtual_time(main())
    assert sink.result.error is not None
    assert sink.result.error.kind == "aborted"


NEVER_LET_GO = """
import sys
from agentbench_otel import app
from agentbench_otel.cli.output import exit_code
from agentbench_otel.loop import leave, run_loop
from agentbench_otel.records.scenario import CaseId
from tests.integration import test_runner as runs

sink, stubborn = runs.KeptRuns(), runs.Stubborn()
faults = {
    "client": {"factory": runs.only_first(runs.faulty(stop=stubborn.wait))},
    "handlers": {"executor_factory": lambda: stubborn},
}
runner = runs.make_runner(sink, run_deadline_s=0.1, cancel_grace_s=0.1, **faults[sys.argv[1]])
plans = [runs.plan_of(CaseId.DEVICE_VOLUME_SILENT), runs.plan_of(CaseId.ORDINARY_CHAT)]
run_loop(runs.run_plans(runner, plans))
started_at = sink.results[0].started_at
report = app.make_report(sink.results, is_mock=True, started_at=started_at, finished_at=started_at)
print([run.error and run.error.kind for run in report.runs])
leave(exit_code(report))
"""


@pytest.mark.parametrize("stubborn", ["client", "handlers"])
def test_a_process_ends_though_one_of_its_runs_never_does(stubborn: str) -> None:
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", NEVER_LET_GO, stubborn],
        env=environment(),
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert process.stdout.decode() == "['stuck', None]\n"
    assert process.returncode == 3
    assert process.stderr == b""


# --- closing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [None, lost(), ValueError()], ids=["none", "provider error", "bug"])
def test_the_client_is_closed_once_on_every_path(error: Exception | None) -> None:
    clients: list[FaultyClient] = []

    def make_client(plan: RunPlan, clock: Clock) -> FaultyClient:
        clients.append(FaultyClient(mock_client(plan, clock), raise_after=2, error=error))
        return clients[-1]

    run(factory=make_client)
    assert [client.close_count for client in clients] == [1]


def test_a_close_failure_makes_a_passed_run_fail() -> None:
    result = run(factory=faulty(close_error=OSError("gone"))).result
    assert result.status is Status.FAILED
    assert result.error == RunFault(kind="close_failed", message="close failed: gone")
    assert result.semantic_failures == ()


def test_a_close_failure_without_words_is_told_by_its_class() -> None:
    result = run(factory=faulty(close_error=OSError())).result
    assert result.error == RunFault(kind="close_failed", message="close failed: OSError")


def test_a_close_failure_is_appended_to_the_error_of_the_turn() -> None:
    result = run(factory=faulty(raise_after=2, error=lost(), close_error=OSError("gone"))).result
    assert result.error == RunFault(
        kind="stream_truncated", message="the stream ended too early; close failed: gone"
    )


def test_a_close_failure_is_appended_to_a_bug() -> None:
    result = run(factory=faulty(raise_after=2, error=ValueError("odd"), close_error=OSError("gone"))).result
    assert result.error == RunFault(kind="internal", message="ValueError: odd; close failed: gone")


def test_a_client_that_does_not_close_in_time_is_given_up() -> None:
    class Stuck(FaultyClient):
        async def aclose(self) -> None:
            await never()

    result = run(factory=lambda plan, clock: Stuck(mock_client(plan, clock))).result
    assert result.error == RunFault(kind="close_failed", message="close failed: not closed within 5 s")


def test_a_timeout_that_closing_raises_itself_is_told_in_its_own_words() -> None:
    result = run(factory=faulty(close_error=TimeoutError("the socket timed out"))).result
    assert result.error == RunFault(kind="close_failed", message="close failed: the socket timed out")


def test_the_run_after_a_close_failure_passes() -> None:
    results = run(plan_of(), plan_of(), factory=only_first(faulty(close_error=OSError("gone")))).results
    assert [result.status for result in results] == [Status.FAILED, Status.PASSED]


# --- adaptations -------------------------------------------------------------------------------------------


class Adapting:
    """An endpoint that refuses ``refusal_count`` runs, each for another parameter that is then adapted."""

    def __init__(self, refusal_count: int) -> None:
        self._refusal_count = refusal_count
        self.adapted_count = 0
        self.run_count = 0

    def count(self, plan: RunPlan) -> int:
        del plan
        return self.adapted_count

    def make_client(self, plan: RunPlan, clock: Clock) -> ChatClient:
        self.run_count += 1
        if self.adapted_count == self._refusal_count:
            return mock_client(plan, clock)
        self.adapted_count += 1
        return FaultyClient(mock_client(plan, clock), raise_after=1, error=ProviderError("http_400", "no"))


@pytest.mark.parametrize("refusal_count", [0, 1, 3])
def test_a_run_that_was_refused_is_made_again_until_nothing_new_is_adapted(refusal_count: int) -> None:
    endpoint = Adapting(refusal_count)
    sink = run(factory=endpoint.make_client, adaptation_count=endpoint.count)
    assert sink.result.status is Status.PASSED
    assert endpoint.run_count == refusal_count + 1


def test_a_run_that_fails_without_an_adaptation_is_not_made_again() -> None:
    runs: list[RunPlan] = []

    def make_client(plan: RunPlan, clock: Clock) -> ChatClient:
        runs.append(plan)
        return FaultyClient(mock_client(plan, clock), raise_after=1, error=lost())

    assert run(factory=make_client, adaptation_count=lambda plan: 2).result.status is Status.FAILED
    assert len(runs) == 1


def test_a_cancelled_run_is_not_made_again_though_something_was_adapted() -> None:
    counts = chain([0], repeat(1))
    sink = KeptRuns()
    clients = run_in_virtual_time(cancel_in_flight(sink, adaptation_count=lambda plan: next(counts)))
    assert len(clients) == 1
    assert sink.result.error is not None
    assert sink.result.error.kind == "aborted"


# --- what is exported changes nothing that is measured -----------------------------------------------------


def without_times_and_ids(result: RunResult) -> Any:
    """The result with every time replaced by whether it was measured."""
    changing = {"run_id", "cycle_id", "trace_id", "started_at", "warnings"}

    def shape(value: Any) -> Any:
        if isinstance(value, float):
            return "a time"
        if isinstance(value, dict):
            return {key: shape(inner) for key, inner in value.items() if key not in changing}
        return [shape(inner) for inner in value] if isinstance(value, list | tuple) else value

    return shape(result.model_dump())


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_TRACES_SAMPLER": "always_off"},
        {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "1", "OTEL_SPAN_EVENT_COUNT_LIMIT": "1"},
    ],
    ids=lambda variables: next(iter(variables)),
)
def test_settings_of_the_sdk_change_nothing_that_is_measured(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    usual = run(*all_plans())
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    other = run(*all_plans())
    assert list(map(without_times_and_ids, other.results)) == list(map(without_times_and_ids, usual.results))
    assert [len(spans) for spans in other.spans] == [len(spans) for spans in usual.spans]


# --- the spans are the result ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "factory",
    [
        mock_client,
        faulty(raise_after=2, error=lost()),
        faulty(raise_after=1, error=ValueError("odd")),
        faulty(silent_call=1),
        faulty(close_error=OSError("gone")),
    ],
    ids=["mock", "provider error", "bug", "silent", "close failure"],
)
def test_the_result_can_be_read_from_the_sinks_spans_alone(factory: ClientFactory) -> None:
    sink = run(*all_plans(), factory=factory)
    assert [assemble(spans) for spans in sink.spans] == sink.results


def test_the_result_survives_the_way_through_otlp_json() -> None:
    sink = run(*all_plans())
    for result, spans in zip(sink.results, sink.spans, strict=True):
        lines = encode_lines(spans, {})
        assert assemble(span for line in lines for span in decode_line(line).spans) == result


def test_every_span_of_a_run_hangs_on_its_run_span() -> None:
    for result, spans in zip((sink := run(*all_plans())).results, sink.spans, strict=True):
        by_id = {span.span_id: span for span in spans}
        roots = [span for span in spans if span.parent_span_id is None]
        assert [span.name for span in roots] == [f"agentbench.run {result.case_id.value}"]
        assert len(by_id) == len(spans)
        for span in spans:
            parent = roots[0] if span.parent_span_id is None else by_id[span.parent_span_id]
            assert parent.start_ns <= span.start_ns <= span.end_ns <= parent.end_ns
            assert span.trace_id == result.trace_id


def test_the_run_span_of_a_failed_run_is_an_error() -> None:
    sink = run(factory=faulty(raise_after=2, error=lost()))
    (run_span,) = [span for span in sink.spans[0] if span.parent_span_id is None]
    assert run_span.error == "the stream ended too early"
    assert run_span.attributes[names.ERROR_TYPE] == "stream_truncated"


def test_the_verdict_stands_at_the_end_of_the_turn() -> None:
    sink = run(plan_of(CaseId.PARALLEL_VOLUME_SCHEDULE), executor_factory=SerialExecutor)
    spans = {span.name.partition(" ")[0]: span for span in sink.spans[0]}
    (event,) = [event for event in spans[names.RUN_SPAN].events if event.name == names.SEMANTIC_FAILURE_EVENT]
    assert event.time_ns == spans[names.TURN_SPAN].end_ns


def test_what_was_said_stands_on_no_span() -> None:
    sink = run(*all_plans())
    for result, spans in zip(sink.results, sink.spans, strict=True):
        case = CATALOGUE[result.case_id]
        written = " ".join(map(repr, spans))
        for words in (case.user_message, *case.mock_messages, *case.expectation.visible_messages, "Design review"):
            assert words not in written


# --- identity and settings of a run ------------------------------------------------------------------------


def test_runs_of_one_runner_share_a_cycle_and_nothing_else() -> None:
    results = run(plan_of(), plan_of()).results
    assert len({result.cycle_id for result in results}) == 1
    assert len({result.run_id for result in results}) == 2
    assert len({result.trace_id for result in results}) == 2


def test_a_warm_up_is_marked() -> None:
    plan = RunPlan(target=TARGET, case_id=CaseId.ORDINARY_CHAT, mode=Mode.DUAL_AGENT, iteration=2, is_warmup=True)
    result = run(plan).result
    assert (result.warmup, result.iteration) == (True, 2)


def test_each_sink_gets_each_run_before_the_next_begins() -> None:
    order: list[str] = []

    class Noting:
        def __init__(self, name: str) -> None:
            self._name = name

        def accept(self, result: RunResult, spans: Sequence[SpanRecord]) -> None:
            del result, spans
            order.append(self._name)

    def make_client(plan: RunPlan, clock: Clock) -> ChatClient:
        order.append("run")
        return mock_client(plan, clock)

    config = Config(schema_version=1, targets=(TARGET,))
    sinks = [Noting("first"), Noting("second")]
    runner = Runner(config, client_factory=make_client, is_mock=True, sinks=sinks)
    asyncio.run(run_plans(runner, [plan_of(), plan_of()]))
    assert order == ["run", "first", "second"] * 2


@pytest.mark.parametrize(
    ("base_url", "address", "port"),
    [
        ("http://127.0.0.1:8080/v1", "127.0.0.1", 8080),
        ("http://llm.example/v1", "llm.example", 80),
        ("https://llm.example/v1", "llm.example", 443),
        ("http://[::1]:9000/v1", "::1", 9000),
    ],
)
def test_calls_of_a_live_run_name_the_server(base_url: str, address: str, port: int) -> None:
    target = Target(name="live", base_url=base_url, model="tiny", provider="vllm")
    plan = RunPlan(target=target, case_id=CaseId.ORDINARY_CHAT, mode=Mode.DUAL_AGENT, iteration=1)
    (spans,) = run(plan, is_mock=False).spans
    (call,) = [span for span in spans if span.name == "chat tiny"]
    assert (call.attributes[names.SERVER_ADDRESS], call.attributes[names.SERVER_PORT]) == (address, port)
    assert call.attributes[names.PROVIDER_NAME] == "vllm"


def test_calls_of_a_mock_run_name_no_server() -> None:
    (spans,) = run().spans
    (call,) = [span for span in spans if span.name == "chat mock"]
    assert call.attributes[names.PROVIDER_NAME] == "mock"
    assert names.SERVER_ADDRESS not in call.attributes


def cache_warnings(**options: Any) -> list[str]:
    return [words for words in run(**options).result.warnings if "cache" in words]


def test_cached_tokens_of_a_live_run_are_a_warning_unless_they_are_allowed() -> None:
    (words,) = cache_warnings(is_mock=False)
    assert "2 prompt tokens came from the provider's cache though prompt_cache is avoid" in words
    assert cache_warnings(is_mock=False, prompt_cache="allow") == []
    assert cache_warnings(is_mock=True) == []


class Listening(FaultyClient):
    """Keeps the requests that it was sent."""

    def __init__(self, inner: ChatClient, requests: list[ChatRequest]) -> None:
        super().__init__(inner)
        self._requests = requests

    def stream_chat(self, request: ChatRequest, *arguments: Any) -> Any:
        self._requests.append(request)
        return super().stream_chat(request, *arguments)


def system_prompts(**options: Any) -> list[str]:
    requests: list[ChatRequest] = []
    run(plan_of(), plan_of(), factory=lambda plan, clock: Listening(mock_client(plan, clock), requests), **options)
    return [request.messages[0].content for request in requests]


def test_the_prompt_begins_differently_in_every_run_unless_the_cache_is_allowed() -> None:
    first, second = system_prompts(prompt_cache="avoid")
    assert first[:60] != second[:60]
    first, second = system_prompts(prompt_cache="allow")
    assert first == second


# --- plans -------------------------------------------------------------------------------------------------


def test_a_cycle_is_planned_by_target_case_mode_and_iteration_warm_ups_first() -> None:
    targets = [TARGET, TARGET.model_copy(update={"name": "other"})]
    benchmark = Benchmark(cases=(CaseId.SESSION_TERMINATE,), runs_per_case=2, warmup_runs=1)
    plans = plan_runs(targets, benchmark)
    assert [(plan.target.name, plan.mode, plan.is_warmup, plan.iteration) for plan in plans] == [
        (name, mode, is_warmup, iteration)
        for name in ("mock", "other")
        for mode in Mode
        for is_warmup, iteration in ((True, 1), (False, 1), (False, 2))
    ]


def test_a_plan_without_settings_is_every_case_in_both_modes() -> None:
    assert [(plan.case_id, plan.mode) for plan in all_plans()] == [
        (case_id, mode) for case_id in CaseId for mode in Mode
    ]

"""(target, case, mode, iteration) → `RunResult`: the whole life of a run, top to bottom."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from agentbench_otel import names
from agentbench_otel.agent.adapters import Rendezvous, in_memory_handlers
from agentbench_otel.agent.executor import ConcurrentExecutor
from agentbench_otel.agent.runtime import AgentRuntime, TurnRequest
from agentbench_otel.agent.tools import ToolRegistry
from agentbench_otel.cases import CATALOGUE
from agentbench_otel.config import Benchmark, Config, Target
from agentbench_otel.errors import ErrorKind, RunError
from agentbench_otel.measurement.assemble import assemble
from agentbench_otel.measurement.expectations import check_expectations, usage_failures
from agentbench_otel.measurement.facts import RunFacts, measure_run
from agentbench_otel.measurement.warnings import collect_warnings
from agentbench_otel.ports import ChatClient, Clock, HandlerExecutor, Sink
from agentbench_otel.records.results import RunFault, RunResult, Status
from agentbench_otel.records.scenario import Case, CaseId, Mode
from agentbench_otel.records.spans import AttributeValue, SpanRecord
from agentbench_otel.records.turn import MessageType, OutputMessage
from agentbench_otel.telemetry.clock import AnchoredClock
from agentbench_otel.telemetry.endpoint_attributes import endpoint_attributes
from agentbench_otel.telemetry.recorder import OpenSpan, Recorder, error_words
from agentbench_otel.telemetry.traced_client import TracedChatClient

MAX_PARALLEL_EVENTS = 2
CLOSE_LIMIT_S = 5.0
CANCEL_GRACE_S = 10.0
"""For a run that was cancelled, closing its client included. One that takes longer ignores its cancellation: it
is left to itself, and the next one starts."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """One run that is to be made. ``iteration`` counts from 1, warm-ups apart from counted runs."""

    target: Target
    case_id: CaseId
    mode: Mode
    iteration: int
    is_warmup: bool = False


ClientFactory = Callable[[RunPlan, Clock], ChatClient]


def plan_runs(targets: Iterable[Target], benchmark: Benchmark) -> list[RunPlan]:
    """Every run of a cycle in order: targets × cases × modes × iterations, warm-ups first."""
    return [
        RunPlan(target=target, case_id=case_id, mode=mode, iteration=iteration, is_warmup=is_warmup)
        for target in targets
        for case_id in benchmark.cases
        for mode in benchmark.modes
        for is_warmup, count in ((True, benchmark.warmup_runs), (False, benchmark.runs_per_case))
        for iteration in range(1, count + 1)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    result: RunResult
    spans: Sequence[SpanRecord]
    cancellation: asyncio.CancelledError | None


@dataclass(slots=True, kw_only=True)
class _Ending:
    """How a turn ended: without a fault, with one, or cancelled (which is a fault too)."""

    fault: RunFault | None = None
    cancellation: asyncio.CancelledError | None = None


class Runner:
    """Makes the runs of one cycle, one at a time, and hands each result to the sinks before the next."""

    def __init__(
        self,
        config: Config,
        *,
        client_factory: ClientFactory,
        is_mock: bool,
        sinks: Sequence[Sink],
        adaptation_count: Callable[[RunPlan], int] = lambda plan: 0,
        secrets_of: Callable[[RunPlan], Sequence[str]] = lambda plan: (),
        executor_factory: Callable[[], HandlerExecutor] = lambda: ConcurrentExecutor(MAX_PARALLEL_EVENTS),
        clock_factory: Callable[[], Clock] = AnchoredClock,
        cancel_grace_s: float = CANCEL_GRACE_S,
    ) -> None:
        self._benchmark = config.benchmark
        self._capture_content = config.telemetry.capture_content
        self._client_factory = client_factory
        self._is_mock = is_mock
        self._sinks = sinks
        self._adaptation_count = adaptation_count
        self._secrets_of = secrets_of
        self._executor_factory = executor_factory
        self._clock_factory = clock_factory
        self._cancel_grace_s = cancel_grace_s
        self.cycle_id = secrets.token_hex(8)
        self._left: set[asyncio.Task[_Attempt]] = set()

    async def run(self, plan: RunPlan) -> RunResult:
        """Make one run; whatever happens in it, there is one result and the sinks have seen it.

        A run in which the endpoint refused a parameter that is now adapted is made again and leaves nothing
        behind: the refusal is no measurement. Each parameter is adapted once, so this ends.

        Raises:
            asyncio.CancelledError: The run was cancelled; its result says ``aborted``.
        """
        while True:
            known_count = self._adaptation_count(plan)
            attempt = await self._bounded_attempt(plan)
            if attempt.cancellation is not None or self._adaptation_count(plan) == known_count:
                break
        for sink in self._sinks:
            sink.accept(attempt.result, attempt.spans)
        if attempt.cancellation is not None:
            raise attempt.cancellation
        return attempt.result

    async def _bounded_attempt(self, plan: RunPlan) -> "_Attempt":
        """The last of the three deadlines: a run that ignores even its cancellation is left, and is a failure."""
        clock = self._clock_factory()
        start_ns = clock()
        task = asyncio.create_task(self._attempt(plan, clock))
        loop = asyncio.get_running_loop()
        limit_s = loop.time() + self._benchmark.run_deadline_s + self._cancel_grace_s
        cancellation: asyncio.CancelledError | None = None
        while not task.done() and loop.time() < limit_s:
            try:
                await asyncio.wait({task}, timeout=limit_s - loop.time())
            except asyncio.CancelledError as error:  # also the second one, while the run winds down
                cancellation = error
                task.cancel()
                limit_s = min(limit_s, loop.time() + self._cancel_grace_s)
        if task.done():
            return task.result()
        task.cancel()
        self._left.add(task)
        task.add_done_callback(self._left.discard)
        return self._stuck_attempt(plan, clock, start_ns, cancellation)

    def _stuck_attempt(
        self, plan: RunPlan, clock: Clock, start_ns: int, cancellation: asyncio.CancelledError | None
    ) -> "_Attempt":
        """What can be said of a run that was left: its spans belong to code that still runs."""
        message = f"the run did not end within {self._cancel_grace_s:g} s of its cancellation, and was left"
        recorder = Recorder(clock, secrets=self._secrets_of(plan))
        run_span = recorder.start_run(plan.case_id.value, self._attributes(plan))
        run_span.start_ns = start_ns
        fault = RunFault(kind=ErrorKind.STUCK, message=message)
        return self._end(plan, recorder, run_span, [], _Ending(fault=fault, cancellation=cancellation))

    async def _attempt(self, plan: RunPlan, clock: Clock) -> "_Attempt":
        case = CATALOGUE[plan.case_id]
        recorder = Recorder(clock, secrets=self._secrets_of(plan))
        run_span = recorder.start_run(case.case_id.value, self._attributes(plan))
        output: asyncio.Queue[OutputMessage] = asyncio.Queue()
        ending = await self._run_turn(plan, case, recorder, output)
        return self._end(plan, recorder, run_span, _drain(output), ending)

    def _end(
        self,
        plan: RunPlan,
        recorder: Recorder,
        run_span: OpenSpan,
        outputs: Sequence[OutputMessage],
        ending: "_Ending",
    ) -> "_Attempt":
        """End the run's span, with the verdict on it, and read the result from the spans."""
        end_ns = recorder.clock()
        run_span.attributes[names.SPAN_COUNT] = len(recorder.spans()) + 1
        spans = chain(recorder.spans(), [run_span.record(end_ns)])
        self._judge(CATALOGUE[plan.case_id], plan, measure_run(spans), outputs, ending.fault, run_span)
        run_span.end(end_ns)
        return _Attempt(
            result=assemble(recorder.spans()), spans=recorder.spans(), cancellation=ending.cancellation
        )

    async def _run_turn(
        self, plan: RunPlan, case: Case, recorder: Recorder, output: asyncio.Queue[OutputMessage]
    ) -> "_Ending":
        """The turn with its client around it; whatever went wrong becomes a fault."""
        client: ChatClient | None = None
        ending = _Ending()
        deadline = asyncio.timeout(self._benchmark.run_deadline_s)
        try:
            client = self._client_factory(plan, recorder.clock)
            runtime = AgentRuntime(
                client=self._traced(client, plan, recorder),
                tools=_registry(case),
                executor=self._executor_factory(),
                recorder=recorder,
                output=output,
                capture_content=self._capture_content,
            )
            async with deadline:
                await runtime.run_turn(self._turn_request(plan, case))
        except asyncio.CancelledError as error:
            ending.cancellation = error
            ending.fault = _aborted_fault()
        except RunError as error:
            ending.fault = RunFault(kind=error.kind, message=str(error))
        except Exception as error:  # noqa: BLE001 - a bug of ours fails this run; the next one starts
            is_late = isinstance(error, TimeoutError) and deadline.expired()
            ending.fault = self._deadline_fault() if is_late else _internal_fault(plan, error)
        try:
            ending.fault = _with_close_failure(ending.fault, await _close(client))
        except asyncio.CancelledError as error:  # the result is kept, the cancellation goes on afterwards
            ending.cancellation = error
            ending.fault = ending.fault or _aborted_fault()
        return ending

    def _traced(self, client: ChatClient, plan: RunPlan, recorder: Recorder) -> TracedChatClient:
        return TracedChatClient(
            client,
            recorder,
            model=plan.target.model,
            attributes=endpoint_attributes(plan.target, is_mock=self._is_mock),
            capture_content=self._capture_content,
        )

    def _turn_request(self, plan: RunPlan, case: Case) -> TurnRequest:
        is_cache_avoided = self._benchmark.prompt_cache == "avoid"
        return TurnRequest(
            conversation_id=f"agentbench-{secrets.token_hex(8)}",
            mode=plan.mode,
            user_message=case.user_message,
            tool_names=case.enabled_tools,
            prompt_nonce=secrets.token_hex(8) if is_cache_avoided else "",
            max_tokens=plan.target.max_tokens,
            temperature=plan.target.temperature,
        )

    def _attributes(self, plan: RunPlan) -> Mapping[str, AttributeValue]:
        return {
            names.RUN_ID: secrets.token_hex(16),
            names.CYCLE_ID: self.cycle_id,
            names.TARGET: plan.target.name,
            names.REQUEST_MODEL: plan.target.model,
            names.CASE: plan.case_id.value,
            names.MODE: plan.mode.value,
            names.ITERATION: plan.iteration,
            names.MOCK: self._is_mock,
            names.WARMUP: plan.is_warmup,
        }

    def _judge(
        self,
        case: Case,
        plan: RunPlan,
        facts: RunFacts,
        outputs: Sequence[OutputMessage],
        fault: RunFault | None,
        run_span: OpenSpan,
    ) -> None:
        """Compare what happened with what the case promised, and write the verdict on the run span."""
        if facts.has_turn_ended:
            failures = check_expectations(
                case=case, mode=plan.mode, facts=facts, outputs=outputs, is_mock=self._is_mock
            )
        else:  # it raised: there is no whole turn to compare with, but silence on usage is always reported
            failures = usage_failures(facts)
        fault = _with_turn_error(fault, outputs)
        is_cache_expected = self._is_mock or self._benchmark.prompt_cache == "allow"
        status = Status.FAILED if fault or failures else Status.PASSED
        run_span.attributes[names.STATUS] = status.value
        if fault is not None:
            run_span.attributes[names.ERROR_KIND] = fault.kind
            run_span.attributes[names.ERROR_MESSAGE] = fault.message
            run_span.failure = RunError(fault.kind, fault.message)
        now_ns = run_span.start_ns if facts.tree.turn is None else facts.tree.turn.end_ns
        for failure in failures:
            run_span.add_event(
                names.SEMANTIC_FAILURE_EVENT,
                now_ns,
                {names.FAILURE_KIND: failure.kind.value, names.MESSAGE: failure.message},
            )
        for warning in collect_warnings(facts, is_cache_expected=is_cache_expected):
            run_span.add_event(names.WARNING_EVENT, now_ns, {names.MESSAGE: warning})

    def _deadline_fault(self) -> RunFault:
        limit_s = self._benchmark.run_deadline_s
        return RunFault(
            kind=ErrorKind.RUN_DEADLINE, message=f"the run took longer than run_deadline_s = {limit_s:g}"
        )


def _registry(case: Case) -> ToolRegistry:
    handlers = in_memory_handlers()
    if case.expectation.must_overlap:
        rendezvous = Rendezvous(len(case.expectation.event_names))
        for name in case.expectation.event_names:
            handlers[name] = rendezvous.wrap(handlers[name])
    return ToolRegistry(handlers)


def _drain(output: asyncio.Queue[OutputMessage]) -> list[OutputMessage]:
    return [output.get_nowait() for _ in range(output.qsize())]


async def _close(client: ChatClient | None) -> str | None:
    """Close the client; what went wrong in words, None when nothing did."""
    if client is None:
        return None
    limit = asyncio.timeout(CLOSE_LIMIT_S)
    try:
        async with limit:
            await client.aclose()
    except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to this run
        is_late = isinstance(error, TimeoutError) and limit.expired()
        return f"close failed: {f'not closed within {CLOSE_LIMIT_S:g} s' if is_late else error_words(error)}"
    return None


def _with_turn_error(fault: RunFault | None, outputs: Sequence[OutputMessage]) -> RunFault | None:
    """The ``error`` message that ended the turn comes first; a close failure is appended to it."""
    last = outputs[-1] if outputs else None
    if last is None or last.type is not MessageType.ERROR:
        return fault
    kind = last.error_kind or ErrorKind.AGENT_ERROR.value
    message = last.content if fault is None else f"{last.content}; {fault.message}"
    return RunFault(kind=kind, message=message)


def _with_close_failure(fault: RunFault | None, close_words: str | None) -> RunFault | None:
    if close_words is None:
        return fault
    if fault is None:
        return RunFault(kind=ErrorKind.CLOSE_FAILED, message=close_words)
    return RunFault(kind=fault.kind, message=f"{fault.message}; {close_words}")


def _aborted_fault() -> RunFault:
    return RunFault(kind=ErrorKind.ABORTED, message="the run was aborted before it ended")


def _internal_fault(plan: RunPlan, error: Exception) -> RunFault:
    logger.error(
        "run %s/%s/%s #%d failed by a bug of agentbench-otel",
        plan.target.name,
        plan.case_id.value,
        plan.mode.value,
        plan.iteration,
        exc_info=error,
    )
    return RunFault(kind=ErrorKind.INTERNAL, message=f"{type(error).__qualname__}: {error}".removesuffix(": "))

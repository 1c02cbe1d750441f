"""A turn of the agent on a stage: a client that answers as written, a ticking clock, a loop that never waits."""

import asyncio
import selectors
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Self, TypeVar

from agentbench_otel.agent.adapters import in_memory_handlers
from agentbench_otel.agent.executor import ConcurrentExecutor
from agentbench_otel.agent.runtime import AgentRuntime, TurnRequest
from agentbench_otel.agent.tools import ToolRegistry
from agentbench_otel.cases import CALENDAR, SEARCH, TERMINATE, VOLUME
from agentbench_otel.measurement.audit import read_audit
from agentbench_otel.measurement.tree import RunTree, read_run
from agentbench_otel.ports import HandlerExecutor, ToolHandler
from agentbench_otel.records.chat import ChatRequest, Exchange, ItemKind, StreamItem, ToolCall
from agentbench_otel.records.scenario import Mode
from agentbench_otel.records.turn import AuditEntry, AuditKind, OutputMessage
from agentbench_otel.telemetry.recorder import Recorder
from agentbench_otel.telemetry.traced_client import TracedChatClient
from tests.support.clock import ManualClock

ALL_TOOLS = (VOLUME, CALENDAR, SEARCH, TERMINATE)

Result = TypeVar("Result")
Step = StreamItem | BaseException | Callable[[], Awaitable[object]]


class TickingClock(ManualClock):
    """Every reading is 1 µs after the one before, so that the order of moments can be told."""

    def __call__(self) -> int:
        self.now_ns += 1_000
        return self.now_ns


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """When nothing is left to do now, its time jumps to the next timer: a second passes at once."""

    HORIZON_S = 3_600.0

    def __init__(self) -> None:
        self.now_s = 1_000.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self.now_s


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and (timeout is None or self._loop.now_s > self._loop.HORIZON_S):
            raise RuntimeError("the test waits for something that never comes")
        if not ready and timeout is not None:
            self._loop.now_s += timeout
        return ready


def run_in_virtual_time(main: Coroutine[Any, Any, Result]) -> Result:
    """As `asyncio.run`; timeouts and sleeps take no real time, and a wait without an end is an error."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


class WrittenClient:
    """Answers each model call with the next script.

    A step of a script is an item, an exception to raise, or something to await before the next item.
    """

    def __init__(self, *scripts: Sequence[Step]) -> None:
        self._scripts = scripts
        self.requests: list[ChatRequest] = []
        self.ended_count = 0

    async def stream_chat(self, request: ChatRequest, exchange: Exchange) -> AsyncGenerator[StreamItem, None]:
        del exchange
        self.requests.append(request)
        assert len(self.requests) <= len(self._scripts), "one model call more than the test has written"
        try:
            for step in self._scripts[len(self.requests) - 1]:
                if isinstance(step, BaseException):
                    raise step
                if isinstance(step, StreamItem):
                    yield step
                else:
                    await step()
        finally:
            self.ended_count += 1

    async def aclose(self) -> None:
        """Nothing is open."""


def text(words: str) -> StreamItem:
    return StreamItem(kind=ItemKind.TEXT, arrival_ns=1, text=words)


def piece(kind: ItemKind, words: str = "") -> StreamItem:
    return StreamItem(kind=kind, arrival_ns=1, text=words)


def tool_call(
    name: str, arguments: Mapping[str, Any] | None, *, call_id: str = "call-1", raw: str = "{}"
) -> StreamItem:
    call = ToolCall(id=call_id, name=name, raw_arguments=raw, arguments=arguments)
    return StreamItem(kind=ItemKind.TOOL_CALL, arrival_ns=1, tool_call=call)


def markup(name: str, body: str = "") -> StreamItem:
    return text(f'<event name="{name}">{body}</event>')


class Turn:
    """One turn: the runtime between a written client and a queue, recorded on a ticking clock.

    Handlers that are not given are the in-memory ones. Further arguments are those of `TurnRequest`.
    """

    def __init__(
        self,
        *scripts: Sequence[Step],
        mode: Mode = Mode.DUAL_AGENT,
        handlers: Mapping[str, ToolHandler] | None = None,
        executor: HandlerExecutor | None = None,
        queue_size: int = 0,
        **request: Any,
    ) -> None:
        self.client = WrittenClient(*scripts)
        self.clock = TickingClock()
        self.output: asyncio.Queue[OutputMessage] = asyncio.Queue(queue_size)
        self._recorder = Recorder(self.clock)
        self._runtime = AgentRuntime(
            client=TracedChatClient(self.client, self._recorder, model="written", attributes={}),
            tools=ToolRegistry({**in_memory_handlers(), **(handlers or {})}),
            executor=executor or ConcurrentExecutor(2),
            recorder=self._recorder,
            output=self.output,
        )
        defaults = {
            "conversation_id": "conversation-1",
            "mode": mode,
            "user_message": "Do it.",
            "tool_names": ALL_TOOLS,
        }
        self._request = TurnRequest(**{**defaults, **request})

    async def run(self) -> Self:
        run_span = self._recorder.start_run("written", {})
        try:
            await self._runtime.run_turn(self._request)
        finally:
            run_span.end(self.clock())
        return self

    @property
    def messages(self) -> list[OutputMessage]:
        """What is on the queue now; looking takes nothing away."""
        taken = [self.output.get_nowait() for _ in range(self.output.qsize())]
        for message in taken:
            self.output.put_nowait(message)
        return taken

    @property
    def tree(self) -> RunTree:
        return read_run(self._recorder.spans())

    @property
    def audit(self) -> tuple[AuditEntry, ...]:
        return read_audit(self.tree)

    def audited(self, kind: AuditKind) -> list[AuditEntry]:
        return [entry for entry in self.audit if entry.kind is kind]


def play(*scripts: Sequence[Step], **options: Any) -> Turn:
    """Run a turn to its end in virtual time; the options are those of `Turn`."""
    return run_in_virtual_time(Turn(*scripts, **options).run())

"""What agentbench-otel itself costs: ``python -m tests.benchmarks.costs``. Prints figures, asserts nothing.

README quotes them. They are medians of several runs on the machine at hand; compare ratios across machines.
"""

import asyncio
import platform
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from agentbench_otel import app
from agentbench_otel.records.chat import ChatMessage, ChatRequest, Exchange, ItemKind, StreamItem
from agentbench_otel.runner import Runner, plan_runs
from agentbench_otel.telemetry.clock import AnchoredClock
from agentbench_otel.telemetry.recorded_spans import CallMoments
from agentbench_otel.telemetry.recorder import Recorder
from agentbench_otel.telemetry.traced_client import TracedChatClient

PROCESS_RUNS = 9
ITEM_COUNT = 100_000
REQUEST = ChatRequest(messages=(ChatMessage(role="user", content="Hello."),))


class ManyItems:
    """Yields text item after text item, without a pause."""

    async def stream_chat(self, request: ChatRequest, exchange: Exchange) -> AsyncGenerator[StreamItem, None]:
        del request, exchange
        for number in range(ITEM_COUNT):
            yield StreamItem(kind=ItemKind.TEXT, arrival_ns=time.time_ns(), text=f"word {number} ")

    async def aclose(self) -> None:
        """Nothing is open."""


def process_s(*arguments: str) -> float:
    """Median wall time of a whole process."""

    def once() -> float:
        start_s = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        return time.perf_counter() - start_s

    once()
    return statistics.median(once() for _ in range(PROCESS_RUNS))


def best_ns_per_item(work: Callable[[], None]) -> float:
    """The least disturbed of five rounds."""
    rounds = []
    for _ in range(5):
        start_ns = time.perf_counter_ns()
        work()
        rounds.append((time.perf_counter_ns() - start_ns) / ITEM_COUNT)
    return min(rounds)


def append_path() -> None:
    """What the recorder does per item: two clock readings and one append."""
    clock = AnchoredClock()
    moments = CallMoments(clock())
    item = StreamItem(kind=ItemKind.TEXT, arrival_ns=clock(), text="word")
    for _ in range(ITEM_COUNT):
        asked_ns = clock()
        moments.append(asked_ns, clock(), item.arrival_ns, item.kind)


async def consume(client: ManyItems | TracedChatClient) -> None:
    async with aclosing(client.stream_chat(REQUEST, Exchange())) as items:
        async for _ in items:
            pass


def traced(recorder: Recorder) -> TracedChatClient:
    return TracedChatClient(ManyItems(), recorder, model="demo", attributes={})


def run_memory_mb() -> tuple[float, float]:
    """Peak and retained memory of a whole run with 100,000 items, its measurement included, above the baseline."""
    config = app.mock_config()
    runner = Runner(config, client_factory=lambda plan, clock: ManyItems(), is_mock=True, sinks=[])
    plan = plan_runs(config.targets, config.benchmark)[0]
    tracemalloc.start()
    result = asyncio.run(runner.run(plan))
    assert result.model_calls[0].await_count == ITEM_COUNT + 1
    retained, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 1e6, retained / 1e6


def main() -> None:
    print(f"Python {platform.python_version()}, {platform.machine()}, medians of {PROCESS_RUNS} processes")
    bare_s = process_s("-c", "pass")
    help_s = process_s("-m", "agentbench_otel", "--help")
    print(
        f"once --mock, whole process        {process_s('-m', 'agentbench_otel', 'once', '--mock') * 1e3:7.0f} ms"
    )
    print(f"--help, over a bare interpreter   {(help_s - bare_s) * 1e3:7.0f} ms")
    print(f"recorder per streamed item        {best_ns_per_item(append_path):7.0f} ns")
    plain_ns = best_ns_per_item(lambda: asyncio.run(consume(ManyItems())))
    traced_ns = best_ns_per_item(lambda: asyncio.run(consume(traced(Recorder(AnchoredClock())))))
    print(f"traced client over a plain one    {traced_ns - plain_ns:7.0f} ns per item")
    peak_mb, retained_mb = run_memory_mb()
    print(f"a run with {ITEM_COUNT:,} items         {peak_mb:7.0f} MB at most, {retained_mb:.0f} MB kept")


if __name__ == "__main__":
    main()

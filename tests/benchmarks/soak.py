"""Whether a daemon stays as it is for months: ``python -m tests.benchmarks.soak``.

10,000 runs against the scripted mock through the whole daemon (schedule, history, metrics, page), and what the
process holds after each thousand; then what a daemon costs that has nothing to do.
"""

import asyncio
import os
import signal
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from agentbench_otel import app
from agentbench_otel.config.model import Benchmark, Config, History, Schedule, Target, Web
from agentbench_otel.daemon.service import Daemon, DaemonOptions
from agentbench_otel.daemon.settings import Settings
from agentbench_otel.loop import run_loop
from agentbench_otel.ports import ChatClient
from agentbench_otel.records.chat import ChatRequest, Exchange, StreamItem

RUNS_PER_SERIES = 834  # twelve series
EVERY = 1000
PACE_S = 0.004  # a run takes at least so long: real ones are slower than the disk
IDLE_TARGETS = 20
IDLE_S = 20.0
NO_VARIABLES: Mapping[str, str] = {}


class PacedClient:
    """The scripted mock, not faster than a disk can commit."""

    def __init__(self, inner: ChatClient) -> None:
        self._inner = inner

    async def stream_chat(self, request: ChatRequest, exchange: Exchange) -> AsyncGenerator[StreamItem, None]:
        await asyncio.sleep(PACE_S)
        async for item in self._inner.stream_chat(request, exchange):
            yield item

    async def aclose(self) -> None:
        await self._inner.aclose()


def settings(directory: Path, *, target_count: int, runs_per_case: int) -> Settings:
    targets = tuple(
        Target(name=f"target-{number}", base_url="http://mock.invalid/v1", model="mock")
        for number in range(target_count)
    )
    return Settings(
        config=Config(
            schema_version=1,
            targets=targets,
            benchmark=Benchmark(runs_per_case=runs_per_case),
            schedule=Schedule(every="52w"),  # type: ignore[arg-type]  # the text form, as in a file
            history=History(path=str(directory / "history.db")),
            web=Web(listen="127.0.0.1:0"),
        ),
        make_client=lambda plan, clock: PacedClient(app.make_mock_client(plan, clock)),
        adaptation_count=lambda plan: 0,
        secrets_of=lambda plan: (),
        is_mock=True,
    )


@contextmanager
def a_daemon(of: Settings) -> Iterator[Daemon]:
    """A daemon whose loop runs in this thread when `Daemon.serve` is awaited."""
    yield Daemon(DaemonOptions(load=lambda: of, config_file=None, environment=NO_VARIABLES, run_now=False))


def rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def held(directory: Path, task_count: int) -> str:
    """What the process holds, and the history."""
    fd_count = len(list(Path("/proc/self/fd").iterdir()))
    size_mb = sum(file.stat().st_size for file in directory.iterdir()) / 1e6
    return f"{rss_mb():6.1f}  {fd_count:3d}  {threading.active_count():7d}  {task_count:5d}  {size_mb:10.1f}"


def soak(directory: Path) -> None:
    print("runs     RSS MB  fds  threads  tasks  history MB  runs/s")

    async def serve() -> None:
        with a_daemon(settings(directory, target_count=1, runs_per_case=RUNS_PER_SERIES)) as daemon:
            watching = asyncio.create_task(watch(daemon))
            await daemon.serve()
            await watching

    async def watch(daemon: Daemon) -> None:
        told, start_s = -EVERY, time.monotonic()
        while True:
            await asyncio.sleep(0.05)
            count = await asyncio.to_thread(daemon.past.run_count)
            if count >= told + EVERY:
                told = count - count % EVERY
                per_s = count / (time.monotonic() - start_s)
                print(f"{told:6d}   {held(directory, len(asyncio.all_tasks()))}  {per_s:6.0f}", flush=True)
            if daemon.state.last_cycles and count >= 12 * RUNS_PER_SERIES:
                os.kill(os.getpid(), signal.SIGTERM)
                return

    run_loop(serve())


def idle(directory: Path) -> None:
    """A daemon with 20 targets between two cycles."""

    async def serve() -> None:
        with a_daemon(settings(directory, target_count=IDLE_TARGETS, runs_per_case=1)) as daemon:
            watching = asyncio.create_task(watch(daemon))
            await daemon.serve()
            await watching

    async def watch(daemon: Daemon) -> None:
        while len(daemon.state.last_cycles) < IDLE_TARGETS:  # noqa: ASYNC110 - the daemon has no such event
            await asyncio.sleep(0.1)
        await asyncio.sleep(6)  # the page is rendered
        cpu_s, start_s = time.process_time(), time.monotonic()
        await asyncio.sleep(IDLE_S)
        share = (time.process_time() - cpu_s) / (time.monotonic() - start_s)
        print(f"idle, {IDLE_TARGETS} targets              {share * 100:.2f} % of a core")
        os.kill(os.getpid(), signal.SIGTERM)

    run_loop(serve())


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        soak(Path(directory))
    with tempfile.TemporaryDirectory() as directory:
        idle(Path(directory))


if __name__ == "__main__":
    main()

"""A daemon whose runs ignore their cancellation leaves, so that its supervisor starts it anew."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from agentbench_otel.config.model import Benchmark, Config, History, Schedule, Target, Web
from agentbench_otel.config.model import Daemon as DaemonConfig
from agentbench_otel.daemon.service import Daemon, DaemonOptions
from agentbench_otel.daemon.settings import Settings
from agentbench_otel.history.reader import HistoryReader
from agentbench_otel.loop import run_loop
from agentbench_otel.records.chat import ChatRequest, Exchange, StreamItem
from agentbench_otel.records.cycles import RunQuery
from agentbench_otel.records.scenario import CaseId, Mode


class Stubborn:
    """Never answers, and does not let itself be cancelled until it is let go."""

    def __init__(self, let_go: asyncio.Event) -> None:
        self._let_go = let_go

    async def stream_chat(self, request: ChatRequest, exchange: Exchange) -> AsyncGenerator[StreamItem, None]:
        while not self._let_go.is_set():
            try:
                await self._let_go.wait()
            except asyncio.CancelledError:
                continue
        nothing: list[StreamItem] = []
        for item in nothing:
            yield item

    async def aclose(self) -> None:
        """Nothing is open."""


@pytest.mark.usefixtures("collector")
def test_too_many_stuck_runs_end_the_daemon_with_1_and_each_is_in_the_history(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / "history.db"
    config = Config(
        schema_version=1,
        targets=(Target(name="local", base_url="http://mock.invalid/v1", model="small"),),
        benchmark=Benchmark(
            cases=(CaseId.ORDINARY_CHAT,), modes=(Mode.DUAL_AGENT,), runs_per_case=9, run_deadline_s=0.05
        ),
        schedule=Schedule(every="1h"),  # type: ignore[arg-type]  # the text form, as in a file
        history=History(path=str(file)),
        web=Web(listen="127.0.0.1:0"),
        daemon=DaemonConfig(max_stuck_runs=2, shutdown_grace="1s"),  # type: ignore[arg-type]
    )

    async def serve() -> int:
        let_go = asyncio.Event()
        settings = Settings(
            config=config,
            make_client=lambda plan, clock: Stubborn(let_go),
            adaptation_count=lambda plan: 0,
            secrets_of=lambda plan: (),
            is_mock=True,
            cancel_grace_s=0.05,
        )
        daemon = Daemon(DaemonOptions(load=lambda: settings, config_file=None, environment={}, run_now=False))
        code = await daemon.serve()
        let_go.set()
        await asyncio.sleep(0.1)  # the runs that were left end
        return code

    assert run_loop(serve()) == 1
    results = HistoryReader(file).runs(RunQuery())
    assert len(results) >= 2
    assert {result.error.kind for result in results if result.error} == {"stuck"}
    assert "too many runs are stuck" in caplog.text

"""The composition root: the only file that names concrete adapters."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from agentbench_otel import __version__
from agentbench_otel.agent.tools import TOOLS
from agentbench_otel.cases import CATALOGUE, TOOL_NAMES
from agentbench_otel.config.loading import load_config_with_lines
from agentbench_otel.config.model import Config, Target
from agentbench_otel.config.secrets import resolve_api_keys, secret_texts
from agentbench_otel.ports import ChatClient, Clock, Sink
from agentbench_otel.providers.adaptation import EndpointProfile
from agentbench_otel.providers.mock import ScriptedChatClient
from agentbench_otel.providers.wire import WireNames
from agentbench_otel.records.chat import ToolSpec
from agentbench_otel.records.results import CycleReport, ProbeResult, RunResult, Status, Summary, Tool
from agentbench_otel.records.spans import SpanRecord
from agentbench_otel.runner import ClientFactory, Runner, RunPlan
from agentbench_otel.telemetry.endpoint import find_endpoint

if TYPE_CHECKING:
    from agentbench_otel.telemetry.export import TraceExport

EXPORT_DEADLINE_S = 3.5
"""A process that is told to leave does so within 5 s, whatever a collector does."""

MOCK_TARGET = Target(name="mock", base_url="http://mock.invalid/v1", model="mock")


def mock_config() -> Config:
    """The config of ``once --mock`` without a file: every case in both modes, once."""
    return Config(schema_version=1, targets=(MOCK_TARGET,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """How the runs reach what they measure. ``adaptation_count``: of an endpoint, so far; ``secrets_of``: what
    must not leave in any text."""

    make_client: ClientFactory
    adaptation_count: Callable[[RunPlan], int]
    secrets_of: Callable[[RunPlan], Sequence[str]]


def load_live_config(file: Path, environment: Mapping[str, str]) -> tuple[Config, Endpoints]:
    """A config file with the endpoints of its targets.

    Raises:
        ConfigError: The file is unusable, or a key that it names can't be had.
    """
    config, places = load_config_with_lines(file)
    api_keys = resolve_api_keys(config, places, environment)
    names = WireNames(TOOL_NAMES)
    profiles = {(target.base_url, target.model): EndpointProfile() for target in config.targets}
    secrets = {target.name: secret_texts(target, api_keys[target.name]) for target in config.targets}

    def profile_of(plan: RunPlan) -> EndpointProfile:
        return profiles[plan.target.base_url, plan.target.model]

    def make_client(plan: RunPlan, clock: Clock) -> ChatClient:
        from agentbench_otel.providers.openai import OpenAIChatClient  # httpx takes 0.1 s; mock runs need none

        return OpenAIChatClient(
            plan.target,
            api_key=api_keys[plan.target.name],
            names=names,
            profile=profile_of(plan),
            clock=clock,
        )

    return config, Endpoints(
        make_client=make_client,
        adaptation_count=lambda plan: profile_of(plan).adaptation_count,
        secrets_of=lambda plan: secrets[plan.target.name],
    )


def mock_endpoints() -> Endpoints:
    """The scripted mock in the place of every target."""
    return Endpoints(make_client=make_mock_client, adaptation_count=lambda plan: 0, secrets_of=lambda plan: ())


def make_mock_client(plan: RunPlan, clock: Clock) -> ChatClient:
    return ScriptedChatClient(CATALOGUE[plan.case_id], plan.mode, clock)


@dataclass(slots=True)
class _Collector:
    results: list[RunResult] = field(default_factory=list)

    def accept(self, result: RunResult, spans: Sequence[SpanRecord]) -> None:
        del spans
        self.results.append(result)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedCycle:
    """``signal_number``: what ended the cycle early, None when it came to its end."""

    report: CycleReport
    signal_number: int | None


def run_cycle(
    config: Config,
    plans: Sequence[RunPlan],
    *,
    endpoints: Endpoints,
    is_mock: bool,
    sinks: Sequence[Sink],
    on_start: Callable[[RunPlan], None],
) -> FinishedCycle:
    """Make all runs, one at a time. SIGINT and SIGTERM abort the one in flight; its result is kept."""
    started_at = datetime.now(UTC)
    collector = _Collector()
    runner = Runner(
        config,
        client_factory=endpoints.make_client,
        adaptation_count=endpoints.adaptation_count,
        secrets_of=endpoints.secrets_of,
        is_mock=is_mock,
        sinks=[collector, *sinks],
    )
    signal_number = asyncio.run(_run_all(runner, plans, on_start))
    report = make_report(collector.results, is_mock=is_mock, started_at=started_at, finished_at=datetime.now(UTC))
    return FinishedCycle(report=report, signal_number=signal_number)


async def _run_all(runner: Runner, plans: Sequence[RunPlan], on_start: Callable[[RunPlan], None]) -> int | None:
    """The number of the signal that ended the cycle early, None without one."""
    received: list[int] = []
    task = asyncio.create_task(_run_each(runner, plans, on_start))

    def abort(number: int) -> None:
        received.append(number)
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, abort, number)
    try:
        await task
    except asyncio.CancelledError:
        if not received:
            raise
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    return received[0] if received else None


async def _run_each(runner: Runner, plans: Sequence[RunPlan], on_start: Callable[[RunPlan], None]) -> None:
    for plan in plans:
        on_start(plan)
        await runner.run(plan)


def make_report(
    runs: Sequence[RunResult], *, is_mock: bool, started_at: datetime, finished_at: datetime
) -> CycleReport:
    counted = [run for run in runs if not run.warmup]
    passed = sum(run.status is Status.PASSED for run in counted)
    return CycleReport(
        tool=Tool(name="agentbench-otel", version=__version__),
        mock=is_mock,
        started_at=started_at,
        finished_at=finished_at,
        summary=Summary(attempted=len(counted), passed=passed, failed=len(counted) - passed),
        runs=tuple(runs),
    )


def environment() -> Mapping[str, str]:
    return os.environ


def make_trace_export(config: Config, environment: Mapping[str, str]) -> "TraceExport | None":
    """The export of spans that the config or the environment asks for; None when neither does.

    Raises:
        InputError: It asks for something that OTLP does not have.
    """
    endpoint = find_endpoint(config.telemetry.otlp, environment)
    if endpoint is None:
        return None
    from agentbench_otel.telemetry.export import TraceExport  # the SDK takes 0.3 s

    sdk_logger = logging.getLogger("opentelemetry")
    sdk_logger.addHandler(logging.NullHandler())
    sdk_logger.propagate = False  # it repeats itself at each retry; `TraceExport.words` says it once
    return TraceExport(endpoint, environment=environment, deadline_s=EXPORT_DEADLINE_S)


def probe_endpoint(
    target: Target, *, api_key: SecretStr | None, message: str, tools: Sequence[ToolSpec]
) -> ProbeResult:
    """One raw model call; tool names in the result are the server's own."""
    from agentbench_otel.probe import probe
    from agentbench_otel.providers.openai import OpenAIChatClient

    profile = EndpointProfile()
    WireNames(tool.name for tool in tools)  # refuses names that can't be told apart on the wire

    def make_client(clock: Clock) -> ChatClient:
        return OpenAIChatClient(target, api_key=api_key, names=WireNames(()), profile=profile, clock=clock)

    return asyncio.run(
        probe(
            target,
            message=message,
            tools=tools,
            make_client=make_client,
            adaptation_count=lambda: profile.adaptation_count,
            secrets=secret_texts(target, api_key),
        )
    )


def built_in_tool(name: str) -> ToolSpec | None:
    return TOOLS[name].spec if name in TOOLS else None

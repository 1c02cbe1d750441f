"""The composition root: the only file that names concrete adapters."""

import asyncio
import logging
import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pydantic import SecretStr

from agentbench_otel import __version__
from agentbench_otel.agent.tools import TOOLS
from agentbench_otel.cases import CATALOGUE, TOOL_NAMES
from agentbench_otel.config.loading import load_config, load_config_with_lines
from agentbench_otel.config.model import Benchmark, Config, History, Schedule, Target
from agentbench_otel.config.secrets import resolve_api_keys, secret_texts
from agentbench_otel.errors import InputError
from agentbench_otel.loop import run_loop
from agentbench_otel.ports import ChatClient, Clock, Sink
from agentbench_otel.providers.adaptation import EndpointProfile
from agentbench_otel.providers.lively_mock import LivelyChatClient
from agentbench_otel.providers.mock import ScriptedChatClient
from agentbench_otel.providers.wire import WireNames
from agentbench_otel.records.chat import ToolSpec
from agentbench_otel.records.results import CycleReport, ProbeResult, RunResult, Status, Summary, Tool
from agentbench_otel.records.spans import SpanRecord
from agentbench_otel.runner import CANCEL_GRACE_S, ClientFactory, Runner, RunPlan
from agentbench_otel.telemetry.endpoint import OtlpEndpoint, find_endpoint

if TYPE_CHECKING:
    from agentbench_otel.daemon.settings import Settings
    from agentbench_otel.telemetry.metric_export import MetricExport
    from agentbench_otel.telemetry.push import Push
    from agentbench_otel.telemetry.run_metrics import RunMetrics

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
    signal_number = run_loop(_run_all(runner, plans, on_start))
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


def make_push(
    config: Config, plans: Sequence[RunPlan], environment: Mapping[str, str], *, is_mock: bool
) -> "Push | None":
    """The push of spans and metrics that the config or the environment asks for; None when neither does.

    Raises:
        InputError: It asks for something that OTLP does not have.
    """
    trace_endpoint = find_endpoint(config.telemetry.otlp, environment, "traces")
    metric_endpoint = find_endpoint(config.telemetry.otlp, environment, "metrics")
    if trace_endpoint is None and metric_endpoint is None:
        return None
    from agentbench_otel.telemetry.export import TraceExport  # the SDK takes 0.3 s
    from agentbench_otel.telemetry.push import Push

    quiet_sdk_logs()
    traces = None if trace_endpoint is None else TraceExport(trace_endpoint, environment=environment)
    metrics, run_metrics = None, None
    if metric_endpoint is not None:
        metrics, run_metrics = _metric_push(config, plans, metric_endpoint, environment, is_mock=is_mock)
    return Push(traces=traces, metrics=metrics, run_metrics=run_metrics, deadline_s=EXPORT_DEADLINE_S)


def _metric_push(
    config: Config,
    plans: Sequence[RunPlan],
    endpoint: OtlpEndpoint,
    environment: Mapping[str, str],
    *,
    is_mock: bool,
) -> "tuple[MetricExport, RunMetrics]":
    from agentbench_otel.telemetry.metric_export import MetricExport
    from agentbench_otel.telemetry.resource import make_resource
    from agentbench_otel.telemetry.run_metrics import PlannedSeries, RunMetrics
    from agentbench_otel.telemetry.sampling import configured_sampler

    export = MetricExport(endpoint, is_shown=lambda attributes: True)
    run_metrics = RunMetrics(
        [export.make_reader()],
        resource=make_resource(environment),
        sampler=configured_sampler(),
        semconv=config.telemetry.semconv,
    )
    benchmark = config.benchmark.model_copy(
        update={
            "cases": tuple(dict.fromkeys(plan.case_id for plan in plans)),
            "modes": tuple(dict.fromkeys(plan.mode for plan in plans)),
        }
    )
    targets = {plan.target.name: plan.target for plan in plans}
    run_metrics.plan(
        PlannedSeries(target=target, benchmark=benchmark, interval_s=None, is_mock=is_mock)
        for target in targets.values()
    )
    return export, run_metrics


def quiet_sdk_logs() -> None:
    """The SDK repeats itself at each retry and at each hand-over; what became of them is told by us, once."""
    sdk_logger = logging.getLogger("opentelemetry")
    sdk_logger.addHandler(logging.NullHandler())
    sdk_logger.propagate = False


# --- the daemon --------------------------------------------------------------------------------------------

DEMO_INTERVAL = "30s"
DEMO_RUN_DEADLINE_S = 15.0


def run_daemon(
    config_file: Path | None,
    *,
    is_mock: bool,
    run_now: bool,
    environment: Mapping[str, str],
) -> int:
    """Measure on a schedule until a signal ends it; the exit code.

    Without a config file (mock only) it measures one target every 30 s and forgets its history at the end.

    Raises:
        InputError: The config, the history file, the address or a variable can't be used.
    """
    from agentbench_otel.daemon.service import Daemon, DaemonOptions

    quiet_sdk_logs()
    with TemporaryDirectory(prefix="agentbench-otel-") as demo_directory:

        def load() -> "Settings":
            if is_mock:
                config = demo_config(Path(demo_directory)) if config_file is None else load_config(config_file)
                return _daemon_settings(config, lively_mock_endpoints(), is_mock=True)
            if config_file is None:
                raise InputError("a daemon without a mock needs a config")
            return _daemon_settings(*load_live_config(config_file, environment), is_mock=False)

        async def serve() -> int:
            return await Daemon(
                DaemonOptions(
                    load=load,
                    config_file=None if config_file is None else str(config_file),
                    environment=environment,
                    run_now=run_now,
                )
            ).serve()

        return run_loop(serve())


def demo_config(directory: Path) -> Config:
    """What ``daemon --mock`` measures without a config file."""
    return Config(
        schema_version=1,
        targets=(MOCK_TARGET,),
        benchmark=Benchmark(run_deadline_s=DEMO_RUN_DEADLINE_S),
        schedule=Schedule(every=DEMO_INTERVAL),  # type: ignore[arg-type]  # the text form, as in a file
        history=History(path=str(directory / "history.db")),
    )


def _daemon_settings(config: Config, endpoints: Endpoints, *, is_mock: bool) -> "Settings":
    from agentbench_otel.daemon.settings import Settings

    check_schedules(config)
    return Settings(
        config=config,
        make_client=endpoints.make_client,
        adaptation_count=endpoints.adaptation_count,
        secrets_of=endpoints.secrets_of,
        is_mock=is_mock,
    )


def check_schedules(config: Config) -> None:
    """Raises:
    InputError: A target whose single run may take longer than its interval, or whose schedule never comes.
    """
    from agentbench_otel.daemon.slots import check_run_fits

    for target in config.targets:
        words = check_run_fits(target.schedule or config.schedule, config.benchmark.run_deadline_s, CANCEL_GRACE_S)
        if words is not None:
            raise InputError(f"target {target.name}: {words}")


def lively_mock_endpoints() -> Endpoints:
    """The mock that takes its time and fails now and then; the same runs in the same order behave alike."""
    run_counts: Counter[str] = Counter()

    def make_client(plan: RunPlan, clock: Clock) -> ChatClient:
        series = f"{plan.target.name}/{plan.case_id}/{plan.mode}"
        run_counts[series] += 1
        seed = f"{series}/{run_counts[series]}"
        return LivelyChatClient(make_mock_client(plan, clock), clock, Random(seed))  # noqa: S311 - no secret

    return Endpoints(make_client=make_client, adaptation_count=lambda plan: 0, secrets_of=lambda plan: ())


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

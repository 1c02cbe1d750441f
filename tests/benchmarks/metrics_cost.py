"""What telemetry costs: ``python -m tests.benchmarks.metrics_cost``. Prints figures, asserts nothing.

How long it takes to record a result and to serve a scrape, and how late the event loop is while a model call
streams: without export, with ours (between runs), and with one that exports while it streams.
"""

import asyncio
import gc
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer

from agentbench_otel import app, names
from agentbench_otel.config.model import Config, Otlp, Target, Telemetry
from agentbench_otel.daemon.own_state import OwnState
from agentbench_otel.ports import Sink
from agentbench_otel.records.chat import ChatRequest, Exchange, ItemKind, StreamItem, TokenUsage
from agentbench_otel.runner import Runner, plan_runs
from agentbench_otel.telemetry.endpoint import OtlpEndpoint
from agentbench_otel.telemetry.metric_export import MetricExport
from agentbench_otel.telemetry.metrics_page import MetricsPage
from agentbench_otel.telemetry.own_metrics import OwnMetrics
from agentbench_otel.telemetry.prometheus import PrometheusReader
from agentbench_otel.telemetry.push import Push
from agentbench_otel.telemetry.run_metrics import PlannedSeries, RunMetrics
from tests.support.recorded_runs import RESOURCE, Recorded, record_runs, run_metrics

TARGET_COUNT = 20
RECORD_ROUNDS = 10
SCRAPES = 50
OPENMETRICS = "application/openmetrics-text;version=1.0.0"

STREAM_S = 1.0
STREAM_ROUNDS = 4
PAUSE_S = 0.002
ITEMS_PER_PAUSE = 4
BATCH_DELAY_MS = 200
NOBODY = "http://127.0.0.1:9"

RECEIVER = """
import sys
from tests.support.otlp_receiver import http_receiver
with http_receiver() as received:
    print(received.url, flush=True)
    sys.stdin.read()
"""


def config_of(target_count: int) -> Config:
    """All six cases in both modes."""
    targets = tuple(
        Target(name=f"target-{number:02}", base_url="http://mock.invalid/v1", model="mock")
        for number in range(target_count)
    )
    return Config(schema_version=1, targets=targets)


def plan(metrics: RunMetrics, config: Config) -> None:
    metrics.plan(
        PlannedSeries(target=target, benchmark=config.benchmark, interval_s=300.0, is_mock=True)
        for target in config.targets
    )


def runs_of_all(config: Config) -> list[Recorded]:
    """One run of every series; those of one target, under the names of all."""
    of_one = record_runs(config.model_copy(update={"targets": config.targets[:1]}))
    return [
        Recorded(result=run.result.model_copy(update={"target": target.name}), spans=run.spans)
        for target in config.targets
        for run in of_one
    ]


def time_ms(work: Callable[[], object]) -> float:
    start_ns = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - start_ns) / 1e6


def told(times_ms: Sequence[float]) -> str:
    ordered = sorted(times_ms)
    at_99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"{statistics.median(ordered):8.2f} {at_99:8.2f} {ordered[-1]:8.2f} ms"


# --- instruments and the page --------------------------------------------------------------------------------


def tell_metrics() -> None:
    config = config_of(TARGET_COUNT)
    runs = runs_of_all(config)
    reader, itself = PrometheusReader(), PrometheusReader(tells_resource=False)
    export = MetricExport(OtlpEndpoint(url=NOBODY, protocol="http/protobuf"), is_shown=lambda attributes: True)
    own = OwnMetrics([itself], resource=RESOURCE, sources=OwnState(config, now_unix_s=time.time()).sources())
    page = MetricsPage(reader, [itself.families])
    with run_metrics(reader, export.make_reader()) as metrics:
        plan_ms = time_ms(lambda: plan(metrics, config))
        records_ms = [
            time_ms(lambda run=run: metrics.accept(run.result, run.spans))  # type: ignore[misc]
            for _ in range(RECORD_ROUNDS)
            for run in runs
        ]
        first_ms = time_ms(lambda: page.render(OPENMETRICS))
        text, _ = page.render(OPENMETRICS)
        scrapes_ms = [time_ms(lambda: page.render(OPENMETRICS)) for _ in range(SCRAPES)]
        refreshes_ms = []
        for target in config.targets[:5]:
            for run in runs:
                if run.result.target == target.name:
                    metrics.accept(run.result, run.spans)
            refreshes_ms.append(time_ms(page.refresh))
    own.shutdown()
    size = f"{len(text.splitlines()):,} lines, {len(text) / 1e6:.1f} MB"
    print(f"{TARGET_COUNT} targets × 6 cases × 2 modes: {size}")
    print(f"counters of all series at 0, once {plan_ms:14.0f} ms")
    print(f"first page                        {first_ms:14.0f} ms")
    print("                                    median      99 %    worst")
    print(f"record one result, both readers   {told(records_ms)}")
    print(f"scrape of rendered bytes          {told(scrapes_ms)}")
    print(f"refresh after one target's cycle  {told(refreshes_ms)}")


# --- the event loop ------------------------------------------------------------------------------------------


class Streaming:
    """A client whose calls stream steadily, and the lateness of the event loop meanwhile."""

    def __init__(self, tracer: Tracer | None) -> None:
        """``tracer``: makes a span of each item at once, as an ordinary instrumentation does."""
        self._tracer = tracer
        self.lags_ms: list[float] = []

    async def stream_chat(self, request: ChatRequest, exchange: Exchange) -> AsyncGenerator[StreamItem, None]:
        del request, exchange
        probe = asyncio.create_task(self._probe())
        end_s = time.perf_counter() + STREAM_S
        count = 0
        while time.perf_counter() < end_s:
            await asyncio.sleep(PAUSE_S)
            for _ in range(ITEMS_PER_PAUSE):
                count += 1
                self._trace(count)
                yield StreamItem(kind=ItemKind.TEXT, arrival_ns=time.time_ns(), text="word ")
        usage = TokenUsage(prompt_tokens=10, completion_tokens=count, total_tokens=10 + count)
        yield StreamItem(kind=ItemKind.USAGE, arrival_ns=time.time_ns(), usage=usage)
        probe.cancel()

    def _trace(self, index: int) -> None:
        if self._tracer is not None:
            attributes: dict[str, str | int] = {
                names.AWAIT_INDEX: index,
                names.ITEM_KIND: "text",
                names.ITEM_ARRIVAL: time.time_ns(),
            }
            self._tracer.start_span(names.AWAIT_SPAN, attributes=attributes).end()

    async def _probe(self) -> None:
        while True:
            due_s = time.perf_counter() + PAUSE_S
            await asyncio.sleep(PAUSE_S)
            self.lags_ms.append((time.perf_counter() - due_s) * 1e3)

    async def aclose(self) -> None:
        """Nothing is open."""


@contextmanager
def receiver() -> Iterator[str]:
    """The URL of a collector in another process: its work is not ours."""
    command = [sys.executable, "-c", RECEIVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate()


def make_push(url: str, config: Config) -> Push:
    pushing = config.model_copy(update={"telemetry": Telemetry(otlp=Otlp(endpoint=url))})
    push = app.make_push(pushing, plan_runs(config.targets, config.benchmark), {}, is_mock=True)
    assert push is not None
    return push


def stream(client: Streaming, sinks: Sequence[Sink], config: Config) -> None:
    """One run whose only call streams."""
    runner = Runner(config, client_factory=lambda plan, clock: client, is_mock=True, sinks=sinks)
    asyncio.run(runner.run(plan_runs(config.targets, config.benchmark)[0]))


def tell_lags() -> None:
    config = app.mock_config()
    with receiver() as url:
        provider = TracerProvider(resource=RESOURCE, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=f"{url}/v1/traces")
        provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=BATCH_DELAY_MS))
        push = make_push(url, config)
        off, ours, naive = Streaming(None), Streaming(None), Streaming(provider.get_tracer("naive"))
        for _ in range(STREAM_ROUNDS):  # side by side: what else the machine does hits all alike
            stream(off, [], config)
            stream(ours, [push], config)
            push.hand_over()
            stream(naive, [], config)
            provider.force_flush()
        provider.shutdown()
    print(f"\nlateness of the event loop while a call streams {ITEMS_PER_PAUSE / PAUSE_S:,.0f} items/s at most")
    print("                                    median      99 %    worst")
    print(f"export off                        {told(off.lags_ms)}")
    print(f"export on, between runs           {told(ours.lags_ms)}")
    print(f"batches while it streams          {told(naive.lags_ms)}  for contrast")
    print(push.words())


def main() -> None:
    print(f"Python {platform.python_version()}, {platform.machine()}")
    tell_metrics()
    gc.collect()  # else what that left is collected while a call streams, and one of three looks 0.3 s late
    tell_lags()


if __name__ == "__main__":
    main()

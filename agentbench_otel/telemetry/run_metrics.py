"""`RunResult` → OpenTelemetry instruments. Each number is recorded once and leaves by ``/metrics`` and by OTLP.

What a run did not measure (None) is not recorded; 0 is recorded only where 0 was measured.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.sampling import Sampler

from agentbench_otel import __version__, names
from agentbench_otel.config.model import Benchmark, Target
from agentbench_otel.errors import CALL_ERROR_CLASSES, ErrorKind, error_class
from agentbench_otel.names import Metric, MetricKind
from agentbench_otel.records.chat import CallKind, TokenUsage
from agentbench_otel.records.results import FailureKind, ModelCallResult, RunResult
from agentbench_otel.records.spans import AttributeValue, SpanRecord
from agentbench_otel.telemetry.endpoint_attributes import endpoint_attributes
from agentbench_otel.telemetry.last_runs import (
    LAST_GAUGES,
    PAST_GAUGES,
    TOKEN_TYPES,
    Labels,
    SeriesKey,
    SeriesPast,
    lifetime_s,
    observe_last,
    observe_past,
    series_labels,
)
from agentbench_otel.telemetry.sampling import exemplar_context

RUN_STATUSES = ("passed", "failed", "error", "aborted")
CALL_OUTCOMES = ("ok", *CALL_ERROR_CLASSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSeries:
    """What a target is measured with, and how often; ``interval_s`` None: only now, as by ``once``."""

    target: Target
    benchmark: Benchmark
    interval_s: float | None
    is_mock: bool

    def series(self) -> list[SeriesKey]:
        return [
            (self.target.name, case_id, mode) for case_id in self.benchmark.cases for mode in self.benchmark.modes
        ]


class RunMetrics:
    """A sink that records each run; warm-ups count in nothing, aborted runs only as aborted."""

    def __init__(
        self,
        readers: Sequence[MetricReader],
        *,
        resource: Resource,
        sampler: Sampler,
        semconv: names.Semconv,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """``sampler``: decides which traces are exported; only those become exemplars."""
        self._provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        self._sampler = sampler
        self._wall_s = wall_s
        self._planned: Mapping[str, PlannedSeries] = {}
        self._past: Mapping[SeriesKey, SeriesPast] = {}
        self._lock = threading.Lock()
        meter = self._provider.get_meter(names.SCOPE, __version__)
        wanted = names.metrics_of(semconv)
        self._histograms = {
            metric: meter.create_histogram(
                metric.name,
                unit=metric.unit,
                description=metric.description,
                explicit_bucket_boundaries_advisory=metric.buckets,
            )
            for metric in wanted
            if metric.kind is MetricKind.HISTOGRAM
        }
        self._counters = {
            metric: meter.create_counter(metric.name, unit=metric.unit, description=metric.description)
            for metric in wanted
            if metric in _COUNTERS
        }
        for metric in (*LAST_GAUGES, *PAST_GAUGES):
            meter.create_observable_gauge(
                metric.name, [self._observer(metric)], unit=metric.unit, description=metric.description
            )

    def plan(self, planned: Iterable[PlannedSeries]) -> None:
        """Say what will be measured: its counters begin at 0, and the gauges of all else go.

        It takes a moment with a large config; another thread may do it.
        """
        self._planned = {one.target.name: one for one in planned}
        keys = []
        for one in self._planned.values():
            client = {
                names.OPERATION_NAME: "chat",
                names.REQUEST_MODEL: one.target.model,
                **endpoint_attributes(one.target, is_mock=one.is_mock),
            }
            for key in one.series():
                keys.append(key)
                for metric, labels in _zero_series(key, client):
                    self._add(metric, 0, labels, Context())
        with self._lock:
            self._past = {key: self._past.get(key, SeriesPast()) for key in keys}

    def restore(self, past: Mapping[SeriesKey, SeriesPast]) -> None:
        """What the history knows of the planned series. Counters stay: Prometheus handles a restart at 0."""
        with self._lock:
            self._past = {key: past.get(key, known) for key, known in self._past.items()}

    def has_target(self, name: str) -> bool:
        """Whether the target is planned; the series of others are kept by the SDK but no longer shown."""
        return name in self._planned

    def accept(self, result: RunResult, spans: Sequence[SpanRecord]) -> None:
        if result.warmup:
            return
        key = (result.target, result.case_id, result.mode)
        labels = series_labels(key)
        context = exemplar_context(spans, self._sampler)
        self._add(names.RUNS, 1, {**labels, names.L_STATUS: run_status(result)}, context)
        if run_status(result) == "aborted":
            return
        for failure in result.semantic_failures:
            self._add(names.SEMANTIC_FAILURES, 1, {**labels, names.L_KIND: failure.kind.value}, context)
        for metric, read in _TURN_TIMES.items():
            self._record_ms(metric, read(result), labels, context)
        for call in result.model_calls:
            self._record_call(call, labels, context)
        agent = {**labels, names.AGENT_NAME_KEY: names.AGENT_NAME, names.REQUEST_MODEL: result.model}
        if result.error is not None:
            agent[names.ERROR_TYPE] = error_class(result.error.kind)
        self._record_ms(names.INVOKE_AGENT_DURATION, result.turn_wall_time_ms, agent, context)
        self._record_spans(result, spans, labels, context)
        with self._lock:
            if key in self._past:  # else its series left the config while it ran
                self._past = {**self._past, key: self._past[key].with_run(result)}

    def shutdown(self) -> None:
        self._provider.shutdown()

    # --- recording -----------------------------------------------------------------------------------------

    def _add(self, metric: Metric, count: int | None, labels: Labels, context: Context) -> None:
        """Nothing where nothing was measured, or where the profile does not have the metric."""
        if count is not None and metric in self._counters:
            self._counters[metric].add(count, labels, context)

    def _record(self, metric: Metric, value: float | None, labels: Labels, context: Context) -> None:
        if value is not None and metric in self._histograms:
            self._histograms[metric].record(value, labels, context)

    def _record_ms(self, metric: Metric, time_ms: float | None, labels: Labels, context: Context) -> None:
        self._record(metric, None if time_ms is None else time_ms / 1000, labels, context)

    def _record_call(self, call: ModelCallResult, labels: Labels, context: Context) -> None:
        of_call = {**labels, names.L_CALL_KIND: call.call_kind.value}
        outcome = "ok" if call.error is None else error_class(call.error.kind)
        self._add(names.MODEL_CALLS, 1, {**of_call, names.L_OUTCOME: outcome}, context)
        for metric, read in _CALL_TIMES.items():
            self._record_ms(metric, read(call), of_call, context)
        if call.usage is None:
            self._add(names.USAGE_MISSING, 1, labels, context)
            return
        for token_type, count in zip(TOKEN_TYPES, _counts(call.usage), strict=True):
            self._add(names.RUN_TOKENS, count, {**labels, names.L_TYPE: token_type}, context)

    def _record_spans(
        self, result: RunResult, spans: Sequence[SpanRecord], labels: Labels, context: Context
    ) -> None:
        """The metrics that carry attributes of a model call's or a handler's span."""
        calls = {call.call_index: call for call in result.model_calls}
        for span in spans:
            index = span.attributes.get(names.CALL_INDEX)
            if isinstance(index, int):
                client = {**labels, **_chosen(span.attributes, _CLIENT_ATTRIBUTES)}
                self._record_client_call(calls[index], client, context)
            elif names.TOOL_NAME in span.attributes:
                tool = {
                    **labels,
                    **_chosen(span.attributes, _TOOL_ATTRIBUTES),
                    names.AGENT_NAME_KEY: names.AGENT_NAME,
                }
                if names.ERROR_TYPE in tool:
                    tool[names.ERROR_TYPE] = error_class(str(tool[names.ERROR_TYPE]))
                self._record(names.EXECUTE_TOOL_DURATION, span.duration_ns / 1e9, tool, context)
                own = {**labels, names.L_TOOL: str(span.attributes[names.TOOL_NAME])}
                self._record(names.TOOL_HANDLER, span.duration_ns / 1e9, own, context)

    def _record_client_call(self, call: ModelCallResult, client: Labels, context: Context) -> None:
        time_ms, ended = call.stream_ms, client
        if call.error is not None:  # it did not fail when its last item came
            time_ms, ended = call.elapsed_ms, {**client, names.ERROR_TYPE: error_class(call.error.kind)}
        for metric in (names.OPERATION_DURATION, names.NEXT_OPERATION_DURATION):
            self._record_ms(metric, time_ms, ended, context)
        for metric in (names.TIME_TO_FIRST_CHUNK, names.NEXT_TIME_TO_FIRST_CHUNK):
            self._record_ms(metric, call.provider_ttft_ms, client, context)
        if call.usage is None:
            return
        sent, made, _, _ = _counts(call.usage)
        self._record(names.TOKEN_USAGE, sent, {**client, names.TOKENS_TYPE: "input"}, context)
        self._record(names.TOKEN_USAGE, made, {**client, names.TOKENS_TYPE: "output"}, context)
        self._record(names.NEXT_INPUT_TOKENS, sent, client, context)
        self._record(names.NEXT_OUTPUT_TOKENS, made, client, context)
        text = {**client, names.TOKENS_MODALITY: "text"}
        for metric, count in zip(_USAGE_COUNTERS, _counts(call.usage), strict=True):
            self._add(metric, count, text, context)

    # --- gauges --------------------------------------------------------------------------------------------

    def _observer(self, metric: Metric) -> Callable[[CallbackOptions], Iterator[Observation]]:
        def observe(options: CallbackOptions) -> Iterator[Observation]:
            del options
            for key, past in self._past.items():
                labels = series_labels(key)
                if metric in PAST_GAUGES:
                    found = observe_past(metric, past, labels)
                elif past.last is not None and self._is_fresh(key[0], past.last):
                    found = observe_last(metric, past.last, labels)
                else:
                    continue
                for value, of_value in found:
                    yield Observation(value, of_value)

        return observe

    def _is_fresh(self, target: str, last: RunResult) -> bool:
        interval_s = self._planned[target].interval_s if target in self._planned else None
        if interval_s is None:
            return True
        return self._wall_s() - last.started_at.timestamp() <= lifetime_s(interval_s)


def run_status(result: RunResult) -> str:
    """One of `RUN_STATUSES`."""
    if result.error is None:
        return result.status.value
    return "aborted" if result.error.kind == ErrorKind.ABORTED else "error"


def _zero_series(key: SeriesKey, client: Labels) -> Iterator[tuple[Metric, Labels]]:
    """Every counter that can occur; a series born with 1 hides the first failure from ``increase()``.

    ``client``: the attributes that the spans of the model calls will have.
    """
    labels = series_labels(key)
    for status in RUN_STATUSES:
        yield names.RUNS, {**labels, names.L_STATUS: status}
    for kind in FailureKind:
        yield names.SEMANTIC_FAILURES, {**labels, names.L_KIND: kind.value}
    for call_kind in CallKind:
        for outcome in CALL_OUTCOMES:
            yield names.MODEL_CALLS, {**labels, names.L_CALL_KIND: call_kind.value, names.L_OUTCOME: outcome}
    for token_type in TOKEN_TYPES:
        yield names.RUN_TOKENS, {**labels, names.L_TYPE: token_type}
    yield names.USAGE_MISSING, labels
    for metric in _USAGE_COUNTERS:
        yield metric, {**labels, **client, names.TOKENS_MODALITY: "text"}


def _counts(usage: TokenUsage) -> tuple[int | None, int | None, int | None, int | None]:
    """In the order of `TOKEN_TYPES`."""
    return usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.reasoning_tokens


def _chosen(attributes: Mapping[str, AttributeValue], keys: Iterable[str]) -> dict[str, Any]:
    return {key: attributes[key] for key in keys if key in attributes}


_CLIENT_ATTRIBUTES = (
    names.OPERATION_NAME,
    names.PROVIDER_NAME,
    names.REQUEST_MODEL,
    names.SERVER_ADDRESS,
    names.SERVER_PORT,
)
_TOOL_ATTRIBUTES = (names.TOOL_NAME, names.TOOL_TYPE, names.ERROR_TYPE)
_USAGE_COUNTERS = (
    names.NEXT_INPUT_USAGE,
    names.NEXT_OUTPUT_USAGE,
    names.NEXT_CACHED_USAGE,
    names.NEXT_REASONING_USAGE,
)
_COUNTERS = (
    names.RUNS,
    names.SEMANTIC_FAILURES,
    names.MODEL_CALLS,
    names.RUN_TOKENS,
    names.USAGE_MISSING,
    *_USAGE_COUNTERS,
)
_TURN_TIMES: Mapping[Metric, Callable[[RunResult], float | None]] = {
    names.TURN_WALL: lambda run: run.turn_wall_time_ms,
    names.TURN_PROVIDER: lambda run: run.turn_provider_ms,
    names.TURN_HANDLER: lambda run: run.turn_handler_ms,
    names.TURN_HARNESS: lambda run: run.harness_ms,
    names.VISIBLE_TTFT: lambda run: run.visible_ttft_ms,
}
_CALL_TIMES: Mapping[Metric, Callable[[ModelCallResult], float | None]] = {
    names.CALL_PROVIDER_AWAIT: lambda call: call.elapsed_ms,
    names.CALL_STREAM: lambda call: call.stream_ms,
    names.CALL_CONSUMER: lambda call: call.consumer_ms,
    names.CALL_TOKEN_TTFT: lambda call: call.token_ttft_ms,
    names.CALL_MAX_CHUNK_GAP: lambda call: call.max_chunk_gap_ms,
    names.CALL_CONNECT: lambda call: call.connect_ms,
}

"""`RunResult` → instruments: each number once, what was not measured never, and counters that begin at 0."""

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from agentbench_otel import app, names
from agentbench_otel.errors import CALL_ERROR_CLASSES, ErrorKind, error_class
from agentbench_otel.records.chat import CallKind, TokenUsage
from agentbench_otel.records.results import FailureKind, ModelCallResult, RunFault, SemanticFailure, Status
from agentbench_otel.records.spans import AttributeValue, SpanKind, SpanRecord
from agentbench_otel.telemetry.run_metrics import RUN_STATUSES, PlannedSeries, run_status
from agentbench_otel.telemetry.sampling import configured_sampler
from tests.support.clock import MS, T0_NS
from tests.support.recorded_runs import (
    Attributes,
    Recorded,
    attributes_key,
    planned,
    points_of,
    record_runs,
    run_metrics,
)
from tests.support.results import a_result
from tests.support.spans import TRACE_ID

SERIES = {"target": "local", "case": "ordinary_chat", "mode": "dual_agent"}
CLIENT: dict[str, AttributeValue] = {
    names.OPERATION_NAME: "chat",
    names.PROVIDER_NAME: "openai",
    names.REQUEST_MODEL: "tiny",
    names.SERVER_ADDRESS: "localhost",
    names.SERVER_PORT: 1,
}
PROFILES: tuple[names.Semconv, ...] = ("1.41", "next")


def a_call(**changes: Any) -> ModelCallResult:
    (call,) = a_result().model_calls
    return call.model_copy(update=changes)


def a_span(span_id: int, *, parent: int | None, ms: int = 10, **attributes: AttributeValue) -> SpanRecord:
    """``attributes``: by the names of the constants."""
    return SpanRecord(
        trace_id=TRACE_ID,
        span_id=f"{span_id:016x}",
        parent_span_id=None if parent is None else f"{parent:016x}",
        name=f"span {span_id}",
        kind=SpanKind.INTERNAL,
        start_ns=T0_NS,
        end_ns=T0_NS + ms * MS,
        attributes={getattr(names, key): value for key, value in attributes.items()},
    )


def a_run(*calls: ModelCallResult, tools: tuple[SpanRecord, ...] = (), **changes: Any) -> Recorded:
    """A run of these calls (by default of one), each with its span, and of these handlers' spans."""
    numbered = tuple(
        call.model_copy(update={"call_index": index}) for index, call in enumerate(calls or (a_call(),), 1)
    )
    of_calls = [
        SpanRecord(
            trace_id=TRACE_ID,
            span_id=f"{100 + call.call_index:016x}",
            parent_span_id=f"{1:016x}",
            name="chat tiny",
            kind=SpanKind.CLIENT,
            start_ns=T0_NS,
            end_ns=T0_NS + 10 * MS,
            attributes={**CLIENT, names.CALL_INDEX: call.call_index},
        )
        for call in numbered
    ]
    return Recorded(
        result=a_result(model_calls=numbered, **changes),
        spans=[*tools, *of_calls, a_span(1, parent=None)],
    )


def recorded(*runs: Recorded, semconv: names.Semconv = "1.41", is_planned: bool = False) -> Any:
    reader = InMemoryMetricReader()
    with run_metrics(reader, semconv=semconv) as metrics:
        if is_planned:
            metrics.plan([planned()])
        for run in runs:
            metrics.accept(run.result, run.spans)
        return points_of(reader)


def value_of(points: Any, metric: names.Metric, **labels: Any) -> float:
    value: float = points[metric.name][attributes_key({**SERIES, **labels})].value
    return value


def total_of(points: Any, metric: names.Metric) -> float:
    """Of all series of a counter."""
    return math.fsum(point.value for point in points.get(metric.name, {}).values())


# --- counters --------------------------------------------------------------------------------------------------


def test_every_counter_of_a_planned_series_begins_at_0() -> None:
    points = recorded(is_planned=True)
    expected: dict[str, set[Attributes]] = {
        names.RUNS.name: {
            attributes_key({**SERIES, "status": status}) for status in ("passed", "failed", "error", "aborted")
        },
        names.SEMANTIC_FAILURES.name: {attributes_key({**SERIES, "kind": kind.value}) for kind in FailureKind},
        names.MODEL_CALLS.name: {
            attributes_key({**SERIES, "call_kind": call_kind.value, "outcome": outcome})
            for call_kind in CallKind
            for outcome in ("ok", *CALL_ERROR_CLASSES)
        },
        names.RUN_TOKENS.name: {
            attributes_key({**SERIES, "type": one}) for one in ("input", "output", "cached", "reasoning")
        },
        names.USAGE_MISSING.name: {attributes_key(SERIES)},
    }
    for name, series in expected.items():
        assert {key: point.value for key, point in points[name].items()} == dict.fromkeys(series, 0)


def test_planning_again_leaves_counts_as_they_are() -> None:
    reader = InMemoryMetricReader()
    with run_metrics(reader) as metrics:
        metrics.plan([planned()])
        run = a_run()
        metrics.accept(run.result, run.spans)
        metrics.plan([planned(), planned("other")])
        assert value_of(points_of(reader), names.RUNS, status="passed") == 1


def test_no_run_makes_a_series_that_was_not_planned() -> None:
    """Of the counters that begin at 0: whatever goes wrong with a call, its series was there before."""
    kinds = [kind.value for kind in ErrorKind if kind.value in CALL_ERROR_CLASSES]
    faults = [
        RunFault(kind=kind, message="x") for kind in [*kinds, "http_100", "http_429", "http_503", "http_999"]
    ]
    calls = [a_call(error=fault, call_kind=kind) for fault in faults for kind in CallKind]
    failures = [SemanticFailure(kind=kind, message="x") for kind in FailureKind]
    before = recorded(is_planned=True)
    after = recorded(a_run(*calls, semantic_failures=failures), is_planned=True)
    for metric in (names.RUNS, names.SEMANTIC_FAILURES, names.MODEL_CALLS, names.RUN_TOKENS, names.USAGE_MISSING):
        assert set(after[metric.name]) == set(before[metric.name])


@pytest.mark.parametrize(
    ("status", "error_kind", "word"),
    [
        (Status.PASSED, None, "passed"),
        (Status.FAILED, None, "failed"),
        (Status.FAILED, "connect_error", "error"),
        (Status.FAILED, "http_429", "error"),
        (Status.FAILED, "aborted", "aborted"),
        (Status.FAILED, "cancelled", "error"),
    ],
)
def test_a_run_is_counted_by_how_it_ended(status: Status, error_kind: str | None, word: str) -> None:
    fault = None if error_kind is None else RunFault(kind=error_kind, message="x")
    run = a_run(status=status, error=fault)
    assert run_status(run.result) == word
    assert word in RUN_STATUSES
    points = recorded(run, is_planned=True)
    assert value_of(points, names.RUNS, status=word) == 1
    assert total_of(points, names.RUNS) == 1


def test_a_warm_up_counts_in_nothing() -> None:
    assert recorded(a_run(warmup=True)) == {}


def test_an_aborted_run_counts_as_aborted_and_in_nothing_else() -> None:
    points = recorded(a_run(error=RunFault(kind="aborted", message="x")))
    assert set(points) == {names.RUNS.name}
    assert value_of(points, names.RUNS, status="aborted") == 1


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("http_429", "http_4xx"),
        ("http_503", "http_5xx"),
        ("http_799", "http_5xx"),
        ("idle_timeout", "idle_timeout"),
        ("ValueError", "internal"),
    ],
)
def test_what_a_server_makes_up_is_one_of_a_short_list_as_a_label(kind: str, outcome: str) -> None:
    fault = RunFault(kind=kind, message="x")
    points = recorded(a_run(a_call(error=fault), error=fault, status=Status.FAILED))
    assert value_of(points, names.MODEL_CALLS, call_kind="chat_completion", outcome=outcome) == 1
    for metric in (names.OPERATION_DURATION, names.INVOKE_AGENT_DURATION):
        (key,) = points[metric.name]
        assert dict(key)[names.ERROR_TYPE] == outcome


def test_what_went_well_has_no_error_type() -> None:
    points = recorded(a_run(tools=(a_span(7, parent=1, TOOL_NAME="t", TOOL_TYPE="function"),)))
    for metric in (names.OPERATION_DURATION, names.INVOKE_AGENT_DURATION, names.EXECUTE_TOOL_DURATION):
        (key,) = points[metric.name]
        assert names.ERROR_TYPE not in dict(key)


# --- times and tokens ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("semconv", "metric"), [("1.41", names.OPERATION_DURATION), ("next", names.NEXT_OPERATION_DURATION)]
)
def test_the_operation_lasts_to_the_last_item_and_of_a_failed_call_as_long_as_was_waited(
    semconv: names.Semconv, metric: names.Metric
) -> None:
    ended = a_call(stream_ms=100.0, elapsed_ms=90.0)
    failed = a_call(stream_ms=100.0, elapsed_ms=5000.0, error=RunFault(kind="idle_timeout", message="x"))
    points = recorded(a_run(ended, failed), semconv=semconv)[metric.name]
    by_error = {dict(key).get(names.ERROR_TYPE): point.sum for key, point in points.items()}
    assert by_error == {None: pytest.approx(0.1), "idle_timeout": pytest.approx(5.0)}


def test_a_failed_call_without_an_item_has_a_duration_and_no_stream() -> None:
    failed = a_call(stream_ms=None, elapsed_ms=3.0, error=RunFault(kind="connect_error", message="x"))
    points = recorded(a_run(failed))
    assert names.CALL_STREAM.name not in points
    (point,) = points[names.OPERATION_DURATION.name].values()
    assert point.sum == pytest.approx(0.003)


def test_what_was_not_measured_makes_no_point() -> None:
    nothing = a_call(
        provider_ttft_ms=None,
        token_ttft_ms=None,
        stream_ms=None,
        max_chunk_gap_ms=None,
        connect_ms=None,
        usage=TokenUsage(),
    )
    unmeasured: dict[str, Any] = dict.fromkeys(
        ("turn_wall_time_ms", "turn_provider_ms", "turn_handler_ms", "harness_ms", "visible_ttft_ms")
    )
    for semconv in PROFILES:
        gauges = {metric.name for metric in names.metrics_of(semconv) if metric.kind is names.MetricKind.GAUGE}
        assert set(recorded(a_run(nothing, **unmeasured), semconv=semconv)) - gauges == {
            names.RUNS.name,
            names.MODEL_CALLS.name,
            names.CALL_PROVIDER_AWAIT.name,
            names.CALL_CONSUMER.name,
        }


def test_a_measured_0_is_a_point() -> None:
    points = recorded(a_run(a_call(usage=TokenUsage(prompt_tokens=0)), turn_handler_ms=0.0))
    (handler,) = points[names.TURN_HANDLER.name].values()
    assert (handler.count, handler.sum) == (1, 0)
    assert value_of(points, names.RUN_TOKENS, type="input") == 0
    assert attributes_key({**SERIES, "type": "output"}) not in points[names.RUN_TOKENS.name]


def test_a_call_without_usage_is_counted_and_adds_no_tokens() -> None:
    points = recorded(a_run(a_call(usage=None)), is_planned=True)
    assert value_of(points, names.USAGE_MISSING) == 1
    assert total_of(points, names.RUN_TOKENS) == 0
    assert names.TOKEN_USAGE.name not in points


def test_a_value_on_a_bound_belongs_to_the_bucket_below_it() -> None:
    points = recorded(a_run(turn_wall_time_ms=640.0))
    (point,) = points[names.TURN_WALL.name].values()
    assert point.explicit_bounds == names.TURN_WALL.buckets
    assert point.bucket_counts[names.TURN_WALL.buckets.index(0.64)] == 1


# --- exemplars -------------------------------------------------------------------------------------------------


def exemplars_with(sampler: Sampler) -> list[tuple[str, str]]:
    reader = InMemoryMetricReader()
    with run_metrics(reader, sampler=sampler) as metrics:
        run = a_run()
        metrics.accept(run.result, run.spans)
        return [
            (f"{one.trace_id:032x}", f"{one.span_id:016x}")
            for points in points_of(reader).values()
            for point in points.values()
            for one in point.exemplars or ()
            if one.trace_id
        ]


def test_exemplars_name_the_span_of_the_run() -> None:
    assert set(exemplars_with(ALWAYS_ON)) == {(TRACE_ID, f"{1:016x}")}


def test_a_trace_that_is_not_exported_is_no_exemplar(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exemplars_with(ALWAYS_OFF) == []
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    assert exemplars_with(configured_sampler()) == []
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    assert exemplars_with(configured_sampler()) == []


def test_without_a_configured_sampler_every_trace_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_TRACES_SAMPLER", raising=False)
    assert exemplars_with(configured_sampler()) != []


def test_a_run_without_spans_is_recorded_without_an_exemplar() -> None:
    reader = InMemoryMetricReader()
    with run_metrics(reader) as metrics:
        metrics.accept(a_result(), [])
        points = points_of(reader)
    assert value_of(points, names.RUNS, status="passed") == 1
    assert not any(one.exemplars for series in points.values() for one in series.values())


# --- all of it against an obvious oracle -------------------------------------------------------------------------

MAYBE_MS = st.none() | st.floats(0, 1e6, allow_nan=False)
MAYBE_COUNT = st.none() | st.integers(0, 10**9)
FAULTS = st.none() | st.builds(
    RunFault,
    kind=st.sampled_from([*(kind.value for kind in ErrorKind), "http_404", "http_503", "http_1000"]),
    message=st.just("x"),
)
USAGES = st.none() | st.builds(
    TokenUsage,
    prompt_tokens=MAYBE_COUNT,
    completion_tokens=MAYBE_COUNT,
    cached_tokens=MAYBE_COUNT,
    reasoning_tokens=MAYBE_COUNT,
)
CALLS = st.builds(
    a_call,
    call_kind=st.sampled_from(CallKind),
    provider_ttft_ms=MAYBE_MS,
    token_ttft_ms=MAYBE_MS,
    elapsed_ms=st.floats(0, 1e6),
    stream_ms=MAYBE_MS,
    consumer_ms=st.floats(0, 1e6),
    max_chunk_gap_ms=MAYBE_MS,
    connect_ms=MAYBE_MS,
    usage=USAGES,
    error=FAULTS,
)
TOOLS = st.builds(
    lambda number, name, ms, error: a_span(
        1000 + number,
        parent=1,
        ms=ms,
        TOOL_NAME=name,
        TOOL_TYPE="function",
        **({} if error is None else {"ERROR_TYPE": error}),
    ),
    st.integers(0, 1000),
    st.sampled_from(["a", "b"]),
    st.integers(0, 10**6),
    st.sampled_from([None, "cancelled", "KeyError"]),
)
RUNS = st.builds(
    lambda calls, tools, changes: a_run(*calls, tools=tuple(tools), **changes),
    st.lists(CALLS, min_size=1, max_size=3),
    st.lists(TOOLS, max_size=3),
    st.fixed_dictionaries(
        {
            "turn_wall_time_ms": MAYBE_MS,
            "turn_provider_ms": MAYBE_MS,
            "turn_handler_ms": MAYBE_MS,
            "harness_ms": MAYBE_MS,
            "visible_ttft_ms": MAYBE_MS,
            "warmup": st.booleans(),
            "status": st.sampled_from(Status),
            "error": FAULTS,
            "semantic_failures": st.lists(
                st.builds(SemanticFailure, kind=st.sampled_from(FailureKind), message=st.just("x")), max_size=3
            ),
        }
    ),
)

Told = tuple[str, dict[str, Any], float]


def with_error(labels: dict[str, Any], fault: RunFault | None) -> dict[str, Any]:
    return labels if fault is None else {**labels, "error.type": error_class(fault.kind)}


def oracle_of_call(call: ModelCallResult, semconv: names.Semconv) -> Iterator[tuple[str, dict[str, Any], Any]]:
    client = {**SERIES, **CLIENT}
    by_kind = {**SERIES, "call_kind": call.call_kind.value}
    outcome = "ok" if call.error is None else error_class(call.error.kind)
    yield "agentbench.model_calls", {**by_kind, "outcome": outcome}, 1000
    yield "agentbench.model_call.provider_await", by_kind, call.elapsed_ms
    yield "agentbench.model_call.stream", by_kind, call.stream_ms
    yield "agentbench.model_call.consumer", by_kind, call.consumer_ms
    yield "agentbench.model_call.token_ttft", by_kind, call.token_ttft_ms
    yield "agentbench.model_call.max_chunk_gap", by_kind, call.max_chunk_gap_ms
    yield "agentbench.model_call.connect", by_kind, call.connect_ms
    name = "gen_ai.client.operation." if semconv == "1.41" else "gen_ai.client.inference."
    lasted_ms = call.stream_ms if call.error is None else call.elapsed_ms
    yield name + "duration", with_error(client, call.error), lasted_ms
    yield name + "time_to_first_chunk", client, call.provider_ttft_ms


def oracle_of_usage(usage: TokenUsage | None, semconv: names.Semconv) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Counts, not ms."""
    if usage is None:
        yield "agentbench.usage_missing", SERIES, 1
        return
    client = {**SERIES, **CLIENT}
    yield "agentbench.tokens", {**SERIES, "type": "input"}, usage.prompt_tokens
    yield "agentbench.tokens", {**SERIES, "type": "output"}, usage.completion_tokens
    yield "agentbench.tokens", {**SERIES, "type": "cached"}, usage.cached_tokens
    yield "agentbench.tokens", {**SERIES, "type": "reasoning"}, usage.reasoning_tokens
    if semconv == "1.41":
        yield "gen_ai.client.token.usage", {**client, "gen_ai.token.type": "input"}, usage.prompt_tokens
        yield "gen_ai.client.token.usage", {**client, "gen_ai.token.type": "output"}, usage.completion_tokens
        return
    text = {**client, "gen_ai.token.modality": "text"}
    yield "gen_ai.client.inference.operation.input_tokens", client, usage.prompt_tokens
    yield "gen_ai.client.inference.operation.output_tokens", client, usage.completion_tokens
    yield "gen_ai.client.inference.usage.input_tokens", text, usage.prompt_tokens
    yield "gen_ai.client.inference.usage.output_tokens", text, usage.completion_tokens
    yield "gen_ai.client.inference.usage.cache_read.input_tokens", text, usage.cached_tokens
    yield "gen_ai.client.inference.usage.reasoning.output_tokens", text, usage.reasoning_tokens


def oracle(run: Recorded, semconv: names.Semconv) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """What a run tells, one measurement after the other, in ms where it is a time; a count 1 is 1000."""
    result = run.result
    if result.warmup:
        return
    if result.error is not None and result.error.kind == "aborted":
        yield "agentbench.runs", {**SERIES, "status": "aborted"}, 1000
        return
    status = "error" if result.error is not None else result.status.value
    yield "agentbench.runs", {**SERIES, "status": status}, 1000
    for failure in result.semantic_failures:
        yield "agentbench.semantic_failures", {**SERIES, "kind": failure.kind.value}, 1000
    yield "agentbench.turn.wall", SERIES, result.turn_wall_time_ms
    yield "agentbench.turn.provider", SERIES, result.turn_provider_ms
    yield "agentbench.turn.handler", SERIES, result.turn_handler_ms
    yield "agentbench.turn.harness", SERIES, result.harness_ms
    yield "agentbench.visible_ttft", SERIES, result.visible_ttft_ms
    agent = {**SERIES, "gen_ai.agent.name": "agentbench", "gen_ai.request.model": "tiny"}
    yield "gen_ai.invoke_agent.duration", with_error(agent, result.error), result.turn_wall_time_ms
    for span in run.spans:
        if names.TOOL_NAME in span.attributes:
            ms = span.duration_ns / 1e6
            name = span.attributes[names.TOOL_NAME]
            tool = {**SERIES, "gen_ai.tool.name": name, "gen_ai.tool.type": "function"}
            tool["gen_ai.agent.name"] = "agentbench"
            if names.ERROR_TYPE in span.attributes:
                tool["error.type"] = (
                    "cancelled" if span.attributes[names.ERROR_TYPE] == "cancelled" else "internal"
                )
            yield "gen_ai.execute_tool.duration", tool, ms
            yield "agentbench.tool_handler", {**SERIES, "tool": name}, ms
    for call in result.model_calls:
        yield from oracle_of_call(call, semconv)
        for metric, labels, count in oracle_of_usage(call.usage, semconv):
            yield metric, labels, None if count is None else count * 1000


@settings(max_examples=150, deadline=None)
@given(st.lists(RUNS, max_size=3), st.sampled_from(PROFILES))
def test_what_is_recorded_of_any_runs_is_what_an_obvious_count_says(
    runs: list[Recorded], semconv: names.Semconv
) -> None:
    expected: dict[tuple[str, Attributes], list[float]] = defaultdict(list)
    for run in runs:
        for metric, labels, value in oracle(run, semconv):
            if value is not None:
                expected[metric, attributes_key(labels)].append(value / 1000)
    counters = {metric.name for metric in names.metrics_of(semconv) if metric.kind is names.MetricKind.COUNTER}
    gauges = {metric.name for metric in names.metrics_of(semconv) if metric.kind is names.MetricKind.GAUGE}
    found = {
        (metric, key): point
        for metric, points in recorded(*runs, semconv=semconv).items()
        if metric not in gauges
        for key, point in points.items()
    }
    assert set(found) == set(expected)
    for (metric, key), values in expected.items():
        point = found[metric, key]
        if metric in counters:
            assert point.value == round(math.fsum(values))
            assert isinstance(point.value, int)
        else:
            assert point.count == len(values) == sum(point.bucket_counts)
            assert point.sum == pytest.approx(math.fsum(values), rel=1e-9, abs=1e-12)
            assert (point.min, point.max) == (min(values), max(values))


def test_the_renamed_counters_begin_at_0_with_the_attributes_that_calls_will_have() -> None:
    reader = InMemoryMetricReader()
    runs = record_runs(app.mock_config())
    with run_metrics(reader, semconv="next") as metrics:
        metrics.plan(
            [
                PlannedSeries(
                    target=app.MOCK_TARGET, benchmark=app.mock_config().benchmark, interval_s=None, is_mock=True
                )
            ]
        )
        before = points_of(reader)[names.NEXT_INPUT_USAGE.name]
        for run in runs:
            metrics.accept(run.result, run.spans)
        after = points_of(reader)[names.NEXT_INPUT_USAGE.name]
    assert set(before) == set(after)
    assert {point.value for point in before.values()} == {0}
    assert all(point.value > 0 for point in after.values())

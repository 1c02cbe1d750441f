"""Spans become one result document, or a `MeasurementError` that says why not."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from agentbench_otel import names
from agentbench_otel.errors import MeasurementError
from agentbench_otel.measurement.assemble import assemble
from agentbench_otel.measurement.facts import measure_run
from agentbench_otel.records.chat import CallKind, ItemKind, TokenUsage
from agentbench_otel.records.results import FailureKind, RunFault, Status
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.records.spans import AttributeValue, SpanEvent, SpanRecord
from agentbench_otel.records.turn import MessageType
from tests.support.clock import MS, T0_NS
from tests.support.spans import RUN_ATTRIBUTES, TRACE_ID, RunSpans, item
from tests.support.staged_run import stage

ENDED: Mapping[str, AttributeValue] = {names.TURN_END: MessageType.TURN_COMPLETED.value}


def two_calls_and_two_handlers() -> RunSpans:
    """A turn of 100 ms: a call of 40 ms, two handlers at the same time, a second call of 20 ms."""
    run = RunSpans()
    run.run(T0_NS, T0_NS + 110 * MS)
    visible = SpanEvent(name=names.FIRST_VISIBLE_MESSAGE_EVENT, time_ns=T0_NS + 32 * MS)
    run.turn(T0_NS, T0_NS + 100 * MS, attributes=ENDED, events=[visible])
    run.call(
        T0_NS + 1 * MS,
        T0_NS + 41 * MS,
        [
            item(T0_NS + 1 * MS, T0_NS + 11 * MS, ItemKind.RAW_CHUNK),
            item(T0_NS + 11 * MS, T0_NS + 21 * MS, ItemKind.REASONING),
            item(T0_NS + 31 * MS, T0_NS + 36 * MS, arrival_ns=T0_NS + 31 * MS, is_visible=True),
            item(T0_NS + 36 * MS, T0_NS + 41 * MS, ItemKind.END),
        ],
        phases={"connect": (T0_NS + 1 * MS, T0_NS + 3 * MS), "first_byte": (T0_NS + 4 * MS, T0_NS + 10 * MS)},
        attributes={
            names.FIRST_ITEM_KIND: "raw_chunk",
            names.CONNECTION_REUSED: False,
            names.ADAPTATIONS: ("max_tokens renamed",),
            names.RESPONSE_FINISH_REASONS: ("tool_calls",),
            names.RESPONSE_MODEL: "tiny-v2",
            names.USAGE_INPUT_TOKENS: 10,
            names.USAGE_OUTPUT_TOKENS: 5,
        },
    )
    run.handler(T0_NS + 50 * MS, T0_NS + 60 * MS, "one")
    run.handler(T0_NS + 55 * MS, T0_NS + 70 * MS, "two")
    run.call(
        T0_NS + 75 * MS,
        T0_NS + 95 * MS,
        [item(T0_NS + 75 * MS, T0_NS + 95 * MS)],
        kind=CallKind.ARGUMENT_FALLBACK,
        attributes={names.USAGE_INPUT_TOKENS: 3, names.ERROR_TYPE: "stream_truncated"},
        error="it went away",
    )
    return run


def spans_with(attributes: Mapping[str, AttributeValue | None]) -> list[SpanRecord]:
    """A run whose run span has these attributes changed; None takes one away."""
    changed = {**RUN_ATTRIBUTES, **attributes}
    run = RunSpans()
    run.run(attributes={key: value for key, value in changed.items() if value is not None})
    return run.spans


# --- the document ------------------------------------------------------------------------------------------


def test_who_what_and_when_are_read_from_the_run_span() -> None:
    result = assemble(spans_with({names.MOCK: True, names.ITERATION: 3}))
    assert (result.run_id, result.cycle_id, result.trace_id) == ("run-1", "cycle-1", TRACE_ID)
    assert (result.target, result.model) == ("local", "tiny")
    assert (result.case_id, result.mode) == (CaseId.ORDINARY_CHAT, Mode.DUAL_AGENT)
    assert (result.iteration, result.mock, result.warmup) == (3, True, False)


def test_the_start_has_whole_microseconds_and_no_float_error() -> None:
    run = RunSpans()
    run.run(1_700_000_000_123_456_789)
    assert assemble(run.spans).started_at == datetime(2023, 11, 14, 22, 13, 20, 123_456, tzinfo=UTC)


def test_the_turn_is_in_milliseconds() -> None:
    result = assemble(two_calls_and_two_handlers().spans)
    assert result.turn_wall_time_ms == 100.0
    assert (result.turn_provider_ms, result.turn_handler_ms, result.harness_ms) == (50.0, 20.0, 30.0)
    assert result.visible_ttft_ms == 32.0


def test_sums_run_over_all_calls_and_all_handlers() -> None:
    result = assemble(two_calls_and_two_handlers().spans)
    assert result.provider_await_ms == 30.0 + 20.0
    assert result.provider_stream_ms == 30.0 + 20.0
    assert result.consumer_ms == 10.0
    assert result.tool_handler_ms == 10.0 + 15.0
    assert result.tool_latencies_ms == (10.0, 15.0)


def test_ttfts_of_the_run_are_those_of_its_first_chat_completion() -> None:
    result = assemble(two_calls_and_two_handlers().spans)
    assert result.initial_provider_ttft_ms == 10.0
    assert result.token_ttft_ms == 20.0


def test_a_fallback_that_comes_first_gives_no_ttft_of_the_run() -> None:
    run = RunSpans()
    run.run()
    run.call(T0_NS, T0_NS + 9 * MS, [item(T0_NS, T0_NS + 9 * MS)], kind=CallKind.ARGUMENT_FALLBACK)
    result = assemble(run.spans)
    assert result.initial_provider_ttft_ms is result.token_ttft_ms is None


def test_calls_are_counted_by_kind() -> None:
    result = assemble(two_calls_and_two_handlers().spans)
    assert (result.model_call_count, result.fallback_count, result.tool_count) == (1, 1, 2)


def test_a_total_exists_for_the_fields_that_every_call_reported() -> None:
    result = assemble(two_calls_and_two_handlers().spans)
    assert result.prompt_tokens == 13
    assert result.completion_tokens is result.total_tokens is result.cached_tokens is None


def test_a_model_call_is_told_in_full() -> None:
    call = assemble(two_calls_and_two_handlers().spans).model_calls[0]
    assert call.model_dump() == {
        "call_index": 1,
        "call_kind": CallKind.CHAT_COMPLETION,
        "first_item_kind": "raw_chunk",
        "provider_ttft_ms": 10.0,
        "token_ttft_ms": 20.0,
        "visible_ttft_ms": 30.0,
        "elapsed_ms": 30.0,
        "stream_ms": 30.0,
        "consumer_ms": 10.0,
        "await_count": 4,
        "max_await_ms": 10.0,
        "chunk_count": 2,
        "max_chunk_gap_ms": 10.0,
        "connect_ms": 2.0,
        "tls_ms": None,
        "first_byte_ms": 6.0,
        "connection_reused": False,
        "adaptations": ("max_tokens renamed",),
        "finish_reason": "tool_calls",
        "response_model": "tiny-v2",
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": None,
            "cached_tokens": None,
            "reasoning_tokens": None,
        },
        "error": None,
        "retry_after_s": None,
    }


def test_what_a_call_did_not_tell_is_null() -> None:
    call = assemble(two_calls_and_two_handlers().spans).model_calls[1]
    assert call.first_item_kind is call.finish_reason is call.response_model is None
    assert call.connection_reused is None
    assert call.adaptations == ()
    assert call.usage == TokenUsage(prompt_tokens=3)


def test_the_error_of_a_call_has_its_kind_and_its_words() -> None:
    call = assemble(two_calls_and_two_handlers().spans).model_calls[1]
    assert call.error == RunFault(kind="stream_truncated", message="it went away")


@pytest.mark.parametrize(("value", "expected"), [(7, 7.0), (1.5, 1.5), (0.0, 0.0), ("soon", None), (None, None)])
def test_what_a_refusal_asked_to_wait_is_a_number_or_was_not_measured(
    value: AttributeValue | None, expected: float | None
) -> None:
    (call, other) = assemble(changed(names.MODEL_CALL_SPAN, {names.RETRY_AFTER_S: value})).model_calls
    assert (call.retry_after_s, other.retry_after_s) == (expected, None)


def test_a_reuse_that_is_no_boolean_was_not_measured() -> None:
    (call, _) = assemble(changed(names.MODEL_CALL_SPAN, {names.CONNECTION_REUSED: "yes"})).model_calls
    assert call.connection_reused is None


def test_the_stream_sum_is_null_when_one_call_got_nothing() -> None:
    run = RunSpans()
    run.run()
    run.call(T0_NS, T0_NS + 9, [item(T0_NS, T0_NS + 9)])
    run.call(T0_NS + 10, T0_NS + 19, [item(T0_NS + 10, T0_NS + 19, ItemKind.ERROR)])
    result = assemble(run.spans)
    assert result.provider_stream_ms is None
    assert result.provider_await_ms is not None


def test_a_run_without_a_turn_has_no_times() -> None:
    result = assemble(spans_with({}))
    assert (
        result.turn_wall_time_ms is result.harness_ms is result.tool_handler_ms is result.visible_ttft_ms is None
    )
    assert result.provider_await_ms is result.provider_stream_ms is result.consumer_ms is None
    assert result.model_calls == ()
    assert result.total_tokens is None


def test_a_turn_without_handlers_spent_no_time_in_them() -> None:
    run = RunSpans()
    run.run()
    run.turn(T0_NS, T0_NS + 5 * MS)
    result = assemble(run.spans)
    assert result.tool_handler_ms == 0.0
    assert result.overlap_ms is result.max_handler_concurrency is None


def test_what_the_agent_did_is_read_from_the_audit_log() -> None:
    result = assemble(stage(CaseId.PARALLEL_VOLUME_SCHEDULE).spans())
    names_of_events = ("device.volume.adjust", "calendar.schedule.create")
    assert result.event_names == result.batch_event_names == result.tool_event_names == names_of_events
    assert result.event_sources == ("text_event", "text_event")
    assert result.tool_statuses == ("success", "success")


def test_handlers_that_ran_at_once_overlapped() -> None:
    result = assemble(stage(CaseId.PARALLEL_VOLUME_SCHEDULE).spans())
    assert result.parallel_events_overlapped is True
    assert result.max_handler_concurrency == 2


def test_handlers_one_after_the_other_did_not_overlap() -> None:
    run = stage(CaseId.PARALLEL_VOLUME_SCHEDULE)
    run.handlers = [("device.volume.adjust", 200, 250), ("calendar.schedule.create", 250, 300)]
    result = assemble(run.spans())
    assert result.parallel_events_overlapped is False
    assert (result.overlap_ms, result.max_handler_concurrency) == (0.0, 1)


def test_the_parallel_case_without_handlers_did_not_overlap() -> None:
    run = stage(CaseId.PARALLEL_VOLUME_SCHEDULE)
    run.handlers.clear()
    assert assemble(run.spans()).parallel_events_overlapped is False


def test_outside_the_parallel_case_overlap_is_not_asked() -> None:
    run = stage(CaseId.DEVICE_VOLUME_SILENT)
    run.handlers = [("device.volume.adjust", 200, 300), ("device.volume.adjust", 200, 300)]
    assert assemble(run.spans()).parallel_events_overlapped is None


def test_overlap_is_not_told_of_a_parallel_run_that_raised() -> None:
    run = RunSpans()
    run.run(attributes={**RUN_ATTRIBUTES, names.CASE: CaseId.PARALLEL_VOLUME_SCHEDULE.value})
    run.turn(T0_NS, T0_NS + 100)
    run.handler(T0_NS, T0_NS + 50)
    run.handler(T0_NS, T0_NS + 50)
    assert assemble(run.spans).parallel_events_overlapped is None


def test_the_verdict_is_read_as_it_was_recorded() -> None:
    run = RunSpans()
    events = [
        SpanEvent(
            name=names.SEMANTIC_FAILURE_EVENT,
            time_ns=T0_NS,
            attributes={names.FAILURE_KIND: "terminal", names.MESSAGE: "it did not end"},
        ),
        SpanEvent(name=names.WARNING_EVENT, time_ns=T0_NS, attributes={names.MESSAGE: "beware"}),
    ]
    run.run(
        attributes={
            **RUN_ATTRIBUTES,
            names.STATUS: "failed",
            names.ERROR_KIND: "http_429",
            names.ERROR_MESSAGE: "slow down",
        },
        events=events,
    )
    result = assemble(run.spans)
    assert result.status is Status.FAILED
    assert result.error == RunFault(kind="http_429", message="slow down")
    assert [(one.kind, one.message) for one in result.semantic_failures] == [
        (FailureKind.TERMINAL, "it did not end")
    ]
    assert result.warnings == ("beware",)


def test_an_error_without_words_has_its_kind_alone() -> None:
    assert assemble(spans_with({names.ERROR_KIND: "http_500"})).error == RunFault(kind="http_500", message="")


def test_a_result_comes_back_from_its_json() -> None:
    result = assemble(two_calls_and_two_handlers().spans)
    assert type(result).model_validate_json(result.model_dump_json()) == result


# --- spans that are not one run ----------------------------------------------------------------------------


def test_no_spans_are_no_run() -> None:
    with pytest.raises(MeasurementError, match=r"expected one agentbench\.run span, found 0"):
        assemble([])


def test_two_runs_are_not_one() -> None:
    run = RunSpans()
    run.run()
    run.run()
    with pytest.raises(MeasurementError, match=r"expected one agentbench\.run span, found 2"):
        assemble(run.spans)


def test_two_turns_are_not_one_run() -> None:
    run = RunSpans()
    run.run()
    run.turn(0, 1)
    run.turn(1, 2)
    with pytest.raises(MeasurementError, match="expected at most one invoke_agent span, found 2"):
        assemble(run.spans)


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_run_that_is_not_whole_is_noticed(difference: int) -> None:
    spans = two_calls_and_two_handlers().spans
    told = len(spans) + difference
    spans[0] = replace(spans[0], attributes={**spans[0].attributes, names.SPAN_COUNT: told})
    with pytest.raises(MeasurementError, match=f"the run says it has {told} spans, but {len(spans)} are there"):
        assemble(spans)


def test_a_run_that_is_whole_is_read() -> None:
    spans = two_calls_and_two_handlers().spans
    spans[0] = replace(spans[0], attributes={**spans[0].attributes, names.SPAN_COUNT: len(spans)})
    assert assemble(spans).tool_count == 2


def test_spans_may_be_named_without_what_they_are_about() -> None:
    spans = two_calls_and_two_handlers().spans
    assert assemble([replace(span, name=span.name.partition(" ")[0]) for span in spans]) == assemble(spans)


@pytest.mark.parametrize("position", [0, 1, 3], ids=["first", "middle", "last"])
def test_a_missing_await_is_noticed(position: int) -> None:
    spans = two_calls_and_two_handlers().spans
    awaits = [span for span in spans if span.name == names.AWAIT_SPAN]
    spans.remove(awaits[position])
    with pytest.raises(MeasurementError, match="call 1 says it had 4 awaits, but 3 are there"):
        assemble(spans)


def test_an_await_that_is_there_twice_is_noticed() -> None:
    spans = two_calls_and_two_handlers().spans
    spans.append(next(span for span in spans if span.name == names.AWAIT_SPAN))
    with pytest.raises(MeasurementError, match="call 1 says it had 4 awaits, but 5 are there"):
        assemble(spans)


@pytest.mark.parametrize("name", [names.AWAIT_SPAN, names.PHASE_SPAN_PREFIX + "connect"])
@pytest.mark.parametrize("parent_span_id", [None, "f" * 16])
def test_a_child_without_its_call_is_noticed(name: str, parent_span_id: str | None) -> None:
    spans = two_calls_and_two_handlers().spans
    child = next(span for span in spans if span.name == name)
    spans[spans.index(child)] = replace(child, parent_span_id=parent_span_id)
    with pytest.raises(MeasurementError, match=f"a {name} span has no model-call span"):
        assemble(spans)


def changed(name: str, attributes: Mapping[str, AttributeValue | None]) -> list[SpanRecord]:
    """The two calls, with attributes of the first span of this name changed or taken away."""
    spans = two_calls_and_two_handlers().spans
    span = next(span for span in spans if span.name == name or span.name.startswith(name + " "))
    edited = {**span.attributes, **attributes}
    kept = {key: value for key, value in edited.items() if value is not None}
    spans[spans.index(span)] = replace(span, attributes=kept)
    return spans


def test_an_unknown_item_kind_is_noticed() -> None:
    with pytest.raises(MeasurementError, match="has the unknown item kind 'video'"):
        assemble(changed(names.AWAIT_SPAN, {names.ITEM_KIND: "video"}))


def test_a_missing_item_kind_is_noticed() -> None:
    with pytest.raises(MeasurementError, match="has the unknown item kind None"):
        assemble(changed(names.AWAIT_SPAN, {names.ITEM_KIND: None}))


@pytest.mark.parametrize(
    ("span", "key"),
    [
        (names.AWAIT_SPAN, names.AWAIT_INDEX),
        (names.MODEL_CALL_SPAN, names.CALL_INDEX),
        (names.MODEL_CALL_SPAN, names.AWAIT_COUNT),
        (names.TOOL_SPAN, names.EVENT_INDEX),
    ],
)
@pytest.mark.parametrize("value", [None, "1", True, 1.0])
def test_an_index_that_is_no_integer_is_noticed(span: str, key: str, value: AttributeValue | None) -> None:
    with pytest.raises(MeasurementError, match=f"has no integer {key}"):
        assemble(changed(span, {key: value}))


def test_an_arrival_that_is_no_integer_is_noticed() -> None:
    with pytest.raises(MeasurementError, match=f"has no integer {names.ITEM_ARRIVAL}"):
        assemble(changed(names.AWAIT_SPAN, {names.ITEM_ARRIVAL: "soon"}))


@pytest.mark.parametrize("value", [None, "telephone"])
def test_a_call_of_an_unknown_kind_is_a_measurement_error(value: str | None) -> None:
    with pytest.raises(MeasurementError, match=f"call 1 has the unknown kind {value!r}"):
        assemble(changed(names.MODEL_CALL_SPAN, {names.CALL_KIND: value}))


@pytest.mark.parametrize("key", RUN_ATTRIBUTES)
def test_a_run_span_without_one_of_its_attributes_is_a_measurement_error(key: str) -> None:
    with pytest.raises(MeasurementError, match=f"the run span can't be read.*{key}"):
        assemble(spans_with({key: None}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (names.CASE, "make_coffee"),
        (names.MODE, "telepathy"),
        (names.STATUS, "maybe"),
        (names.ITERATION, "first"),
        (names.ITERATION, 0),
    ],
)
def test_a_run_span_with_a_bad_attribute_is_a_measurement_error(key: str, value: AttributeValue) -> None:
    with pytest.raises(MeasurementError, match="the run span"):
        assemble(spans_with({key: value}))


@pytest.mark.parametrize("value", ["1", 1.0, True])
def test_an_iteration_that_is_no_integer_is_not_made_one(value: AttributeValue) -> None:
    with pytest.raises(MeasurementError, match=f"the run span's {names.ITERATION} is no integer"):
        assemble(spans_with({names.ITERATION: value}))


def test_a_number_out_of_its_range_is_told_with_its_field() -> None:
    words = "^the run span can't be read: iteration: Input should be greater than or equal to 1$"
    with pytest.raises(MeasurementError, match=words):
        assemble(spans_with({names.ITERATION: 0}))


@pytest.mark.parametrize("start_ns", [10**21, 10**30])
def test_a_start_that_no_calendar_holds_is_a_measurement_error(start_ns: int) -> None:
    run = RunSpans()
    run.run(start_ns, start_ns)
    with pytest.raises(MeasurementError, match="the run span can't be read"):
        assemble(run.spans)


def test_a_semantic_failure_of_an_unknown_kind_is_a_measurement_error() -> None:
    run = RunSpans()
    attributes = {names.FAILURE_KIND: "boredom", names.MESSAGE: "yawn"}
    run.run(events=[SpanEvent(name=names.SEMANTIC_FAILURE_EVENT, time_ns=T0_NS, attributes=attributes)])
    with pytest.raises(MeasurementError, match="the run span can't be read: 'boredom'"):
        assemble(run.spans)


def test_spans_that_this_version_does_not_know_are_left_aside() -> None:
    spans = two_calls_and_two_handlers().spans
    newcomer = replace(spans[0], name="agentbench.runner", span_id="e" * 16)
    assert assemble([*spans, newcomer]) == assemble(spans)


def test_facts_may_be_measured_from_an_iterator() -> None:
    spans = two_calls_and_two_handlers().spans
    assert len(measure_run(iter(spans)).calls) == 2

"""The spans of a run → its `RunResult`; the same code for a run that just ended and for a file of spans.

Status, error, semantic failures and warnings are read as the run span records them, because judging a run
takes the texts of its answers, and content is not put on spans.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from pydantic import ValidationError

from agentbench_otel import names
from agentbench_otel.cases import CATALOGUE
from agentbench_otel.errors import MeasurementError
from agentbench_otel.measurement.facts import CallFacts, RunFacts, measure_run
from agentbench_otel.measurement.timing import to_ms
from agentbench_otel.measurement.tree import texts_of
from agentbench_otel.records.chat import CallKind
from agentbench_otel.records.results import (
    FailureKind,
    ModelCallResult,
    RunFault,
    RunResult,
    SemanticFailure,
    Status,
)
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.records.spans import AttributeValue, SpanRecord
from agentbench_otel.records.turn import AuditEntry, AuditKind


def assemble(spans: Iterable[SpanRecord]) -> RunResult:
    """Measure one run from its spans, in any order.

    Raises:
        MeasurementError: The spans do not describe exactly one finished run of this package.
    """
    return assemble_facts(measure_run(spans))


def assemble_facts(facts: RunFacts) -> RunResult:
    """As `assemble`, where the spans have been measured already."""
    try:
        return _assemble(facts)
    except (ValueError, KeyError, OverflowError, OSError) as error:  # a ValidationError is a ValueError
        detail = _first_problem(error) if isinstance(error, ValidationError) else str(error)
        raise MeasurementError(f"the run span can't be read: {detail}") from error


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def _assemble(facts: RunFacts) -> RunResult:
    run = facts.tree.run
    attributes = run.attributes
    case_id = CaseId(str(attributes[names.CASE]))
    first_chat = next((call for call in facts.calls if call.kind is CallKind.CHAT_COMPLETION), None)
    turn = facts.turn
    handlers = facts.handlers
    totals = facts.tokens.totals
    must_overlap = CATALOGUE[case_id].expectation.must_overlap
    results = [result for entry in facts.audit for result in entry.results]
    detected = _entries(facts, AuditKind.CHAT_EVENT_DETECTED)
    return RunResult(
        run_id=str(attributes[names.RUN_ID]),
        cycle_id=str(attributes[names.CYCLE_ID]),
        trace_id=run.trace_id,
        target=str(attributes[names.TARGET]),
        model=str(attributes[names.REQUEST_MODEL]),
        case_id=case_id,
        mode=Mode(str(attributes[names.MODE])),
        iteration=_integer(attributes, names.ITERATION),
        mock=attributes[names.MOCK] is True,
        warmup=attributes[names.WARMUP] is True,
        started_at=to_datetime(run.start_ns),
        status=Status(str(attributes[names.STATUS])),
        error=_fault(attributes.get(names.ERROR_KIND), attributes.get(names.ERROR_MESSAGE)),
        initial_provider_ttft_ms=None if first_chat is None else to_ms(first_chat.timing.provider_ttft_ns),
        token_ttft_ms=None if first_chat is None else to_ms(first_chat.timing.token_ttft_ns),
        visible_ttft_ms=None if turn is None else to_ms(turn.visible_ttft_ns),
        turn_wall_time_ms=None if turn is None else to_ms(turn.wall_ns),
        turn_provider_ms=None if turn is None else to_ms(turn.provider_ns),
        turn_handler_ms=None if turn is None else to_ms(turn.handler_ns),
        harness_ms=None if turn is None else to_ms(turn.harness_ns),
        provider_await_ms=to_ms(_sum([call.timing.elapsed_ns for call in facts.calls])),
        provider_stream_ms=to_ms(_sum([call.timing.stream_ns for call in facts.calls])),
        consumer_ms=to_ms(_sum([call.timing.consumer_ns for call in facts.calls])),
        tool_handler_ms=None if turn is None else to_ms(sum(handlers.durations_ns)),
        prompt_tokens=totals.prompt_tokens,
        completion_tokens=totals.completion_tokens,
        total_tokens=totals.total_tokens,
        cached_tokens=totals.cached_tokens,
        reasoning_tokens=totals.reasoning_tokens,
        model_call_count=facts.call_count(CallKind.CHAT_COMPLETION),
        fallback_count=facts.call_count(CallKind.ARGUMENT_FALLBACK),
        tool_count=len(facts.tree.handlers),
        event_names=tuple(entry.event_name or "" for entry in detected),
        batch_event_names=tuple(result.event_name for result in results),
        tool_event_names=tuple(entry.event_name or "" for entry in _entries(facts, AuditKind.TOOL_EXECUTION)),
        event_sources=tuple(entry.event_source.value for entry in detected if entry.event_source is not None),
        tool_statuses=tuple(result.status.value for result in results),
        tool_latencies_ms=tuple(to_ms(duration_ns) for duration_ns in handlers.durations_ns),
        parallel_events_overlapped=(
            facts.have_handlers_overlapped if must_overlap and facts.has_turn_ended else None
        ),
        overlap_ms=to_ms(handlers.overlap_ns),
        max_handler_concurrency=handlers.max_concurrency,
        semantic_failures=tuple(
            SemanticFailure(
                kind=FailureKind(str(event.attributes[names.FAILURE_KIND])),
                message=str(event.attributes[names.MESSAGE]),
            )
            for event in run.events
            if event.name == names.SEMANTIC_FAILURE_EVENT
        ),
        model_calls=tuple(map(_call_result, facts.calls)),
        warnings=tuple(
            str(event.attributes[names.MESSAGE]) for event in run.events if event.name == names.WARNING_EVENT
        ),
    )


def _call_result(facts: CallFacts) -> ModelCallResult:
    span = facts.call.span
    attributes = span.attributes
    timing = facts.timing
    reused = attributes.get(names.CONNECTION_REUSED)
    retry_after_s = attributes.get(names.RETRY_AFTER_S)
    return ModelCallResult(
        call_index=facts.call.index,
        call_kind=facts.kind,
        first_item_kind=_text(attributes.get(names.FIRST_ITEM_KIND)),
        provider_ttft_ms=to_ms(timing.provider_ttft_ns),
        token_ttft_ms=to_ms(timing.token_ttft_ns),
        visible_ttft_ms=to_ms(timing.visible_ttft_ns),
        elapsed_ms=to_ms(timing.elapsed_ns),
        stream_ms=to_ms(timing.stream_ns),
        consumer_ms=to_ms(timing.consumer_ns),
        await_count=timing.await_count,
        max_await_ms=to_ms(timing.max_await_ns),
        chunk_count=timing.chunk_count,
        max_chunk_gap_ms=to_ms(timing.max_chunk_gap_ns),
        connect_ms=to_ms(timing.connect_ns),
        tls_ms=to_ms(timing.tls_ns),
        first_byte_ms=to_ms(timing.first_byte_ns),
        connection_reused=reused if isinstance(reused, bool) else None,
        adaptations=texts_of(attributes.get(names.ADAPTATIONS)),
        finish_reason=next(iter(texts_of(attributes.get(names.RESPONSE_FINISH_REASONS))), None),
        response_model=_text(attributes.get(names.RESPONSE_MODEL)),
        usage=facts.usage,
        error=_fault(attributes.get(names.ERROR_TYPE), span.error),
        retry_after_s=retry_after_s if isinstance(retry_after_s, float | int) else None,
    )


def _entries(facts: RunFacts, kind: AuditKind) -> list[AuditEntry]:
    return [entry for entry in facts.audit if entry.kind is kind]


def _sum(times_ns: list[int] | list[int | None]) -> int | None:
    """None unless every call was measured; a sum that leaves one out would look like less work."""
    known = [time_ns for time_ns in times_ns if time_ns is not None]
    return sum(known) if times_ns and len(known) == len(times_ns) else None


def to_datetime(time_ns: int) -> datetime:
    """Whole µs, by integer arithmetic: a float of ns since 1970 is wrong by hundreds of ns."""
    seconds, rest_ns = divmod(time_ns, 1_000_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest_ns // 1000)


def _integer(attributes: Mapping[str, AttributeValue], key: str) -> int:
    value = attributes[key]
    if not isinstance(value, int) or isinstance(value, bool):
        raise MeasurementError(f"the run span's {key} is no integer")
    return value


def _text(value: AttributeValue | None) -> str | None:
    return None if value is None else str(value)


def _fault(kind: AttributeValue | None, message: AttributeValue | None) -> RunFault | None:
    return None if kind is None else RunFault(kind=str(kind), message=str(message or ""))

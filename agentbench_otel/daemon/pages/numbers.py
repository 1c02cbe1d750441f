"""The numbers of a run in reading order, each with the spans, events and attributes that it is read from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentbench_otel import names
from agentbench_otel.daemon.pages.words import exact_ms
from agentbench_otel.records.chat import CallKind
from agentbench_otel.records.results import ModelCallResult, RunFault, RunResult
from agentbench_otel.reports.words import count, printable

_TURN = f"span {names.TURN_SPAN}"
_CALL = f"span {names.MODEL_CALL_SPAN}"
_AWAIT = names.AWAIT_SPAN
_TOOL = f"span {names.TOOL_SPAN}"
_AUDIT = f"events {names.AUDIT_EVENT} of the turn"
_PHASE = names.PHASE_SPAN_PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """``field`` is the key in the result document, ``source`` what it is read from."""

    field: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    field: str
    value: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberGroup:
    title: str
    numbers: tuple[Number, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """One number of all model calls, in the order of the calls."""

    field: str
    values: tuple[str, ...]
    source: str


def _sources(**told: str) -> tuple[Source, ...]:
    return tuple(Source(field=field, source=source) for field, source in told.items())


_OF_RUN = {
    "First answer": _sources(
        visible_ttft_ms=f"turn start → event {names.FIRST_VISIBLE_MESSAGE_EVENT}",
        token_ttft_ms=f"start of the first {CallKind.CHAT_COMPLETION} → first {names.ITEM_ARRIVAL} of an await"
        f" with {names.ITEM_GENERATED}",
        initial_provider_ttft_ms=f"start of the first {CallKind.CHAT_COMPLETION} → first {names.ITEM_ARRIVAL}",
    ),
    "Turn and its parts": _sources(
        turn_wall_time_ms=f"duration of {_TURN}",
        turn_provider_ms=f"union of the spans {_AWAIT} in the turn",
        turn_handler_ms=f"union of the spans {names.TOOL_SPAN} in the turn, where no await was open",
        harness_ms="wall − provider − handler",
    ),
    "Sums": _sources(
        provider_await_ms=f"sum of the durations of the spans {_AWAIT}",
        provider_stream_ms=f"sum over the calls: start → last {names.ITEM_ARRIVAL}; n/a unless every call has one",
        consumer_ms=f"sum over the calls: {_CALL} − its awaits",
        tool_handler_ms=f"sum of the durations of the spans {names.TOOL_SPAN}; parallel ones count twice",
    ),
    "Parallel handlers": _sources(
        parallel_events_overlapped="overlap > 0 ns; n/a outside the parallel case",
        overlap_ms=f"intersection of the spans {names.TOOL_SPAN}",
        max_handler_concurrency=f"most spans {names.TOOL_SPAN} that cover one moment",
    ),
    "Tokens": _sources(
        prompt_tokens=f"sum of {names.USAGE_INPUT_TOKENS}; n/a unless every call reported it",
        completion_tokens=f"sum of {names.USAGE_OUTPUT_TOKENS}",
        total_tokens=f"sum of {names.USAGE_TOTAL_TOKENS}",
        cached_tokens=f"sum of {names.USAGE_CACHED_TOKENS}",
        reasoning_tokens=f"sum of {names.USAGE_REASONING_TOKENS}",
    ),
    "Counts": _sources(
        model_call_count=f"spans {names.MODEL_CALL_SPAN} with {names.CALL_KIND} = {CallKind.CHAT_COMPLETION}",
        fallback_count=f"spans {names.MODEL_CALL_SPAN} with {names.CALL_KIND} = {CallKind.ARGUMENT_FALLBACK}",
        tool_count=f"spans {names.TOOL_SPAN}",
    ),
    "Events and tools": _sources(
        event_names=_AUDIT,
        event_sources=_AUDIT,
        batch_event_names=_AUDIT,
        tool_event_names=_AUDIT,
        tool_statuses=_AUDIT,
        tool_latencies_ms=f"durations of the spans {names.TOOL_SPAN}",
    ),
}

_OF_CALL = _sources(
    error=f"{names.ERROR_TYPE} and status of the span",
    visible_ttft_ms=f"start → arrival of the first await with {names.ITEM_VISIBLE}",
    token_ttft_ms=f"start → arrival of the first await with {names.ITEM_GENERATED}",
    provider_ttft_ms=f"start → first {names.ITEM_ARRIVAL}",
    elapsed_ms=f"sum of its spans {_AWAIT}",
    stream_ms=f"start → last {names.ITEM_ARRIVAL}",
    consumer_ms="the call's span − its awaits",
    connect_ms=f"span {_PHASE}connect",
    tls_ms=f"span {_PHASE}tls",
    first_byte_ms=f"span {_PHASE}first_byte",
    connection_reused=names.CONNECTION_REUSED,
    await_count=names.AWAIT_COUNT,
    max_await_ms=f"longest span {_AWAIT}",
    chunk_count=f"distinct arrivals with {names.ITEM_GENERATED}",
    max_chunk_gap_ms="longest time between two of them",
    first_item_kind=names.FIRST_ITEM_KIND,
    finish_reason=names.RESPONSE_FINISH_REASONS,
    response_model=names.RESPONSE_MODEL,
    adaptations=names.ADAPTATIONS,
    retry_after_s=names.RETRY_AFTER_S,
)

_OF_USAGE = _sources(
    prompt_tokens=names.USAGE_INPUT_TOKENS,
    completion_tokens=names.USAGE_OUTPUT_TOKENS,
    total_tokens=names.USAGE_TOTAL_TOKENS,
    cached_tokens=names.USAGE_CACHED_TOKENS,
    reasoning_tokens=names.USAGE_REASONING_TOKENS,
)


def number_groups(run: RunResult) -> list[NumberGroup]:
    return [
        NumberGroup(
            title=title,
            numbers=tuple(
                Number(
                    field=source.field,
                    value=_written(source.field, getattr(run, source.field)),
                    source=source.source,
                )
                for source in sources
            ),
        )
        for title, sources in _OF_RUN.items()
    ]


def call_rows(run: RunResult) -> list[CallRow]:
    """The fields of the model calls; usage that was not reported is n/a in each of its rows."""
    calls = run.model_calls
    return [
        *(_call_row(source, calls, lambda call, field: getattr(call, field)) for source in _OF_CALL),
        *(_call_row(source, calls, lambda call, field: getattr(call.usage, field, None)) for source in _OF_USAGE),
    ]


def _call_row(
    source: Source, calls: Sequence[ModelCallResult], read: Callable[[ModelCallResult, str], object]
) -> CallRow:
    return CallRow(
        field=source.field,
        values=tuple(_written(source.field, read(call, source.field)) for call in calls),
        source=source.source,
    )


def _written(field: str, value: object) -> str:
    """As the pages write a field; None is "not measured", but of an error, and is never written as 0."""
    if value is None:
        return "none" if field == "error" else "n/a"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(_written(field, one) for one in value) or "none"
    if isinstance(value, float) and field.endswith("_ms"):
        return exact_ms(value)
    if isinstance(value, float):
        return f"{value:g} s"
    if isinstance(value, RunFault):
        return printable(f"✗ {value.kind}: {value.message}")
    return count(value) if isinstance(value, int) else printable(str(value))

"""The result document that every sink receives. ``None`` means "not measured"; it is never 0.

Times are float milliseconds with µs resolution.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from agentbench_otel.records.chat import CallKind, TokenUsage
from agentbench_otel.records.scenario import CaseId, Mode


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Status(StrEnum):
    PASSED = "passed"
    FAILED = "failed"


class FailureKind(StrEnum):
    """What a run can get wrong; the list is closed."""

    ANSWER_COUNT = "answer_count"
    EMPTY_ANSWER = "empty_answer"
    MOCK_TEXT = "mock_text"
    ANSWER_AFTER_TOOL = "answer_after_tool"
    EVENT_NAMES = "event_names"
    BATCH_EVENT_NAMES = "batch_event_names"
    TOOL_EVENT_NAMES = "tool_event_names"
    EVENT_SOURCES = "event_sources"
    BATCH_STATUS = "batch_status"
    TOOL_COUNT = "tool_count"
    MODEL_CALL_COUNT = "model_call_count"
    FALLBACK_COUNT = "fallback_count"
    LEDGER_MISMATCH = "ledger_mismatch"
    """The audit log and the spans disagree."""
    USAGE_MISSING = "usage_missing"
    NO_OVERLAP = "no_overlap"
    TERMINAL = "terminal"
    UNKNOWN_EVENT = "unknown_event"
    UNTERMINATED_EVENT = "unterminated_event"


class SemanticFailure(_Document):
    kind: FailureKind
    message: str


class RunFault(_Document):
    """Why a run (or a model call) ended in an error. ``kind`` is an `ErrorKind` value or ``http_<status>``."""

    kind: str
    message: str


class ModelCallResult(_Document):
    """One model call. Starts are the call's start: the moment when its first item was asked for."""

    call_index: int = Field(ge=1)
    call_kind: CallKind
    first_item_kind: str | None
    provider_ttft_ms: float | None
    """Start to the arrival of the first item of any kind."""
    token_ttft_ms: float | None
    """Start to the arrival of the first generated piece: text, reasoning, refusal or tool-call delta."""
    visible_ttft_ms: float | None
    """Start to the arrival of the item that gave the first non-blank visible text."""
    elapsed_ms: float
    """Sum of the provider awaits; the consumer's pauses are outside by construction."""
    stream_ms: float | None
    """Start to the arrival of the last item."""
    consumer_ms: float
    """The call's span minus its provider awaits."""
    await_count: int
    max_await_ms: float | None
    chunk_count: int
    """Network reads that carried generated pieces. A chunk is not a token."""
    max_chunk_gap_ms: float | None
    """Longest time between two such reads; None with fewer than two."""
    connect_ms: float | None
    tls_ms: float | None
    first_byte_ms: float | None
    """Request sent to the first byte of the answer."""
    connection_reused: bool | None
    adaptations: tuple[str, ...]
    finish_reason: str | None
    response_model: str | None
    usage: TokenUsage | None
    error: RunFault | None
    retry_after_s: float | None
    """How long a refusal asked to wait."""


class RunResult(_Document):
    """One execution of a case in a mode against a target, passed or failed."""

    schema_version: Literal[1] = 1
    run_id: str
    cycle_id: str
    trace_id: str
    target: str
    model: str
    case_id: CaseId
    mode: Mode
    iteration: int = Field(ge=1)
    mock: bool
    warmup: bool
    started_at: datetime
    status: Status
    error: RunFault | None

    initial_provider_ttft_ms: float | None
    """Provider TTFT of the first chat completion of the turn."""
    token_ttft_ms: float | None
    """Token TTFT of the first chat completion of the turn."""
    visible_ttft_ms: float | None
    """Turn start to the first non-blank visible text on the output queue."""
    turn_wall_time_ms: float | None
    turn_provider_ms: float | None
    """The part of the wall in which a provider await was open."""
    turn_handler_ms: float | None
    """… else in which a tool handler ran."""
    harness_ms: float | None
    """… else. The three sum to the wall exactly, in nanoseconds."""
    provider_await_ms: float | None
    """Sum of the calls' ``elapsed_ms``."""
    provider_stream_ms: float | None
    """Sum of the calls' ``stream_ms``; None unless every call has one."""
    consumer_ms: float | None
    """Sum of the calls' ``consumer_ms``."""
    tool_handler_ms: float | None
    """Sum over the handlers; parallel handlers count twice here."""

    prompt_tokens: int | None
    completion_tokens: int | None
    total_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None

    model_call_count: int
    fallback_count: int
    tool_count: int

    event_names: tuple[str, ...]
    batch_event_names: tuple[str, ...]
    tool_event_names: tuple[str, ...]
    event_sources: tuple[str, ...]
    tool_statuses: tuple[str, ...]
    tool_latencies_ms: tuple[float, ...]

    parallel_events_overlapped: bool | None
    overlap_ms: float | None
    max_handler_concurrency: int | None

    semantic_failures: tuple[SemanticFailure, ...]
    model_calls: tuple[ModelCallResult, ...]
    warnings: tuple[str, ...]


class Tool(_Document):
    name: str
    version: str


class Summary(_Document):
    """Counted runs; warm-ups are outside."""

    attempted: int
    passed: int
    failed: int


class CycleReport(_Document):
    """What ``once`` and ``measure`` print."""

    schema_version: Literal[1] = 1
    tool: Tool
    mock: bool
    started_at: datetime
    finished_at: datetime
    summary: Summary
    runs: tuple[RunResult, ...]


class ProbeToolCall(_Document):
    """``id`` and ``name`` as the server sent them; ``arguments`` None when they are no JSON object."""

    id: str | None
    name: str
    arguments: dict[str, Any] | None
    raw_arguments: str


class ProbeError(_Document):
    kind: str
    message: str
    status: int | None
    code: str | int | None
    param: str | None
    retry_after_s: float | None
    retryable: bool


class ProbeRead(_Document):
    """The items that arrived with one socket read, ``at_ms`` after the start of the call."""

    at_ms: float
    items: tuple[str, ...]


class ProbePhase(_Document):
    name: str
    from_ms: float
    to_ms: float


class ProbeResult(_Document):
    """One raw model call: everything that was received, and when. Times as in `ModelCallResult`."""

    schema_version: Literal[1] = 1
    base_url: str
    model: str
    visible_text: str
    reasoning_text: str
    refusal_text: str
    first_item: Literal["reasoning", "text", "tool_call", "refusal"] | None
    """The kind of the first generated piece."""
    finish_reason: str | None
    tool_calls: tuple[ProbeToolCall, ...]
    usage: TokenUsage | None
    error: ProbeError | None
    provider_ttft_ms: float | None
    token_ttft_ms: float | None
    visible_ttft_ms: float | None
    elapsed_ms: float
    stream_ms: float | None
    connect_ms: float | None
    tls_ms: float | None
    first_byte_ms: float | None
    chunk_count: int
    max_chunk_gap_ms: float | None
    connection_reused: bool | None
    http_status: int | None
    response_id: str | None
    response_model: str | None
    adaptations: tuple[str, ...]
    warnings: tuple[str, ...]
    phases: tuple[ProbePhase, ...]
    reads: tuple[ProbeRead, ...]

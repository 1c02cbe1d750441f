"""The turn's own account: the messages it put out and its audit log, independent of the spans."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agentbench_otel.records.chat import CallKind


class EventSource(StrEnum):
    TEXT_EVENT = "text_event"
    PROVIDER_RESOLVED = "provider_resolved"


class EventStatus(StrEnum):
    SUCCESS = "success"
    FAILED = "failed"
    TIMEOUT = "timeout"
    INVALID_ARGUMENTS = "invalid_arguments"


class MessageType(StrEnum):
    MESSAGE_DELTA = "message_delta"
    TOOL_RESULT = "tool_result"
    TURN_COMPLETED = "turn_completed"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputMessage:
    """One message on the output queue. ``turn_completed`` or ``error`` is the last one of a turn."""

    type: MessageType
    content: str = ""
    """The text of a delta, or the words of an error."""
    event_name: str | None = None
    status: EventStatus | None = None
    result: Mapping[str, Any] | None = None
    error_kind: str | None = None


class AuditKind(StrEnum):
    CHAT_EVENT_DETECTED = "chat_event_detected"
    UNKNOWN_EVENT = "unknown_event"
    UNTERMINATED_EVENT = "unterminated_event"
    EVENT_BATCH_RESULTS = "event_batch_results"
    MODEL_CALL = "model_call"
    TOOL_EXECUTION = "tool_execution"
    TERMINAL_COMPLETED = "terminal_completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventResult:
    event_name: str
    status: EventStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One line of the audit log; which fields are set depends on the kind. It never holds content."""

    kind: AuditKind
    time_ns: int
    event_name: str | None = None
    event_source: EventSource | None = None
    call_kind: CallKind | None = None
    results: tuple[EventResult, ...] = ()

"""What goes to a model and what comes back from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal


class CallKind(StrEnum):
    CHAT_COMPLETION = "chat_completion"
    ARGUMENT_FALLBACK = "argument_fallback"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as a model is told of it. ``name`` is the domain name; the wire name is the adapter's affair."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema of an object, in the small subset that every provider takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A finished tool call: one event of the agent.

    ``arguments`` is None when the arguments were absent or were no JSON object; ``raw_arguments`` then tells
    what came.
    """

    id: str
    name: str
    raw_arguments: str
    arguments: Mapping[str, Any] | None
    has_local_id: bool = False
    """The server gave none; ``id`` was made here, for the history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One model call."""

    messages: tuple[ChatMessage, ...]
    call_kind: CallKind = CallKind.CHAT_COMPLETION
    tools: tuple[ToolSpec, ...] = ()
    forced_tool: str | None = None
    """Domain name of the tool that the model must call; None leaves the choice to it."""
    max_tokens: int | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """Token counts as the provider reported them; None is "not reported", never 0."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
    """Prompt tokens read from the provider's cache: a part of ``prompt_tokens``."""
    reasoning_tokens: int | None = None
    """Thinking tokens: a part of ``completion_tokens``."""


class ItemKind(StrEnum):
    """What an item of a model stream is. The last two are no items: they end the list of awaits."""

    RAW_CHUNK = "raw_chunk"
    """A chunk that carries nothing for us: a role, an empty delta, an annotation. Several in a row are one."""
    TEXT = "text"
    REASONING = "reasoning"
    REFUSAL = "refusal"
    TOOL_CALL_DELTA = "tool_call_delta"
    TOOL_CALL = "tool_call"
    """A finished call; it arrives with its last delta."""
    USAGE = "usage"
    FINISH = "finish"

    END = "end"
    ERROR = "error"


GENERATED_KINDS = frozenset(
    {ItemKind.TEXT, ItemKind.REASONING, ItemKind.REFUSAL, ItemKind.TOOL_CALL_DELTA},
)
"""Items of these kinds are never empty: each is a piece that the model generated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamItem:
    """One item of a model stream.

    ``arrival_ns`` is the run's clock when the socket read that delivered the item's last byte returned; all
    items of one read share it. A mock's items arrive when they are made.
    """

    kind: ItemKind
    arrival_ns: int
    text: str = ""
    """The piece of a text, reasoning or refusal item; never empty there."""
    tool_call: ToolCall | None = None
    usage: TokenUsage | None = None
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase of an HTTP exchange: ``connect``, ``tls``, ``send`` or ``first_byte``."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(slots=True, kw_only=True)
class Exchange:
    """What a client notes about one model call beside its items; the one mutable record, filled as it goes."""

    traceparent: str | None = None
    """The trace context of the call, for a client whose target wants it; set before the call is made."""
    phases: list[Phase] = field(default_factory=list)
    is_connection_reused: bool | None = None
    http_status: int | None = None
    response_id: str | None = None
    response_model: str | None = None
    adaptations: list[str] = field(default_factory=list)
    """Changes to the request that this endpoint made necessary, in words."""
    unstreamed_text: str = ""
    """The text of a whole completion that came where a stream was asked for; it has no timing."""
    warnings: list[str] = field(default_factory=list)
    """What was odd about the answer though it did not fail."""

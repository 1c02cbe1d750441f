"""Scenarios: which cases exist, what they ask, what must happen, and what the scripted mock answers."""

from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

JsonScalar = str | int | float | bool | None


class Mode(StrEnum):
    """How the agent learns of events: from markup in the text, or from the provider's own tool calls."""

    DUAL_AGENT = "dual_agent"
    CHAT_AGENT_TOOLS = "chat_agent_tools"


class CaseId(StrEnum):
    ORDINARY_CHAT = "ordinary_chat"
    DEVICE_VOLUME_SILENT = "device_volume_silent"
    CALENDAR_SCHEDULE_TEMPLATE = "calendar_schedule_template"
    WEB_SEARCH_TWO_ANSWERS = "web_search_two_answers"
    SESSION_TERMINATE = "session_terminate"
    PARALLEL_VOLUME_SCHEDULE = "parallel_volume_schedule"


class _Scenario(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Expectation(_Scenario):
    """What a run of the case must show to pass."""

    visible_messages: tuple[str, ...]
    """The answers word for word; checked in mock runs only, a live model may say it in its own words."""
    event_names: tuple[str, ...]
    """In the order of detection; batches and handlers must report the same list."""
    answer_count: int = Field(ge=1)
    model_call_count: int = Field(ge=1)
    fallback_count: int = Field(default=0, ge=0)
    is_terminal: bool = False
    is_reply_before_tool: bool = False
    must_overlap: bool = False
    """The handlers of the batch must run at the same time, by their spans."""

    @model_validator(mode="after")
    def _answers_match_their_count(self) -> Self:
        if self.answer_count != len(self.visible_messages):
            raise ValueError("answer_count must match visible_messages")
        if any(not message.strip() for message in self.visible_messages):
            raise ValueError("visible_messages must not be blank")
        if self.must_overlap and len(self.event_names) < 2:
            raise ValueError("must_overlap needs at least two events")
        return self


class MockEvent(_Scenario):
    """One event that the scripted mock writes."""

    id: str
    name: str
    arguments: tuple[tuple[str, JsonScalar], ...] = ()

    @model_validator(mode="after")
    def _names_are_usable(self) -> Self:
        if not self.id.strip():
            raise ValueError("mock event id must not be empty")
        if not self.name.strip():
            raise ValueError("mock event name must not be empty")
        keys = [key for key, _ in self.arguments]
        if any(not key.strip() for key in keys):
            raise ValueError("mock event argument names must not be empty")
        if len(keys) != len(set(keys)):
            raise ValueError("mock event arguments must not contain duplicate names")
        return self


class Case(_Scenario):
    """A catalogued scenario."""

    case_id: CaseId
    user_message: str
    enabled_tools: tuple[str, ...]
    expectation: Expectation
    mock_messages: tuple[str, ...]
    """What the mock says, one text per model call."""
    mock_events: tuple[MockEvent, ...] = ()
    """What the mock does in its first model call."""

    @model_validator(mode="after")
    def _script_fits_the_expectation(self) -> Self:
        if not self.user_message.strip():
            raise ValueError("user_message must not be empty")
        if len(self.enabled_tools) != len(set(self.enabled_tools)):
            raise ValueError("enabled_tools must not contain duplicates")
        if any(not name.strip() for name in self.enabled_tools):
            raise ValueError("enabled_tools must not contain empty names")
        if tuple(event.name for event in self.mock_events) != self.expectation.event_names:
            raise ValueError("mock event order must match expected event order")
        if not set(self.expectation.event_names) <= set(self.enabled_tools):
            raise ValueError("expected events must be enabled tools")
        ids = [event.id for event in self.mock_events]
        if len(ids) != len(set(ids)):
            raise ValueError("mock event ids must be distinct")
        if self.expectation.is_reply_before_tool and not (self.mock_events and self.mock_messages):
            raise ValueError("is_reply_before_tool requires mock text and at least one event")
        return self

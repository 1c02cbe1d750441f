"""The four tools: how a model is told of them, how arguments are validated, what follows their execution."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from agentbench_otel.cases import CALENDAR, SEARCH, TERMINATE, VOLUME
from agentbench_otel.errors import InvalidArgumentsError
from agentbench_otel.ports import ToolHandler
from agentbench_otel.records.chat import ToolSpec

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE)
_SCHEMA_WORDS = (
    "type",
    "description",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "items",
    "properties",
    "required",
)


class FollowUp(StrEnum):
    """What happens after a tool has run."""

    SILENT = "silent"
    """No further text."""
    TEMPLATE = "template"
    """A fixed sentence, filled in with the arguments."""
    MODEL = "model"
    """A second model call, grounded in the result."""
    TERMINAL = "terminal"
    """The session ends."""


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class VolumeArguments(_Arguments):
    mode: Literal["absolute", "relative"]
    value: int | None = Field(default=None, ge=0, le=100, description="the new level, for absolute")
    delta: int | None = Field(default=None, ge=-100, le=100, description="the change, for relative")

    @model_validator(mode="after")
    def _has_the_number_of_its_mode(self) -> Self:
        if (self.value if self.mode == "absolute" else self.delta) is None:
            raise ValueError("absolute needs value, relative needs delta")
        return self


def _rfc3339(value: str) -> str:
    """Python reads more of ISO 8601 than RFC 3339 allows, so the shape is checked too."""
    try:
        datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("not an RFC 3339 time") from None
    if not _RFC_3339.fullmatch(value):
        raise ValueError("an RFC 3339 time has a T and an offset, and seconds")
    return value


def _iana_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("not an IANA time zone") from None
    return value


class CalendarArguments(_Arguments):
    title: str = Field(min_length=1)
    start_at: Annotated[str, AfterValidator(_rfc3339)] = Field(description="RFC 3339, with the offset")
    timezone: Annotated[str, AfterValidator(_iana_zone)] = Field(description="IANA name")
    recurrence: str | None = Field(default=None, description="for example weekly")
    reminder_minutes: int | None = Field(default=None, ge=0)


class SearchArguments(_Arguments):
    query: str = Field(min_length=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """``arguments`` is None for a tool that takes none; whatever a model sends along is then ignored."""

    name: str
    description: str
    arguments: type[BaseModel] | None
    follow_up: FollowUp
    template: str = ""

    @property
    def spec(self) -> ToolSpec:
        return _spec(self)

    def validate(self, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
        """The arguments that the handler gets; optional ones that were left out stay out.

        Raises:
            InvalidArgumentsError: They do not fit, or are absent where the tool takes some.
        """
        if self.arguments is None:
            return {}
        if arguments is None:
            raise InvalidArgumentsError(f"{self.name}: the event has no JSON object as arguments")
        try:
            model = self.arguments.model_validate_json(json.dumps(dict(arguments)))
        except RecursionError:
            raise InvalidArgumentsError(f"{self.name}: the arguments are nested too deeply") from None
        except (ValidationError, ValueError) as error:
            raise InvalidArgumentsError(f"{self.name}: {_problems(error)}") from error
        return model.model_dump(exclude_none=True)


@cache
def _spec(tool: Tool) -> ToolSpec:
    """Made once: pydantic takes a millisecond for a schema, and a turn is being timed when it is asked for."""
    schema = {"type": "object", "properties": {}}
    if tool.arguments is not None:
        schema = _common_subset(tool.arguments.model_json_schema())
    return ToolSpec(name=tool.name, description=tool.description, parameters=schema)


def _problems(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    problems = error.errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in problems)


def _common_subset(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Pydantic's schema in the words that every provider takes: no title, default, anyOf or null."""
    optional = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    words = {**schema, **(optional[0] if len(optional) == 1 else {})}
    subset = {key: words[key] for key in _SCHEMA_WORDS if key in words}
    if "properties" in subset:
        subset["properties"] = {name: _common_subset(one) for name, one in subset["properties"].items()}
    return subset


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            name=VOLUME,
            description="Set or change the volume of the device.",
            arguments=VolumeArguments,
            follow_up=FollowUp.SILENT,
        ),
        Tool(
            name=CALENDAR,
            description="Put an appointment into the calendar.",
            arguments=CalendarArguments,
            follow_up=FollowUp.TEMPLATE,
            template="Scheduled {title} for {start_at} ({timezone}).",
        ),
        Tool(
            name=SEARCH,
            description="Search the knowledge base.",
            arguments=SearchArguments,
            follow_up=FollowUp.MODEL,
        ),
        Tool(
            name=TERMINATE,
            description="End the session when the user asks for it.",
            arguments=None,
            follow_up=FollowUp.TERMINAL,
        ),
    )
}


class ToolRegistry:
    """The tools of one run, each with the handler that executes it."""

    def __init__(self, handlers: Mapping[str, ToolHandler]) -> None:
        """``handlers``: by domain name; every name must be one of `TOOLS`."""
        self._handlers = dict(handlers)
        self._specs = {name: TOOLS[name].spec for name in handlers}

    def tool(self, name: str) -> Tool | None:
        """The tool of that domain name, None when it is not in this registry."""
        return TOOLS[name] if name in self._handlers else None

    def handler(self, name: str) -> ToolHandler:
        return self._handlers[name]

    def specs(self, names: Iterable[str]) -> tuple[ToolSpec, ...]:
        return tuple(self._specs[name] for name in names)

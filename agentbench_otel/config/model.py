"""The config as pydantic models. Their errors are worded "what is wrong; what is allowed"."""

import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from agentbench_otel.records.scenario import CaseId, Mode

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_DURATION = re.compile(r"([1-9][0-9]*)(s|m|h|d|w)")
_PLAIN_HOST = re.compile(r"[A-Za-z0-9_.-]+")
_NO_URL = "is no valid URL; give a host and a port of 1 to 65535 at most"
_LONGEST_S = 520 * 604_800
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_RESERVED_HEADERS = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "transfer-encoding"}
)

Item = TypeVar("Item")


def _url(value: str, *, example: str, userinfo_advice: str, rest_advice: str) -> str:
    """An http or https URL. The value may hold a password or a token, so no message echoes it."""
    if not value:
        raise ValueError(f"must not be empty; give an http or https URL, for example {example}")
    if any(char.isspace() for char in value):
        raise ValueError("must not contain white space; give an http or https URL")
    if _is_invisible(value):
        raise ValueError("must not contain control or invisible characters; give an http or https URL")
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(_NO_URL) from None
    if parts.scheme not in ("http", "https"):
        raise ValueError("has the wrong scheme; allowed are http and https")
    if "@" in parts.netloc:
        raise ValueError(f"must not contain userinfo; {userinfo_advice}")
    if not host or port == 0:
        raise ValueError("must have a host and, if any, a port of 1 to 65535")
    if "?" in value:
        raise ValueError(f"must not contain a query; {rest_advice}")
    if "#" in value:
        raise ValueError(f"must not contain a fragment; {rest_advice}")
    if not _is_host(host, value):
        raise ValueError(_NO_URL)
    return value


def _is_host(host: str, url: str) -> bool:
    if _PLAIN_HOST.fullmatch(host) and not host.replace(".", "").isdigit() and "xn--" not in host:
        return True
    try:
        ip_address(host)
        return True
    except ValueError:
        if host.replace(".", "").isdigit():
            return False
    import httpx  # 0.1 s, and hardly any config needs it

    try:
        return bool(httpx.URL(url).host)
    except (httpx.InvalidURL, ValueError):
        return False


def _base_url(value: str) -> str:
    return _url(
        value,
        example="http://127.0.0.1:8080/v1",
        userinfo_advice="give the key with api_key_env or api_key_file",
        rest_advice="only /chat/completions is appended to it",
    )


def _collector_url(value: str) -> str:
    example = "http://127.0.0.1:4318"
    return _url(
        value,
        example=example,
        userinfo_advice="give a key with OTEL_EXPORTER_OTLP_HEADERS",
        rest_advice=f"give the URL of the collector, for example {example}",
    )


def _is_invisible(value: str) -> bool:
    return any(unicodedata.category(char).startswith("C") for char in value)


def _target_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(
            "is no valid name; allowed are 1 to 63 of a-z, 0-9, _ and -, beginning with a letter or a digit"
        )
    return value


def _stripped(value: str) -> str:
    stripped = value.strip()
    if not stripped:
        raise ValueError("must not be empty; give a text with at least one character that is not white space")
    if _is_invisible(stripped):
        raise ValueError("must not contain control or invisible characters; give a printable text")
    return stripped


def _variable_name(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        raise ValueError("is no name of an environment variable; allowed are letters, digits and _ (not the key!)")
    return value


def _header_names(value: object) -> object:
    """Checks the names first: where a blank is missing after a colon, a name is half a secret."""
    if not isinstance(value, dict):
        return value
    seen: set[str] = set()
    for name in value:
        if not _HEADER.fullmatch(name):
            raise _header_error(
                name, "has a name that is no HTTP header name; allowed are letters, digits and !#$%&'*+.^_`|~-"
            )
        lower = name.lower()
        if lower == "authorization":
            raise _header_error(name, "must not set authorization; give the key with api_key_env or api_key_file")
        if lower in _RESERVED_HEADERS:
            raise _header_error(name, f"must not set {lower}; it is set by the client")
        if lower in seen:
            raise _header_error(name, f"has {lower} twice; each name may stand once, whatever its case")
        seen.add(lower)
    return value


def _header_values(value: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, secret in value.items():
        text = secret.get_secret_value()
        if not text.isascii() or not text.isprintable() or text != text.strip():
            raise _header_error(
                name, f"has a value for {name} that can't be sent; allowed are printable ASCII characters"
            )
    return value


def _header_error(name: str, words: str) -> PydanticCustomError:
    """``at`` leads to the line; the path in the message ends at the headers."""
    return PydanticCustomError("header", "{words}", {"words": words, "at": name})


def _no_duplicates(values: tuple[Item, ...]) -> tuple[Item, ...]:
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ValueError(f"lists {value} twice; each value may stand once")
    return values


def _duration(value: object) -> object:
    """``5m`` → 300. Anything else than such a text is left for pydantic to refuse."""
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match is None:
            raise ValueError("is no duration; allowed are a whole number and a unit: 30s, 5m, 2h, 90d, 1w")
        seconds = int(match[1][:12]) * _SECONDS[match[2]]
        if seconds > _LONGEST_S:
            raise ValueError("is longer than ten years; allowed is up to 520w")
        return seconds
    raise ValueError("is no duration; write a text such as 30s, 5m, 2h, 90d or 1w")


def _listen(value: str) -> str:
    host, _, port = value.rpartition(":")
    is_port = port.isascii() and port.isdigit() and int(port) <= 65535
    if host.startswith("[") and host.endswith("]"):
        is_host = _is_ip_address(host[1:-1], version=6)
    else:
        is_host = bool(_PLAIN_HOST.fullmatch(host))
    if not is_host or not is_port:
        raise ValueError('is no address; write host:port, for example "127.0.0.1:9464" or "[::1]:9464"')
    return value


def _is_ip_address(text: str, *, version: int) -> bool:
    try:
        return ip_address(text).version == version
    except ValueError:
        return False


def _cron(value: str) -> str:
    from cronsim import CronSim, CronSimError

    try:
        CronSim(value, datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError:
        raise ValueError('is no cron expression; write five fields, for example "*/10 * * * *"') from None
    return value


def _timezone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("is no time zone; write an IANA name, for example UTC or Europe/Berlin") from None
    return value


def _listed(values: tuple[Item, ...]) -> tuple[Item, ...]:
    if not values:
        raise ValueError("must not be empty; list at least 1")
    return values


def _require_integer_1(value: object) -> object:
    if type(value) is not int or value != 1:
        raise ValueError("must be the integer 1; nothing else is allowed")
    return value


Seconds = Annotated[float, Field(gt=0, le=86_400)]
DurationSeconds = Annotated[
    int,
    BeforeValidator(_duration),
    WithJsonSchema({"type": "string", "pattern": f"^{_DURATION.pattern}$", "examples": ["5m"]}),
]
Lenient = Field(strict=False)  # an enum value comes as text
_LIST = (
    Field(strict=False),
    AfterValidator(_listed),
    AfterValidator(_no_duplicates),
)


class _Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, hide_input_in_errors=True, allow_inf_nan=False
    )


class Timeouts(_Section):
    """Limits of one model call, in seconds."""

    connect_s: Seconds = 5.0
    """To a TCP connection, and again for the TLS handshake."""
    first_byte_s: Seconds = 60.0
    """From there to the first byte of the answer; also the longest silence of the model between two items
    while the connection shows signs of life."""
    idle_s: Seconds = 30.0
    """Between two bytes."""


class Schedule(_Section):
    """When a target's cycles are due: ``every`` or ``cron``."""

    every: DurationSeconds | None = None
    cron: Annotated[str, AfterValidator(_cron)] | None = None
    timezone: Annotated[str, AfterValidator(_timezone)] = "UTC"

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "Schedule":
        if (self.every is None) == (self.cron is None):
            raise ValueError("must have one of every and cron; for example {every: 5m}")
        return self


class Target(_Section):
    """One endpoint and model to measure."""

    name: Annotated[str, AfterValidator(_target_name)]
    base_url: Annotated[str, AfterValidator(_base_url)]
    model: Annotated[str, AfterValidator(_stripped)]
    api_key_env: Annotated[str, AfterValidator(_variable_name)] | None = None
    api_key_file: Annotated[str, AfterValidator(_stripped)] | None = None
    provider: Annotated[str, AfterValidator(_stripped)] = "openai"
    """``gen_ai.provider.name``."""
    headers: Annotated[dict[str, SecretStr], BeforeValidator(_header_names), AfterValidator(_header_values)] = (
        Field(default_factory=dict)
    )
    timeouts: Timeouts = Timeouts()
    max_tokens: int = Field(default=128, ge=1)
    temperature: float | None = Field(default=0.0, ge=0, le=2)
    """None: not sent."""
    propagate_trace: bool = False
    schedule: Schedule | None = None

    @model_validator(mode="after")
    def _has_one_key_at_most(self) -> "Target":
        if self.api_key_env is not None and self.api_key_file is not None:
            raise ValueError("must have one of api_key_env and api_key_file; remove one of them")
        return self


class Benchmark(_Section):
    """What is run against every target."""

    modes: Annotated[tuple[Annotated[Mode, Lenient], ...], *_LIST] = tuple(Mode)
    cases: Annotated[tuple[Annotated[CaseId, Lenient], ...], *_LIST] = tuple(CaseId)
    runs_per_case: int = Field(default=1, ge=1, le=10_000)
    warmup_runs: int = Field(default=0, ge=0, le=10_000)
    """Per case and mode, before the counted runs; marked in the data and outside every aggregate."""
    run_deadline_s: Seconds = 120.0
    prompt_cache: Literal["avoid", "allow"] = "avoid"


class History(_Section):
    path: Annotated[str, AfterValidator(_stripped)] = "agentbench.db"
    keep: DurationSeconds = 90 * 86_400


class Web(_Section):
    listen: Annotated[str, AfterValidator(_listen)] = "127.0.0.1:9464"
    enable_lifecycle: bool = False


class Otlp(_Section):
    endpoint: Annotated[str, AfterValidator(_collector_url)]
    protocol: Literal["http/protobuf", "grpc"] = "http/protobuf"


class Telemetry(_Section):
    otlp: Otlp | None = None
    capture_content: bool = False


def _distinct_names(targets: tuple[Target, ...]) -> tuple[Target, ...]:
    _no_duplicates(tuple(f"the name {target.name}" for target in targets))
    return targets


class Config(_Section):
    schema_version: Annotated[Literal[1], BeforeValidator(_require_integer_1)]
    targets: Annotated[
        tuple[Target, ...], Field(strict=False), AfterValidator(_listed), AfterValidator(_distinct_names)
    ]
    benchmark: Benchmark = Benchmark()
    schedule: Schedule = Schedule(every="5m")  # type: ignore[arg-type]  # the text form, as in a file
    history: History = History()
    web: Web = Web()
    telemetry: Telemetry = Telemetry()


def config_schema() -> dict[str, Any]:
    """The JSON Schema of a config file: pydantic's, with what its own validators and defaults hide from it."""
    schema = Config.model_json_schema()
    sections = schema["$defs"]
    schema["properties"]["targets"]["minItems"] = 1
    for name in ("modes", "cases"):
        sections["Benchmark"]["properties"][name].update(minItems=1, uniqueItems=True)
    schema["properties"]["schedule"]["default"] = {"every": "5m"}
    schema["properties"]["history"].pop("default", None)
    sections["History"]["properties"]["keep"]["default"] = "90d"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def allowed_keys(path: Sequence[str | int]) -> list[str]:
    """The keys of the section at ``path``; empty when the path leads to none."""
    section: Any = Config
    for step in path:
        if isinstance(step, int):
            continue
        field = section.model_fields.get(step)
        if field is None:
            return []
        section = _section_of(field.annotation)
        if section is None:
            return []
    return list(section.model_fields)


def _section_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _section_of(inner)
        if found is not None:
            return found
    return None

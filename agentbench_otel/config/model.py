"""The config as pydantic models. Their errors are worded "what is wrong; what is allowed"."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

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

from agentbench_otel.config import rules
from agentbench_otel.records.scenario import CaseId, Mode

Seconds = Annotated[float, Field(gt=0, le=86_400)]
DurationSeconds = Annotated[
    int,
    BeforeValidator(rules.duration_seconds),
    WithJsonSchema({"type": "string", "pattern": f"^{rules.DURATION.pattern}$", "examples": ["5m"]}),
]
Headers = Annotated[dict[str, SecretStr], BeforeValidator(rules.header_names), AfterValidator(rules.header_values)]
Lenient = Field(strict=False)  # an enum value comes as text
_LIST = (
    Field(strict=False),
    AfterValidator(rules.not_empty),
    AfterValidator(rules.no_duplicates),
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
    cron: Annotated[str, AfterValidator(rules.cron_expression)] | None = None
    timezone: Annotated[str, AfterValidator(rules.time_zone)] = "UTC"

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "Schedule":
        if (self.every is None) == (self.cron is None):
            raise ValueError("must have one of every and cron; for example {every: 5m}")
        return self


class Budget(_Section):
    """What the daemon may spend on a target per UTC day; ``once`` is not held to it."""

    max_runs_per_day: int | None = Field(default=None, ge=1)
    max_tokens_per_day: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _has_a_limit(self) -> "Budget":
        if self.max_runs_per_day is None and self.max_tokens_per_day is None:
            raise ValueError("must have max_runs_per_day, max_tokens_per_day or both")
        return self


class Target(_Section):
    """One endpoint and model to measure."""

    name: Annotated[str, AfterValidator(rules.target_name)]
    base_url: Annotated[str, AfterValidator(rules.base_url)]
    model: Annotated[str, AfterValidator(rules.stripped_text)]
    api_key_env: Annotated[str, AfterValidator(rules.variable_name)] | None = None
    api_key_file: Annotated[str, AfterValidator(rules.stripped_text)] | None = None
    provider: Annotated[str, AfterValidator(rules.stripped_text)] = "openai"
    """``gen_ai.provider.name``."""
    headers: Annotated[
        dict[str, SecretStr], BeforeValidator(rules.header_names), AfterValidator(rules.header_values)
    ] = Field(default_factory=dict)
    timeouts: Timeouts = Timeouts()
    max_tokens: int = Field(default=128, ge=1)
    temperature: float | None = Field(default=0.0, ge=0, le=2)
    """None: not sent."""
    propagate_trace: bool = False
    schedule: Schedule | None = None
    budget: Budget | None = None

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
    path: Annotated[str, AfterValidator(rules.stripped_text)] = "agentbench.db"
    keep: DurationSeconds = 90 * 86_400
    keep_spans: DurationSeconds = 7 * 86_400
    """Spans are many times larger than results."""


class Daemon(_Section):
    max_parallel_targets: int = Field(default=1, ge=1, le=64)
    """More than one disturb each other's times."""
    shutdown_grace: DurationSeconds = 30
    """For the run in flight when the daemon is told to stop."""
    max_stuck_runs: int = Field(default=3, ge=1)
    """As many runs that ignore their cancellation end the daemon with exit 1, for its supervisor."""


class WebTls(_Section):
    cert_file: Annotated[str, AfterValidator(rules.stripped_text)]
    key_file: Annotated[str, AfterValidator(rules.stripped_text)]


class Web(_Section):
    listen: Annotated[str, AfterValidator(rules.listen_address)] = "127.0.0.1:9464"
    enable_lifecycle: bool = False
    """Allow ``POST /-/reload`` and ``POST /api/v1/cycles``."""
    tls: WebTls | None = None
    basic_auth: Annotated[dict[str, SecretStr], AfterValidator(rules.password_hashes)] = Field(
        default_factory=dict
    )
    """User → bcrypt hash; empty: no authentication."""


class Otlp(_Section):
    endpoint: Annotated[str, AfterValidator(rules.collector_url)]
    protocol: Literal["http/protobuf", "grpc"] = "http/protobuf"
    signals: Annotated[tuple[Literal["traces", "metrics"], ...], *_LIST] = ("traces", "metrics")
    """What is pushed; a trace store takes no metrics."""


class Telemetry(_Section):
    otlp: Otlp | None = None
    capture_content: bool = False
    semconv: Literal["1.41", "next"] = "1.41"
    """The GenAI conventions that metric names follow; ``next`` has the renamed client metrics."""


def _distinct_names(targets: tuple[Target, ...]) -> tuple[Target, ...]:
    rules.no_duplicates(tuple(f"the name {target.name}" for target in targets))
    return targets


class Config(_Section):
    schema_version: Annotated[Literal[1], BeforeValidator(rules.integer_1)]
    targets: Annotated[
        tuple[Target, ...], Field(strict=False), AfterValidator(rules.not_empty), AfterValidator(_distinct_names)
    ]
    benchmark: Benchmark = Benchmark()
    schedule: Schedule = Schedule(every="5m")  # type: ignore[arg-type]  # the text form, as in a file
    history: History = History()
    web: Web = Web()
    daemon: Daemon = Daemon()
    telemetry: Telemetry = Telemetry()


def config_schema() -> dict[str, Any]:
    """The JSON Schema of a config file: pydantic's, with what its own validators and defaults hide from it."""
    schema = Config.model_json_schema()
    sections = schema["$defs"]
    schema["properties"]["targets"]["minItems"] = 1
    for section, name in (("Benchmark", "modes"), ("Benchmark", "cases"), ("Otlp", "signals")):
        sections[section]["properties"][name].update(minItems=1, uniqueItems=True)
    schema["properties"]["schedule"]["default"] = {"every": "5m"}
    for section in ("history", "daemon"):
        schema["properties"][section].pop("default", None)
    for section, name, default in (
        ("History", "keep", "90d"),
        ("History", "keep_spans", "7d"),
        ("Daemon", "shutdown_grace", "30s"),
    ):
        sections[section]["properties"][name]["default"] = default
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

"""Every span, span-event, attribute and metric name that leaves this package, as plain strings.

GenAI names follow the OpenTelemetry semantic conventions v1.41.1 (the last tagged version that holds them;
the constants of the Python package are deprecated, so the strings stand here). Where the conventions have
no name, ours begins with ``agentbench.``. The metrics follow at the end, with unit, buckets and description.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Literal

SCOPE = "agentbench_otel"

# --- spans -------------------------------------------------------------------------------------------------
RUN_SPAN = "agentbench.run"  # followed by the case
TURN_SPAN = "invoke_agent"  # followed by the agent
MODEL_CALL_SPAN = "chat"  # followed by the model
AWAIT_SPAN = "agentbench.provider.await"
PHASE_SPAN_PREFIX = "agentbench.http."  # followed by the phase: connect, tls, send, first_byte
TOOL_SPAN = "execute_tool"  # followed by the tool

AGENT_NAME = "agentbench"

# --- span events -------------------------------------------------------------------------------------------
FIRST_VISIBLE_MESSAGE_EVENT = "agentbench.first_visible_message"
AUDIT_EVENT = "agentbench.audit"
SEMANTIC_FAILURE_EVENT = "agentbench.semantic_failure"
WARNING_EVENT = "agentbench.warning"

# --- attributes: OpenTelemetry -----------------------------------------------------------------------------
OPERATION_NAME = "gen_ai.operation.name"
PROVIDER_NAME = "gen_ai.provider.name"
AGENT_NAME_KEY = "gen_ai.agent.name"
CONVERSATION_ID = "gen_ai.conversation.id"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
RESPONSE_TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"  # seconds
USAGE_INPUT_TOKENS = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
USAGE_CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
USAGE_REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
INPUT_MESSAGES = "gen_ai.input.messages"  # opt-in: content
OUTPUT_MESSAGES = "gen_ai.output.messages"  # opt-in: content
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ARGUMENTS = "gen_ai.tool.call.arguments"  # opt-in: content
TOOL_CALL_RESULT = "gen_ai.tool.call.result"  # opt-in: content
TOKENS_TYPE = "gen_ai.token.type"  # on metrics: input, output
TOKENS_MODALITY = "gen_ai.token.modality"  # on metrics of the profile "next": text
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
HTTP_STATUS_CODE = "http.response.status_code"
CONNECTION_REUSED = "network.connection.reused"
ERROR_TYPE = "error.type"

# --- attributes: ours --------------------------------------------------------------------------------------
RUN_ID = "agentbench.run.id"
CYCLE_ID = "agentbench.cycle.id"
TARGET = "agentbench.target"
CASE = "agentbench.case"
MODE = "agentbench.mode"
ITERATION = "agentbench.iteration"
MOCK = "agentbench.mock"
WARMUP = "agentbench.warmup"
STATUS = "agentbench.status"
SPAN_COUNT = "agentbench.span.count"  # of the whole run, the run span included
ERROR_KIND = "agentbench.error"
ERROR_MESSAGE = "agentbench.error.message"
FAILURE_KIND = "agentbench.failure.kind"
MESSAGE = "agentbench.message"

CALL_INDEX = "agentbench.call.index"
CALL_KIND = "agentbench.call.kind"
FIRST_ITEM_KIND = "agentbench.first_item.kind"
AWAIT_COUNT = "agentbench.await.count"
USAGE_TOTAL_TOKENS = "agentbench.usage.total_tokens"
ADAPTATIONS = "agentbench.request.adaptations"
CALL_WARNINGS = "agentbench.call.warnings"
LOOP_LAG_MAX_NS = "agentbench.loop_lag.max_ns"

AWAIT_INDEX = "agentbench.await.index"
ITEM_KIND = "agentbench.item.kind"
ITEM_ARRIVAL = "agentbench.item.arrival_unix_nano"
ITEM_GENERATED = "agentbench.item.generated"
ITEM_VISIBLE = "agentbench.item.visible"

TURN_END = "agentbench.turn.end"  # the type of the turn's last message; absent when the turn raised

EVENT_INDEX = "agentbench.event.index"
EVENT_SOURCE = "agentbench.event.source"

RETRY_AFTER_S = "agentbench.call.retry_after_s"  # what a refusal asked for

AUDIT_ENTRY = "agentbench.audit.entry"
AUDIT_EVENT_NAME = "agentbench.audit.event_name"
AUDIT_EVENT_SOURCE = "agentbench.audit.event_source"
AUDIT_CALL_KIND = "agentbench.audit.call_kind"
AUDIT_RESULT_NAMES = "agentbench.audit.result_event_names"
AUDIT_RESULT_STATUSES = "agentbench.audit.result_statuses"


# --- metrics -----------------------------------------------------------------------------------------------

L_TARGET, L_CASE, L_MODE = "target", "case", "mode"
L_STATUS, L_KIND, L_CALL_KIND, L_OUTCOME = "status", "kind", "call_kind", "outcome"
L_TOOL, L_TYPE, L_SIGNAL = "tool", "type", "signal"

Semconv = Literal["1.41", "next"]


class MetricKind(StrEnum):
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. ``unit`` is UCUM as OTel writes it; a unit in braces leaves no suffix in Prometheus (the unit
    "1" would: Prometheus turns a pushed gauge of it into a ``_ratio``)."""

    name: str
    kind: MetricKind
    unit: str
    description: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...] = ()
    semconv: Semconv | None = None
    """The profile of the GenAI conventions that has it; None: all have."""

    @property
    def prometheus_name(self) -> str:
        """The name that ``/metrics`` has, and that Prometheus gives to the same metric when it is pushed."""
        return prometheus_name(self.name, self.unit, is_counter=self.kind is MetricKind.COUNTER)


_UNIT_SUFFIXES = {"s": "seconds", "By": "bytes"}


def prometheus_label(key: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", key)


def prometheus_unit(unit: str) -> str:
    """``s`` → ``seconds``; empty for a unit in braces.

    Raises:
        KeyError: A unit that no metric of ours has.
    """
    return "" if unit.startswith("{") else _UNIT_SUFFIXES[unit]


def prometheus_name(name: str, unit: str, *, is_counter: bool) -> str:
    parts = [prometheus_label(name), prometheus_unit(unit), "total" if is_counter else ""]
    return "_".join(part for part in parts if part)


# Source: GenAI semantic conventions v1.41.1, the advised boundaries of the client metrics.
SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS = (
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262144.0,
    1048576.0,
    4194304.0,
    16777216.0,
    67108864.0,
)
# Source: the advised boundaries of gen_ai.invoke_agent.duration.
TURN_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
# Our own code and a connection on the same network take micro- and milliseconds.
SHORT_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

_RUN = (L_TARGET, L_CASE, L_MODE)
_CLIENT = (*_RUN, OPERATION_NAME, PROVIDER_NAME, REQUEST_MODEL, SERVER_ADDRESS, SERVER_PORT)


_ALL: list[Metric] = []


def _metric(
    kind: MetricKind,
    name: str,
    unit: str,
    description: str,
    labels: Sequence[str],
    *,
    buckets: tuple[float, ...] = (),
    semconv: Semconv | None = None,
) -> Metric:
    metric = Metric(
        name=name,
        kind=kind,
        unit=unit,
        description=description,
        labels=tuple(labels),
        buckets=buckets,
        semconv=semconv,
    )
    _ALL.append(metric)
    return metric


_counter = partial(_metric, MetricKind.COUNTER)
_gauge = partial(_metric, MetricKind.GAUGE)


def _histogram(
    name: str,
    description: str,
    labels: Sequence[str],
    *,
    unit: str = "s",
    buckets: tuple[float, ...] = SECONDS,
    semconv: Semconv | None = None,
) -> Metric:
    return _metric(MetricKind.HISTOGRAM, name, unit, description, labels, buckets=buckets, semconv=semconv)


# Of the runs: GenAI conventions.
OPERATION_DURATION = _histogram(
    "gen_ai.client.operation.duration",
    "Time that the provider took for a model call: its start to the arrival of its last item, without the"
    " consumer's pauses. Of a call that failed: the sum of its provider awaits.",
    (*_CLIENT, ERROR_TYPE),
    semconv="1.41",
)
TIME_TO_FIRST_CHUNK = _histogram(
    "gen_ai.client.operation.time_to_first_chunk",
    "Start of a model call to the arrival of its first item of any kind.",
    _CLIENT,
    semconv="1.41",
)
TOKEN_USAGE = _histogram(
    "gen_ai.client.token.usage",
    "Tokens of a model call as its provider reported them; calls without a report are not in it.",
    (*_CLIENT, TOKENS_TYPE),
    unit="{token}",
    buckets=TOKENS,
    semconv="1.41",
)
NEXT_OPERATION_DURATION = _histogram(
    "gen_ai.client.inference.duration", OPERATION_DURATION.description, OPERATION_DURATION.labels, semconv="next"
)
NEXT_TIME_TO_FIRST_CHUNK = _histogram(
    "gen_ai.client.inference.time_to_first_chunk",
    TIME_TO_FIRST_CHUNK.description,
    TIME_TO_FIRST_CHUNK.labels,
    semconv="next",
)
_NEXT_USAGE = "gen_ai.client.inference.usage."
NEXT_INPUT_USAGE = _counter(
    _NEXT_USAGE + "input_tokens",
    "{token}",
    "Input tokens as reported.",
    (*_CLIENT, TOKENS_MODALITY),
    semconv="next",
)
NEXT_OUTPUT_USAGE = _counter(
    _NEXT_USAGE + "output_tokens",
    "{token}",
    "Output tokens as reported.",
    (*_CLIENT, TOKENS_MODALITY),
    semconv="next",
)
NEXT_CACHED_USAGE = _counter(
    _NEXT_USAGE + "cache_read.input_tokens",
    "{token}",
    "Input tokens that came from the provider's cache, as reported.",
    (*_CLIENT, TOKENS_MODALITY),
    semconv="next",
)
NEXT_REASONING_USAGE = _counter(
    _NEXT_USAGE + "reasoning.output_tokens",
    "{token}",
    "Output tokens spent on reasoning, as reported.",
    (*_CLIENT, TOKENS_MODALITY),
    semconv="next",
)
NEXT_INPUT_TOKENS = _histogram(
    "gen_ai.client.inference.operation.input_tokens",
    "Input tokens of a model call as reported.",
    _CLIENT,
    unit="{token}",
    buckets=TOKENS,
    semconv="next",
)
NEXT_OUTPUT_TOKENS = _histogram(
    "gen_ai.client.inference.operation.output_tokens",
    "Output tokens of a model call as reported.",
    _CLIENT,
    unit="{token}",
    buckets=TOKENS,
    semconv="next",
)
INVOKE_AGENT_DURATION = _histogram(
    "gen_ai.invoke_agent.duration",
    "Wall time of a turn: the duration of its span.",
    (*_RUN, AGENT_NAME_KEY, REQUEST_MODEL, ERROR_TYPE),
    buckets=TURN_SECONDS,
)
EXECUTE_TOOL_DURATION = _histogram(
    "gen_ai.execute_tool.duration",
    "Time in a tool's own code: the duration of its handler's span.",
    (*_RUN, TOOL_NAME, TOOL_TYPE, AGENT_NAME_KEY, ERROR_TYPE),
)

# Of the runs: ours.
TURN_WALL = _histogram("agentbench.turn.wall", "Wall time of a turn.", _RUN)
TURN_PROVIDER = _histogram(
    "agentbench.turn.provider", "Part of the wall in which a provider await was open.", _RUN
)
TURN_HANDLER = _histogram(
    "agentbench.turn.handler",
    "Part of the wall in which a tool handler ran and no provider await was open.",
    _RUN,
    buckets=SHORT_SECONDS,
)
TURN_HARNESS = _histogram(
    "agentbench.turn.harness",
    "The rest of the wall: our own code. The three parts sum to the wall.",
    _RUN,
    buckets=SHORT_SECONDS,
)
VISIBLE_TTFT = _histogram(
    "agentbench.visible_ttft", "Start of the turn to its first visible text on the output queue.", _RUN
)
_CALL = (*_RUN, L_CALL_KIND)
CALL_PROVIDER_AWAIT = _histogram(
    "agentbench.model_call.provider_await",
    "Sum of a model call's provider awaits (elapsed): the consumer's pauses are outside by construction.",
    _CALL,
)
CALL_STREAM = _histogram(
    "agentbench.model_call.stream", "Start of a model call to the arrival of its last item.", _CALL
)
CALL_CONSUMER = _histogram(
    "agentbench.model_call.consumer",
    "A model call's span minus its provider awaits: what the agent did between items.",
    _CALL,
    buckets=SHORT_SECONDS,
)
CALL_TOKEN_TTFT = _histogram(
    "agentbench.model_call.token_ttft",
    "Start of a model call to the arrival of its first generated piece: text, reasoning, refusal or tool call.",
    _CALL,
)
CALL_MAX_CHUNK_GAP = _histogram(
    "agentbench.model_call.max_chunk_gap",
    "Longest time between two reads of a model call that carried generated pieces. A chunk is no token.",
    _CALL,
)
CALL_CONNECT = _histogram(
    "agentbench.model_call.connect",
    "Time to open the TCP connection of a model call, name resolution included; reused connections are not in it.",
    _CALL,
    buckets=SHORT_SECONDS,
)
TOOL_HANDLER = _histogram(
    "agentbench.tool_handler", "Time in a tool's own code.", (*_RUN, L_TOOL), buckets=SHORT_SECONDS
)
RUNS = _counter(
    "agentbench.runs",
    "{run}",
    "Runs by how they ended: passed, failed (ran to its end, but not as the case promised), error, aborted.",
    (*_RUN, L_STATUS),
)
SEMANTIC_FAILURES = _counter(
    "agentbench.semantic_failures", "{failure}", "What runs got wrong, by kind.", (*_RUN, L_KIND)
)
MODEL_CALLS = _counter(
    "agentbench.model_calls",
    "{call}",
    "Model calls by outcome: ok or the kind of their error.",
    (*_RUN, L_CALL_KIND, L_OUTCOME),
)
RUN_TOKENS = _counter(
    "agentbench.tokens", "{token}", "Tokens as the providers reported them, by type.", (*_RUN, L_TYPE)
)
USAGE_MISSING = _counter(
    "agentbench.usage_missing", "{call}", "Model calls whose provider reported no usage; never counted as 0.", _RUN
)

# Of the last run of each series: exact numbers, gone after three intervals without a run.
_LAST = "agentbench.last_run."
LAST_SUCCESS = _gauge(_LAST + "success", "{flag}", "1 when the last run passed, else 0.", _RUN)
LAST_PROVIDER_TTFT = _gauge(
    _LAST + "provider_ttft", "s", "Last run: start of the first call to its first item.", _RUN
)
LAST_TOKEN_TTFT = _gauge(
    _LAST + "token_ttft", "s", "Last run: start of the first call to its first generated piece.", _RUN
)
LAST_VISIBLE_TTFT = _gauge(
    _LAST + "visible_ttft", "s", "Last run: start of the turn to its first visible text.", _RUN
)
LAST_TURN_WALL = _gauge(_LAST + "turn_wall", "s", "Last run: wall time of the turn.", _RUN)
LAST_TURN_PROVIDER = _gauge(_LAST + "turn_provider", "s", "Last run: the provider's part of the wall.", _RUN)
LAST_TURN_HANDLER = _gauge(_LAST + "turn_handler", "s", "Last run: the tool handlers' part of the wall.", _RUN)
LAST_TURN_HARNESS = _gauge(_LAST + "turn_harness", "s", "Last run: our own part of the wall.", _RUN)
LAST_PROVIDER_AWAIT = _gauge(_LAST + "provider_await", "s", "Last run: sum of all provider awaits.", _RUN)
LAST_STREAM = _gauge(_LAST + "stream", "s", "Last run: sum of the calls' stream times.", _RUN)
LAST_CONSUMER = _gauge(_LAST + "consumer", "s", "Last run: sum of the calls' consumer times.", _RUN)
LAST_MAX_CHUNK_GAP = _gauge(
    _LAST + "max_chunk_gap", "s", "Last run: longest gap between two chunks of a call.", _RUN
)
LAST_TOKENS = _gauge(_LAST + "tokens", "{token}", "Last run: tokens as reported, by type.", (*_RUN, L_TYPE))
LAST_OVERLAP = _gauge(_LAST + "overlap", "s", "Last run: time in which two tool handlers ran at once.", _RUN)
LAST_CONCURRENCY = _gauge(
    _LAST + "handler_concurrency", "{handler}", "Last run: most tool handlers that ran at once.", _RUN
)
LAST_PARALLEL = _gauge(
    _LAST + "parallel_proof",
    "{flag}",
    "Last run of the parallel case: 1 when its handlers' spans overlapped, else 0.",
    _RUN,
)
LAST_RUN_TIMESTAMP = _gauge(_LAST + "timestamp", "s", "When the last run started, Unix time.", _RUN)
LAST_SUCCESS_TIMESTAMP = _gauge(
    "agentbench.last_success.timestamp", "s", "When the last run that passed started, Unix time.", _RUN
)
CONSECUTIVE_FAILURES = _gauge(
    "agentbench.consecutive_failures", "{run}", "Runs that failed since the last that passed.", _RUN
)

# Of the daemon.
_OF_TARGET = (L_TARGET,)
CYCLES = _counter(
    "agentbench.cycles", "{cycle}", "Slots of the schedule by what became of them.", (L_TARGET, L_OUTCOME)
)
MISSED_RUNS = _counter(
    "agentbench.missed_runs",
    "{run}",
    "Planned runs that were not started, because they might not have ended before the next cycle.",
    _OF_TARGET,
)
STUCK_RUNS = _counter("agentbench.stuck_runs", "{run}", "Runs that ignored their cancellation and were left.", ())
NEXT_CYCLE_TIMESTAMP = _gauge("agentbench.next_cycle.timestamp", "s", "When the next cycle is due.", _OF_TARGET)
LAST_CYCLE_TIMESTAMP = _gauge("agentbench.last_cycle.timestamp", "s", "When the last cycle started.", _OF_TARGET)
CYCLE_INTERVAL = _gauge("agentbench.cycle.interval", "s", "Time between two cycles, as configured.", _OF_TARGET)
CYCLE_DURATION = _gauge("agentbench.cycle.duration", "s", "How long the last cycle took.", _OF_TARGET)
CYCLE_STRETCH = _gauge(
    "agentbench.cycle.stretch",
    "{interval}",
    "Only every so many slots run, because the endpoint refused the key or asked for less; 1 is normal.",
    _OF_TARGET,
)
SCHEDULE_LATENESS = _gauge(
    "agentbench.schedule.lateness", "s", "How long after its slot the last cycle started.", _OF_TARGET
)
BUDGET_EXHAUSTED = _gauge(
    "agentbench.budget.exhausted",
    "{flag}",
    "1 while the day's budget of the target is used up, else 0.",
    _OF_TARGET,
)
TARGET_INFO = _gauge(
    "agentbench.target.info", "{info}", "1; the model and provider of a target.", (L_TARGET, "model", "provider")
)
BUILD_INFO = _gauge("agentbench.build.info", "{info}", "1; the version that runs.", ("version", "python"))
RELOAD_SUCCESSFUL = _gauge(
    "agentbench.config.last_reload.successful",
    "{flag}",
    "1 when the last load of the config was taken, else 0.",
    (),
)
RELOAD_TIMESTAMP = _gauge(
    "agentbench.config.last_reload.success.timestamp", "s", "When a config was taken last, Unix time.", ()
)
LOOP_LAG = _gauge(
    "agentbench.loop.lag", "s", "Worst lateness of the event loop in the last minute, measured each second.", ()
)
LOOP_HEARTBEAT = _gauge("agentbench.loop.heartbeat.timestamp", "s", "When the event loop last ran, Unix time.", ())
CLOCK_STEPS = _counter("agentbench.clock.steps", "{step}", "Steps of the wall clock of more than a second.", ())
TELEMETRY_SPANS = _counter(
    "agentbench.telemetry.spans",
    "{span}",
    "Spans for the collector: exported, rejected by it, failed (not taken), unsampled.",
    (L_OUTCOME,),
)
TELEMETRY_METRIC_PUSHES = _counter(
    "agentbench.telemetry.metric_pushes",
    "{push}",
    "Pushes of all metrics: exported, rejected in part, failed.",
    (L_OUTCOME,),
)
TELEMETRY_SUCCESS_TIMESTAMP = _gauge(
    "agentbench.telemetry.last_success.timestamp", "s", "When the collector last took something.", (L_SIGNAL,)
)
TELEMETRY_LOUD = _counter(
    "agentbench.telemetry.loud_exports",
    "{export}",
    "Exports made while a model call may have streamed, because they had waited too long.",
    (),
)
HISTORY_WRITE_ERRORS = _counter(
    "agentbench.history.write_errors", "{error}", "Writes to the history that failed; they are repeated.", ()
)
HISTORY_LOST_RUNS = _counter(
    "agentbench.history.lost_runs", "{run}", "Results that the history could not keep.", ()
)
HISTORY_WAITING = _gauge("agentbench.history.waiting_runs", "{run}", "Results that wait to be written.", ())


def metrics_of(semconv: Semconv) -> tuple[Metric, ...]:
    """All metrics of a profile, in the order of this module."""
    return tuple(metric for metric in _ALL if metric.semconv in (None, semconv))

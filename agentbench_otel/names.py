"""Every span, span-event and attribute name that leaves this package, as plain strings.

GenAI names follow the OpenTelemetry semantic conventions v1.41.1 (the last tagged version that holds them;
the constants of the Python package are deprecated, so the strings stand here). Where the conventions have
no name, ours begins with ``agentbench.``.
"""

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

AUDIT_ENTRY = "agentbench.audit.entry"
AUDIT_EVENT_NAME = "agentbench.audit.event_name"
AUDIT_EVENT_SOURCE = "agentbench.audit.event_source"
AUDIT_CALL_KIND = "agentbench.audit.call_kind"
AUDIT_RESULT_NAMES = "agentbench.audit.result_event_names"
AUDIT_RESULT_STATUSES = "agentbench.audit.result_statuses"

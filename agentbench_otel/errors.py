"""The exception hierarchy: who is to fix it decides the class.

::

    AgentbenchError
    ├── InputError         the user: a file, name or option that can't be used; exit 2, no traceback
    │   └── ConfigError    … in the config: one line per problem, each with file, line and key
    ├── RunError           a run failed for a reason with a kind; it is recorded and the next run starts
    │   ├── ProviderError  the endpoint, or the way to it
    │   └── AgentError     the turn can't go on
    ├── InvalidArgumentsError  the arguments of an event do not fit its tool; the agent asks once more
    └── MeasurementError   spans that contradict themselves; a bug of ours or an edited file

Any other exception inside a run is a bug of ours: the run is recorded as ``internal``.
"""

from enum import StrEnum


class ErrorKind(StrEnum):
    """The closed list of reasons; beside it only ``http_<status>`` (see `http_error_kind`)."""

    CONNECT_ERROR = "connect_error"
    TLS_ERROR = "tls_error"
    CONNECT_TIMEOUT = "connect_timeout"
    FIRST_BYTE_TIMEOUT = "first_byte_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    RESPONSE_TOO_LARGE = "response_too_large"
    IN_STREAM_ERROR = "in_stream_error"
    STREAM_TRUNCATED = "stream_truncated"
    MALFORMED_JSON = "malformed_json"
    NOT_A_STREAM = "not_a_stream"
    EMPTY_RESPONSE = "empty_response"
    EMPTY_COMPLETION = "empty_completion"
    TOOL_ARGUMENTS_INVALID = "tool_arguments_invalid"
    TOOL_CALL_UNNAMED = "tool_call_unnamed"
    CANCELLED = "cancelled"

    RUN_DEADLINE = "run_deadline"
    STUCK = "stuck"
    ABORTED = "aborted"
    CLOSE_FAILED = "close_failed"
    MOCK_EXHAUSTED = "mock_exhausted"
    AGENT_ERROR = "agent_error"
    INTERNAL = "internal"


def http_error_kind(status: int) -> str:
    """The error kind of an HTTP answer other than 200, for example ``http_429``."""
    return f"http_{status}"


_KINDS = frozenset(kind.value for kind in ErrorKind)
_HTTP_CLASSES = tuple(f"http_{hundreds}xx" for hundreds in range(1, 6))
_ONLY_OF_RUNS = (ErrorKind.RUN_DEADLINE, ErrorKind.STUCK, ErrorKind.ABORTED, ErrorKind.AGENT_ERROR)
CALL_ERROR_CLASSES = (*(kind.value for kind in ErrorKind if kind not in _ONLY_OF_RUNS), *_HTTP_CLASSES)
"""What `error_class` may say of a model call that failed."""


def error_class(kind: str) -> str:
    """An error kind as a metric label: one of a short list, whatever status a server makes up."""
    if kind in _KINDS:
        return kind
    if kind.startswith("http_"):
        http_class = f"{kind[:6]}xx"
        return http_class if len(kind) == len("http_999") and http_class in _HTTP_CLASSES else "http_5xx"
    return ErrorKind.INTERNAL


_TRANSIENT_KINDS = frozenset(
    {
        ErrorKind.CONNECT_ERROR,
        ErrorKind.CONNECT_TIMEOUT,
        ErrorKind.FIRST_BYTE_TIMEOUT,
        ErrorKind.IDLE_TIMEOUT,
        ErrorKind.STREAM_TRUNCATED,
        ErrorKind.EMPTY_RESPONSE,
    }
)


class AgentbenchError(Exception):
    """Base of all errors that this package raises on purpose."""


class InputError(AgentbenchError):
    """What the user gave can't be used. The message is one or more whole lines for stderr."""


class ConfigError(InputError):
    """The config can't be used; every line reads ``file:line: key.path: what is wrong; what is allowed``."""


class RunError(AgentbenchError):
    """A run failed. ``kind`` is an `ErrorKind` value or ``http_<status>``; the message never holds a key."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = str(kind)


class ProviderError(RunError):
    """The endpoint failed, or the way to it.

    Attributes:
        http_status: Status of the answer, None when there was none.
        code: The server's own error code, a number or a text as it gave it.
        param: The request parameter that the server named, if any.
        retry_after_s: What the server asked for, in seconds.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        http_status: int | None = None,
        code: str | int | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(kind, message)
        self.http_status = http_status
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s

    @property
    def is_retryable(self) -> bool:
        """Whether the same request may succeed later. Nothing in this package repeats it; people may."""
        if self.code == "insufficient_quota":
            return False
        if self.http_status is not None and self.http_status != 200:
            return self.http_status in (408, 409, 429) or self.http_status >= 500
        return self.kind in _TRANSIENT_KINDS


class AgentError(RunError):
    """The turn can't go on, for a reason inside the agent."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorKind.AGENT_ERROR, message)


class InvalidArgumentsError(AgentbenchError):
    """The arguments of an event do not fit its tool. The message says which tool and why."""


class MeasurementError(AgentbenchError):
    """The spans given do not describe one run."""

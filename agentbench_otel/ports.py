"""The plugs of the house: one or two methods each, adapters below and beside it, chosen in ``app.py``."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from agentbench_otel.records.chat import ChatRequest, Exchange, StreamItem
from agentbench_otel.records.results import RunResult
from agentbench_otel.records.spans import SpanRecord

Clock = Callable[[], int]
"""Unix nanoseconds that never run backwards within a run."""


class ChatClient(Protocol):
    """Streams model calls to one endpoint. One client per run; it is closed on every path."""

    def stream_chat(self, request: ChatRequest, exchange: Exchange) -> AsyncGenerator[StreamItem, None]:
        """Start one model call; nothing is sent before the first ``__anext__``.

        It ends after the last item; closing it early ends the request.

        Raises:
            ProviderError: While iterating, when the endpoint or the way to it fails.
        """
        ...

    async def aclose(self) -> None:
        """Give the connections back. Calling it again does nothing."""
        ...


class ToolHandler(Protocol):
    """A tool's own code. Arguments are validated before it is called; an exception fails its event only."""

    async def __call__(self, event_id: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]: ...


class HandlerExecutor(Protocol):
    """Runs the handlers of one batch and returns when all have ended. The jobs never raise."""

    async def run(self, jobs: Sequence[Callable[[], Awaitable[None]]]) -> None: ...


class Sink(Protocol):
    """Takes each finished run, in order, between two runs and never while a model call streams."""

    def accept(self, result: RunResult, spans: Sequence[SpanRecord]) -> None: ...

"""A `ChatClient` that records the calls of the client inside it."""

from collections.abc import AsyncGenerator, Mapping

from agentbench_otel import names
from agentbench_otel.errors import ErrorKind, ProviderError, RunError
from agentbench_otel.ports import ChatClient
from agentbench_otel.records.chat import ChatRequest, Exchange, ItemKind, StreamItem, TokenUsage
from agentbench_otel.records.spans import AttributeValue
from agentbench_otel.telemetry.content import content_attributes
from agentbench_otel.telemetry.loop_lag import LoopLag
from agentbench_otel.telemetry.recorded_spans import CallMoments
from agentbench_otel.telemetry.recorder import Recorder, error_words


class TracedChatClient:
    """Reads the clock before and after each await of the inner client's iterator.

    Between two items it only appends integers; the span, its attributes and the await records are made when
    the call has ended. The call starts at the first ``__anext__`` and ends where its last await ended, or
    where the consumer closed it; closing the provider's iterator is outside.
    """

    def __init__(
        self,
        inner: ChatClient,
        recorder: Recorder,
        *,
        model: str,
        attributes: Mapping[str, AttributeValue],
        capture_content: bool = False,
    ) -> None:
        self._inner = inner
        self._recorder = recorder
        self._model = model
        self._attributes = dict(attributes)
        self._capture_content = capture_content

    async def stream_chat(self, request: ChatRequest, exchange: Exchange) -> AsyncGenerator[StreamItem, None]:
        clock = self._recorder.clock
        moments = CallMoments(clock())
        index = self._recorder.open_call(moments)
        exchange.traceparent = f"00-{self._recorder.trace_id}-{moments.span_id}-01"
        lag = LoopLag(clock)
        lag.start()
        told = _Told(self._capture_content)
        failure: BaseException | None = None
        end_ns: int | None = None
        asked_ns = moments.start_ns
        stream: AsyncGenerator[StreamItem, None] | None = None
        try:
            while True:
                try:
                    if stream is None:
                        stream = self._inner.stream_chat(request, exchange)
                    item = await anext(stream)
                except StopAsyncIteration:
                    end_ns = clock()
                    moments.append(asked_ns, end_ns, 0, ItemKind.END)
                    return
                except BaseException as error:
                    end_ns = clock()
                    moments.append(asked_ns, end_ns, 0, ItemKind.ERROR)
                    failure = error
                    raise
                moments.append(asked_ns, clock(), item.arrival_ns, item.kind)
                told.note(item)
                yield item
                asked_ns = clock()
        finally:
            if end_ns is None:  # the consumer closed us, or threw into us, while it held an item
                end_ns = clock()
            lag.stop()
            try:
                if stream is not None:
                    await stream.aclose()
            except Exception as error:  # noqa: BLE001 - raised below, or on its way out with the provider's own
                if failure is None:  # never instead of the provider's own error
                    failure = _as_close_failure(error)
                    raise failure from failure.__cause__
            except BaseException as error:  # a cancellation goes on, whatever else went wrong
                failure = failure or error
                raise
            finally:
                self._recorder.close_call(
                    moments,
                    name=f"{names.MODEL_CALL_SPAN} {self._model}",
                    end_ns=end_ns,
                    attributes={
                        **self._attributes,
                        **_request_attributes(request, self._model, index),
                        **_response_attributes(moments, exchange, told),
                        **_refusal_attributes(failure),
                        **told.content_attributes(request),
                        names.LOOP_LAG_MAX_NS: lag.max_ns,
                    },
                    phases=[(phase.name, phase.start_ns, phase.end_ns) for phase in exchange.phases],
                    error=failure,
                )

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Told:
    """What the items told that goes on the span: the last usage and finish reason, and content if wanted."""

    __slots__ = ("_content", "_keeps_content", "finish_reason", "usage")

    def __init__(self, keeps_content: bool) -> None:
        self._keeps_content = keeps_content
        self._content: list[StreamItem] = []
        self.usage: TokenUsage | None = None
        self.finish_reason: str | None = None

    def note(self, item: StreamItem) -> None:
        if item.usage is not None:
            self.usage = item.usage
        if item.finish_reason is not None:
            self.finish_reason = item.finish_reason
        if self._keeps_content:
            self._content.append(item)

    def content_attributes(self, request: ChatRequest) -> dict[str, AttributeValue]:
        """Prompt and answer, where they are wanted; the prompt also of a call that failed."""
        if not self._keeps_content:
            return {}
        return content_attributes(request, self._content, self.finish_reason)


def _as_close_failure(error: Exception) -> RunError:
    if isinstance(error, RunError):
        return error
    failure = RunError(ErrorKind.CLOSE_FAILED, f"close failed: {error_words(error)}")
    failure.__cause__ = error
    return failure


def _refusal_attributes(failure: BaseException | None) -> dict[str, AttributeValue]:
    retry_after_s = failure.retry_after_s if isinstance(failure, ProviderError) else None
    return {} if retry_after_s is None else {names.RETRY_AFTER_S: retry_after_s}


def _request_attributes(request: ChatRequest, model: str, index: int) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        names.OPERATION_NAME: "chat",
        names.REQUEST_MODEL: model,
        names.REQUEST_STREAM: True,
        names.CALL_INDEX: index,
        names.CALL_KIND: request.call_kind.value,
    }
    if request.max_tokens is not None:
        attributes[names.REQUEST_MAX_TOKENS] = request.max_tokens
    if request.temperature is not None:
        attributes[names.REQUEST_TEMPERATURE] = request.temperature
    return attributes


def _response_attributes(moments: CallMoments, exchange: Exchange, told: _Told) -> dict[str, AttributeValue]:
    """What the answer told; what it did not tell is absent."""
    usage, finish_reason = told.usage, told.finish_reason
    known: dict[str, AttributeValue | None] = {
        names.AWAIT_COUNT: len(moments.awaits),
        names.HTTP_STATUS_CODE: exchange.http_status,
        names.CONNECTION_REUSED: exchange.is_connection_reused,
        names.RESPONSE_ID: exchange.response_id,
        names.RESPONSE_MODEL: exchange.response_model,
        names.RESPONSE_FINISH_REASONS: None if finish_reason is None else (finish_reason,),
        names.ADAPTATIONS: tuple(exchange.adaptations) or None,
        names.CALL_WARNINGS: tuple(exchange.warnings) or None,
    }
    _, _, first_arrival_ns, first_kind = moments.awaits[0]
    if first_arrival_ns:
        known[names.FIRST_ITEM_KIND] = first_kind.value
        known[names.RESPONSE_TIME_TO_FIRST_CHUNK] = (first_arrival_ns - moments.start_ns) / 1e9
    if usage is not None:
        known[names.USAGE_INPUT_TOKENS] = usage.prompt_tokens
        known[names.USAGE_OUTPUT_TOKENS] = usage.completion_tokens
        known[names.USAGE_TOTAL_TOKENS] = usage.total_tokens
        known[names.USAGE_CACHED_TOKENS] = usage.cached_tokens
        known[names.USAGE_REASONING_TOKENS] = usage.reasoning_tokens
    return {key: value for key, value in known.items() if value is not None}

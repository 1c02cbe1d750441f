"""One answer on its way from the bytes of its body to the inbox of its consumer."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

from agentbench_otel.errors import ErrorKind, ProviderError
from agentbench_otel.json_text import load_json_prefix
from agentbench_otel.providers.deltas import StreamReader
from agentbench_otel.providers.error_bodies import read_body_error, read_error_body, short_words
from agentbench_otel.providers.sockets import ExchangeMarks
from agentbench_otel.providers.sse import EventDecoder, SseEvent
from agentbench_otel.providers.wire import WireNames
from agentbench_otel.records.chat import Exchange, ItemKind, StreamItem
from agentbench_otel.redaction import redact

Inbox = asyncio.Queue[StreamItem | Exception | None]
"""Items in their order; an exception ends the stream with it, None without."""


class Answer:
    """Takes the reads of one body in order; `end` is called once, however the answer ends.

    Attributes:
        byte_count: Of the body so far, decoded; who feeds it counts.
        item_count: Handed over so far.
        has_ended: Whether `end` has been called; nothing is handed over after it.
        cut: How the connection was lost in the middle of the body, if it was; set before `end`.
    """

    def __init__(
        self,
        *,
        marks: ExchangeMarks,
        exchange: Exchange,
        inbox: Inbox,
        names: WireNames,
        secrets: Sequence[str],
    ) -> None:
        self._decoder = EventDecoder()
        self._reader = StreamReader(secrets)
        self._marks = marks
        self._exchange = exchange
        self._inbox = inbox
        self._names = names
        self._secrets = secrets
        self._arrival_ns = 0
        self._was_empty = False
        self.has_ended = False
        self.byte_count = 0
        self.item_count = 0
        self.cut: str | None = None

    @property
    def is_over(self) -> bool:
        """``[DONE]`` or an error has come; what follows is not read."""
        return self._reader.is_done or self._reader.failure is not None

    @property
    def has_finished(self) -> bool:
        """A finish_reason has come; usage may still follow."""
        return self._reader.finish_reason is not None

    @property
    def has_read(self) -> bool:
        """Whether any byte of an answer has come, headers included."""
        return bool(self._marks.first_read)

    def note_exchange(self, http_status: int | None = None) -> None:
        """Write down what is known of the HTTP exchange by now."""
        if http_status is not None:
            self._exchange.http_status = http_status
        self._exchange.phases[:] = self._marks.phases()
        self._exchange.is_connection_reused = self._marks.is_connection_reused
        self._exchange.response_id = self._reader.response_id
        self._exchange.response_model = self._reader.response_model

    def take(self, data: bytes) -> None:
        """Hand over the items of one read, or of a piece of it; ``item_count`` tells how many."""
        self._arrival_ns = self._marks.last_read
        for event in self._decoder.feed(data):
            self._put_all(self._reader.read(event, self._arrival_ns))

    def end(self, error: Exception | None = None) -> None:
        """The answer is over: hand over what was held back, then the error or the end."""
        if self.has_ended:
            return
        self.has_ended = True
        if not self.is_over:
            for event in self._decoder.finish():  # it came with the last bytes, not with the end of the body
                self._put_all(self._reader.read(event, self._arrival_ns))
        error = error or self._plain_body_failure()
        self._put_all(self._reader.end(self.cut))
        self._exchange.warnings += self._reader.warnings
        self.note_exchange()
        failure = error or self._reader.failure
        self._inbox.put_nowait(self._redacted(failure) if isinstance(failure, ProviderError) else failure)

    def _put_all(self, items: list[StreamItem]) -> None:
        for item in items:
            is_empty = item.kind is ItemKind.RAW_CHUNK
            if not (is_empty and self._was_empty):  # chunks in a row that carry nothing say it once
                self._put(item)
            self._was_empty = is_empty

    def _put(self, item: StreamItem) -> None:
        call = item.tool_call
        if call is not None:
            item = replace(item, tool_call=replace(call, name=self._names.to_domain(call.name)))
        self.item_count += 1
        self._inbox.put_nowait(item)

    def _plain_body_failure(self) -> ProviderError | None:
        """What is wrong with a body at status 200 that holds no chunk; None where the reader knows it."""
        if self.is_over or self.cut is not None or self._reader.has_chunks:
            return None
        text = self._decoder.plain_text.strip()
        if not text:
            return ProviderError(ErrorKind.EMPTY_RESPONSE, "HTTP 200 without any chunk")
        try:
            value = load_json_prefix(text)
        except ValueError:
            value = None
        error = read_body_error(value)
        if error is None:
            self._take_unstreamed(value)
            words = read_error_body(text).words(self._secrets)  # of an HTML page its title
            return ProviderError(ErrorKind.NOT_A_STREAM, f"the answer is no event stream: {words}")
        return ProviderError(
            ErrorKind.IN_STREAM_ERROR,
            f"HTTP 200 with an error as its body: {error.words(self._secrets)}",
            code=error.code,
            param=error.param,
        )

    def _take_unstreamed(self, value: object) -> None:
        """A whole completion: keep what it says, but no piece of it counts as generated in a stream."""
        items = StreamReader().read(SseEvent(data=(json.dumps(value),)), self._arrival_ns)
        for item in items:
            if item.kind is ItemKind.TEXT:
                self._exchange.unstreamed_text += item.text
            elif item.kind in (ItemKind.FINISH, ItemKind.USAGE):
                self._put(item)

    def _redacted(self, error: ProviderError) -> ProviderError:
        return ProviderError(
            error.kind,
            redact(str(error), self._secrets),
            http_status=error.http_status,
            code=short_words(error.code, self._secrets) if isinstance(error.code, str) else error.code,
            param=None if error.param is None else short_words(error.param, self._secrets),
            retry_after_s=error.retry_after_s,
        )

"""Events → items: what the chunks of a chat-completions stream say, in one place for every known server.

Pure: no clock and no I/O; the arrival of an event is given with it.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from agentbench_otel.errors import ErrorKind, ProviderError
from agentbench_otel.json_text import load_json
from agentbench_otel.providers.content_channels import ThinkTags
from agentbench_otel.providers.error_bodies import ServerError, read_error, short_words
from agentbench_otel.providers.sse import SseEvent
from agentbench_otel.providers.tool_call_parts import ToolCallParts
from agentbench_otel.providers.usage import is_nothing, merge_usage
from agentbench_otel.records.chat import GENERATED_KINDS, ItemKind, StreamItem, TokenUsage, ToolCall

_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")


class StreamReader:
    """Reads the events of one answer in order.

    Attributes:
        failure: The error that the stream reported, once it has; nothing is read after it.
        is_done: ``[DONE]`` has come: the stream is over, whatever bytes may follow.
        finish_reason: The first reason that followed a generated piece, else the first one at all.
        response_id, response_model: As the server gave them, if it did.
        has_chunks: Whether any chunk has come.
        warnings: What was odd, once the stream has ended.
    """

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        """``secrets`` never stand in a failure or a warning, also where the server quotes them."""
        self._secrets = secrets
        self.failure: ProviderError | None = None
        self.is_done = False
        self.response_id: str | None = None
        self.response_model: str | None = None
        self.warnings: list[str] = []
        self._early_reason: str | None = None
        self._final_reason: str | None = None
        self.has_chunks = False
        self._has_generated = False
        self._tags = ThinkTags()
        self._field_reasoning: list[str] = []  # what came in a field of its own, not in think tags
        self._calls = ToolCallParts()
        self._usage = TokenUsage()
        self._has_usage = False  # a count has come, be it zero
        self._arrival_ns = 0
        self._content_arrival_ns = 0
        self._calls_arrival_ns = 0

    @property
    def finish_reason(self) -> str | None:
        return self._final_reason or self._early_reason

    def read(self, event: SseEvent, arrival_ns: int) -> list[StreamItem]:
        """The items of one event; a chunk that carries nothing for us is one ``raw_chunk``."""
        if self.failure is not None or self.is_done:
            return []
        if event.is_done:
            self.is_done = True
            return []
        self._arrival_ns = arrival_ns
        items: list[StreamItem] = []
        if event.error is not None:
            self._fail(ServerError(message=event.error))
            return items
        for payload in self._payloads(event):
            items += self._read_payload(payload, is_error_event=event.name == "error")
        return items

    def end(self, cut: str | None = None) -> list[StreamItem]:
        """The stream is over: at ``[DONE]``, at the end of the body, or (``cut`` says how) in the middle.

        Returns:
            What was held back, and the finished tool calls. After an error they are what had arrived; they
            must not be executed.
        """
        self._arrival_ns = self._content_arrival_ns  # held back, but it came with its delta
        items = [self._content(piece.text, piece.is_reasoning) for piece in self._tags.finish()]
        self._arrival_ns = self._calls_arrival_ns
        calls = self._calls.finish()
        items += [self._item(ItemKind.TOOL_CALL, tool_call=call) for call in calls]
        if self.failure is not None:
            return items
        self._warn(calls)
        if not self.is_done and self.finish_reason is None:
            where = cut or "the body ended"
            if not self.has_chunks and cut is None:
                self.failure = ProviderError(ErrorKind.EMPTY_RESPONSE, "the answer has no chunk at all")
            else:
                self.failure = ProviderError(
                    ErrorKind.STREAM_TRUNCATED, f"{where} without finish_reason and without [DONE]"
                )
        elif any(not call.name for call in calls):
            self.failure = ProviderError(ErrorKind.TOOL_CALL_UNNAMED, "a tool call came without a name")
        elif not self._has_generated:
            self.failure = ProviderError(
                ErrorKind.EMPTY_COMPLETION,
                f"the model generated nothing (finish_reason {self.finish_reason})",
            )
        return items

    def _warn(self, calls: list[ToolCall]) -> None:
        for call in calls:
            if call.arguments is None:
                self.warnings.append(
                    f"the arguments of the tool call {short_words(call.name, self._secrets)!r} are no JSON object "
                    f"(finish_reason {self.finish_reason})"
                )
        if self._has_generated and self._has_usage and is_nothing(self._usage):
            self.warnings.append("usage was all zero beside real output; it is taken as not reported")

    # --- events to JSON ------------------------------------------------------------------------------------

    def _payloads(self, event: SseEvent) -> list[Any]:
        """One JSON value, or one per data line where only that makes sense."""
        try:
            return [load_json("\n".join(event.data))]
        except ValueError:
            pass
        try:
            if len(event.data) > 1:
                return [load_json(line) for line in event.data]
        except ValueError:
            pass
        if event.is_cut:
            return []  # the body ended inside an event: that is a truncated stream, not bad JSON
        words = short_words(" ".join(event.data), self._secrets)
        if event.name == "error" or words.lower().startswith("error"):
            self._fail(ServerError(message=words))
        else:
            self.failure = ProviderError(ErrorKind.MALFORMED_JSON, f"a chunk is no JSON: {words}")
        return []

    def _fail(self, error: ServerError) -> None:
        self.failure = ProviderError(
            ErrorKind.IN_STREAM_ERROR,
            f"the server reported an error inside the stream: {error.words(self._secrets)}",
            code=error.code,
            param=error.param,
        )

    def _read_payload(self, payload: Any, *, is_error_event: bool) -> list[StreamItem]:
        if self.failure is not None:
            return []
        error = read_error(payload)
        if error is None and is_error_event:
            error = ServerError(message=json.dumps(payload, ensure_ascii=False))
        if error is not None:
            self._fail(error)
            return []
        return self._read_chunk(payload) if isinstance(payload, dict) else []

    # --- chunks to items -----------------------------------------------------------------------------------

    def _read_chunk(self, chunk: dict[str, Any]) -> list[StreamItem]:
        self.has_chunks = True
        self.response_id = self.response_id or _text(chunk.get("id")) or None
        self.response_model = self.response_model or _text(chunk.get("model")) or None
        choices = chunk.get("choices")
        items: list[StreamItem] = []
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index") in (0, None):
                items += self._read_choice(choice)
                self._check_choice(choice)
        items += self._read_usage(chunk)
        return items or [self._item(ItemKind.RAW_CHUNK)]

    def _read_choice(self, choice: dict[str, Any]) -> Iterator[StreamItem]:
        delta = choice.get("delta")
        if not isinstance(delta, dict) and not self._has_generated:
            delta = choice.get("message")  # a whole message, where nothing was streamed
        if isinstance(delta, dict):
            yield from self._read_delta(delta)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            if self._has_generated:
                is_news = self._final_reason is None
                self._final_reason = self._final_reason or reason
            else:
                is_news = self._early_reason is None
                self._early_reason = self._early_reason or reason
            if is_news:
                yield self._item(ItemKind.FINISH, finish_reason=self.finish_reason)

    def _check_choice(self, choice: dict[str, Any]) -> None:
        """Some gateways report the error of a choice on the choice, or by a finish_reason of that name."""
        if choice.get("error"):
            self._fail(read_error(choice) or ServerError(message="error without a message"))
        elif choice.get("finish_reason") == "error":
            self._fail(ServerError(message="finish_reason error"))

    def _read_delta(self, delta: dict[str, Any]) -> Iterator[StreamItem]:
        yield from self._read_content(delta)
        refusal = _text(delta.get("refusal"))
        if refusal:
            yield self._item(ItemKind.REFUSAL, text=refusal)
        fragments = delta.get("tool_calls")
        parts = [self._calls.add(one) for one in fragments] if isinstance(fragments, list) else []
        if isinstance(delta.get("function_call"), dict):
            parts.append(self._calls.add_legacy(delta["function_call"]))
        for part in parts:
            if part is not None:
                self._calls_arrival_ns = self._arrival_ns
                yield self._item(ItemKind.TOOL_CALL_DELTA, text=part)

    def _read_content(self, delta: dict[str, Any]) -> Iterator[StreamItem]:
        """Reasoning and text. Where a field and think tags both carry the thinking, the field is the authority."""
        reasoning = next((text for key in _REASONING_FIELDS if (text := _text(delta.get(key)))), "")
        content = delta.get("content")
        pieces = []
        if isinstance(content, str) and content:
            self._content_arrival_ns = self._arrival_ns
            pieces = self._tags.feed(content)
        if reasoning:
            if self._tags.has_opened:  # both channels at once: there the field was seen to repeat itself
                reasoning = reasoning.removeprefix("".join(self._field_reasoning))
            self._field_reasoning.append(reasoning)
            if reasoning:
                yield self._content(reasoning, is_reasoning=True)
        if isinstance(content, list):
            for is_reasoning, text in _content_parts(content):
                yield self._content(text, is_reasoning)
        for piece in pieces:
            if not (piece.is_reasoning and self._field_reasoning):
                yield self._content(piece.text, piece.is_reasoning)

    def _content(self, text: str, is_reasoning: bool) -> StreamItem:
        return self._item(ItemKind.REASONING if is_reasoning else ItemKind.TEXT, text=text)

    def _read_usage(self, chunk: dict[str, Any]) -> Iterator[StreamItem]:
        usage = merge_usage(self._usage, chunk)
        if usage == self._usage:
            return
        self._usage = usage
        self._has_usage = self._usage != TokenUsage()
        if not is_nothing(usage):
            yield self._item(ItemKind.USAGE, usage=self._usage)

    def _item(self, kind: ItemKind, *, text: str = "", **fields: Any) -> StreamItem:
        if kind in GENERATED_KINDS:
            self._has_generated = True
        return StreamItem(kind=kind, arrival_ns=self._arrival_ns, text=text, **fields)


def _content_parts(parts: list[Any]) -> Iterator[tuple[bool, str]]:
    """``[{type: thinking, thinking: […]}, {type: text, text}]`` → (is it reasoning, text), empty ones left out."""
    for part in parts:
        if not isinstance(part, dict):
            continue
        if part.get("type") == "thinking":
            thinking = part.get("thinking")
            inner = thinking if isinstance(thinking, list) else [{"text": thinking}]
            text = "".join(_text(one.get("text")) for one in inner if isinstance(one, dict))
            if text:
                yield True, text
        elif text := _text(part.get("text")):
            yield False, text


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""

"""The recorder of one run: it owns the ids and the spans, and hands them to the measurement and to exporters.

No OpenTelemetry SDK stands between a moment and its record, so samplers and ``OTEL_SDK_DISABLED`` change
what is exported, never what is measured.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from secrets import token_hex

from agentbench_otel import names
from agentbench_otel.errors import ErrorKind, RunError
from agentbench_otel.ports import Clock
from agentbench_otel.records.spans import AttributeValue, SpanEvent, SpanKind, SpanRecord
from agentbench_otel.redaction import SHORTEST_SECRET, redact
from agentbench_otel.telemetry.recorded_spans import AwaitSpans, CallMoments, RecordedSpans


def error_type(error: BaseException) -> str:
    """``error.type`` of a span that ended with this exception: a low-cardinality word."""
    if isinstance(error, RunError):
        return error.kind
    if isinstance(error, asyncio.CancelledError):
        return ErrorKind.CANCELLED
    return type(error).__qualname__


def error_words(error: BaseException) -> str:
    """What the exception says, or its class where it says nothing (``str(CancelledError())`` is empty)."""
    return str(error) or type(error).__qualname__


class OpenSpan:
    """A span that has started. `Recorder` makes it; ending it makes the `SpanRecord`."""

    __slots__ = (
        "_events",
        "_recorder",
        "attributes",
        "failure",
        "kind",
        "name",
        "parent_span_id",
        "span_id",
        "start_ns",
    )

    def __init__(
        self,
        recorder: "Recorder",
        *,
        name: str,
        kind: SpanKind,
        parent_span_id: str | None,
        start_ns: int,
        attributes: Mapping[str, AttributeValue],
        span_id: str | None = None,
    ) -> None:
        self._recorder = recorder
        self._events: list[SpanEvent] = []
        self.name = name
        self.kind = kind
        self.parent_span_id = parent_span_id
        self.span_id = span_id or token_hex(8)
        self.start_ns = start_ns
        self.attributes: dict[str, AttributeValue] = dict(attributes)
        self.failure: BaseException | None = None
        """Set it for an error that was dealt with and did not leave the span's block."""

    def add_event(self, name: str, time_ns: int, attributes: Mapping[str, AttributeValue] | None = None) -> None:
        self._events.append(SpanEvent(name=name, time_ns=time_ns, attributes=attributes or {}))

    def end(self, end_ns: int, *, error: BaseException | None = None) -> None:
        self.failure = error or self.failure
        self._recorder.keep(self.record(end_ns))

    def record(self, end_ns: int) -> SpanRecord:
        """The span as it would be if it ended at ``end_ns``."""
        error = self.failure
        error_attributes = {} if error is None else {names.ERROR_TYPE: error_type(error)}
        return SpanRecord(
            trace_id=self._recorder.trace_id,
            span_id=self.span_id,
            parent_span_id=self.parent_span_id,
            name=self.name,
            kind=self.kind,
            start_ns=self.start_ns,
            end_ns=end_ns,
            attributes=self._recorder.clean({**self.attributes, **error_attributes}),
            events=tuple(
                replace(event, attributes=self._recorder.clean(event.attributes)) for event in self._events
            ),
            error=None if error is None else self._recorder.clean_text(error_words(error)),
        )


class Recorder:
    """Records one run: one trace, the run span its root, at most one turn and one open model call at a time."""

    def __init__(self, clock: Clock, *, secrets: Sequence[str] = ()) -> None:
        """``secrets`` stand on no span: all that is reported is read from spans, so this is the one gate."""
        self.clock = clock
        self._secrets = [secret for secret in secrets if len(secret) >= SHORTEST_SECRET]
        self.trace_id = token_hex(16)
        self._spans: list[SpanRecord] = []
        self._awaits: list[AwaitSpans] = []
        self._call_count = 0
        self._open_call: CallMoments | None = None
        self._run: OpenSpan | None = None
        self._turn: OpenSpan | None = None

    def clean(self, attributes: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
        if not self._secrets:
            return attributes
        return {key: self._clean_value(value) for key, value in attributes.items()}

    def clean_text(self, text: str) -> str:
        return redact(text, self._secrets)

    def _clean_value(self, value: AttributeValue) -> AttributeValue:
        if isinstance(value, str):
            return self.clean_text(value)
        return tuple(map(self.clean_text, value)) if isinstance(value, list | tuple) else value

    def keep(self, span: SpanRecord) -> None:
        self._spans.append(span)

    def spans(self) -> RecordedSpans:
        """Everything that has ended so far."""
        return RecordedSpans([tuple(self._spans), *self._awaits])

    def start_run(self, case: str, attributes: Mapping[str, AttributeValue]) -> OpenSpan:
        """Start the root span; who called this ends it, after everything else has ended."""
        self._run = OpenSpan(
            self,
            name=f"{names.RUN_SPAN} {case}",
            kind=SpanKind.INTERNAL,
            parent_span_id=None,
            start_ns=self.clock(),
            attributes=attributes,
        )
        return self._run

    @contextmanager
    def turn(self, conversation_id: str, finish: Callable[[OpenSpan], None]) -> Iterator[OpenSpan]:
        """The turn span: it starts when the block is entered and ends, whatever happens, when it is left.

        ``finish`` may write on the span after its end was read off the clock, so that bookkeeping costs the
        turn nothing.
        """
        if self._run is None or self._turn is not None:
            raise RuntimeError("a run has one turn, and it starts after the run")
        attributes = {
            names.OPERATION_NAME: "invoke_agent",
            names.AGENT_NAME_KEY: names.AGENT_NAME,
            names.CONVERSATION_ID: conversation_id,
        }
        name = f"{names.TURN_SPAN} {names.AGENT_NAME}"
        with self._span(name, parent=self._run, attributes=attributes, finish=finish) as span:
            self._turn = span
            yield span

    @contextmanager
    def tool_handler(
        self,
        tool: str,
        attributes: Mapping[str, AttributeValue],
        finish: Callable[[OpenSpan], None] | None = None,
    ) -> Iterator[OpenSpan]:
        """One handler span; only the handler's own code belongs inside the block. ``finish`` as in `turn`."""
        attributes = {names.OPERATION_NAME: "execute_tool", names.TOOL_NAME: tool, **attributes}
        name = f"{names.TOOL_SPAN} {tool}"
        with self._span(name, parent=self._turn, attributes=attributes, finish=finish) as span:
            yield span

    @contextmanager
    def _span(
        self,
        name: str,
        *,
        parent: OpenSpan | None,
        attributes: Mapping[str, AttributeValue],
        finish: Callable[[OpenSpan], None] | None = None,
    ) -> Iterator[OpenSpan]:
        span = OpenSpan(
            self,
            name=name,
            kind=SpanKind.INTERNAL,
            parent_span_id=None if parent is None else parent.span_id,
            start_ns=0,
            attributes=attributes,
        )
        failure: BaseException | None = None
        span.start_ns = self.clock()
        try:
            yield span
        except BaseException as error:  # re-raised: any ending ends the span, at the moment it happened
            end_ns = self.clock()
            failure = error
            raise
        else:
            end_ns = self.clock()
        finally:
            if finish is not None:
                finish(span)
            span.end(end_ns, error=failure)

    def open_call(self, moments: CallMoments) -> int:
        """A model call has started; returns its index, from 1."""
        if self._open_call is not None:
            raise RuntimeError("one model call at a time")
        self._open_call = moments
        self._call_count += 1
        return self._call_count

    def mark_visible(self) -> None:
        """The item that the open call handed out last gave non-blank visible text."""
        if self._open_call is not None:
            self._open_call.mark_visible()

    def close_call(
        self,
        moments: CallMoments,
        *,
        name: str,
        end_ns: int,
        attributes: Mapping[str, AttributeValue],
        phases: Sequence[tuple[str, int, int]],
        error: BaseException | None,
    ) -> None:
        """The model call has ended: make its span, its phases and its awaits. ``phases``: name, start, end."""
        self._open_call = None
        parent = self._turn or self._run
        span = OpenSpan(
            self,
            name=name,
            kind=SpanKind.CLIENT,
            parent_span_id=None if parent is None else parent.span_id,
            start_ns=moments.start_ns,
            attributes=attributes,
            span_id=moments.span_id,
        )
        for phase, phase_start_ns, phase_end_ns in phases:
            OpenSpan(
                self,
                name=names.PHASE_SPAN_PREFIX + phase,
                kind=SpanKind.INTERNAL,
                parent_span_id=span.span_id,
                start_ns=phase_start_ns,
                attributes={},
            ).end(phase_end_ns)
        self._awaits.append(AwaitSpans(moments, trace_id=self.trace_id, call_span_id=span.span_id))
        span.end(end_ns, error=error)

"""Recorded spans → the OpenTelemetry SDK → OTLP, after the measurement and never in its way.

The SDK gets each span again with its own ids and times; its sampler, limits and resource decide what leaves.
What was measured does not depend on any of it.
"""

import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace import SpanKind as OtelSpanKind

from agentbench_otel import __version__, names
from agentbench_otel.records.results import RunResult
from agentbench_otel.records.spans import SpanKind, SpanRecord
from agentbench_otel.telemetry.bounded import run_bounded
from agentbench_otel.telemetry.endpoint import OtlpEndpoint
from agentbench_otel.telemetry.exporters import make_span_exporter, span_answers
from agentbench_otel.telemetry.resource import make_resource

AWAIT_SPANS_PER_CALL = 512
"""Of a call's awaits the first 512 are exported, then every 16th; ``agentbench.await.count`` tells the number."""
_LATER_AWAIT_STEP = 16
WAITING_LIMIT = 50_000
"""Spans; beyond it they are handed over between two runs, and do not wait for the end of a cycle."""
_BATCH_SIZE = 512

_KINDS = {SpanKind.INTERNAL: OtelSpanKind.INTERNAL, SpanKind.CLIENT: OtelSpanKind.CLIENT}
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


class TraceExport:
    """A sink that keeps the spans of ended runs and hands them over when it is told to.

    Attributes:
        outcomes: Spans by what became of them: ``exported``, ``rejected`` (by the collector, inside an answer
            that was otherwise a success), ``failed`` (refused, or not taken in time), ``unsampled``.
        last_success_unix_s: When a batch was taken last; None when none was.
        problem: Why the last hand-over was not taken whole, in words; None when it was.
    """

    def __init__(self, endpoint: OtlpEndpoint, *, environment: Mapping[str, str]) -> None:
        self._answers = span_answers(endpoint)
        self._exporter = make_span_exporter(endpoint, self._answers)
        self._resource = make_resource(environment)
        self._links = _links(environment.get("TRACEPARENT", ""))
        self._lock = threading.Lock()
        self._waiting: list[Sequence[SpanRecord]] = []
        self.outcomes: Counter[str] = Counter()
        self.last_success_unix_s: float | None = None
        self.problem: str | None = None

    def accept(self, result: RunResult, spans: Sequence[SpanRecord]) -> None:
        """Only keeps them: exporting is for a moment in which no model call streams."""
        del result
        with self._lock:
            self._waiting.append(spans)

    @property
    def waiting_count(self) -> int:
        """Spans that wait for a hand-over."""
        with self._lock:
            return sum(map(len, self._waiting))

    def hand_over(self, deadline_s: float) -> None:
        """Export all that waits; returns when that is done, at the latest after the deadline."""
        with self._lock:
            runs, self._waiting = self._waiting, []
        batch = _HandOver(list(chain.from_iterable(map(capped, runs))))
        self.problem = None
        if not run_bounded(partial(self._export, batch), deadline_s):
            batch.is_given_up = True
            self.problem = f"not taken within {deadline_s:g} s"
        counted = batch.outcomes.copy()
        counted["failed"] += len(batch.spans) - counted.total()
        self.outcomes += counted

    def words(self) -> str:
        """What became of the spans, in one line."""
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()) if count)
        return f"spans: {counts or 'none'}{f' ({self.problem})' if self.problem else ''}"

    def _export(self, batch: "_HandOver") -> None:
        spans = iter(_through_sdk(batch.spans, self._resource, self._links))
        sampled_count = 0
        while part := list(islice(spans, _BATCH_SIZE)):
            sampled_count += len(part)
            self._answers.clear()
            outcome = self._exporter.export(part)
            if batch.is_given_up:  # and counted: what comes later changes nothing
                return
            if outcome is not SpanExportResult.SUCCESS:
                self.problem = self._answers.words or "the collector could not be reached"
                batch.outcomes["failed"] += len(part)
                continue
            rejected_count = min(self._answers.rejected_count, len(part))
            if rejected_count:
                self.problem = f"the collector rejected {rejected_count} span(s): {self._answers.words}"
            batch.outcomes["rejected"] += rejected_count
            batch.outcomes["exported"] += len(part) - rejected_count
            self.last_success_unix_s = time.time()
        batch.outcomes["unsampled"] += len(batch.spans) - sampled_count


@dataclass(slots=True)
class _HandOver:
    spans: list[SpanRecord]
    outcomes: Counter[str] = field(default_factory=Counter)
    is_given_up: bool = False


def capped(spans: Iterable[SpanRecord]) -> Iterator[SpanRecord]:
    """The spans that are exported of a run: of a long stream's awaits only some."""
    for span in spans:
        index = span.attributes.get(names.AWAIT_INDEX)
        if isinstance(index, int) and index >= AWAIT_SPANS_PER_CALL and index % _LATER_AWAIT_STEP:
            continue
        yield span


# --- through the SDK ---------------------------------------------------------------------------------------


class _Replay(IdGenerator):
    """Gives the SDK the ids that a span was recorded with."""

    def __init__(self) -> None:
        self.trace_id = 0
        self.span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class _Collect(SpanProcessor):
    def __init__(self) -> None:
        self.ended: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span)


def _through_sdk(spans: Sequence[SpanRecord], resource: Resource, links: Sequence[Link]) -> Iterator[ReadableSpan]:
    """The spans as the SDK makes them: sampled by trace (``OTEL_TRACES_SAMPLER``), within its limits."""
    ids, ended = _Replay(), _Collect()
    provider = TracerProvider(resource=resource, id_generator=ids, shutdown_on_exit=False)
    provider.add_span_processor(ended)
    tracer = provider.get_tracer(names.SCOPE, __version__)
    sampled: dict[str, bool] = {}
    # The root is asked first, whatever the order of the records: its verdict holds for the whole trace.
    for record in sorted(spans, key=lambda span: span.parent_span_id is not None):
        ids.trace_id, ids.span_id = int(record.trace_id, 16), int(record.span_id, 16)
        is_root = record.parent_span_id is None
        span = tracer.start_span(
            record.name,
            context=Context() if is_root else _parent_context(record, sampled.get(record.trace_id, True)),
            kind=_KINDS[record.kind],
            attributes=dict(record.attributes),
            links=links if is_root else (),
            start_time=record.start_ns,
        )
        if is_root:
            sampled[record.trace_id] = span.get_span_context().trace_flags.sampled
        for event in record.events:
            span.add_event(event.name, dict(event.attributes), timestamp=event.time_ns)
        if record.error is not None:
            span.set_status(Status(StatusCode.ERROR, record.error))
        span.end(end_time=record.end_ns)
        yield from ended.ended
        ended.ended.clear()


def _parent_context(record: SpanRecord, is_sampled: bool) -> Context:
    parent = SpanContext(
        trace_id=int(record.trace_id, 16),
        span_id=int(record.parent_span_id or "0", 16),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT),
    )
    return set_span_in_context(NonRecordingSpan(parent), Context())


def _links(traceparent: str) -> list[Link]:
    """The span that started this process, as a link: the run stays the root of its own trace."""
    match = _TRACEPARENT.fullmatch(traceparent.strip().lower())
    if match is None:
        return []
    context = SpanContext(
        trace_id=int(match[1], 16),
        span_id=int(match[2], 16),
        is_remote=True,
        trace_flags=TraceFlags(int(match[3], 16)),
    )
    return [Link(context)] if context.is_valid else []

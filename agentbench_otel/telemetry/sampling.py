"""Which traces are exported, as ``OTEL_TRACES_SAMPLER`` says: an exemplar must not point to one that is not."""

from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from agentbench_otel.records.spans import SpanRecord


def configured_sampler() -> Sampler:
    """The sampler that the environment asks for; parent-based, all traces, without one."""
    return TracerProvider(shutdown_on_exit=False).sampler


def exemplar_context(spans: Sequence[SpanRecord], sampler: Sampler) -> Context:
    """The context of a run's root span, or an empty one when its trace is not exported."""
    root = next((span for span in spans if span.parent_span_id is None), None)
    if root is None:
        return Context()
    trace_id = int(root.trace_id, 16)
    verdict = sampler.should_sample(Context(), trace_id, root.name, attributes=dict(root.attributes))
    if verdict.decision is not Decision.RECORD_AND_SAMPLE:
        return Context()
    span_context = SpanContext(trace_id, int(root.span_id, 16), False, TraceFlags(TraceFlags.SAMPLED))
    return set_span_in_context(NonRecordingSpan(span_context), Context())

"""What makes a run's numbers doubtful though nothing failed: sentences with the number and the remedy."""

from collections.abc import Iterator

from agentbench_otel import names
from agentbench_otel.measurement.facts import CallFacts, RunFacts
from agentbench_otel.measurement.tree import texts_of
from agentbench_otel.records.chat import CallKind

LOOP_LAG_LIMIT_NS = 5_000_000


def collect_warnings(facts: RunFacts, *, is_cache_expected: bool) -> tuple[str, ...]:
    """The warnings of one run, by call. ``is_cache_expected``: the config allows the prompt cache."""
    warnings: list[str] = []
    for call in facts.calls:
        label = f"call {call.call.index}"
        warnings += (f"{label}: {words}" for words in call_warnings(call, is_cache_expected=is_cache_expected))
    return tuple(warnings)


def call_warnings(call: CallFacts, *, is_cache_expected: bool) -> Iterator[str]:
    """The warnings of one model call; see `collect_warnings`."""
    timing = call.timing
    attributes = call.call.span.attributes
    yield from texts_of(attributes.get(names.CALL_WARNINGS))
    yield from _of_usage(call, is_cache_expected=is_cache_expected)
    if timing.chunk_count == 1 and timing.generated_count > 1:
        yield (
            f"all {timing.generated_count} generated pieces came in one network read; token TTFT and chunk gaps "
            "tell of a buffer on the way, not of the model"
        )
    lag_ns = attributes.get(names.LOOP_LAG_MAX_NS)
    if isinstance(lag_ns, int) and lag_ns > LOOP_LAG_LIMIT_NS:
        yield (
            f"the event loop was up to {lag_ns / 1e6:.1f} ms late while it streamed; its times may be late by as "
            "much: give this process more CPU"
        )
    if "length" in texts_of(attributes.get(names.RESPONSE_FINISH_REASONS)):
        yield "the answer was cut at max_tokens (finish_reason length)"
    has_generated = timing.token_ttft_ns is not None
    is_chat = call.kind is CallKind.CHAT_COMPLETION
    if is_chat and has_generated and timing.visible_ttft_ns is None and not _has_tool_call(call):
        yield "the model generated, but nothing of it was visible"


def _has_tool_call(call: CallFacts) -> bool:
    return any(one.kind.value.startswith("tool_call") for one in call.call.awaits)


def _of_usage(call: CallFacts, *, is_cache_expected: bool) -> Iterator[str]:
    usage = call.usage
    if usage is None:
        return
    prompt, completion, total = usage.prompt_tokens, usage.completion_tokens, usage.total_tokens
    if prompt is not None and completion is not None and total is not None and total != prompt + completion:
        yield f"usage is inconsistent: total {total} is not prompt {prompt} + completion {completion}"
    if prompt is not None and usage.cached_tokens is not None and usage.cached_tokens > prompt:
        yield f"usage is inconsistent: {usage.cached_tokens} cached tokens of {prompt} prompt tokens"
    if usage.cached_tokens and not is_cache_expected:
        yield (
            f"{usage.cached_tokens} prompt tokens came from the provider's cache though prompt_cache is avoid; "
            "TTFT is shorter than for a new prompt"
        )
    limit = call.call.span.attributes.get(names.REQUEST_MAX_TOKENS)
    if isinstance(limit, int) and completion is not None and completion > limit:
        yield f"the provider ignored max_tokens: {completion} tokens for a limit of {limit}"

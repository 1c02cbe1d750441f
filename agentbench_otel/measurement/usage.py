"""Token usage: totals exist only where every call reported them."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentbench_otel import names
from agentbench_otel.measurement.tree import Call
from agentbench_otel.records.chat import TokenUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTotals:
    """``totals`` is all None unless every call reported usage; ``missing_count`` calls did not."""

    totals: TokenUsage
    missing_count: int


_NOTHING = TokenUsage()


def usage_of(call: Call) -> TokenUsage | None:
    """What the call's span says; None when the provider reported nothing usable."""
    usage = TokenUsage(
        prompt_tokens=_count(call, names.USAGE_INPUT_TOKENS),
        completion_tokens=_count(call, names.USAGE_OUTPUT_TOKENS),
        total_tokens=_count(call, names.USAGE_TOTAL_TOKENS),
        cached_tokens=_count(call, names.USAGE_CACHED_TOKENS),
        reasoning_tokens=_count(call, names.USAGE_REASONING_TOKENS),
    )
    return None if usage == _NOTHING else usage


def _count(call: Call, key: str) -> int | None:
    value = call.span.attributes.get(key)
    return value if type(value) is int else None


def total_usage(usages: Sequence[TokenUsage | None]) -> TokenTotals:
    """Add up the calls of a run, fallbacks included.

    A partial sum would be a number that nobody used, so one silent call makes every total None, and a field
    that one call left out has no total. Without any call nothing is missing and nothing is known.
    """
    reported = [usage for usage in usages if usage is not None]
    missing_count = len(usages) - len(reported)
    if missing_count or not reported:
        return TokenTotals(totals=_NOTHING, missing_count=missing_count)
    return TokenTotals(
        totals=TokenUsage(
            prompt_tokens=_sum([usage.prompt_tokens for usage in reported]),
            completion_tokens=_sum([usage.completion_tokens for usage in reported]),
            total_tokens=_sum([usage.total_tokens for usage in reported]),
            cached_tokens=_sum([usage.cached_tokens for usage in reported]),
            reasoning_tokens=_sum([usage.reasoning_tokens for usage in reported]),
        ),
        missing_count=0,
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None

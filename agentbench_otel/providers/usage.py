"""Usage objects as servers send them → `TokenUsage`, merged over the chunks of a stream."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from agentbench_otel.records.chat import TokenUsage


def merge_usage(known: TokenUsage, chunk: Mapping[str, Any]) -> TokenUsage:
    """What is known after this chunk: by field the last number wins, null never overwrites, nothing is added.

    Several places may hold usage; the first that has a field wins within one chunk.
    """
    latest: TokenUsage | None = None
    for usage in _places(chunk):
        told = _read(usage)
        latest = told if latest is None else _overlay(told, latest)
    return known if latest is None else _overlay(known, latest)


def is_nothing(usage: TokenUsage) -> bool:
    """Whether no count is above zero; all zero beside real output means "not reported"."""
    return not any(getattr(usage, field.name) for field in fields(usage))


def _places(chunk: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    candidates = [chunk.get("usage")]
    choices = chunk.get("choices")
    if isinstance(choices, list):
        candidates += [choice.get("usage") for choice in choices if isinstance(choice, dict)]
    groq = chunk.get("x_groq")
    if isinstance(groq, dict):
        candidates.append(groq.get("usage"))
    return (candidate for candidate in candidates if isinstance(candidate, dict))


def _overlay(below: TokenUsage, above: TokenUsage) -> TokenUsage:
    told = {field.name: getattr(above, field.name) for field in fields(above)}
    return replace(below, **{name: count for name, count in told.items() if count is not None})


def _read(usage: Mapping[str, Any]) -> TokenUsage:
    prompt = _count(usage.get("prompt_tokens"))
    hit, miss = _count(usage.get("prompt_cache_hit_tokens")), _count(usage.get("prompt_cache_miss_tokens"))
    if prompt is None and hit is not None and miss is not None:
        prompt = hit + miss
    cached = _count(_detail(usage, "prompt_tokens_details", "cached_tokens"))
    if cached is None:
        cached = hit if hit is not None else _count(usage.get("cache_read_input_tokens"))
    return TokenUsage(
        prompt_tokens=prompt,
        completion_tokens=_count(usage.get("completion_tokens")),
        total_tokens=_count(usage.get("total_tokens")),
        cached_tokens=cached,
        reasoning_tokens=_count(_detail(usage, "completion_tokens_details", "reasoning_tokens")),
    )


def _detail(usage: Mapping[str, Any], section: str, key: str) -> Any:
    details = usage.get(section)
    return details.get(key) if isinstance(details, dict) else None


def _count(value: Any) -> int | None:
    """A whole number that is not negative, also as a decimal text or an integral float; else None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 18:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and value >= 0 else None

"""Token totals: all, or nothing."""

import pytest

from agentbench_otel import names
from agentbench_otel.measurement.tree import Call, read_run
from agentbench_otel.measurement.usage import total_usage, usage_of
from agentbench_otel.records.chat import TokenUsage
from agentbench_otel.records.spans import AttributeValue
from tests.support.spans import RunSpans

NOTHING = TokenUsage()


def call_with(**attributes: AttributeValue) -> Call:
    run = RunSpans()
    run.run()
    run.call(0, 10, attributes={getattr(names, key): value for key, value in attributes.items()})
    return read_run(run.spans).calls[0]


def test_totals_add_up_all_calls() -> None:
    tokens = total_usage(
        [
            TokenUsage(
                prompt_tokens=10, completion_tokens=5, total_tokens=15, cached_tokens=2, reasoning_tokens=3
            ),
            TokenUsage(
                prompt_tokens=20, completion_tokens=7, total_tokens=27, cached_tokens=4, reasoning_tokens=1
            ),
        ]
    )
    assert tokens.missing_count == 0
    assert tokens.totals == TokenUsage(
        prompt_tokens=30, completion_tokens=12, total_tokens=42, cached_tokens=6, reasoning_tokens=4
    )


def test_one_silent_call_makes_every_total_null() -> None:
    tokens = total_usage([TokenUsage(prompt_tokens=10, completion_tokens=5, total_tokens=15), None])
    assert tokens.totals == NOTHING
    assert tokens.missing_count == 1


def test_every_silent_call_is_counted() -> None:
    assert total_usage([None, TokenUsage(prompt_tokens=1), None]).missing_count == 2


def test_a_field_that_one_call_left_out_has_no_total() -> None:
    tokens = total_usage([TokenUsage(prompt_tokens=10, cached_tokens=4), TokenUsage(prompt_tokens=20)])
    assert tokens.totals == TokenUsage(prompt_tokens=30, cached_tokens=None)
    assert tokens.missing_count == 0


def test_a_reported_zero_is_a_number() -> None:
    tokens = total_usage([TokenUsage(cached_tokens=0), TokenUsage(cached_tokens=0)])
    assert tokens.totals.cached_tokens == 0


def test_without_any_call_nothing_is_missing_and_nothing_is_known() -> None:
    tokens = total_usage([])
    assert tokens.totals == NOTHING
    assert tokens.missing_count == 0


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("USAGE_INPUT_TOKENS", "prompt_tokens"),
        ("USAGE_OUTPUT_TOKENS", "completion_tokens"),
        ("USAGE_TOTAL_TOKENS", "total_tokens"),
        ("USAGE_CACHED_TOKENS", "cached_tokens"),
        ("USAGE_REASONING_TOKENS", "reasoning_tokens"),
    ],
)
def test_each_count_is_read_from_its_attribute(key: str, field: str) -> None:
    assert usage_of(call_with(**{key: 7})) == TokenUsage(**{field: 7})


def test_a_call_without_any_count_reported_nothing() -> None:
    assert usage_of(call_with()) is None


def test_a_call_that_reported_only_zeros_reported_usage() -> None:
    assert usage_of(call_with(USAGE_INPUT_TOKENS=0)) == TokenUsage(prompt_tokens=0)


def test_a_count_that_is_no_integer_was_not_reported() -> None:
    assert usage_of(call_with(USAGE_INPUT_TOKENS="many")) is None

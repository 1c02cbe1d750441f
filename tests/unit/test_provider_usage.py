"""Usage as servers send it → token counts, merged over the chunks of a stream."""

import json
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbench_otel.providers.deltas import StreamReader
from agentbench_otel.providers.sse import SseEvent
from agentbench_otel.providers.usage import is_nothing, merge_usage
from agentbench_otel.records.chat import ItemKind, TokenUsage

Chunk = dict[str, Any]


def usage_of(*chunks: Chunk) -> TokenUsage:
    return reduce(merge_usage, chunks, TokenUsage())


def counts(prompt: Any = None, completion: Any = None, total: Any = None, **more: Any) -> Chunk:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total, **more}


def test_the_standard_usage_is_read() -> None:
    usage = counts(
        11,
        4,
        15,
        prompt_tokens_details={"cached_tokens": 8, "audio_tokens": 0},
        completion_tokens_details={"reasoning_tokens": 3},
    )

    assert usage_of({"choices": [], "usage": usage}) == TokenUsage(
        prompt_tokens=11, completion_tokens=4, total_tokens=15, cached_tokens=8, reasoning_tokens=3
    )


@pytest.mark.parametrize(
    "chunk",
    [
        {},
        {"usage": None},
        {"usage": {}},
        {"usage": "none"},
        {"usage": [1]},
        {"usage": counts()},
        {"choices": None, "x_groq": None},
        {"choices": [None, {"usage": None}], "x_groq": {"usage": 5}},
        {"usage": {"prompt_tokens_details": None, "completion_tokens_details": []}},
    ],
)
def test_what_holds_no_count_reports_nothing(chunk: Chunk) -> None:
    assert usage_of(chunk) == TokenUsage()


def test_what_was_not_reported_is_none_and_not_zero() -> None:
    assert usage_of({"usage": {"prompt_tokens": 0}}) == TokenUsage(prompt_tokens=0)


# --- places -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "chunk",
    [
        {"usage": counts(11, 4, 15)},
        {"choices": [{"index": 0, "usage": counts(11, 4, 15)}]},
        {"choices": [{"index": 0}, {"index": 1, "usage": counts(11, 4, 15)}]},
        {"x_groq": {"id": "req", "usage": counts(11, 4, 15)}},
    ],
)
def test_usage_may_stand_in_three_places(chunk: Chunk) -> None:
    assert usage_of(chunk) == TokenUsage(prompt_tokens=11, completion_tokens=4, total_tokens=15)


def test_the_first_place_that_has_a_field_wins_and_nothing_is_added() -> None:
    chunk = {
        "x_groq": {"usage": counts(1, 2, 3, prompt_cache_hit_tokens=9)},
        "choices": [{"usage": counts(10, 20)}],
        "usage": counts(100),
    }

    assert usage_of(chunk) == TokenUsage(prompt_tokens=100, completion_tokens=20, total_tokens=3, cached_tokens=9)


# --- over the stream --------------------------------------------------------------------------------------


def test_the_last_number_of_a_field_wins() -> None:
    running = [{"usage": counts(32, completion, 32 + completion)} for completion in (1, 2, 4, 5)]

    assert usage_of(*running) == TokenUsage(prompt_tokens=32, completion_tokens=5, total_tokens=37)


def test_a_smaller_last_number_wins_too() -> None:
    assert usage_of({"usage": counts(50)}, {"usage": counts(10)}).prompt_tokens == 10


def test_null_never_overwrites() -> None:
    chunks: list[Chunk] = [
        {"usage": counts(11, 4, 15)},
        {"usage": None},
        {"usage": counts(None, 5)},
        {"choices": []},
    ]

    assert usage_of(*chunks) == TokenUsage(prompt_tokens=11, completion_tokens=5, total_tokens=15)


FIELDS = ("prompt_tokens", "completion_tokens", "total_tokens")


@given(
    st.lists(
        st.dictionaries(st.sampled_from(FIELDS), st.none() | st.integers(min_value=-2, max_value=99)), max_size=6
    )
)
def test_every_field_is_the_last_usable_number_of_it(usages: list[dict[str, int | None]]) -> None:
    merged = usage_of(*({"usage": usage} for usage in usages))

    for field in FIELDS:
        told = [count for usage in usages if (count := usage.get(field)) is not None and count >= 0]
        assert getattr(merged, field) == (told[-1] if told else None)


# --- counts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (0, 0),
        (11, 11),
        ("11", 11),
        ("007", 7),
        (11.0, 11),
        (11.5, None),
        (-1, None),
        (-0.0, 0),
        ("-1", None),
        ("+1", None),
        ("1.0", None),
        ("1e3", None),
        ("1_000", None),
        (" 11", None),
        ("١١", None),
        ("²", None),
        ("", None),
        (True, None),
        (False, None),
        (float("nan"), None),
        (float("inf"), None),
        ([11], None),
        ({"value": 11}, None),
    ],
)
def test_a_count_is_a_whole_number_that_is_not_negative(value: Any, count: int | None) -> None:
    result = usage_of({"usage": {"prompt_tokens": value}}).prompt_tokens

    assert result == count
    assert result is None or type(result) is int


@given(st.integers(min_value=0, max_value=10**30))
def test_a_decimal_text_is_its_number_or_nothing(number: int) -> None:
    assert usage_of({"usage": {"prompt_tokens": str(number)}}).prompt_tokens in (number, None)


def test_counts_are_not_repaired() -> None:
    usage = counts(30, 4, 99, prompt_tokens_details={"cached_tokens": 90})

    assert usage_of({"usage": usage}) == TokenUsage(
        prompt_tokens=30, completion_tokens=4, total_tokens=99, cached_tokens=90
    )


# --- cached tokens ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 5}, "prompt_cache_hit_tokens": 6}, 5),
        ({"prompt_tokens_details": {"cached_tokens": 0}, "prompt_cache_hit_tokens": 6}, 0),
        ({"prompt_tokens_details": {"cached_tokens": None}, "prompt_cache_hit_tokens": 6}, 6),
        ({"prompt_cache_hit_tokens": 6, "cache_read_input_tokens": 7}, 6),
        ({"prompt_cache_hit_tokens": 0, "cache_read_input_tokens": 7}, 0),
        ({"cache_read_input_tokens": 7}, 7),
        ({"cache_creation_input_tokens": 8}, None),
    ],
)
def test_cached_tokens_have_an_order_of_places(usage: Chunk, cached: int | None) -> None:
    merged = usage_of({"usage": counts(10, **usage)})

    assert (merged.prompt_tokens, merged.cached_tokens) == (10, cached)


def test_a_prompt_that_is_only_told_as_hit_and_miss_is_their_sum() -> None:
    usage = {"prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36, "completion_tokens": 5}

    assert usage_of({"usage": usage}) == TokenUsage(prompt_tokens=100, completion_tokens=5, cached_tokens=64)


@pytest.mark.parametrize("usage", [{"prompt_cache_hit_tokens": 64}, {"prompt_cache_miss_tokens": 36}])
def test_hit_or_miss_alone_tell_no_prompt(usage: Chunk) -> None:
    assert usage_of({"usage": usage}).prompt_tokens is None


def test_a_prompt_that_was_told_is_not_replaced_by_hit_and_miss() -> None:
    usage = counts(90, prompt_cache_hit_tokens=64, prompt_cache_miss_tokens=36)

    assert usage_of({"usage": usage}).prompt_tokens == 90


# --- in the stream ----------------------------------------------------------------------------------------


def usage_items(*usages: Any) -> tuple[list[TokenUsage | None], list[str]]:
    reader = StreamReader()
    chunks = [{"choices": [{"delta": {"content": "a"}}]}, *({"choices": [], "usage": usage} for usage in usages)]
    items = [item for one in chunks for item in reader.read(SseEvent(data=(json.dumps(one),)), arrival_ns=1)]
    reader.end()
    return [item.usage for item in items if item.kind is ItemKind.USAGE], reader.warnings


def test_all_zero_is_not_reported() -> None:
    assert is_nothing(TokenUsage())
    assert is_nothing(TokenUsage(prompt_tokens=0, completion_tokens=0, total_tokens=0))
    assert not is_nothing(TokenUsage(prompt_tokens=0, completion_tokens=1))


def test_all_zero_beside_real_output_is_a_warning() -> None:
    items, warnings = usage_items(counts(0, 0, 0))

    assert items == []
    assert warnings == ["usage was all zero beside real output; it is taken as not reported"]


def test_without_usage_there_is_no_warning() -> None:
    assert usage_items(None) == ([], [])


def test_news_of_the_usage_are_items_and_repetitions_are_not() -> None:
    items, warnings = usage_items(counts(0, 0, 0), counts(3, 1), counts(3, 1), None, counts(3, 2))

    assert items == [
        TokenUsage(prompt_tokens=3, completion_tokens=1, total_tokens=0),
        TokenUsage(prompt_tokens=3, completion_tokens=2, total_tokens=0),
    ]
    assert warnings == []

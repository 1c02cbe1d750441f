"""What makes a run's numbers doubtful is said, and nothing is said of a sound run."""

import pytest

from agentbench_otel import names
from agentbench_otel.measurement.facts import measure_run
from agentbench_otel.measurement.warnings import LOOP_LAG_LIMIT_NS, collect_warnings
from agentbench_otel.records.chat import CallKind, ItemKind
from agentbench_otel.records.spans import AttributeValue
from tests.support.clock import MS, T0_NS
from tests.support.spans import AwaitSketch, RunSpans, item

SOUND = (
    item(T0_NS, T0_NS + 10, ItemKind.RAW_CHUNK),
    item(T0_NS + 10, T0_NS + 20, is_visible=True),
    item(T0_NS + 20, T0_NS + 30),
    item(T0_NS + 30, T0_NS + 40, ItemKind.END),
)


def warnings_of(
    *awaits: AwaitSketch,
    kind: CallKind = CallKind.CHAT_COMPLETION,
    is_cache_expected: bool = False,
    attributes: dict[str, AttributeValue] | None = None,
) -> tuple[str, ...]:
    run = RunSpans()
    run.run()
    run.call(T0_NS, T0_NS + 100, awaits or SOUND, kind=kind, attributes=attributes)
    return collect_warnings(measure_run(run.spans), is_cache_expected=is_cache_expected)


def usage(prompt: int, completion: int, total: int, cached: int | None = None) -> dict[str, AttributeValue]:
    counts: dict[str, AttributeValue] = {
        names.USAGE_INPUT_TOKENS: prompt,
        names.USAGE_OUTPUT_TOKENS: completion,
        names.USAGE_TOTAL_TOKENS: total,
    }
    return counts if cached is None else {**counts, names.USAGE_CACHED_TOKENS: cached}


def test_nothing_is_said_of_a_sound_call() -> None:
    assert warnings_of(attributes=usage(10, 5, 15, cached=0)) == ()


def test_nothing_is_said_of_a_run_without_calls() -> None:
    run = RunSpans()
    run.run()
    assert collect_warnings(measure_run(run.spans), is_cache_expected=False) == ()


def test_what_the_client_found_odd_is_told_first() -> None:
    odd: dict[str, AttributeValue] = {
        names.CALL_WARNINGS: ("two finish reasons", "no [DONE]"),
        names.RESPONSE_FINISH_REASONS: ("length",),
    }
    assert warnings_of(attributes=odd) == (
        "call 1: two finish reasons",
        "call 1: no [DONE]",
        "call 1: the answer was cut at max_tokens (finish_reason length)",
    )


def test_a_total_that_is_not_the_sum_is_inconsistent() -> None:
    words = "call 1: usage is inconsistent: total 20 is not prompt 10 + completion 5"
    assert warnings_of(attributes=usage(10, 5, 20)) == (words,)


@pytest.mark.parametrize(
    "missing", [names.USAGE_INPUT_TOKENS, names.USAGE_OUTPUT_TOKENS, names.USAGE_TOTAL_TOKENS]
)
def test_usage_that_was_reported_in_part_is_not_inconsistent(missing: str) -> None:
    attributes = {**usage(10, 5, 20, cached=8), names.REQUEST_MAX_TOKENS: 128}
    del attributes[missing]
    assert warnings_of(attributes=attributes, is_cache_expected=True) == ()


def test_more_cached_than_prompt_tokens_are_inconsistent() -> None:
    words = "call 1: usage is inconsistent: 12 cached tokens of 10 prompt tokens"
    assert warnings_of(attributes=usage(10, 5, 15, cached=12), is_cache_expected=True) == (words,)


def test_all_prompt_tokens_may_come_from_the_cache() -> None:
    assert warnings_of(attributes=usage(10, 5, 15, cached=10), is_cache_expected=True) == ()


def test_cached_tokens_in_spite_of_avoidance_are_told() -> None:
    words = (
        "call 1: 8 prompt tokens came from the provider's cache though prompt_cache is avoid; "
        "TTFT is shorter than for a new prompt"
    )
    assert warnings_of(attributes=usage(10, 5, 15, cached=8)) == (words,)


def test_cached_tokens_are_fine_where_the_cache_is_expected() -> None:
    assert warnings_of(attributes=usage(10, 5, 15, cached=8), is_cache_expected=True) == ()


def test_more_tokens_than_max_tokens_are_told() -> None:
    attributes = {**usage(10, 5, 15), names.REQUEST_MAX_TOKENS: 4}
    words = "call 1: the provider ignored max_tokens: 5 tokens for a limit of 4"
    assert warnings_of(attributes=attributes) == (words,)


def test_exactly_max_tokens_are_within_the_limit() -> None:
    assert warnings_of(attributes={**usage(10, 5, 15), names.REQUEST_MAX_TOKENS: 5}) == ()


def test_pieces_that_all_came_in_one_read_tell_of_a_buffer() -> None:
    at_once = [
        item(T0_NS, T0_NS + 50, is_visible=True),
        item(T0_NS + 50, T0_NS + 51, arrival_ns=T0_NS + 50),
        item(T0_NS + 51, T0_NS + 52, arrival_ns=T0_NS + 50),
    ]
    words = (
        "call 1: all 3 generated pieces came in one network read; token TTFT and chunk gaps "
        "tell of a buffer on the way, not of the model"
    )
    assert warnings_of(*at_once) == (words,)


def test_two_pieces_in_one_read_are_enough_to_tell() -> None:
    pieces = [item(T0_NS, T0_NS + 50, is_visible=True), item(T0_NS + 50, T0_NS + 51, arrival_ns=T0_NS + 50)]
    (words,) = warnings_of(*pieces)
    assert words.startswith("call 1: all 2 generated pieces came in one network read")


def test_a_single_piece_tells_of_no_buffer() -> None:
    assert warnings_of(item(T0_NS, T0_NS + 50, is_visible=True)) == ()


def test_a_late_event_loop_is_told_with_its_lateness() -> None:
    words = (
        "call 1: the event loop was up to 12.5 ms late while it streamed; its times may be late by as "
        "much: give this process more CPU"
    )
    assert warnings_of(attributes={names.LOOP_LAG_MAX_NS: 12_500_000}) == (words,)


def test_lag_up_to_the_limit_is_usual() -> None:
    assert LOOP_LAG_LIMIT_NS == 5 * MS
    assert warnings_of(attributes={names.LOOP_LAG_MAX_NS: LOOP_LAG_LIMIT_NS}) == ()


def test_an_answer_that_was_cut_is_told() -> None:
    words = "call 1: the answer was cut at max_tokens (finish_reason length)"
    assert warnings_of(attributes={names.RESPONSE_FINISH_REASONS: ("length",)}) == (words,)


def test_an_answer_that_stopped_by_itself_is_fine() -> None:
    assert warnings_of(attributes={names.RESPONSE_FINISH_REASONS: ("stop",)}) == ()


def test_generation_without_anything_visible_is_told() -> None:
    thinking = [item(T0_NS, T0_NS + 5, ItemKind.REASONING), item(T0_NS + 5, T0_NS + 9, ItemKind.REASONING)]
    words = "call 1: the model generated, but nothing of it was visible"
    assert warnings_of(*thinking) == (words,)


@pytest.mark.parametrize("kind", [ItemKind.TOOL_CALL_DELTA, ItemKind.TOOL_CALL])
def test_a_call_that_only_asks_for_a_tool_needs_no_visible_text(kind: ItemKind) -> None:
    assert warnings_of(item(T0_NS, T0_NS + 5, ItemKind.REASONING), item(T0_NS + 5, T0_NS + 9, kind)) == ()


def test_a_fallback_needs_no_visible_text() -> None:
    assert warnings_of(item(T0_NS, T0_NS + 5), kind=CallKind.ARGUMENT_FALLBACK) == ()


def test_a_call_that_generated_nothing_gets_no_warning_about_visibility() -> None:
    assert warnings_of(item(T0_NS, T0_NS + 5, ItemKind.ERROR)) == ()


def test_warnings_name_their_call_and_come_in_the_order_of_the_calls() -> None:
    run = RunSpans()
    run.run()
    for _ in range(2):
        run.call(T0_NS, T0_NS + 100, SOUND, attributes={names.RESPONSE_FINISH_REASONS: ("length",)})
    warnings = collect_warnings(measure_run(run.spans), is_cache_expected=False)
    assert [words.partition(":")[0] for words in warnings] == ["call 1", "call 2"]

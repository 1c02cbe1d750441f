"""Rows of the history: what a run spent, and its spans in little room."""

from typing import Any

import pytest

from agentbench_otel.history.rows import compress_spans, decompress_spans, run_inserts
from agentbench_otel.records.chat import TokenUsage
from agentbench_otel.records.results import RunResult
from tests.support.history import a_run, some_spans

COLUMNS = [
    *("run_id", "cycle_id", "target", "case_id", "mode", "status", "error_kind", "is_warmup", "is_counted"),
    *("started_at", "visible_ttft_ms", "total_tokens", "spent_tokens", "result"),
]


def row(result: RunResult) -> dict[str, Any]:
    return dict(zip(COLUMNS, run_inserts(result, None)[0].values, strict=True))


def with_usages(*usages: TokenUsage | None, **changes: Any) -> RunResult:
    call = a_run(1).model_calls[0]
    return a_run(1, model_calls=tuple(call.model_copy(update={"usage": usage}) for usage in usages), **changes)


@pytest.mark.parametrize(
    ("usages", "spent"),
    [
        ([TokenUsage(total_tokens=30)], 30),
        ([TokenUsage(prompt_tokens=20, completion_tokens=10, total_tokens=31)], 31),
        ([TokenUsage(prompt_tokens=20, completion_tokens=10)], 30),
        ([TokenUsage(total_tokens=30), TokenUsage(prompt_tokens=5)], 35),
        ([TokenUsage(total_tokens=30), None], 30),
        ([None], 0),
        ([], 0),
    ],
)
def test_every_token_that_was_reported_is_spent(usages: list[TokenUsage | None], spent: int) -> None:
    assert row(with_usages(*usages))["spent_tokens"] == spent


def test_a_number_of_tokens_that_no_database_holds_is_cut_to_its_largest() -> None:
    absurd = row(with_usages(TokenUsage(total_tokens=10**30), total_tokens=10**30))
    assert (absurd["spent_tokens"], absurd["total_tokens"]) == (2**63 - 1, 2**63 - 1)


def test_spans_of_a_long_stream_take_less_than_a_tenth_of_their_text() -> None:
    spans = some_spans(2_000)
    blob = compress_spans(spans)
    assert len(blob) < 300 * 2_000 / 10  # 300 bytes each as text, or more
    assert decompress_spans(blob) == spans


def test_no_spans_come_back_as_no_spans() -> None:
    assert decompress_spans(compress_spans(())) == ()


@pytest.mark.parametrize("damage", [b"", b"no zlib", compress_spans(some_spans())[:-9]])
def test_damaged_spans_are_a_value_error(damage: bytes) -> None:
    with pytest.raises(ValueError, match="can't be decompressed"):
        decompress_spans(damage)

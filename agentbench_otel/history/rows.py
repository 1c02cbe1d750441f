"""Results, spans and cycles ↔ what stands in the tables."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pydantic import TypeAdapter

from agentbench_otel.errors import ErrorKind
from agentbench_otel.records.cycles import CycleRecord, spent_tokens
from agentbench_otel.records.results import RunResult
from agentbench_otel.records.spans import SpanRecord
from agentbench_otel.telemetry.otlp_json import decode_line, encode_lines

_SPANS_PER_PIECE = 50
"""Encoding holds the interpreter, and a run may be measured meanwhile: pieces of 1,000 spans made the event loop
wait 3 ms at the median, pieces of 50 0.2 ms (compressing gives the interpreter free in between)."""

_INSERT_RUN = """
INSERT INTO runs (
    run_id, cycle_id, target, case_id, mode, status, error_kind, is_warmup, is_counted, started_at,
    visible_ttft_ms, total_tokens, spent_tokens, result
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""
_INSERT_SPANS = """
INSERT INTO run_spans (seq, started_at, spans) SELECT seq, started_at, ? FROM runs WHERE run_id = ?
ON CONFLICT DO NOTHING
"""
_INSERT_CYCLE = """
INSERT INTO cycles (cycle_id, target, started_at, record) VALUES (?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""
# A commit that failed may have been done all the same; then it is tried again, and changes nothing.

_LARGEST_INTEGER = (1 << 63) - 1  # of SQLite; a server may report any number

_CYCLE = TypeAdapter(CycleRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """One statement with its values."""

    sql: str
    values: tuple[Any, ...]


def run_inserts(result: RunResult, spans: Sequence[SpanRecord] | None) -> list[Insert]:
    """What one transaction writes of a run. ``spans`` None: they were dropped."""
    error_kind = None if result.error is None else result.error.kind
    run = Insert(
        sql=_INSERT_RUN,
        values=(
            result.run_id,
            result.cycle_id,
            result.target,
            result.case_id.value,
            result.mode.value,
            result.status.value,
            error_kind,
            result.warmup,
            not result.warmup and error_kind != ErrorKind.ABORTED,
            result.started_at.timestamp(),
            result.visible_ttft_ms,
            None if result.total_tokens is None else min(result.total_tokens, _LARGEST_INTEGER),
            min(spent_tokens(result), _LARGEST_INTEGER),
            result.model_dump_json(),
        ),
    )
    if spans is None:
        return [run]
    return [run, Insert(sql=_INSERT_SPANS, values=(compress_spans(spans), result.run_id))]


def read_result(text: str) -> RunResult:
    return RunResult.model_validate_json(text)


def cycle_inserts(record: CycleRecord) -> list[Insert]:
    text = _CYCLE.dump_json(record).decode()
    return [
        Insert(
            sql=_INSERT_CYCLE,
            values=(record.cycle_id, record.target, record.started_at.timestamp(), text),
        )
    ]


def read_cycle(text: str) -> CycleRecord:
    return _CYCLE.validate_json(text)


def compress_spans(spans: Sequence[SpanRecord]) -> bytes:
    compressor = zlib.compressobj()
    parts = [compressor.compress(f"{line}\n".encode()) for line in _lines(spans)]
    return b"".join((*parts, compressor.flush()))


def _lines(spans: Sequence[SpanRecord]) -> Iterator[str]:
    remaining = iter(spans)
    while piece := list(islice(remaining, _SPANS_PER_PIECE)):
        yield from encode_lines(piece, {})


def decompress_spans(blob: bytes) -> tuple[SpanRecord, ...]:
    """Raises:
    ValueError: The blob is damaged.
    """
    try:
        text = zlib.decompress(blob).decode()
    except zlib.error as error:
        raise ValueError(f"can't be decompressed: {error}") from None
    return tuple(span for line in text.splitlines() for span in decode_line(line).spans)

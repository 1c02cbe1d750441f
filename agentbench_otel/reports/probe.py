"""A probe for reading: what came, when, and what is odd about it."""

import json
from collections import Counter
from collections.abc import Iterator

from agentbench_otel.records.results import ProbeRead, ProbeResult
from agentbench_otel.reports.words import ms, ms_unit, printable, yes_no

_READS_SHOWN = 12


def render_probe(result: ProbeResult) -> str:
    return "\n".join(_lines(result)) + "\n"


def _lines(result: ProbeResult) -> Iterator[str]:
    answered = "no answer" if result.http_status is None else f"HTTP {result.http_status}"
    yield f"{result.base_url} · {result.model} · {answered}"
    for label, value in _rows(result):
        yield f"{label:<15} {value}"
    yield from _reads(result.reads)


def _rows(result: ProbeResult) -> Iterator[tuple[str, str]]:
    if result.error is not None:
        yield "failed", printable(f"{result.error.kind}: {result.error.message}")
    yield "provider TTFT", ms_unit(result.provider_ttft_ms)
    yield "token TTFT", f"{ms_unit(result.token_ttft_ms)} ({result.first_item or 'nothing generated'})"
    yield "visible TTFT", ms_unit(result.visible_ttft_ms)
    yield "stream", f"{ms_unit(result.stream_ms)} to the last item"
    yield "chunks", f"{result.chunk_count}, largest gap {ms_unit(result.max_chunk_gap_ms)}"
    for phase in result.phases:
        yield phase.name, f"{ms(phase.from_ms)} → {ms_unit(phase.to_ms)}"
    yield "reused", yes_no(result.connection_reused)
    yield "finish_reason", printable(result.finish_reason or "n/a")
    yield "usage", _usage(result)
    yield "model", printable(result.response_model or "n/a")
    for adaptation in result.adaptations:
        yield "adapted", adaptation
    for label, text in (
        ("reasoning", result.reasoning_text),
        ("refusal", result.refusal_text),
        ("text", result.visible_text),
    ):
        if text:
            yield label, json.dumps(text, ensure_ascii=False)
    for call in result.tool_calls:
        yield "tool call", printable(f"{call.name} {call.raw_arguments} (id {call.id or 'n/a'})")
    for warning in result.warnings:
        yield "warning", printable(warning)


def _usage(result: ProbeResult) -> str:
    usage = result.usage
    if usage is None:
        return "n/a"
    counts = {
        "prompt": usage.prompt_tokens,
        "completion": usage.completion_tokens,
        "total": usage.total_tokens,
        "cached": usage.cached_tokens,
        "reasoning": usage.reasoning_tokens,
    }
    return ", ".join(f"{name} {'n/a' if count is None else count}" for name, count in counts.items())


def _reads(reads: tuple[ProbeRead, ...]) -> Iterator[str]:
    for number, read in enumerate(reads, 1):
        if _READS_SHOWN < number < len(reads):
            continue
        if number == len(reads) > _READS_SHOWN + 1:
            yield f"                … {len(reads) - _READS_SHOWN - 1} more; --format json shows all"
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(read.items).items())
        yield f"read {number:<10} {ms_unit(read.at_ms)}  {kinds}"

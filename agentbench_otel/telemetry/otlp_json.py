"""Spans ↔ OTLP JSON lines: each line is one ``ExportTraceServiceRequest``, as a collector's file exporter writes.

Source: opentelemetry-proto 1.x, JSON mapping: ids as lower-case hex, 64-bit integers as decimal texts.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from agentbench_otel import __version__, names
from agentbench_otel.json_text import load_json
from agentbench_otel.records.spans import AttributeValue, SpanEvent, SpanKind, SpanRecord

_SPANS_PER_LINE = 1_000  # a line stays small enough for log pipelines, however long the stream was
_KIND_NUMBERS = {SpanKind.INTERNAL: 1, SpanKind.CLIENT: 3}
_KINDS = {1: SpanKind.INTERNAL, 3: SpanKind.CLIENT, "SPAN_KIND_CLIENT": SpanKind.CLIENT}
_STATUS_ERROR = 2


def encode_lines(spans: Iterable[SpanRecord], resource: Mapping[str, AttributeValue]) -> Iterator[str]:
    """The spans of a run as lines without their line ends, at most 1,000 spans each."""
    remaining = iter(spans)
    while batch := [_encode_span(span) for span in islice(remaining, _SPANS_PER_LINE)]:
        request = {
            "resourceSpans": [
                {
                    "resource": {"attributes": _encode_attributes(resource)},
                    "scopeSpans": [{"scope": {"name": names.SCOPE, "version": __version__}, "spans": batch}],
                }
            ]
        }
        yield json.dumps(request, separators=(",", ":"))


def _encode_span(span: SpanRecord) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        "kind": _KIND_NUMBERS[span.kind],
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _encode_attributes(span.attributes),
    }
    if span.parent_span_id is not None:
        encoded["parentSpanId"] = span.parent_span_id
    if span.events:
        encoded["events"] = [
            {
                "timeUnixNano": str(event.time_ns),
                "name": event.name,
                "attributes": _encode_attributes(event.attributes),
            }
            for event in span.events
        ]
    if span.error is not None:
        encoded["status"] = {"code": _STATUS_ERROR, "message": span.error}
    return encoded


def _encode_attributes(attributes: Mapping[str, AttributeValue]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _encode_value(value)} for key, value in attributes.items()]


def _encode_value(value: AttributeValue) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, str):
        return {"stringValue": value}
    return {"arrayValue": {"values": [{"stringValue": item} for item in value]}}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedLine:
    """``foreign_count`` spans belong to other scopes: a server that joined the trace."""

    spans: Sequence[SpanRecord]
    foreign_count: int


def decode_line(line: str) -> DecodedLine:
    """Raises:
    ValueError: Not JSON, or not shaped as trace data.
    """
    try:
        request = load_json(line)
        spans: list[SpanRecord] = []
        foreign_count = 0
        for resource_spans in request["resourceSpans"]:
            for scope_spans in resource_spans.get("scopeSpans", ()):
                if scope_spans.get("scope", {}).get("name") == names.SCOPE:
                    spans += map(_decode_span, scope_spans.get("spans", ()))
                else:
                    foreign_count += len(scope_spans.get("spans", ()))
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"no OTLP trace data ({type(error).__name__}: {error})") from error
    return DecodedLine(spans=spans, foreign_count=foreign_count)


def _decode_span(span: Mapping[str, Any]) -> SpanRecord:
    status = span.get("status") or {}
    is_error = status.get("code") in (_STATUS_ERROR, "STATUS_CODE_ERROR")
    return SpanRecord(
        trace_id=_hex_id(span["traceId"], 32),
        span_id=_hex_id(span["spanId"], 16),
        parent_span_id=_hex_id(span["parentSpanId"], 16) if span.get("parentSpanId") else None,
        name=str(span["name"]),
        kind=_KINDS.get(span.get("kind", 1), SpanKind.INTERNAL),
        start_ns=int(span["startTimeUnixNano"]),
        end_ns=int(span["endTimeUnixNano"]),
        attributes=_decode_attributes(span.get("attributes", ())),
        events=tuple(
            SpanEvent(
                name=str(event["name"]),
                time_ns=int(event["timeUnixNano"]),
                attributes=_decode_attributes(event.get("attributes", ())),
            )
            for event in span.get("events", ())
        ),
        error=str(status.get("message", "")) if is_error else None,
    )


def _hex_id(value: Any, length: int) -> str:
    if not isinstance(value, str) or not re.fullmatch(f"[0-9a-fA-F]{{{length}}}", value) or int(value, 16) == 0:
        raise ValueError(f"an id is not {length} hex digits")
    return value.lower()


def _decode_attributes(attributes: Iterable[Mapping[str, Any]]) -> dict[str, AttributeValue]:
    return {str(attribute["key"]): _decode_value(attribute["value"]) for attribute in attributes}


def _decode_value(value: Mapping[str, Any]) -> AttributeValue:
    if "boolValue" in value:
        return bool(value["boolValue"])
    if "intValue" in value:
        return int(value["intValue"])
    if "doubleValue" in value:
        return float(value["doubleValue"])
    if "arrayValue" in value:
        return tuple(str(_decode_value(item)) for item in value["arrayValue"].get("values", ()))
    return str(value.get("stringValue", ""))

"""Spans as OTLP JSON lines: the format, line by line, and what is refused."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from agentbench_otel import __version__, names
from agentbench_otel.records.spans import AttributeValue, SpanEvent, SpanKind, SpanRecord
from agentbench_otel.telemetry.otlp_json import decode_line, encode_lines
from tests.support.clock import T0_NS
from tests.support.spans import RunSpans

SPAN = SpanRecord(
    trace_id="0123456789abcdef" * 2,
    span_id="00000000000000aa",
    parent_span_id="00000000000000bb",
    name="chat tiny",
    kind=SpanKind.CLIENT,
    start_ns=T0_NS,
    end_ns=T0_NS + 1,
    attributes={"text": "a", "flag": True, "count": 9_007_199_254_740_993, "share": 0.5, "list": ("x", "y")},
    events=(SpanEvent(name="event", time_ns=T0_NS, attributes={"n": 1}),),
    error="it broke",
)


def encode(*spans: SpanRecord, resource: Mapping[str, AttributeValue] | None = None) -> list[Any]:
    return [json.loads(line) for line in encode_lines(spans, resource or {})]


def encoded_span(span: SpanRecord) -> dict[str, Any]:
    (request,) = encode(span)
    found: dict[str, Any] = request["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    return found


def many_spans(count: int) -> list[SpanRecord]:
    run = RunSpans()
    for _ in range(count):
        run.handler(0, 1)
    return run.spans


def decode(**changes: Any) -> SpanRecord:
    """The example with changes in its JSON; None takes a key away."""
    span = {key: value for key, value in {**encoded_span(SPAN), **changes}.items() if value is not None}
    scope = {"scope": {"name": names.SCOPE}, "spans": [span]}
    (decoded,) = decode_line(json.dumps({"resourceSpans": [{"scopeSpans": [scope]}]})).spans
    return decoded


# --- encoding ----------------------------------------------------------------------------------------------


def test_a_span_is_written_as_the_protocol_says() -> None:
    assert encoded_span(SPAN) == {
        "traceId": "0123456789abcdef0123456789abcdef",
        "spanId": "00000000000000aa",
        "parentSpanId": "00000000000000bb",
        "name": "chat tiny",
        "kind": 3,
        "startTimeUnixNano": "1700000000000000000",
        "endTimeUnixNano": "1700000000000000001",
        "attributes": [
            {"key": "text", "value": {"stringValue": "a"}},
            {"key": "flag", "value": {"boolValue": True}},
            {"key": "count", "value": {"intValue": "9007199254740993"}},
            {"key": "share", "value": {"doubleValue": 0.5}},
            {"key": "list", "value": {"arrayValue": {"values": [{"stringValue": "x"}, {"stringValue": "y"}]}}},
        ],
        "events": [
            {
                "timeUnixNano": "1700000000000000000",
                "name": "event",
                "attributes": [{"key": "n", "value": {"intValue": "1"}}],
            }
        ],
        "status": {"code": 2, "message": "it broke"},
    }


def test_a_root_without_events_and_error_has_no_such_keys() -> None:
    run = RunSpans()
    span = encoded_span(run.run(attributes={}))
    assert span.keys() == {
        "traceId",
        "spanId",
        "name",
        "kind",
        "startTimeUnixNano",
        "endTimeUnixNano",
        "attributes",
    }
    assert span["kind"] == 1


def test_a_line_names_the_resource_and_our_scope() -> None:
    (request,) = encode(SPAN, resource={"service.name": "bench"})
    (resource_spans,) = request["resourceSpans"]
    assert resource_spans["resource"] == {
        "attributes": [{"key": "service.name", "value": {"stringValue": "bench"}}]
    }
    (scope_spans,) = resource_spans["scopeSpans"]
    assert scope_spans["scope"] == {"name": names.SCOPE, "version": __version__}


def test_a_request_is_one_line_whatever_the_texts_hold() -> None:
    run = RunSpans()
    span = run.run(attributes={"text": "a\nb\r\nc"})
    (line,) = encode_lines([span], {})
    assert "\n" not in line
    assert "\r" not in line


def test_a_lone_surrogate_makes_a_line_that_can_be_written_too() -> None:
    run = RunSpans()
    span = run.run(attributes={names.RESPONSE_MODEL: "tiny\ud800"})  # json.loads of a server's "\ud800" makes one
    (line,) = encode_lines([span], {})
    line.encode()


def test_no_spans_are_no_lines() -> None:
    assert encode() == []


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, [1]), (1_000, [1_000]), (1_001, [1_000, 1]), (2_500, [1_000, 1_000, 500])]
)
def test_a_line_holds_at_most_a_thousand_spans(count: int, sizes: list[int]) -> None:
    lines = list(encode_lines(many_spans(count), {}))
    assert [len(decode_line(line).spans) for line in lines] == sizes


def test_many_spans_come_back_in_their_order() -> None:
    spans = many_spans(2_500)
    assert [span for line in encode_lines(iter(spans), {}) for span in decode_line(line).spans] == spans


# --- decoding ----------------------------------------------------------------------------------------------


def test_a_span_comes_back_as_it_was() -> None:
    (line,) = encode_lines([SPAN], {})
    assert decode_line(line).spans == [SPAN]
    assert decode_line(line).foreign_count == 0


def test_an_error_without_words_is_still_an_error() -> None:
    assert decode(status={"code": 2}).error == ""


@pytest.mark.parametrize("status", [{}, {"code": 0}, {"code": 1, "message": "fine"}, {"message": "x"}])
def test_a_status_that_is_no_error_is_none(status: dict[str, Any]) -> None:
    assert decode(status=status).error is None


def test_enums_may_come_as_names() -> None:
    span = decode(kind="SPAN_KIND_CLIENT", status={"code": "STATUS_CODE_ERROR", "message": "x"})
    assert span.kind is SpanKind.CLIENT
    assert span.error == "x"


@pytest.mark.parametrize("kind", [None, 0, 1, 2, 5, "SPAN_KIND_INTERNAL"])
def test_other_kinds_are_internal(kind: object) -> None:
    assert decode(kind=kind).kind is SpanKind.INTERNAL


def test_integers_may_come_as_numbers() -> None:
    span = decode(startTimeUnixNano=5, attributes=[{"key": "n", "value": {"intValue": 7}}])
    assert span.start_ns == 5
    assert span.attributes == {"n": 7}


def test_a_double_without_a_fraction_stays_a_double() -> None:
    value = decode(attributes=[{"key": "n", "value": {"doubleValue": 1}}]).attributes["n"]
    assert isinstance(value, float)


def test_ids_in_capitals_are_ours_in_small_letters() -> None:
    assert decode(spanId="00000000000000AA").span_id == "00000000000000aa"


@pytest.mark.parametrize("parent", [None, ""])
def test_no_parent_and_an_empty_parent_are_a_root(parent: str | None) -> None:
    assert decode(parentSpanId=parent).parent_span_id is None


def test_absent_attributes_and_events_are_empty() -> None:
    span = decode(attributes=None, events=None)
    assert span.attributes == {}
    assert span.events == ()


def test_spans_of_other_scopes_are_counted_not_read() -> None:
    ours = json.loads(next(encode_lines([SPAN], {})))["resourceSpans"][0]
    theirs = {
        "scopeSpans": [
            {"scope": {"name": "some.server"}, "spans": [{"name": "not even a whole span"}, {}, {}]},
            {"spans": [{}]},
            {"scope": {}},
        ]
    }
    decoded = decode_line(json.dumps({"resourceSpans": [theirs, ours, {}]}))
    assert decoded.spans == [SPAN]
    assert decoded.foreign_count == 4


@pytest.mark.parametrize(
    "line",
    [
        "",
        "not json",
        '{"resourceSpans": [',
        "null",
        "7",
        '"text"',
        "[]",
        "{}",
        '{"resourceSpans": null}',
        '{"resourceSpans": [7]}',
        '{"resourceSpans": [{"scopeSpans": [7]}]}',
        '{"resourceSpans": [{"scopeSpans": [{"scope": null}]}]}',
        '{"resourceLogs": []}',
        "[" * 100_000,
    ],
)
def test_a_line_that_is_no_trace_data_is_a_value_error(line: str) -> None:
    with pytest.raises(ValueError):
        decode_line(line)


@pytest.mark.parametrize(
    "changes",
    [
        {"traceId": None},
        {"traceId": "12"},
        {"traceId": "0" * 32},
        {"traceId": 7},
        {"traceId": "g" * 32},
        {"spanId": "0x000000000000aa"},
        {"spanId": "0000_0000_0000aa"},
        {"spanId": "            00aa"},
        {"spanId": "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠١"},
        {"parentSpanId": "xyz"},
        {"name": None},
        {"kind": [3]},
        {"startTimeUnixNano": None},
        {"startTimeUnixNano": "now"},
        {"startTimeUnixNano": float("inf")},
        {"endTimeUnixNano": {}},
        {"attributes": [{"value": {"stringValue": "a"}}]},
        {"attributes": [{"key": "a"}]},
        {"attributes": [{"key": "a", "value": "a"}]},
        {"attributes": [{"key": "a", "value": {"intValue": "many"}}]},
        {"attributes": [{"key": "a", "value": {"intValue": float("inf")}}]},
        {"attributes": [{"key": "a", "value": {"doubleValue": 10**400}}]},
        {"attributes": 7},
        {"events": [{"name": "a"}]},
        {"status": "bad"},
    ],
    ids=lambda changes: json.dumps(changes)[:60],
)
def test_a_span_that_is_none_is_a_value_error(changes: dict[str, Any]) -> None:
    span = {key: value for key, value in {**encoded_span(SPAN), **changes}.items() if value is not None}
    scope = {"scope": {"name": names.SCOPE}, "spans": [span]}
    line = json.dumps({"resourceSpans": [{"scopeSpans": [scope]}]})
    with pytest.raises(ValueError):
        decode_line(line)

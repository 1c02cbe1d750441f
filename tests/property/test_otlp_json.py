"""Any span comes back from its line, and any other line is refused in one way."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentbench_otel import names
from agentbench_otel.records.spans import SpanEvent, SpanKind, SpanRecord
from agentbench_otel.telemetry.otlp_json import DecodedLine, decode_line, encode_lines

times = st.integers(min_value=0, max_value=2**63 - 1)
texts = st.text(max_size=12)  # without surrogates: no UTF-8 file holds them
values = st.one_of(
    texts,
    st.booleans(),
    st.integers(min_value=-(2**63), max_value=2**63 - 1),
    st.floats(allow_nan=False),
    st.lists(texts, max_size=3).map(tuple),
)
attributes = st.dictionaries(texts, values, max_size=4)


def hex_ids(digits: int) -> st.SearchStrategy[str]:
    return st.integers(min_value=1, max_value=16**digits - 1).map(lambda number: f"{number:0{digits}x}")


spans = st.builds(
    SpanRecord,
    trace_id=hex_ids(32),
    span_id=hex_ids(16),
    parent_span_id=st.none() | hex_ids(16),
    name=texts,
    kind=st.sampled_from(SpanKind),
    start_ns=times,
    end_ns=times,
    attributes=attributes,
    events=st.lists(st.builds(SpanEvent, name=texts, time_ns=times, attributes=attributes), max_size=2).map(tuple),
    error=st.none() | texts,
)


def round_trip(records: Sequence[SpanRecord]) -> DecodedLine:
    (line,) = encode_lines(records, {"service.name": "bench"})
    return decode_line(line.encode().decode())


@given(st.lists(spans, min_size=1, max_size=3))
def test_spans_come_back_as_they_were(records: list[SpanRecord]) -> None:
    assert round_trip(records) == DecodedLine(spans=records, foreign_count=0)


@given(spans)
def test_values_come_back_in_their_types(record: SpanRecord) -> None:
    (decoded,) = round_trip([record]).spans
    for key, value in record.attributes.items():
        assert type(decoded.attributes[key]) is type(value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def read_or_refuse(line: str) -> None:
    with suppress(ValueError):
        decode_line(line)


@given(st.text(max_size=40))
def test_a_line_of_text_is_never_worse_than_a_value_error(line: str) -> None:
    read_or_refuse(line)


@given(json_values)
def test_a_line_of_json_is_never_worse_than_a_value_error(value: Any) -> None:
    read_or_refuse(json.dumps(value))
    read_or_refuse(json.dumps({"resourceSpans": value}))
    read_or_refuse(json.dumps({"resourceSpans": [{"scopeSpans": value}]}))
    read_or_refuse(
        json.dumps({"resourceSpans": [{"scopeSpans": [{"scope": {"name": names.SCOPE}, "spans": value}]}]})
    )


@given(st.data())
def test_a_span_with_one_key_spoiled_is_never_worse_than_a_value_error(data: st.DataObject) -> None:
    (line,) = encode_lines([data.draw(spans)], {})
    request = json.loads(line)
    span = request["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    span[data.draw(st.sampled_from(sorted(span)))] = data.draw(json_values)
    read_or_refuse(json.dumps(request))

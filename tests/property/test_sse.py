"""Server-sent events: how the bytes of a body are cut never changes its events."""

import re
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentbench_otel.providers.sse import EventDecoder, SseEvent

LINES = (
    "data: [DONE]", "data:[DONE]", "data:  [DONE] ", "data: {}", 'data: {"a":1}', 'data:{"é":"🎉"}', "data: ",
    "data:", "data", "data:  two blanks", "data: a: b", "event: error", "event:", "event: message", "error: busy",
    "error:", ": keep-alive", ":", "id: 7", "retry: 10", "data : x", " data: x", "Data: x", "junk", "junk: 1", "",
    "", "", "data: \u2028 \x85 \x0b \x0c", "data: \ufeff", "\ufeffdata: x", '{"error":"x"}', "[1]", "<html>", " {",
    "data: {\u2029}",
)  # fmt: skip
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n", b"\n\r"])
LINE_BYTES = st.sampled_from(LINES).map(str.encode) | st.binary(max_size=6)
BODIES = st.builds(
    lambda bom, lines, last: bom + b"".join(line + end for line, end in lines) + last,
    st.sampled_from([b"", b"", b"\xef\xbb\xbf", b"\xef\xbb\xbf\xef\xbb\xbf", b"\xef\xbb"]),
    st.lists(st.tuples(LINE_BYTES, ENDS), max_size=10),
    LINE_BYTES,
)
CUTS = st.lists(st.integers(min_value=0, max_value=200), max_size=12)

Heard = tuple[list[SseEvent], str]


def reads_of(body: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    return [body[start:end] for start, end in pairwise(places)]


def decode(reads: Sequence[bytes]) -> Heard:
    decoder = EventDecoder()
    events = [event for data in reads for event in decoder.feed(data)]
    return events + decoder.finish(), decoder.plain_text.strip()


# --- the slow oracle: all lines at once, from the whole body ----------------------------------------------


def oracle(body: bytes) -> Heard:
    raw_lines = re.split(rb"\r\n|\r|\n", body.removeprefix(b"\xef\xbb\xbf"))
    if raw_lines[-1] == b"":  # a body that ends with a line end has no further line
        raw_lines.pop()
    lines = [line.decode("utf-8", "replace") for line in raw_lines]
    first_words = next((line.lstrip() for line in lines if line.strip()), "")
    if first_words.startswith(("{", "[", "<")):
        return [], "\n".join(lines).strip()
    plain = [line for line in lines if line and field_of(line)[0] not in KNOWN_FIELDS]
    return list(events_of(lines)), "\n".join(plain).strip()


KNOWN_FIELDS = ("data", "event", "error", "id", "retry", "")


def field_of(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    return name, value[1:] if colon and value.startswith(" ") else value


def events_of(lines: Sequence[str]) -> Iterator[SseEvent]:
    block: list[tuple[str, str]] = []
    for line in lines:
        name, value = field_of(line)
        if name == "data" and value.strip() == "[DONE]":
            yield from event_of(block, is_cut=False)
            yield SseEvent(data=("[DONE]",))
            block = []
        elif line == "":
            yield from event_of(block, is_cut=False)
            block = []
        else:
            block.append((name, value))
    yield from event_of(block, is_cut=True)


def event_of(block: Sequence[tuple[str, str]], *, is_cut: bool) -> Iterator[SseEvent]:
    data = tuple(value for name, value in block if name == "data" and value)
    errors = [value for name, value in block if name == "error"]
    event_names = [value for name, value in block if name == "event"]
    if data or errors:
        yield SseEvent(
            name=event_names[-1] if event_names else "",
            data=data,
            error=errors[-1] if errors else None,
            is_cut=is_cut,
        )


# --- properties -------------------------------------------------------------------------------------------


@given(body=BODIES, cuts=CUTS)
@example(body=b"\xef\xbb\xbfdata: a\r\n\r\ndata: b\r\rdata: [DONE]\r\n\r\n", cuts=[1, 2, 11, 12, 13, 22, 23])
@example(body="data: é🎉\u2028\n\n".encode(), cuts=[7, 9, 10, 11, 13, 14])
@example(body=b"\t\n[1]", cuts=[1, 2])
@example(body=b"data: a\r", cuts=[8])
@example(body=b"data: a\r\ndata: b", cuts=[8, 8, 8])
def test_any_cut_of_the_bytes_gives_what_the_whole_body_gives(body: bytes, cuts: list[int]) -> None:
    assert decode(reads_of(body, cuts)) == decode([body])


@given(body=BODIES)
def test_byte_by_byte_agrees_with_reading_all_lines_at_once(body: bytes) -> None:
    assert decode([body[place : place + 1] for place in range(len(body))]) == oracle(body)


@given(body=BODIES, cuts=CUTS)
def test_any_cut_agrees_with_reading_all_lines_at_once(body: bytes, cuts: list[int]) -> None:
    assert decode(reads_of(body, cuts)) == oracle(body)


DATA = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(
    events=st.lists(st.lists(DATA, min_size=1, max_size=3), max_size=4),
    end=st.sampled_from(["\n", "\r", "\r\n"]),
    space=st.sampled_from(["", " "]),
    cuts=CUTS,
)
def test_data_comes_back_as_it_was_sent(events: list[list[str]], end: str, space: str, cuts: list[int]) -> None:
    sent = [[line for line in lines if line.strip() != "[DONE]" and line[0] != " "] for lines in events]
    body = "".join(
        "".join(f"data:{space}{line}{end}" for line in lines) + f": comment{end}{end}" for lines in sent
    )

    assert [event.data for event in decode(reads_of(body.encode(), cuts))[0]] == [
        tuple(lines) for lines in sent if lines
    ]


@pytest.mark.parametrize("unit", [b"\r", b"\n", b"\r\n", b"data: x\r", b"x", b":\n"])
def test_a_large_read_takes_no_longer_than_many_small_ones(unit: bytes) -> None:
    def time_s(reads: Sequence[bytes]) -> float:
        start_s = time.process_time()
        decode(reads)
        return time.process_time() - start_s

    body = unit * (400_000 // len(unit))
    small_s = time_s(reads_of(body, range(0, len(body), 64)))
    assert time_s([body]) < 2 * small_s


def test_a_line_in_very_many_reads_takes_linear_time() -> None:
    def time_s(count: int) -> float:
        start_s = time.process_time()
        decode([b"data: ", *[b"x"] * count])
        return time.process_time() - start_s

    short_s = min(time_s(50_000) for _ in range(3))
    assert time_s(400_000) < 2 * 8 * short_s

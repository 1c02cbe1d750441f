"""Whatever a socket says, the client ends with items and an error of the closed list: it never raises, it never
hangs, and how the bytes were cut changes nothing. What once broke it stands in ``tests/contract/fuzz_corpus``."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentbench_otel.errors import ErrorKind, ProviderError
from agentbench_otel.records.chat import GENERATED_KINDS
from tests.support.answers import Heard, hear
from tests.support.replay_server import frame_bytes, load_cases

CORPUS = sorted((Path(__file__).parent.parent / "contract" / "fuzz_corpus").glob("*.bin"))
KINDS = {kind.value for kind in ErrorKind}

RECORDED = [
    json.loads(line.removeprefix("data:"))
    for case in load_cases()
    for frame in case.frames
    if "raw" in frame
    for line in frame_bytes(frame).decode("utf-8", "replace").splitlines()
    if line.startswith("data:")
    and line.rstrip().endswith("}")
    and line.removeprefix("data:").strip().startswith("{")
]
"""The chunks of real servers: fuzzing starts from what they say."""

WORDS = [
    *(
        "choices",
        "delta",
        "index",
        "content",
        "tool_calls",
        "function",
        "arguments",
        "name",
        "id",
        "usage",
        "error",
    ),
    *("message", "finish_reason", "type", "text", "thinking", "reasoning", "refusal", "prompt_tokens", "model"),
    *("prompt_tokens_details", "detail", "error"),
]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(WORDS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    if isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*path, index))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with ``new`` at ``path``."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put(value[path[0]], path[1:], new)
    return copy


@st.composite
def mutated_chunks(draw: st.DrawFn) -> Any:
    chunk = draw(st.sampled_from(RECORDED))
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from(sorted(places(chunk), key=str)))
        chunk = put(chunk, path, draw(values))
    return chunk


lines = (
    st.binary(max_size=12)
    | st.sampled_from(
        [b"", b"data:", b"data: [DONE]", b": ping", b"event: error", b"error: boom", b"\xef\xbb\xbf", b"<html>"]
    )
    | (mutated_chunks() | values).map(lambda value: b"data: " + json.dumps(value).encode())
)
bodies = st.lists(st.tuples(lines, st.sampled_from([b"\n", b"\n\n", b"\r\n\r\n", b"\r", b""])), max_size=8).map(
    lambda parts: b"".join(line + end for line, end in parts)
)


def check(heard: Heard) -> None:
    failure = heard.failure
    assert failure is None or isinstance(failure, ProviderError), failure
    if failure is not None:
        assert failure.kind in KINDS
        assert 0 < len(str(failure)) < 700
        assert str(failure).isprintable()
    for item in heard.items:
        assert item.text or item.kind not in GENERATED_KINDS
        call = item.tool_call
        texts = [item.text, item.finish_reason or ""]
        texts += [] if call is None else [call.id, call.name, call.raw_arguments]
        "".join(texts).encode()  # what can't be encoded can be neither logged nor sent back
    f"{heard.exchange.response_id}{heard.exchange.response_model}{heard.exchange.warnings}".encode()
    if failure is None:
        assert any(item.kind in GENERATED_KINDS for item in heard.items)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=bodies, data=st.data(), cut=st.sampled_from([None, "the connection was lost"]))
def test_any_bytes_in_any_cut_end_in_items_and_a_known_error(
    body: bytes, data: st.DataObject, cut: str | None
) -> None:
    whole = hear([body], cut=cut)
    check(whole)
    positions = sorted(data.draw(st.sets(st.integers(0, len(body)), max_size=6)))
    reads = [body[start:end] for start, end in zip([0, *positions], [*positions, len(body)], strict=True)]
    assert hear(reads, cut=cut).without_arrivals() == whole.without_arrivals()


@settings(max_examples=150, deadline=None)
@given(body=st.binary(max_size=200))
@example(b"data: " + b"[" * 100_000)
@example(b"data: " + b'{"a":' * 50_000)
@example(
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"a","arguments":"' + b"[" * 90_000
)
def test_plain_noise_and_bottomless_nesting_end_in_a_known_error(body: bytes) -> None:
    check(hear([body]))


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.stem)
def test_what_once_broke_the_client_no_longer_does(file: Path) -> None:
    body = file.read_bytes()
    check(hear([body]))
    one_by_one = [body[position : position + 1] for position in range(len(body))]
    assert hear(one_by_one).without_arrivals() == hear([body]).without_arrivals()

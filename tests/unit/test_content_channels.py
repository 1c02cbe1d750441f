"""Content → text and reasoning, and the items that the chunks of a stream become."""

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentbench_otel.errors import ErrorKind
from agentbench_otel.providers.content_channels import ContentPiece, ThinkTags
from agentbench_otel.providers.deltas import StreamReader
from agentbench_otel.providers.sse import SseEvent
from agentbench_otel.records.chat import ItemKind, StreamItem

# --- think tags -------------------------------------------------------------------------------------------


def split(*deltas: str) -> list[ContentPiece]:
    tags = ThinkTags()
    return [piece for delta in deltas for piece in tags.feed(delta)] + tags.finish()


def channels(pieces: Sequence[ContentPiece]) -> tuple[str, str]:
    """Text and reasoning."""
    text = "".join(piece.text for piece in pieces if not piece.is_reasoning)
    return text, "".join(piece.text for piece in pieces if piece.is_reasoning)


def oracle(content: str) -> tuple[str, str]:
    """Text and reasoning, from the whole content at once."""
    match = re.match(r"(\s*)<think>", content)
    if match is None:
        return content, ""
    thought, _, answer = content[match.end() :].partition("</think>")
    return match[1] + answer, thought


CONTENTS = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<th", "ink>", "</", "</thi", "nk>", "<", ">", " ", "\n", "\u2003", "Hello", "/"]
    )
    | st.text(max_size=2),
    max_size=8,
).map("".join)  # fmt: skip
CUTS = st.lists(st.integers(min_value=0, max_value=60), max_size=8)


def deltas_of(content: str, cuts: Sequence[int]) -> list[str]:
    places = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    return [content[start:end] for start, end in pairwise(places)]


@given(content=CONTENTS, cuts=CUTS)
@example(content="\n<think>Check lamp.</think>\nLamp is on.", cuts=[1, 4, 9, 20, 24])
@example(content="<think></think>", cuts=[])
@example(content="<think>a</thin", cuts=[12])
def test_any_split_gives_the_same_channels(content: str, cuts: list[int]) -> None:
    assert channels(split(*deltas_of(content, cuts))) == oracle(content)


@given(content=CONTENTS)
def test_character_by_character_gives_the_same_channels(content: str) -> None:
    assert channels(split(*content)) == oracle(content)


@given(content=CONTENTS, cuts=CUTS)
def test_no_piece_is_empty(content: str, cuts: list[int]) -> None:
    assert all(piece.text for piece in split(*deltas_of(content, cuts)))


def test_a_think_tag_at_the_start_is_reasoning() -> None:
    assert split("<think>Check.</think>Yes.") == [ContentPiece("Check.", True), ContentPiece("Yes.", False)]


def test_a_later_think_tag_is_text() -> None:
    assert split("Yes. <think>Hm.</think>") == [ContentPiece("Yes. <think>Hm.</think>", False)]


def test_a_second_think_tag_is_text() -> None:
    assert channels(split("<think>a</think>b<think>c</think>")) == ("b<think>c</think>", "a")


def test_white_space_before_a_tag_is_not_held_back() -> None:
    assert ThinkTags().feed("\n\n<thi") == [ContentPiece("\n\n", False)]


def test_what_may_become_a_tag_is_held_back() -> None:
    tags = ThinkTags()

    assert tags.feed("<thi") == []
    assert tags.feed("s is no tag") == [ContentPiece("<this is no tag", False)]


def test_text_after_the_start_is_never_held_back() -> None:
    tags = ThinkTags()
    tags.feed("Hello")

    assert tags.feed(" <thi") == [ContentPiece(" <thi", False)]


def test_thinking_that_is_not_closed_stays_reasoning() -> None:
    assert channels(split("<think>Still at it </thi")) == ("", "Still at it </thi")


def test_a_beginning_of_a_tag_at_the_end_is_text() -> None:
    assert split("<thi") == [ContentPiece("<thi", False)]


def test_an_answer_that_began_with_a_tag_is_known_as_such() -> None:
    tags = ThinkTags()
    tags.feed("<think>a")
    assert tags.has_opened
    tags.feed("</think>b")
    assert tags.has_opened

    other = ThinkTags()
    other.feed("a<think>")
    assert not other.has_opened


# --- chunks → items ---------------------------------------------------------------------------------------


def chunk(delta: Any = None, **choice: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None, **choice}]}


def heard(*chunks: Any) -> list[StreamItem]:
    reader = StreamReader()
    items = [
        item
        for number, one in enumerate(chunks)
        for item in reader.read(SseEvent(data=(json.dumps(one),)), arrival_ns=number)
    ]
    return items + reader.end()


def in_short(items: Sequence[StreamItem]) -> list[tuple[str, str]]:
    return [(item.kind.value, item.text or item.finish_reason or "") for item in items]


def said(items: Sequence[StreamItem], kind: ItemKind) -> str:
    return "".join(item.text for item in items if item.kind is kind)


@pytest.mark.parametrize(
    "nothing",
    [
        {},
        {"choices": None},
        {"choices": []},
        {"choices": [None]},
        {"choices": [], "usage": None},
        chunk(None),
        chunk({}),
        chunk({"role": "assistant"}),
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": None, "refusal": None, "reasoning_content": "", "tool_calls": None}),
        chunk({"tool_calls": []}),
        chunk({"tool_calls": [{"index": 0, "function": None}]}),
        chunk({"audio": {"id": "x"}}),
        chunk({"content": []}),
        chunk({"content": ""}, finish_reason=""),
        chunk({"content": "other"}, index=1),
        {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
    ],
)
def test_a_chunk_that_carries_nothing_is_a_raw_chunk(nothing: Any) -> None:
    assert in_short(heard(nothing)) == [("raw_chunk", "")]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking"])
def test_every_known_reasoning_field_is_reasoning(field: str) -> None:
    assert in_short(heard(chunk({field: "Hm.", "content": ""}))) == [("reasoning", "Hm.")]


def test_of_two_reasoning_fields_one_is_taken() -> None:
    items = heard(chunk({"reasoning_content": "Hm.", "reasoning": "Hm."}))

    assert in_short(items) == [("reasoning", "Hm.")]


def test_reasoning_comes_before_the_content_of_the_same_chunk() -> None:
    items = heard(chunk({"content": "Yes.", "reasoning": "Hm."}, finish_reason="stop"))

    assert in_short(items) == [("reasoning", "Hm."), ("text", "Yes."), ("finish", "stop")]


def test_a_content_list_is_flattened_by_type() -> None:
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}, {"type": "text", "text": "."}]},
        {"type": "thinking", "thinking": "So"},
        {"type": "thinking", "thinking": []},
        {"type": "text", "text": "Yes."},
        {"type": "text", "text": ""},
        {"type": "image"},
        "junk",
    ]

    assert in_short(heard(chunk({"content": content}))) == [
        ("reasoning", "Hm."),
        ("reasoning", "So"),
        ("text", "Yes."),
    ]


def test_thinking_in_tags_and_in_a_field_is_told_once() -> None:
    items = heard(
        chunk({"reasoning_content": "Check", "content": "<think>Check"}),
        chunk({"reasoning_content": "Check lamp.", "content": " lamp."}),
        chunk({"content": "</think>On."}),
    )

    assert said(items, ItemKind.REASONING) == "Check lamp."
    assert said(items, ItemKind.TEXT) == "On."


def test_a_snapshot_in_the_chunk_that_closes_the_tag_is_told_once_too() -> None:
    items = heard(
        chunk({"reasoning_content": "Check", "content": "<think>Check"}),
        chunk({"reasoning_content": "Check lamp.", "content": " lamp.</think>On."}),
    )

    assert said(items, ItemKind.REASONING) == "Check lamp."
    assert said(items, ItemKind.TEXT) == "On."


def test_equal_deltas_are_not_taken_for_repetitions() -> None:
    assert said(heard(*[chunk({"content": "ha"})] * 3), ItemKind.TEXT) == "hahaha"
    assert said(heard(*[chunk({"reasoning": "ha"})] * 3), ItemKind.REASONING) == "hahaha"


def test_a_refusal_is_an_item_of_its_own() -> None:
    assert in_short(heard(chunk({"refusal": "I can't.", "content": None}))) == [("refusal", "I can't.")]


def test_only_the_choice_0_counts() -> None:
    both = {"choices": [{"index": 1, "delta": {"content": "b"}}, {"index": 0, "delta": {"content": "a"}}]}

    assert in_short(heard(both, {"choices": [{"delta": {"content": "c"}}]})) == [("text", "a"), ("text", "c")]


def test_a_whole_message_counts_where_nothing_was_streamed() -> None:
    whole = {"choices": [{"index": 0, "message": {"content": "Hello."}, "finish_reason": "stop"}]}

    assert said(heard(whole), ItemKind.TEXT) == "Hello."
    assert said(heard(chunk({"content": "Hello."}), whole), ItemKind.TEXT) == "Hello."


def test_tool_calls_are_finished_at_the_end_of_the_stream() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "volume", "arguments": '{"level":30}'}}
    items = heard(chunk({"tool_calls": [call]}), chunk({}, finish_reason="stop"))

    assert [item.kind.value for item in items] == ["tool_call_delta", "finish", "tool_call"]
    assert items[-1].tool_call is not None
    assert items[-1].tool_call.arguments == {"level": 30}


def test_a_legacy_function_call_is_a_tool_call() -> None:
    items = heard(chunk({"function_call": {"name": "volume", "arguments": "{}"}}))

    assert [item.tool_call.name for item in items if item.tool_call is not None] == ["volume"]


def test_what_was_held_back_comes_at_the_end() -> None:
    items = heard(chunk({"content": "<thi"}), chunk({}, finish_reason="stop"))

    assert in_short(items) == [("raw_chunk", ""), ("finish", "stop"), ("text", "<thi")]


def test_lone_surrogates_become_replacement_characters() -> None:
    assert (
        said(heard(chunk({"content": "a\ud83d"}), chunk({"content": "é\udf89🎉"})), ItemKind.TEXT)
        == "a\ufffdé\ufffd🎉"
    )


@pytest.mark.parametrize(
    ("reasons", "finish_reason"),
    [
        ([None, "stop"], "stop"),
        (["", "length"], "length"),
        (["stop", "length"], "stop"),
        (["SOME_NEW_REASON"], "SOME_NEW_REASON"),
        ([None], None),
        ([7], None),
    ],
)
def test_the_first_reason_after_a_generated_piece_counts(reasons: list[Any], finish_reason: str | None) -> None:
    reader = StreamReader()
    chunks = [chunk({"content": "a"}), *(chunk({}, finish_reason=reason) for reason in reasons)]
    for one in chunks:
        reader.read(SseEvent(data=(json.dumps(one),)), arrival_ns=1)

    assert reader.finish_reason == finish_reason


def test_a_reason_before_any_piece_gives_way_to_one_after() -> None:
    items = heard(
        chunk({}, finish_reason="stop"),
        chunk({"content": "a"}),
        chunk({}, finish_reason="length"),
        chunk({}, finish_reason="stop"),
    )

    assert [item.finish_reason for item in items if item.kind is ItemKind.FINISH] == ["stop", "length"]


def test_items_arrive_with_their_event() -> None:
    items = heard(
        chunk({"role": "assistant"}), chunk({"content": "a"}), chunk({"content": "b"}, finish_reason="stop")
    )

    assert [item.arrival_ns for item in items] == [0, 1, 2, 2]


# --- how a stream ends ------------------------------------------------------------------------------------


def failure_of(*events: SseEvent, cut: str | None = None) -> str | None:
    reader = StreamReader()
    for event in events:
        reader.read(event, arrival_ns=1)
    reader.end(cut)
    return None if reader.failure is None else reader.failure.kind


def event_of(*lines: Any, **fields: Any) -> SseEvent:
    return SseEvent(data=tuple(line if isinstance(line, str) else json.dumps(line) for line in lines), **fields)


TEXT = event_of(chunk({"content": "a"}))
STOP = event_of(chunk({}, finish_reason="stop"))
DONE = SseEvent(data=("[DONE]",))


@pytest.mark.parametrize(
    ("events", "cut", "kind"),
    [
        ([TEXT, STOP, DONE], None, None),
        ([TEXT, STOP], None, None),
        ([TEXT, STOP], "lost", None),
        ([TEXT, DONE], None, None),
        ([TEXT], None, ErrorKind.STREAM_TRUNCATED),
        ([TEXT], "lost", ErrorKind.STREAM_TRUNCATED),
        ([], "lost", ErrorKind.STREAM_TRUNCATED),
        ([], None, ErrorKind.EMPTY_RESPONSE),
        ([STOP, DONE], None, ErrorKind.EMPTY_COMPLETION),
        ([DONE], None, ErrorKind.EMPTY_COMPLETION),
        (
            [event_of(chunk({"tool_calls": [{"index": 0, "id": "a"}]})), TEXT, STOP],
            None,
            ErrorKind.TOOL_CALL_UNNAMED,
        ),
        ([TEXT, event_of("{", is_cut=True)], None, ErrorKind.STREAM_TRUNCATED),
        ([TEXT, event_of("{"), STOP], None, ErrorKind.MALFORMED_JSON),
        ([TEXT, event_of("Error: out of memory")], None, ErrorKind.IN_STREAM_ERROR),
        ([TEXT, event_of("out of memory", name="error")], None, ErrorKind.IN_STREAM_ERROR),
        ([TEXT, event_of({"message": "busy"}, name="error")], None, ErrorKind.IN_STREAM_ERROR),
        ([TEXT, event_of({"error": {"message": "busy"}}), STOP], None, ErrorKind.IN_STREAM_ERROR),
        ([TEXT, SseEvent(error="busy"), STOP], None, ErrorKind.IN_STREAM_ERROR),
        ([TEXT, event_of("{}", "{")], None, ErrorKind.MALFORMED_JSON),
        ([TEXT, event_of({"error": "busy"}, chunk({"content": "b"})), STOP], None, ErrorKind.IN_STREAM_ERROR),
        ([event_of(chunk({"content": "a"}, error={"message": "busy"})), STOP], None, ErrorKind.IN_STREAM_ERROR),
        ([event_of(chunk({"content": "a"}, error=None)), STOP], None, None),
        ([event_of(chunk({"content": "a"}, finish_reason="error")), DONE], None, ErrorKind.IN_STREAM_ERROR),
        ([TEXT, event_of("null"), event_of("7"), event_of([1]), STOP], None, None),
    ],
)
def test_how_a_stream_ends_decides_its_error(
    events: list[SseEvent], cut: str | None, kind: ErrorKind | None
) -> None:
    assert failure_of(*events, cut=cut) == kind


@pytest.mark.parametrize("end", [DONE, event_of({"error": "busy"})])
def test_after_the_end_nothing_is_read(end: SseEvent) -> None:
    reader = StreamReader()
    reader.read(end, arrival_ns=1)

    assert reader.read(TEXT, arrival_ns=2) == []


def test_several_data_lines_may_be_one_json_value_or_one_each() -> None:
    whole = json.dumps(chunk({"content": "a"}))
    reader = StreamReader()
    items = reader.read(SseEvent(data=(whole[:10], whole[10:])), arrival_ns=1)
    items += reader.read(SseEvent(data=(whole, whole)), arrival_ns=2)

    assert said(items, ItemKind.TEXT) == "aaa"


def test_after_an_error_among_several_data_lines_the_rest_is_not_read() -> None:
    items = StreamReader().read(event_of({"error": "busy"}, chunk({"content": "b"})), arrival_ns=1)

    assert items == []


def test_the_first_id_and_model_of_the_stream_are_kept() -> None:
    reader = StreamReader()
    for fields in ({"id": "", "model": None}, {"id": "a", "model": "m-1"}, {"id": "b", "model": "m-2"}):
        reader.read(event_of({**fields, "choices": []}), arrival_ns=1)

    assert (reader.response_id, reader.response_model) == ("a", "m-1")


def test_text_that_was_held_back_arrived_with_its_delta_and_not_with_the_end() -> None:
    reader = StreamReader()
    chunk = {"choices": [{"index": 0, "delta": {"content": "<thi"}, "finish_reason": "stop"}]}
    reader.read(SseEvent(data=(json.dumps(chunk),)), 10)
    reader.read(SseEvent(data=("[DONE]",)), 500)
    (text,) = [item for item in reader.end() if item.kind is ItemKind.TEXT]
    assert (text.text, text.arrival_ns) == ("<thi", 10)

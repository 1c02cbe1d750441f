"""Fragments of tool calls → finished calls, in all the ways in which servers cut them."""

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbench_otel.providers.tool_call_parts import ToolCallParts, local_call_id
from agentbench_otel.records.chat import ToolCall

JsonObject = dict[str, Any]


def fragment(
    arguments: Any = None, *, index: Any = None, call_id: str | None = None, name: str | None = None
) -> JsonObject:
    """A fragment as servers send it; what is None is left out."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    outer = {key: value for key, value in (("index", index), ("id", call_id)) if value is not None}
    return {**outer, "type": "function", "function": function}


def calls_of(fragments: Sequence[Any]) -> list[ToolCall]:
    parts = ToolCallParts()
    for one in fragments:
        parts.add(one)
    return parts.finish()


def in_short(calls: Sequence[ToolCall]) -> list[tuple[str, str, Any]]:
    return [(call.id, call.name, call.arguments) for call in calls]


# --- which fragment belongs to which call -----------------------------------------------------------------


def test_fragments_with_an_index_are_put_together_by_it() -> None:
    calls = calls_of(
        [
            fragment("", index=0, call_id="a", name="volume"),
            fragment("", index=1, call_id="b", name="calendar"),
            fragment('{"level"', index=0),
            fragment('{"title":', index=1),
            fragment(":30}", index=0),
            fragment('"x"}', index=1),
        ]
    )

    assert in_short(calls) == [("a", "volume", {"level": 30}), ("b", "calendar", {"title": "x"})]


def test_calls_are_sorted_by_index() -> None:
    calls = calls_of(
        [fragment("{}", index=2, call_id="c", name="z"), fragment("{}", index=0, call_id="a", name="x")]
    )

    assert [call.id for call in calls] == ["a", "c"]


def test_without_an_index_a_new_id_opens_a_call_and_a_known_one_goes_on() -> None:
    calls = calls_of(
        [
            fragment('{"n":', call_id="a", name="x"),
            fragment('{"n":', call_id="b", name="x"),
            fragment("1}", call_id="a"),
            fragment("2}", call_id="b"),
        ]
    )

    assert in_short(calls) == [("a", "x", {"n": 1}), ("b", "x", {"n": 2})]


def test_without_index_and_id_a_fragment_goes_to_the_last_call() -> None:
    calls = calls_of(
        [
            fragment("{}", call_id="a", name="x"),
            fragment('{"n"', call_id="b", name="y"),
            fragment(":2}"),
        ]
    )

    assert in_short(calls) == [("a", "x", {}), ("b", "y", {"n": 2})]


def test_without_index_and_id_another_name_opens_a_call() -> None:
    calls = calls_of([fragment('{"n":1}', name="x"), fragment('{"n":2}', name="y")])

    assert [(call.name, call.arguments) for call in calls] == [("x", {"n": 1}), ("y", {"n": 2})]


def test_a_used_index_with_another_id_and_a_name_is_a_new_call() -> None:
    calls = calls_of(
        [
            fragment('{"n":1}', index=0, call_id="a", name="x"),
            fragment('{"n":', index=0, call_id="b", name="x"),
            fragment("2}", index=0),
        ]
    )

    assert in_short(calls) == [("a", "x", {"n": 1}), ("b", "x", {"n": 2})]


def test_a_used_index_with_another_id_and_no_name_goes_on_with_the_first_id() -> None:
    calls = calls_of(
        [
            fragment('{"n"', index=0, call_id="a", name="x"),
            fragment(":", index=0, call_id="b"),
            fragment("1}", index=0, call_id="c", name=""),
        ]
    )

    assert in_short(calls) == [("a", "x", {"n": 1})]


def test_a_repeated_id_at_its_index_is_the_same_call() -> None:
    repeated = [fragment(part, index=0, call_id="a", name="x") for part in ('{"n"', ":1", "}")]

    assert in_short(calls_of(repeated)) == [("a", "x", {"n": 1})]


def test_an_id_may_come_late() -> None:
    assert in_short(calls_of([fragment("{}", index=0, name="x"), fragment(index=0, call_id="a")])) == [
        ("a", "x", {})
    ]


@pytest.mark.parametrize("index", ["0", True, 1.0, []])
def test_an_index_that_is_no_integer_is_none(index: Any) -> None:
    calls = calls_of([fragment('{"n"', call_id="a", name="x", index=index), fragment(":1}", index=index)])

    assert in_short(calls) == [("a", "x", {"n": 1})]


def test_true_is_not_the_index_1() -> None:
    calls = calls_of([fragment("{}", index=1, call_id="a", name="x"), fragment("{}", index=True, call_id="b")])

    assert [call.id for call in calls] == ["a", "b"]


# --- what a fragment adds ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "nothing",
    [
        None,
        "call",
        [],
        {},
        {"index": 0},
        {"index": 0, "function": None},
        {"index": 0, "id": None, "function": {"name": None, "arguments": None}},
        {"index": 0, "id": "", "function": {"name": "", "arguments": ""}},
        {"index": 0, "id": 7, "function": {"name": 7, "arguments": 7}},
    ],
)
def test_what_is_empty_or_null_adds_nothing(nothing: Any) -> None:
    parts = ToolCallParts()

    assert parts.add(nothing) is None
    assert parts.finish() == []


def test_a_fragment_tells_what_it_added() -> None:
    parts = ToolCallParts()

    assert parts.add(fragment("", index=0, call_id="a", name="x")) == "x"
    assert parts.add(fragment('{"n":1}', index=0)) == '{"n":1}'
    assert parts.add(fragment("{", index=1, name="y")) == "{"
    assert parts.add(fragment(index=1, call_id="b")) is None


def test_a_name_may_come_in_pieces_or_late() -> None:
    pieces = [fragment("", index=0, call_id="a", name=name) for name in ("", "device_", "volume")]

    assert [call.name for call in calls_of(pieces)] == ["device_volume"]


def test_a_repeated_name_adds_nothing() -> None:
    assert [call.name for call in calls_of([fragment("", index=0, name="volume")] * 3)] == ["volume"]


def test_a_server_id_comes_back_as_it_is() -> None:
    assert [call.id for call in calls_of([fragment("{}", index=0, call_id="functions.x:0", name="x")])] == [
        "functions.x:0"
    ]


def test_a_call_without_an_id_gets_one_of_nine_letters_and_digits() -> None:
    first, second = calls_of([fragment("{}", index=0, name="x"), fragment("{}", index=1, name="y")])

    assert (first.id, second.id) == (local_call_id(0), local_call_id(1)) == ("call00001", "call00002")
    assert all(len(call.id) == 9 and call.id.isalnum() and call.has_local_id for call in (first, second))


def test_a_legacy_function_call_is_one_call() -> None:
    parts = ToolCallParts()

    assert parts.add_legacy({"name": "volume", "arguments": ""}) == "volume"
    assert parts.add_legacy({"arguments": '{"level"'}) == '{"level"'
    assert parts.add_legacy({"arguments": ":30}"}) == ":30}"
    assert in_short(parts.finish()) == [("call00001", "volume", {"level": 30})]


# --- arguments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        ([""], {}),
        ([" "], {}),
        (["{}"], {}),
        (["{}", '{"n":1}'], {"n": 1}),
        (["{}", '{"n"', ":1}"], {"n": 1}),
        (["{}", "{", '"n":1}'], {"n": 1}),
        (["{}", "{}"], {}),
        ([" {} ", "\n{", '"n":1}'], {"n": 1}),
        (["{}", '{"n":1}', '{"n":1}'], {"n": 1}),
        (['{"n":1}', '{"n":1}'], {"n": 1}),
        (['{"n"', ":1}", '{"n":1}'], {"n": 1}),
        (["{", '"n":1}', '{"n":1}', '{"n":1}'], {"n": 1}),
        ([{"n": 1}], {"n": 1}),
        ([{}], {}),
        (['{"n":"é', '🎉"}'], {"n": "é🎉"}),
        (['{"n":[1,[2,{"m":{}}]]}'], {"n": [1, [2, {"m": {}}]]}),
    ],
)
def test_arguments_are_put_together(pieces: Sequence[Any], arguments: JsonObject) -> None:
    [call] = calls_of([fragment(piece, index=0, call_id="a", name="x") for piece in pieces])

    assert call.arguments == arguments
    assert json.loads(call.raw_arguments) == arguments


@pytest.mark.parametrize(
    "raw",
    ['{"level":3', '{"level":3}}', '{"level":NaN}', '{"level":-Infinity}', "{'n':1}", '{"n":1,}', "[1]", "7",
     '"n"', "null", '{"n":1}{"n":2}', "{" * 50_000, '{"n":' * 50_000],
)  # fmt: skip
def test_arguments_that_are_no_json_object_are_none_and_kept_as_they_came(raw: str) -> None:
    [call] = calls_of([fragment(raw, index=0, call_id="a", name="x")])

    assert call.arguments is None
    assert call.raw_arguments == raw


def test_a_repeated_piece_that_is_no_whole_object_is_kept() -> None:
    [call] = calls_of([fragment(raw, index=0, call_id="a", name="x") for raw in ("[1,", "[1,")])

    assert call.raw_arguments == "[1,[1,"


def test_two_different_whole_objects_are_not_merged_into_one() -> None:
    [call] = calls_of([fragment(raw, index=0, call_id="a", name="x") for raw in ('{"n":1}', '{"n":2}')])

    assert call.arguments is None


JSON_OBJECTS = st.dictionaries(
    st.text(max_size=4),
    st.recursive(st.none() | st.integers() | st.text(max_size=4), lambda inner: st.lists(inner, max_size=3)),
    max_size=3,
)


@given(first=JSON_OBJECTS, second=JSON_OBJECTS, data=st.data())
def test_how_arguments_are_cut_and_interleaved_changes_nothing(
    first: JsonObject, second: JsonObject, data: st.DataObject
) -> None:
    queues = []
    for index, arguments in enumerate((first, second)):
        raw = json.dumps(arguments, ensure_ascii=False)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=5)))
        pieces = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
        queues.append(
            [fragment("", index=index, call_id=f"id-{index}", name="x")]
            + [fragment(piece, index=index) for piece in pieces]
        )
    fragments = []
    while any(queues):
        queue = data.draw(st.sampled_from([queue for queue in queues if queue]))
        fragments.append(queue.pop(0))

    assert in_short(calls_of(fragments)) == [("id-0", "x", first), ("id-1", "x", second)]


def test_very_many_fragments_take_linear_time() -> None:
    def time_s(count: int) -> float:
        fragments = [fragment('{"n":"', index=0, call_id="a", name="x"), *[fragment("abcdefgh", index=0)] * count]
        start_s = time.process_time()
        calls_of(fragments)
        return time.process_time() - start_s

    short_s = min(time_s(10_000) for _ in range(3))
    assert time_s(80_000) < 2 * 8 * short_s

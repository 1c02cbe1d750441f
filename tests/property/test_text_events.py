"""The text protocol: how an answer is cut into deltas never changes what comes out of it."""

import re
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentbench_otel.agent.text_events import (
    EventMarkup,
    TextEventDecoder,
    TextPiece,
    UnterminatedMarkup,
    VisibleText,
)

FRAGMENTS = (
    "<", "<e", "<eve", "<event", "<event>", "<event/>", "<event ", "<event\n", "<event\r", "<events>", "<event_x>",
    '<event name="device.volume.adjust">', "<event name='a.b'>", "<event name=c>", '<event name="d"/>',
    "nt>", "ent name=x>", ">", "/>", "/", "</", "</event", "</event>", "</eve", "< /event>", "</EVENT>",
    " name=", "name", "=", '"', "'", " ", "\n", "\t", "\u2028", "device.volume.adjust",
    '{"mode":"absolute","value":30}', '{"query":"a < b > c"}', "{", "}", ",", "Hello.", "é", "🎉", "a<b",
)  # fmt: skip

TEXTS = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=14).map("".join)
CUTS = st.lists(st.integers(min_value=0, max_value=200), max_size=12)

PLAIN_TEXTS = st.text(st.characters(exclude_characters="<", exclude_categories=["Cs"]), max_size=12)
NAMES = st.text("abcxyz._-", min_size=1, max_size=12)
BODIES = st.text('{}":,ab 0<>/\n', max_size=20)


def deltas_of(text: str, cuts: Sequence[int]) -> list[str]:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(places)]


def decode(deltas: Sequence[str]) -> list[TextPiece]:
    decoder = TextEventDecoder()
    pieces = [piece for delta in deltas for piece in decoder.feed(delta)]
    return joined(pieces + decoder.finish())


def joined(pieces: Sequence[TextPiece]) -> list[TextPiece]:
    """Neighbouring visible texts as one: where they are cut means nothing."""
    whole: list[TextPiece] = []
    for piece in pieces:
        if isinstance(piece, VisibleText) and whole and isinstance(whole[-1], VisibleText):
            whole[-1] = VisibleText(whole[-1].text + piece.text)
        else:
            whole.append(piece)
    return whole


def visible_text(pieces: Sequence[TextPiece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, VisibleText))


# --- the slow oracle: a scan over the whole text ----------------------------------------------------------

_WHOLE_EVENT = re.compile(r"<event(?=[ \t\r\n>/])(?P<tag>[^>]*)>(?P<body>(?:(?!</event>).)*)</event>", re.DOTALL)
_SELF_CLOSED = re.compile(r"<event(?=[ \t\r\n/])(?P<tag>[^>]*/\s*)>")
_OPEN_BODY = re.compile(r"<event(?=[ \t\r\n>/])(?P<tag>[^>]*)>.*\Z", re.DOTALL)
_OPEN_TAG = re.compile(r"<event(?:[ \t\r\n/](?P<tag>[^>]*))?\Z")


def oracle(text: str) -> list[TextPiece]:
    pieces: list[TextPiece] = []
    position = 0
    while position < len(text):
        if match := _SELF_CLOSED.match(text, position):
            pieces.append(EventMarkup(oracle_name(match["tag"]), ""))
        elif match := _WHOLE_EVENT.match(text, position):
            pieces.append(EventMarkup(oracle_name(match["tag"]), match["body"].strip()))
        elif match := _OPEN_BODY.match(text, position):
            pieces.append(UnterminatedMarkup(oracle_name(match["tag"])))
        elif match := _OPEN_TAG.match(text, position):
            pieces.append(UnterminatedMarkup(oracle_name(" " + match["tag"]) if match["tag"] else ""))
        elif text.startswith("</event>", position):
            position += len("</event>")
            continue
        else:
            pieces.append(VisibleText(text[position]))
            position += 1
            continue
        position = match.end()
    return joined(pieces)


def oracle_name(tag: str) -> str:
    """The value of the first usable ``name`` attribute, read character by character."""
    for position, char in enumerate(tag):
        if not (char.isspace() and tag.startswith("name", position + 1)):
            continue
        rest = tag[position + len(" name") :].lstrip()
        if not rest.startswith("="):
            continue
        value = rest[1:].lstrip()
        if value[:1] in ('"', "'"):
            end = value.find(value[0], 1)
            if end >= 0:
                return value[1:end].strip()
            continue
        bare = re.split(r"""[\s"'/>]""", value, maxsplit=1)[0]
        if bare:
            return bare
    return ""


# --- properties -------------------------------------------------------------------------------------------


@given(text=TEXTS, cuts=CUTS)
@example(text='<event name="a">{}</event>', cuts=[1, 6, 7, 12, 19, 25])
@example(text="<eve</event>nt >", cuts=[4])
def test_any_split_gives_what_the_whole_text_gives(text: str, cuts: list[int]) -> None:
    assert decode(deltas_of(text, cuts)) == decode([text])


@given(text=TEXTS)
@example(text="<event")
@example(text="<event /")
@example(text="<event name=x")
@example(text="<event name='a\">x</event>")
@example(text="<event >a</event </event>b</event>")
def test_character_by_character_agrees_with_a_scan_over_the_whole_text(text: str) -> None:
    assert decode(list(text)) == oracle(text)


@given(text=TEXTS, cuts=CUTS)
def test_any_split_agrees_with_a_scan_over_the_whole_text(text: str, cuts: list[int]) -> None:
    assert decode(deltas_of(text, cuts)) == oracle(text)


@given(
    parts=st.lists(st.tuples(PLAIN_TEXTS, NAMES, BODIES), max_size=4),
    last=PLAIN_TEXTS,
    quote=st.sampled_from("\"'"),
    cuts=CUTS,
)
def test_markup_is_never_visible_and_everything_else_is(
    parts: list[tuple[str, str, str]], last: str, quote: str, cuts: list[int]
) -> None:
    text = "".join(f"{plain}<event name={quote}{name}{quote}>{body}</event>" for plain, name, body in parts)
    pieces = decode(deltas_of(text + last, cuts))

    assert visible_text(pieces) == "".join(plain for plain, _, _ in parts) + last
    assert [piece for piece in pieces if not isinstance(piece, VisibleText)] == [
        EventMarkup(name, body.strip()) for _, name, body in parts
    ]


@given(plain=PLAIN_TEXTS, name=NAMES, body=BODIES, cuts=CUTS)
def test_an_event_that_the_text_ends_in_is_unterminated_and_not_visible(
    plain: str, name: str, body: str, cuts: list[int]
) -> None:
    pieces = decode(deltas_of(f'{plain}<event name="{name}">{body}', cuts))

    assert visible_text(pieces) == plain
    assert pieces[-1] == UnterminatedMarkup(name)


@given(plain=PLAIN_TEXTS, name=NAMES, space=st.sampled_from(["", " ", "\n"]), cuts=CUTS)
def test_a_self_closing_event_has_an_empty_body(plain: str, name: str, space: str, cuts: list[int]) -> None:
    pieces = decode(deltas_of(f'{plain}<event name="{name}"{space}/>{plain}', cuts))

    assert visible_text(pieces) == plain + plain
    assert EventMarkup(name, "") in pieces


@given(before=PLAIN_TEXTS, after=PLAIN_TEXTS, cuts=CUTS)
def test_a_stray_close_tag_vanishes(before: str, after: str, cuts: list[int]) -> None:
    assert visible_text(decode(deltas_of(f"{before}</event>{after}", cuts))) == before + after


@given(suffix=st.text("s_-abZ1.:é", min_size=1, max_size=5), cuts=CUTS)
def test_a_longer_tag_name_is_text(suffix: str, cuts: list[int]) -> None:
    text = f"<event{suffix}>a<event{suffix}/>"
    assert decode(deltas_of(text, cuts)) == [VisibleText(text)]


@given(text=TEXTS, cuts=CUTS)
def test_only_what_may_still_become_markup_is_held_back(text: str, cuts: list[int]) -> None:
    decoder = TextEventDecoder()
    seen, shown = "", ""
    for delta in deltas_of(text, cuts):
        seen += delta
        shown += visible_text(decoder.feed(delta))
        if shown != visible_text(oracle(seen)):
            held = visible_text(oracle(seen)).removeprefix(shown)
            assert "<event".startswith(held) or "</event>".startswith(held)


@given(text=TEXTS, cuts=CUTS)
def test_no_piece_of_visible_text_is_empty(text: str, cuts: list[int]) -> None:
    decoder = TextEventDecoder()
    pieces = [piece for delta in deltas_of(text, cuts) for piece in decoder.feed(delta)] + decoder.finish()

    assert VisibleText("") not in pieces


# --- time -------------------------------------------------------------------------------------------------


def time_s(work: Callable[[], object]) -> float:
    start_s = time.process_time()
    work()
    return time.process_time() - start_s


@pytest.mark.parametrize(
    ("opening", "unit"),
    [("<event>", "x"), ("<event ", "x"), ("<event>", "</even"), ("", "<"), ("", "<event>a</event>")],
)
def test_a_long_text_in_small_deltas_takes_linear_time(opening: str, unit: str) -> None:
    short_s = min(time_s(lambda: decode([opening] + [unit] * 25_000)) for _ in range(3))
    long_s = time_s(lambda: decode([opening] + [unit] * 200_000))

    assert long_s < 4 * 8 * short_s  # quadratic would be 64 times; a busy machine may double a time


@pytest.mark.parametrize("unit", ["<", "<a>", "</event>", "<event>a</event>", "<event>"])
def test_one_large_delta_takes_no_longer_than_many_small_ones(unit: str) -> None:
    text = unit * (800_000 // len(unit))
    small_s = time_s(lambda: decode([text[start : start + 16] for start in range(0, len(text), 16)]))

    assert time_s(lambda: decode([text])) < 2 * small_s

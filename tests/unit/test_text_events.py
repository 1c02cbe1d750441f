"""The text protocol by example."""

import pytest

from agentbench_otel.agent.text_events import (
    EventMarkup,
    TextEventDecoder,
    TextPiece,
    UnterminatedMarkup,
    VisibleText,
)

EXAMPLE = '<event name="device.volume.adjust">{"mode":"absolute","value":30}</event>'
EXAMPLE_EVENT = EventMarkup("device.volume.adjust", '{"mode":"absolute","value":30}')


def decode(*deltas: str) -> list[TextPiece]:
    decoder = TextEventDecoder()
    pieces = [piece for delta in deltas for piece in decoder.feed(delta)]
    return pieces + decoder.finish()


def test_the_documented_event_is_decoded() -> None:
    assert decode(EXAMPLE) == [EXAMPLE_EVENT]


def test_pieces_come_out_in_the_order_of_the_text() -> None:
    text = f"First. {EXAMPLE} Second. {EXAMPLE}{EXAMPLE} Third."

    assert decode(text) == [
        VisibleText("First. "),
        EXAMPLE_EVENT,
        VisibleText(" Second. "),
        EXAMPLE_EVENT,
        EXAMPLE_EVENT,
        VisibleText(" Third."),
    ]


def test_a_tag_may_be_cut_anywhere() -> None:
    for cut in range(len(EXAMPLE)):
        assert decode(EXAMPLE[:cut], EXAMPLE[cut:]) == [EXAMPLE_EVENT]


def test_text_before_a_possible_tag_is_shown_at_once() -> None:
    decoder = TextEventDecoder()

    assert decoder.feed("I will set the volume. <ev") == [VisibleText("I will set the volume. ")]
    assert decoder.feed("ening falls") == [VisibleText("<evening falls")]


def test_an_event_is_handed_out_with_the_delta_that_ends_it() -> None:
    decoder = TextEventDecoder()

    assert decoder.feed(EXAMPLE[:-1]) == []
    assert decoder.feed(EXAMPLE[-1:] + " Done.") == [EXAMPLE_EVENT, VisibleText(" Done.")]


def test_text_that_was_held_back_at_the_end_is_text_after_all() -> None:
    assert decode("a <eve") == [VisibleText("a "), VisibleText("<eve")]
    assert decode("a </event") == [VisibleText("a "), VisibleText("</event")]


@pytest.mark.parametrize(
    "text", ["a < b and 1 <2", "<b>bold</b>", "1 << 2", "< event>", "<EVENT>", "<e v>", "I <3 you"]
)
def test_other_angle_brackets_are_text(text: str) -> None:
    assert decode(text) == [VisibleText(text)]


@pytest.mark.parametrize("text", ["<events>", "<eventual name='a'>", "<event_result/>", "<event-x>", "<event:x>"])
def test_a_longer_tag_name_is_text(text: str) -> None:
    assert decode(text) == [VisibleText(text)]


@pytest.mark.parametrize(
    "tag",
    [
        '<event name="a.b">',
        "<event name='a.b'>",
        "<event name=a.b>",
        '<event  name = "a.b" >',
        '<event\n\tname="a.b"\n>',
        '<event id="7" name="a.b" name="c">',
        "<event name='a.b' id='7'>",
        "<event\r\nname='a.b'>",
        '<event filename="x" name=" a.b ">',
    ],
)
def test_the_name_may_be_written_in_many_ways(tag: str) -> None:
    assert decode(f"{tag}{{}}</event>") == [EventMarkup("a.b", "{}")]


@pytest.mark.parametrize("tag", ["<event>", "<event >", '<event id="1">', '<event name="">', "<event name=>"])
def test_a_tag_without_a_name_is_an_event_without_a_name(tag: str) -> None:
    assert decode(f"{tag}{{}}</event>") == [EventMarkup("", "{}")]


def test_the_body_is_stripped_of_outer_white_space_only() -> None:
    assert decode("<event name=a>\n { \n } \n</event>") == [EventMarkup("a", "{ \n }")]


def test_a_body_may_hold_angle_brackets() -> None:
    body = '{"query":"<b> a < b </even <event name=x> </"}'
    assert decode(f"<event name=a>{body}</event>") == [EventMarkup("a", body)]


@pytest.mark.parametrize(
    "tag", ['<event name="a"/>', '<event name="a" />', "<event name='a' / >", "<event name=a/>"]
)
def test_a_self_closing_event_has_an_empty_body(tag: str) -> None:
    assert decode(f"{tag}Goodbye.") == [EventMarkup("a", ""), VisibleText("Goodbye.")]


def test_a_close_tag_without_an_event_vanishes() -> None:
    assert decode("Hello</event> there") == [VisibleText("Hello there")]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("<event", ""),
        ("<event ", ""),
        ("<event na", ""),
        ('<event name="a.', ""),
        ('<event name="a.b"', "a.b"),
        ('<event name="a.b">', "a.b"),
        ('<event name="a.b">{"mode":', "a.b"),
        ('<event name="a.b">{}</event', "a.b"),
    ],
)
def test_an_event_that_the_text_ends_in_is_unterminated(text: str, name: str) -> None:
    assert decode(f"Hello. {text}") == [VisibleText("Hello. "), UnterminatedMarkup(name)]


def test_an_empty_answer_has_no_pieces() -> None:
    assert decode("", "") == []

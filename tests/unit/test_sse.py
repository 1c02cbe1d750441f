"""Server-sent events by example: the standard, and what real servers need beyond it."""

import pytest

from agentbench_otel.providers.sse import EventDecoder, SseEvent

DONE = SseEvent(data=("[DONE]",))


def decode(*reads: bytes | str) -> list[SseEvent]:
    decoder = EventDecoder()
    return fed(decoder, *reads) + decoder.finish()


def fed(decoder: EventDecoder, *reads: bytes | str) -> list[SseEvent]:
    return [event for data in reads for event in decoder.feed(data.encode() if isinstance(data, str) else data)]


def event(*data: str, name: str = "", error: str | None = None, is_cut: bool = False) -> SseEvent:
    return SseEvent(name=name, data=data, error=error, is_cut=is_cut)


def test_an_event_ends_at_its_blank_line() -> None:
    assert decode("data: a\n\ndata: b\n\n") == [event("a"), event("b")]


def test_an_event_is_given_with_the_read_that_ends_it() -> None:
    decoder = EventDecoder()

    assert fed(decoder, "data: a\n") == []
    assert fed(decoder, "\n") == [event("a")]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_every_line_end_of_the_standard_is_one(end: str) -> None:
    assert decode(f"data: a{end}{end}data: b{end}{end}") == [event("a"), event("b")]


@pytest.mark.parametrize("char", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_no_other_character_ends_a_line(char: str) -> None:
    assert decode(f"data: a{char}b\n\n") == [event(f"a{char}b")]


def test_a_line_feed_after_a_carriage_return_in_the_next_read_ends_nothing_more() -> None:
    assert decode("data: a\r", "\ndata: b\r", "\n\r", "\n") == [event("a", "b")]


def test_a_second_carriage_return_in_the_next_read_is_a_blank_line() -> None:
    assert decode("data: a\r", "\rdata: b\n\n") == [event("a"), event("b")]


def test_an_empty_read_between_carriage_return_and_line_feed_changes_nothing() -> None:
    assert decode("data: a\r", "", "\ndata: b\n\n") == [event("a", "b")]


@pytest.mark.parametrize(("line", "value"), [("data:a", "a"), ("data: a", "a"), ("data:  a ", " a ")])
def test_one_blank_after_the_colon_is_not_of_the_value(line: str, value: str) -> None:
    assert decode(f"{line}\n\n") == [event(value)]


def test_several_data_lines_are_one_event() -> None:
    assert decode('data: {"a":\ndata: 1}\n\n') == [event('{"a":', "1}")]


@pytest.mark.parametrize("noise", [": keep-alive", ":", "id: 7", "retry: 100", "data:", "data: ", "data"])
def test_comments_ids_and_empty_data_are_nothing(noise: str) -> None:
    assert decode(f"{noise}\n\n{noise}\ndata: a\n{noise}\n\n{noise}\n\n") == [event("a")]


def test_the_name_of_an_event_is_of_that_event_only() -> None:
    assert decode("event: error\ndata: a\n\ndata: b\n\n") == [event("a", name="error"), event("b")]


def test_a_name_without_data_is_no_event_and_is_forgotten() -> None:
    assert decode("event: error\n\ndata: a\n\n") == [event("a")]


def test_an_error_field_is_an_event() -> None:
    assert decode("error: overloaded\n\ndata: a\n\n") == [event(error="overloaded"), event("a")]


def test_done_counts_at_the_end_of_its_line() -> None:
    decoder = EventDecoder()

    assert fed(decoder, "data: [DONE]") == []
    assert fed(decoder, "\n") == [DONE]
    assert DONE.is_done


@pytest.mark.parametrize("line", ["data:[DONE]", "data: [DONE] ", "data:  [DONE]"])
def test_done_may_have_blanks_around_it(line: str) -> None:
    assert decode(f"{line}\n") == [DONE]


def test_done_ends_the_event_before_it() -> None:
    assert decode("data: a\ndata: [DONE]\n\n") == [event("a"), DONE]


def test_only_done_alone_is_the_end() -> None:
    assert [one.is_done for one in decode("data: x [DONE]\n\ndata: DONE\n\n")] == [False, False]


def test_one_byte_order_mark_is_removed() -> None:
    assert decode(b"\xef", b"\xbb\xbf", b"data: a\n\n") == [event("a")]


def test_a_byte_order_mark_elsewhere_is_text() -> None:
    assert decode("data: a\n\ndata: \ufeffb\n\n") == [event("a"), event("\ufeffb")]
    assert decode("data: a\n\n\ufeffdata: b\n\n") == [event("a")]


def test_a_character_may_be_cut_between_two_reads() -> None:
    assert decode(b"data: \xf0\x9f", b"\x8e\x89\n\n") == [event("🎉")]


def test_bytes_that_are_no_utf_8_are_replaced() -> None:
    assert decode(b"data: a\xff\n\n") == [event("a\ufffd")]


def test_a_body_that_ends_inside_a_line_still_gives_its_event() -> None:
    assert decode("data: a\n\ndata: b") == [event("a"), event("b", is_cut=True)]


def test_a_body_that_ends_before_the_blank_line_still_gives_its_event() -> None:
    assert decode("data: a\n") == [event("a", is_cut=True)]


def test_an_unterminated_done_counts_at_the_end_of_the_body() -> None:
    assert decode("data: a\n\ndata: [DONE]") == [event("a"), DONE]


def test_an_empty_body_has_no_events() -> None:
    assert decode() == decode("") == decode("\n\n") == []


# --- bodies that are no event stream ----------------------------------------------------------------------


def plain(*reads: str) -> EventDecoder:
    decoder = EventDecoder()
    assert fed(decoder, *reads) + decoder.finish() == []
    return decoder


@pytest.mark.parametrize(
    "body",
    [
        '{"error":{"message":"busy"}}',
        '\n {\n"error":\n"busy"}',
        '[{"error":"busy"}]',
        "<!DOCTYPE html>\n<html><title>502</title>\ndata: x\n\n</html>",
        "\ufeff{}",
    ],
)
def test_a_json_or_html_body_is_kept_as_text(body: str) -> None:
    decoder = plain(*body)

    assert decoder.plain_text == body.strip("\n\ufeff")


def test_lines_without_a_known_field_are_kept_as_text() -> None:
    decoder = plain("Internal Server Error\nupstream: gone\n\n")

    assert decoder.plain_text == "Internal Server Error\nupstream: gone"


def test_json_after_the_first_line_does_not_make_a_stream_plain() -> None:
    decoder = EventDecoder()

    assert fed(decoder, ": ok\n", '{"a":1}\n', "data: b\n\n") == [event("b")]
    assert decoder.plain_text == '{"a":1}'


def test_of_a_plain_body_only_as_much_is_kept_as_a_message_needs() -> None:
    decoder = plain(*["x" * 999 + "\n"] * 500)

    assert 60_000 < len(decoder.plain_text) < 70_000

"""The OpenAI client's times against a server that writes on an absolute schedule and records each write.

The clock of the client is the server's own counter, so arrivals and writes can be subtracted.
"""

import asyncio
import statistics
import time
from collections.abc import Iterator
from contextlib import aclosing
from itertools import pairwise

import pytest

from agentbench_otel.records.chat import GENERATED_KINDS, Exchange, ItemKind, StreamItem
from tests.support.chat import HELLO, Streamed, openai_client, run, stream, stream_and_close
from tests.support.schedule_server import RequestRecord, ScheduleServer

STREAM_COUNT = 5
TOLERANCE_MS = 3.0


@pytest.fixture(scope="module")
def server() -> Iterator[ScheduleServer]:
    with ScheduleServer() as running:
        yield running


async def sleep_40_ms(item: StreamItem) -> None:
    if item.kind in GENERATED_KINDS:
        await asyncio.sleep(0.04)


def streams(
    server: ScheduleServer, model: str, *, is_consumer_slow: bool = False
) -> list[tuple[Streamed, RequestRecord]]:
    """Five streams, each with the server's record of it."""

    async def all_streams() -> list[Streamed]:
        done = []
        for _ in range(STREAM_COUNT):
            client = openai_client(server.base_url, clock=time.perf_counter_ns, model=model)
            done.append(await stream(client, after_item=sleep_40_ms if is_consumer_slow else None))
            await client.aclose()
        return done

    server.reset()
    streamed = run(all_streams())
    assert [one.error for one in streamed] == [None] * STREAM_COUNT
    return list(zip(streamed, server.truth(), strict=True))


def generated(streamed: Streamed) -> list[StreamItem]:
    return [item for item in streamed.items if item.kind in GENERATED_KINDS]


def median_late_ms(pairs: list[tuple[Streamed, RequestRecord]], position: int) -> float:
    """How much later than the server's write the generated item at ``position`` arrived, median of all."""
    return statistics.median(
        (generated(streamed)[position].arrival_ns - record.chunks[position].written_ns) / 1e6
        for streamed, record in pairs
    )


@pytest.mark.parametrize("is_consumer_slow", [False, True], ids=["fast consumer", "40 ms per chunk"])
def test_arrivals_are_the_servers_writes_however_slow_the_consumer_is(
    server: ScheduleServer, is_consumer_slow: bool
) -> None:
    pairs = streams(server, "truth-ttft60-itl10-n20-tail15", is_consumer_slow=is_consumer_slow)
    for position in (0, 10, 19):
        assert 0 <= median_late_ms(pairs, position) < TOLERANCE_MS
    last_late_ms = statistics.median(
        (max(item.arrival_ns for item in streamed.items) - (record.last_write_ns or 0)) / 1e6
        for streamed, record in pairs
    )
    assert 0 <= last_late_ms < TOLERANCE_MS


@pytest.mark.parametrize(
    "options",
    [
        "role5",
        "empty20",
        "reason5",
        "reasonalt5",
        "think5",
        "tool2",
        "burst5",
        "split4",
        "crlf",
        "nospace",
        "ping15",
        "hdr30",
        "event8",
        "texttool",
    ],
)
def test_the_first_generated_piece_is_stamped_when_the_server_wrote_it(
    server: ScheduleServer, options: str
) -> None:
    pairs = streams(server, f"truth-ttft50-itl5-n10-{options}")
    assert 0 <= median_late_ms(pairs, 0) < TOLERANCE_MS
    (streamed, _) = pairs[0]
    assert sum(item.kind in GENERATED_KINDS for item in streamed.items) >= 10


def test_items_of_one_read_share_their_arrival(server: ScheduleServer) -> None:
    for streamed, _ in streams(server, "truth-ttft30-itl5-n20-burst5"):
        arrivals = {item.arrival_ns for item in generated(streamed)}
        assert len(arrivals) == 4


def test_an_event_cut_in_two_arrives_with_its_last_byte(server: ScheduleServer) -> None:
    pairs = streams(server, "truth-ttft40-itl20-n5-split8")
    for position in range(5):
        assert 0 <= median_late_ms(pairs, position) < TOLERANCE_MS


def test_a_stall_shows_as_one_gap_and_shifts_the_rest(server: ScheduleServer) -> None:
    for streamed, _ in streams(server, "truth-ttft20-itl5-n10-stall100at5"):
        arrivals = [item.arrival_ns for item in generated(streamed)]
        gaps_ms = [(later - earlier) / 1e6 for earlier, later in pairwise(arrivals)]
        assert gaps_ms.index(max(gaps_ms)) == 4
        assert max(gaps_ms) == pytest.approx(105, abs=8)


def test_usage_that_comes_late_ends_the_stream_not_the_tokens(server: ScheduleServer) -> None:
    for streamed, _ in streams(server, "truth-ttft20-itl5-n5-tail60"):
        last_text_ns = generated(streamed)[-1].arrival_ns
        usage_ns = next(item.arrival_ns for item in streamed.items if item.kind is ItemKind.USAGE)
        assert 40 < (usage_ns - last_text_ns) / 1e6 < 90


def test_the_phases_tell_what_was_set_up_and_the_second_call_reuses_the_connection(server: ScheduleServer) -> None:
    async def two_calls() -> tuple[Streamed, Streamed]:
        client = openai_client(server.base_url, clock=time.perf_counter_ns, model="truth-ttft40-itl2-n5-hdr30")
        first = await stream(client)
        await asyncio.sleep(0.05)  # an agent works between its calls; the first one's end is drained meanwhile
        second = await stream(client)
        await client.aclose()
        return first, second

    server.reset()
    first, second = run(two_calls())
    assert [record.connection_requests for record in server.truth()] == [1, 2]
    assert [phase.name for phase in first.exchange.phases] == ["connect", "send", "first_byte"]
    assert [phase.name for phase in second.exchange.phases] == ["send", "first_byte"]
    assert (first.exchange.is_connection_reused, second.exchange.is_connection_reused) == (False, True)
    for streamed in (first, second):
        first_byte = streamed.exchange.phases[-1]
        assert (first_byte.end_ns - first_byte.start_ns) / 1e6 == pytest.approx(30, abs=8)
        assert all(phase.end_ns >= phase.start_ns for phase in streamed.exchange.phases)


def test_closing_early_closes_the_connection(server: ScheduleServer) -> None:
    async def close_early() -> None:
        client = openai_client(server.base_url, model="truth-ttft20-itl20-n100")
        async with aclosing(client.stream_chat(HELLO, Exchange())) as items:
            async for item in items:
                if item.kind is ItemKind.TEXT:
                    break
        await client.aclose()

    server.reset()
    run(close_early())
    deadline_s = time.monotonic() + 5
    while server.truth()[0].outcome == "open" and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert server.truth()[0].outcome == "client_left"


def test_the_request_asks_for_a_stream_with_usage(server: ScheduleServer) -> None:
    server.reset()
    run(stream_and_close(openai_client(server.base_url, model="truth-ttft5-itl1-n2")))
    (record,) = server.truth()
    assert record.body["stream"] is True
    assert record.body["stream_options"] == {"include_usage": True}
    assert record.body["max_tokens"] == 64
    assert "tools" not in record.body
    assert "tool_choice" not in record.body


def test_what_is_known_only_at_the_end_still_arrived_with_its_delta(server: ScheduleServer) -> None:
    """A finished tool call is handed over after [DONE]; waiting for that is not the provider's stream."""
    for streamed, record in streams(server, "truth-ttft20-itl5-n8-tool1-tail60"):
        (call,) = [item for item in streamed.items if item.kind is ItemKind.TOOL_CALL]
        assert call.arrival_ns == generated(streamed)[-1].arrival_ns
        assert call.arrival_ns < (record.last_write_ns or 0)

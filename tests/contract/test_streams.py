"""Every recorded stream over a real socket: the client's result, compared with all that the case expects."""

import asyncio
import bisect
import time
from collections.abc import Iterator
from typing import Any

import pytest

from agentbench_otel import app
from agentbench_otel.records.chat import StreamItem
from tests.support.chat import openai_client, stream, target
from tests.support.replay_server import ReplayServer, StreamCase, load_cases
from tests.support.stream_cases import FRAME_KEYS, differences, frame_differences

CASES = load_cases()
ATTEMPTS = 3
TIMEOUTS = {"connect_s": 2, "first_byte_s": 2.5, "idle_s": 2.0}
"""Below the 30 s of the stalled case, above the longest pause of the healthy ones."""


@pytest.fixture(scope="module")
def server() -> Iterator[ReplayServer]:
    with ReplayServer(CASES) as running:
        yield running


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_result_is_as_the_case_expects(server: ReplayServer, case: StreamCase) -> None:
    result = app.probe_endpoint(
        target(server.base_url(case.id), timeouts=TIMEOUTS), api_key=None, message="Hello.", tools=[]
    )
    assert differences(case.expect, result) == []


@pytest.mark.parametrize(
    "case", [case for case in CASES if FRAME_KEYS & set(case.expect)], ids=lambda case: case.id
)
def test_items_arrive_with_the_frame_that_brought_them(server: ReplayServer, case: StreamCase) -> None:
    """Frames are 4 ms apart, and a busy machine may hold a read up for longer: the best of three counts."""
    for _ in range(ATTEMPTS):
        found = _frame_differences_once(server, case)
        if not found:
            break
    assert found == []


def _frame_differences_once(server: ReplayServer, case: StreamCase) -> list[str]:
    items, end_ns = asyncio.run(_streamed(server.base_url(case.id)))
    writes = server.writes(case.id)[-1]

    def frame(time_ns: int) -> int:
        """The latest frame that had been written by then; a write is stamped just before it is made."""
        return bisect.bisect_right(writes, time_ns) - 1

    framed = [(item, frame(item.arrival_ns)) for item in items]
    return frame_differences(case.expect, framed, end_frame=frame(end_ns))


async def _streamed(base_url: str) -> tuple[list[StreamItem], int]:
    """The items, on the clock of the server's writes, and when the stream was over for its consumer."""
    client = openai_client(base_url, clock=time.perf_counter_ns, timeouts=TIMEOUTS)
    streamed = await stream(client)
    end_ns = time.perf_counter_ns()
    await client.aclose()
    return streamed.items, end_ns


def test_the_requests_of_all_cases_ask_for_a_stream_with_usage(server: ReplayServer) -> None:
    bodies: list[Any] = [body for case in CASES for body in server.requests(case.id)]
    assert bodies
    assert all(body["stream"] is True for body in bodies)

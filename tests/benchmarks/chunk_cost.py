"""CPU per chunk from the socket to the item: ``python -m tests.benchmarks.chunk_cost``. Prints, asserts nothing.

A server in a process of its own writes 1,000 chunks, 1 ms apart. Two clients, each in a process of its own, read
them in turn: ours, and the bare loop that people write, httpx's ``aiter_raw`` with ``json.loads``. What a client
spends before the first chunk (imports, connection) is left out.
"""

import asyncio
import json
import resource
import statistics
import subprocess
import sys
import time

import httpx

from agentbench_otel.records.chat import ChatMessage, ChatRequest, Exchange, ItemKind
from tests.support.chat import HELLO, openai_client
from tests.support.schedule_server import ScheduleServer

ROUNDS = 5
CHUNKS = 1_000
CONCURRENT_STREAMS = 100
"""Of the run that shows how TTFT shifts."""


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def ours(base_url: str, model: str) -> float:
    client = openai_client(base_url, model=model)
    start_s = None
    async for item in client.stream_chat(HELLO, Exchange()):
        if start_s is None and item.kind is ItemKind.TEXT:
            start_s = cpu_s()
    end_s = cpu_s()
    await client.aclose()
    return end_s - (start_s or 0.0)


async def bare(base_url: str, model: str) -> float:
    start_s = None
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "Hello."}]}
    async with (
        httpx.AsyncClient() as client,
        client.stream("POST", f"{base_url}/chat/completions", json=body) as response,
    ):
        rest = b""
        async for data in response.aiter_raw():
            *events, rest = (rest + data).split(b"\n\n")
            for event in events:
                payload = event.removeprefix(b"data: ")
                if payload != b"[DONE]":
                    json.loads(payload)
                    start_s = start_s or cpu_s()
    return cpu_s() - (start_s or 0.0)


def measure(kind: str, base_url: str, model: str) -> float:
    """µs of CPU per chunk, in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.chunk_cost", kind, base_url, model]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout) / CHUNKS * 1e6


async def ttft_shift_ms(server: ScheduleServer) -> list[float]:
    """How late each of 100 streams that start at once has its first piece, by the server's record of its write."""
    model = "truth-ttft500-itl20-n20"

    async def one(number: int) -> int:
        client = openai_client(server.base_url, model=model, clock=time.perf_counter_ns)
        request = ChatRequest(messages=(ChatMessage(role="user", content=str(number)),))
        arrivals = [
            item.arrival_ns async for item in client.stream_chat(request, Exchange()) if item.kind is ItemKind.TEXT
        ]
        await client.aclose()
        return arrivals[0]

    server.reset()
    arrivals = await asyncio.gather(*map(one, range(CONCURRENT_STREAMS)))
    writes = {record.body["messages"][0]["content"]: record.chunks[0].written_ns for record in server.truth()}
    return [(arrival - writes[str(number)]) / 1e6 for number, arrival in enumerate(arrivals)]


def main() -> None:
    with ScheduleServer() as server:
        for label, words in (("64-byte text", 10), ("2 kB text", 330)):
            model = f"truth-ttft50-itl1-n{CHUNKS}-mt{words}"
            pairs = [
                (measure("ours", server.base_url, model), measure("bare", server.base_url, model))
                for _ in range(ROUNDS)
            ]
            our_us, bare_us = (statistics.median(values) for values in zip(*pairs, strict=True))
            ratio = statistics.median(one / other for one, other in pairs)
            figures = f"ours {our_us:6.1f} µs, bare httpx loop {bare_us:6.1f} µs, ratio {ratio:.2f}"
            print(f"{label:<14} {figures}")
        shifts = sorted(asyncio.run(ttft_shift_ms(server)))
        late = f"{statistics.median(shifts):.1f} ms (median), {shifts[-1]:.1f} ms (worst)"
        print(f"{CONCURRENT_STREAMS} streams at once: TTFT late by {late}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        read = {"ours": ours, "bare": bare}[sys.argv[1]]
        print(asyncio.run(read(sys.argv[2], sys.argv[3])))
    else:
        main()

"""Feeds the bytes of a body to the pure part of the client, as the client does, without a socket."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from agentbench_otel.providers.answer import Answer, Inbox
from agentbench_otel.providers.sockets import ExchangeMarks
from agentbench_otel.providers.wire import WireNames
from agentbench_otel.records.chat import Exchange, StreamItem


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What the consumer of one answer got; arrivals are numbers of reads, from 0."""

    items: tuple[StreamItem, ...]
    failure: Exception | None
    exchange: Exchange


def hear(reads: Iterable[bytes], *, cut: str | None = None) -> Heard:
    """Read on until the answer is over, then end it; ``cut`` says how the connection was lost, if it was."""
    marks = ExchangeMarks()
    exchange = Exchange()
    inbox: Inbox = asyncio.Queue()
    answer = Answer(marks=marks, exchange=exchange, inbox=inbox, names=WireNames(()), secrets=())
    for number, data in enumerate(reads):
        marks.last_read = number
        answer.take(data)
        if answer.is_over:
            break
    else:
        answer.cut = cut
    answer.end()
    *items, last = [inbox.get_nowait() for _ in range(inbox.qsize())]
    assert not isinstance(last, StreamItem)
    return Heard(
        items=tuple(item for item in items if isinstance(item, StreamItem)), failure=last, exchange=exchange
    )

"""Feeds the bytes of a body to the pure part of the client, as the client does, without a socket."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace

from agentbench_otel.errors import ProviderError
from agentbench_otel.providers.answer import Answer, Inbox
from agentbench_otel.providers.sockets import ExchangeMarks
from agentbench_otel.providers.wire import WireNames
from agentbench_otel.records.chat import GENERATED_KINDS, Exchange, ItemKind, StreamItem


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What the consumer of one answer got; arrivals and ``end_read`` are numbers of reads, from 0."""

    items: tuple[StreamItem, ...]
    failure: ProviderError | None
    exchange: Exchange
    end_read: int | None
    """The read after which the answer was over; None when it took the end of the body to know."""

    def without_arrivals(self) -> tuple[object, ...]:
        """For comparing: how the bytes were cut must change nothing else."""
        failure = self.failure
        words = None if failure is None else (failure.kind, str(failure), failure.code, failure.param)
        return [replace(item, arrival_ns=0) for item in self.items], words, self.exchange

    def text_of(self, kind: ItemKind) -> str:
        return "".join(item.text for item in self.items if item.kind is kind)

    @property
    def generated(self) -> list[StreamItem]:
        return [item for item in self.items if item.kind in GENERATED_KINDS]


def hear(reads: Iterable[bytes], *, cut: str | None = None) -> Heard:
    """Read on until the answer is over, then end it; ``cut`` says how the connection was lost, if it was."""
    marks = ExchangeMarks()
    exchange = Exchange()
    inbox: Inbox = asyncio.Queue()
    answer = Answer(marks=marks, exchange=exchange, inbox=inbox, names=WireNames(()), secrets=())
    end_read = None
    for number, data in enumerate(reads):
        marks.last_read = number
        answer.take(data)
        if answer.is_over:
            end_read = number
            break
    else:
        answer.cut = cut
    answer.end()
    *items, last = [inbox.get_nowait() for _ in range(inbox.qsize())]
    assert last is None or isinstance(last, ProviderError), last
    assert all(isinstance(item, StreamItem) for item in items)
    return Heard(
        items=tuple(item for item in items if isinstance(item, StreamItem)),
        failure=last,
        exchange=exchange,
        end_read=end_read,
    )

"""In-memory tool handlers, and the rendezvous that gives parallel handlers the chance to prove it."""

import asyncio
from collections.abc import Mapping
from typing import Any

from agentbench_otel.cases import CALENDAR, SEARCH, TERMINATE, VOLUME
from agentbench_otel.ports import ToolHandler

RENDEZVOUS_GIVE_UP_S = 0.05


class InMemoryVolume:
    def __init__(self) -> None:
        self.level = 50

    async def __call__(self, event_id: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if arguments["mode"] == "absolute":
            self.level = arguments["value"]
        else:
            self.level = min(100, max(0, self.level + arguments["delta"]))
        return {"event_id": event_id, "level": self.level}


class InMemoryCalendar:
    def __init__(self) -> None:
        self.entries: list[Mapping[str, Any]] = []

    async def __call__(self, event_id: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        self.entries.append(dict(arguments))
        return {"event_id": event_id, **arguments}


class InMemorySearch:
    """Finds the same two facts for every query, so that a grounded answer can be told from a guess."""

    async def __call__(self, event_id: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "event_id": event_id,
            "query": arguments["query"],
            "results": [
                "A batch of events is resolved before any of its handlers starts.",
                "A handler that fails does not stop the others of its batch.",
            ],
        }


async def end_session(event_id: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The handler of ``session.terminate``: the runtime ends the session, there is nothing left to do."""
    del arguments
    return {"event_id": event_id, "ended": True}


class Rendezvous:
    """Lets the handlers that it wraps wait until all of them have started, or for 50 ms.

    Under a concurrent executor their intervals then overlap for certain; under a serial one the first gives
    up and ends before the second begins. The verdict is read from the spans, not from here.
    """

    def __init__(self, party_count: int, *, give_up_s: float = RENDEZVOUS_GIVE_UP_S) -> None:
        self._missing_count = party_count
        self._give_up_s = give_up_s
        self._all_have_started = asyncio.Event()

    def wrap(self, handler: ToolHandler) -> ToolHandler:
        async def meet_first(event_id: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
            self._missing_count -= 1
            if self._missing_count <= 0:
                self._all_have_started.set()
            try:
                async with asyncio.timeout(self._give_up_s):
                    await self._all_have_started.wait()
            except TimeoutError:
                pass  # alone: the spans will show it
            return await handler(event_id, arguments)

        return meet_first


def in_memory_handlers() -> dict[str, ToolHandler]:
    """A fresh set of handlers for one run, by tool name."""
    return {
        VOLUME: InMemoryVolume(),
        CALENDAR: InMemoryCalendar(),
        SEARCH: InMemorySearch(),
        TERMINATE: end_session,
    }

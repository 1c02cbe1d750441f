"""Work that would disturb a measurement, done when no model call streams: exporting, and rendering ``/metrics``.

Encoding spans and rendering thousands of lines hold Python's lock for milliseconds at a time, and a streaming
call would be measured late by as much.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from agentbench_otel.telemetry.bounded import run_in_thread

logger = logging.getLogger(__name__)


class Chore(Protocol):
    """One kind of such work. All methods but ``do`` answer at once."""

    def is_due(self, now_s: float) -> bool:
        """Whether there is something to do in a quiet moment."""
        ...

    def is_overdue(self, now_s: float) -> bool:
        """Whether it has waited so long that it is done even in a moment that is not quiet."""
        ...

    def do(self, now_s: float) -> None:
        """The work, on a thread of its own; it ends by itself."""
        ...


class QuietMoments:
    """Knows which runs are in flight, and does the chores between them.

    A run that is to start waits for a chore that has begun: that ends within the chore's own deadline.

    Attributes:
        loud_count: Chores done while a model call may have streamed.
    """

    def __init__(self, chores: Sequence[Chore], monotonic_s: Callable[[], float]) -> None:
        self._chores = chores
        self._monotonic_s = monotonic_s
        self._in_flight = 0
        self._quiet_work = asyncio.Lock()
        self._is_used = False
        self.loud_count = 0

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Around each run."""
        async with self._quiet_work:
            self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    async def use(self) -> None:
        """Do what is due, if the moment is quiet, and what is overdue in any case. One caller at a time works."""
        if self._is_used:
            return
        self._is_used = True
        try:
            for chore in self._chores:
                await self._use_for(chore)
        finally:
            self._is_used = False

    async def _use_for(self, chore: Chore) -> None:
        now_s = self._monotonic_s()
        if self._in_flight == 0:
            async with self._quiet_work:
                if self._in_flight == 0 and chore.is_due(now_s):
                    await _do(chore, now_s)
        elif chore.is_overdue(now_s):
            self.loud_count += 1
            await _do(chore, now_s)


async def _do(chore: Chore, now_s: float) -> None:
    try:
        await run_in_thread(lambda: chore.do(now_s))
    except Exception:  # a bug there must not end the measuring
        logger.exception("%s failed by a bug of agentbench-otel", type(chore).__name__)

"""Time that passes only when a test says so, the same in every run."""

import asyncio
import heapq
from itertools import count


class VirtualTime:
    """A `Timekeeper` of three clocks that a test moves.

    Before time moves, and after each wake-up, every task runs until all of them wait. Sleepers wake one moment
    after the other, in the order of their moments, then of their going to sleep.
    """

    def __init__(self, wall_s: float) -> None:
        self._monotonic_s = 1_000.0
        self._suspended_s = 0.0
        self._wall_of_monotonic_s = wall_s - self._monotonic_s
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self.sleep_count = 0

    def wall_s(self) -> float:
        return self._wall_of_monotonic_s + self._monotonic_s

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def boottime_s(self) -> float:
        return self._monotonic_s + self._suspended_s

    async def sleep(self, seconds: float) -> None:
        self.sleep_count += 1
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic_s + seconds, next(self._numbers), sleeper))
        await sleeper

    async def advance(self, seconds: float) -> None:
        """Let time pass, and everybody wake who sleeps no longer than that."""
        end_s = self._monotonic_s + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end_s:
            wake_s, _, sleeper = heapq.heappop(self._sleepers)
            if not sleeper.done():
                self._monotonic_s = max(self._monotonic_s, wake_s)
                sleeper.set_result(None)
                await self.settle()
        self._monotonic_s = end_s
        await self.settle()

    async def step_wall(self, seconds: float) -> None:
        """Set the wall clock."""
        await self.settle()
        self._wall_of_monotonic_s += seconds

    async def suspend(self, seconds: float) -> None:
        """The machine sleeps: the monotonic clock, on which everybody waits, stands still."""
        await self.settle()
        self._suspended_s += seconds
        self._wall_of_monotonic_s += seconds

    async def block(self, seconds: float) -> None:
        """The event loop hangs: all clocks go on, and nobody wakes before the end."""
        await self.settle()
        self._monotonic_s += seconds

    async def settle(self) -> None:
        """Return when every other task waits for something."""
        loop = asyncio.get_running_loop()
        is_quiet = False
        while not is_quiet:
            await asyncio.sleep(0)  # one round of all that is ready
            is_quiet = not loop._ready  # type: ignore[attr-defined]  # what asyncio itself asks before it waits

"""What time it is, on three clocks, and how to wait: the port through which the daemon reads the time."""

import asyncio
import time
from typing import Protocol


class Timekeeper(Protocol):
    """Three clocks. Where they part, something happened: a clock that was set, a machine that slept."""

    def wall_s(self) -> float:
        """Unix seconds. May be set forwards and backwards."""

    def monotonic_s(self) -> float:
        """Never set. Stands still while the machine is suspended; `sleep` waits on this clock."""

    def boottime_s(self) -> float:
        """Never set. Goes on while the machine is suspended."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemTime:
    """The clocks of this machine.

    Where the system has no clock of the time since boot (outside Linux), the monotonic one stands in: a suspend
    then looks like a wall clock that was set forward.
    """

    __slots__ = ("_boottime",)

    def __init__(self) -> None:
        self._boottime: int | None = getattr(time, "CLOCK_BOOTTIME", None)

    def wall_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()

    def boottime_s(self) -> float:
        return time.monotonic() if self._boottime is None else time.clock_gettime(self._boottime)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

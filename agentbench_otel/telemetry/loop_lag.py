"""How late the event loop was while a model call streamed: the measurement's own error bar."""

import asyncio

from agentbench_otel.ports import Clock

_INTERVAL_S = 0.005


class LoopLag:
    """Samples the loop every 5 ms between ``start`` and ``stop``; ``max_ns`` is the worst overshoot."""

    __slots__ = ("_clock", "_due_ns", "_handle", "max_ns")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._handle: asyncio.TimerHandle | None = None
        self._due_ns = 0
        self.max_ns = 0

    def start(self) -> None:
        self._due_ns = self._clock() + int(_INTERVAL_S * 1e9)
        self._handle = asyncio.get_running_loop().call_later(_INTERVAL_S, self._sample)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._note()
            self._handle = None

    def _sample(self) -> None:
        self._note()
        self.start()

    def _note(self) -> None:
        self.max_ns = max(self.max_ns, self._clock() - self._due_ns)

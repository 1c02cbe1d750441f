"""How the handlers of one batch are run."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence


class ConcurrentExecutor:
    """All at once, at most ``max_parallel`` at a time; they start in the order given."""

    def __init__(self, max_parallel: int) -> None:
        self._max_parallel = max_parallel

    async def run(self, jobs: Sequence[Callable[[], Awaitable[None]]]) -> None:
        gate = asyncio.Semaphore(self._max_parallel)

        async def run_one(job: Callable[[], Awaitable[None]]) -> None:
            async with gate:
                await job()

        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(run_one(job))

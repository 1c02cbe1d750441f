"""Running the event loop to an end that nothing can hang."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

_LEFT_TASKS_LIMIT_S = 1.0


def run_loop(main: Coroutine[Any, Any, Result]) -> Result:
    """As `asyncio.run`, which waits for ever for a task that ignores its cancellation; this waits a second."""
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main)
    finally:
        try:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=_LEFT_TASKS_LIMIT_S))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()

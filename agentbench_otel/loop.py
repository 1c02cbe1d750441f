"""Running the event loop to an end that nothing can hang."""

import asyncio
import os
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

Result = TypeVar("Result")

_LEFT_TASKS_LIMIT_S = 1.0


_left: list[asyncio.Task[Any]] = []
"""Tasks that ignored their cancellation: kept, because what they say when they are collected helps nobody."""


def leave(exit_code: int) -> NoReturn:
    """End the process with this exit code; at once where a task was left, which might hold it up."""
    if _left:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(exit_code)
    sys.exit(exit_code)


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
                _, pending = loop.run_until_complete(asyncio.wait(left, timeout=_LEFT_TASKS_LIMIT_S))
                _left.extend(pending)
            if _left:
                loop.set_exception_handler(lambda loop, context: None)
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()

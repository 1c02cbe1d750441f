"""Work that may hang, done on a thread of its own that keeps no process alive."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, cast

Result = TypeVar("Result")


def run_bounded(work: Callable[[], None], deadline_s: float) -> bool:
    """Run ``work`` on a thread; whether it ended in time. A thread that did not is left to itself."""
    worker = threading.Thread(target=work, daemon=True, name="agentbench-work")
    worker.start()
    worker.join(deadline_s)
    return not worker.is_alive()


async def run_in_thread(work: Callable[[], Result]) -> Result:
    """Run ``work`` on a thread and wait for it. Not the executor of the loop: at the end of the process Python
    waits for its threads, whatever they hang on."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def finish(result: Result | None, failure: BaseException | None) -> None:
        if future.done():  # nobody waits any more
            return
        if failure is not None:
            future.set_exception(failure)
        else:
            future.set_result(cast("Result", result))

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            failure = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(finish, result, failure)

    threading.Thread(target=run, daemon=True, name="agentbench-work").start()
    return await future

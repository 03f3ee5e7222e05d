"""Running a coroutine on a thread and a loop of its own, so that no handler can keep it from running."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any


def run_on_thread(main: Coroutine[Any, Any, None], name: str) -> "asyncio.Future[None]":
    """Start it; the future, on the calling loop, ends as it does."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def tell(problem: BaseException | None) -> None:
        if done.done():
            return
        if problem is None:
            done.set_result(None)
        else:
            done.set_exception(problem)

    def run() -> None:
        problem: BaseException | None = None
        try:
            asyncio.run(main)
        except BaseException as raised:
            problem = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell, problem)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done

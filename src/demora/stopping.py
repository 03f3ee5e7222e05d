"""How a process hears that it should stop."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the loop at the first SIGTERM or SIGINT; the second ends the process, even if the loop is blocked."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears signals
        return
    loop = asyncio.get_running_loop()

    def first(number: int, frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, _exit_at_once)
        loop.call_soon_threadsafe(stop)

    before = {number: signal.signal(number, first) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit_at_once(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)

"""Stop signals: SIGTERM and SIGINT."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from . import notices

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_stoppers: list[Callable[[int, FrameType | None], None]] = []  # handlers that are installed


@contextlib.contextmanager
def stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the loop at the first SIGTERM or SIGINT, and log that a second one ends the process at once. It does so
    even if the loop is blocked."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return
    loop = asyncio.get_running_loop()

    def first(number: int, frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, _exit_at_once)
        loop.call_soon_threadsafe(stop_and_say, number)

    def stop_and_say(number: int) -> None:
        notices.stop_requested(signal.Signals(number).name)
        stop()

    before = {number: signal.signal(number, first) for number in _SIGNALS}
    _stoppers.append(first)
    try:
        yield
    finally:
        _stoppers.remove(first)
        for number, handler in before.items():
            signal.signal(number, handler)


def hear_stop_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on the running loop at SIGTERM or SIGINT, besides what the program does then. It hears nothing if the
    program has no handlers of its own, or on another thread than the main one, which alone can handle signals."""
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if not isinstance(handler, _Hearing):
            if not callable(handler):
                continue
            handler = _Hearing(handler)
            signal.signal(number, handler)
        handler.add(loop, stop)


class _Hearing:
    """A signal handler that calls others, and then the one that was installed before."""

    def __init__(self, before: Callable[[int, FrameType | None], object]) -> None:
        self._before = before
        self._stops: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = []

    def add(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        self._stops = [one for one in self._stops if not one[0].is_closed()] + [(loop, stop)]

    def __call__(self, number: int, frame: FrameType | None) -> None:
        for loop, stop in self._stops:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(stop)
        self._before(number, frame)


def _exit_at_once(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


def _reset_in_child() -> None:
    """In a forked child: restore the default, so that a signal ends the child and does not reach the parent's loop through
    the wake-up descriptor that both share."""
    if not _stoppers or threading.current_thread() is not threading.main_thread():
        return
    signal.set_wakeup_fd(-1)
    for number in _SIGNALS:
        if signal.getsignal(number) in (*_stoppers, _exit_at_once):
            signal.signal(number, signal.SIG_DFL)


os.register_at_fork(after_in_child=_reset_in_child)

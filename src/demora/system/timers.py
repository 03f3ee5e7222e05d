"""Timers and waits that are precise to a fraction of a millisecond.

The timers of an event loop count in whole milliseconds and are up to one late. So on Linux a timer of the kernel, which the
loop watches like a socket, takes over for the last milliseconds.
"""

import asyncio
import ctypes
import functools
import os
import sys
import time
from collections.abc import Callable

NEAR = 0.003  # seconds that are left to the kernel's timer


class Timer:
    """Calls `callback` once after this many seconds, and never early, unless it is cancelled."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, callback: Callable[[], object]) -> None:
        self._loop, self._callback = loop, callback
        self._timer: int | None = None
        self._handle: asyncio.Handle | None = None
        if sys.platform == "linux" and _watches_files(loop):
            self._when = time.monotonic() + seconds
            if seconds > NEAR:
                self._handle = loop.call_later(seconds - NEAR, self._arm)
            else:
                self._arm()
        else:
            self._handle = loop.call_later(seconds, callback)

    def cancel(self) -> None:
        """Call nothing, and release the timer of the kernel."""
        if self._handle is not None:
            self._handle.cancel()
        self._disarm()

    def _arm(self) -> None:
        left = self._when - time.monotonic()
        try:
            self._timer = _timer(left)
        except OSError:  # too many open files: use the timer of the loop, which is a little late
            self._handle = self._loop.call_later(max(left, 0), self._callback)
        else:
            self._loop.add_reader(self._timer, self._fire)

    def _fire(self) -> None:
        self._disarm()
        self._callback()

    def _disarm(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            self._loop.remove_reader(timer)
            os.close(timer)


async def sleep(seconds: float) -> None:
    """Sleep for this many seconds, precise to a fraction of a millisecond."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    alarm = Timer(loop, seconds, lambda: over.set_result(None) if not over.done() else None)
    try:
        await over
    finally:
        alarm.cancel()


def _watches_files(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether a loop can watch files; one that simulates time cannot."""
    return type(loop).add_reader is not asyncio.AbstractEventLoop.add_reader


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Time), ("first", _Time))


@functools.cache
def _kernel() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _timer(seconds: float) -> int:
    """Return a descriptor that becomes readable after this many seconds."""
    timer: int = _kernel().timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    if timer < 0:
        raise OSError(ctypes.get_errno(), "cannot create a timer")
    whole, part = divmod(max(int(seconds * 1e9), 1), 1_000_000_000)  # 0 would disarm it
    setting = _Setting(_Time(0, 0), _Time(whole, part))
    if _kernel().timerfd_settime(timer, 0, ctypes.byref(setting), None) < 0:
        os.close(timer)
        raise OSError(ctypes.get_errno(), "cannot set the timer")
    return timer


class TimedWait:
    """Lets one waiter wait until it is notified or its time is up. A notification before the wait ends it at once."""

    def __init__(self) -> None:
        self._notified = False
        self._waiter: asyncio.Future[None] | None = None

    def notify(self) -> None:
        """Notify the waiter."""
        self._notified = True
        self._end()

    def clear(self) -> None:
        """Forget earlier notifications."""
        self._notified = False

    async def wait(self, seconds: float) -> bool:
        """Wait for at most this many seconds. Returns whether there was a notification."""
        if self._notified:
            return True
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        alarm = Timer(loop, seconds, self._end)
        try:
            await self._waiter
        finally:
            alarm.cancel()
            self._waiter = None
        return self._notified

    def _end(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

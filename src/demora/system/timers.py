"""Timers that go off to a fraction of a millisecond.

Those of a loop count in whole milliseconds and are late by half of one on average, or by one. So the last stretch is left to
a timer of the kernel, which the loop hears like a socket, where there is one.
"""

import asyncio
import ctypes
import functools
import os
import sys
import time
from collections.abc import Callable

NEAR = 0.003  # seconds before its time at which the kernel's timer is set


class Timer:
    """Calls back after so many seconds, unless it is cancelled."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, callback: Callable[[], object]) -> None:
        self._loop, self._callback = loop, callback
        self._timer: int | None = None
        self._handle: asyncio.Handle | None = None
        if sys.platform == "linux" and _hears_files(loop):
            self._when = time.monotonic() + seconds
            if seconds > NEAR:
                self._handle = loop.call_later(seconds - NEAR, self._come_near)
            else:
                self._come_near()
        else:
            self._handle = loop.call_later(seconds, callback)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._put_away()

    def _come_near(self) -> None:
        left = self._when - time.monotonic()
        try:
            self._timer = _timer(left)
        except OSError:  # no more files may be opened: a little late is better than never
            self._handle = self._loop.call_later(max(left, 0), self._callback)
        else:
            self._loop.add_reader(self._timer, self._go_off)

    def _go_off(self) -> None:
        self._put_away()
        self._callback()

    def _put_away(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            self._loop.remove_reader(timer)
            os.close(timer)


async def sleep(seconds: float) -> None:
    """Sleep for so long, to a fraction of a millisecond."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    alarm = Timer(loop, seconds, lambda: over.set_result(None) if not over.done() else None)
    try:
        await over
    finally:
        alarm.cancel()


def _hears_files(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether a loop can: not one that simulates time."""
    return type(loop).add_reader is not asyncio.AbstractEventLoop.add_reader


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Time), ("first", _Time))


@functools.cache
def _kernel() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _timer(seconds: float) -> int:
    """A file that can be read once so much time has passed."""
    timer: int = _kernel().timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    if timer < 0:
        raise OSError(ctypes.get_errno(), "no timer can be had")
    whole, part = divmod(max(int(seconds * 1e9), 1), 1_000_000_000)  # nothing would mean never
    setting = _Setting(_Time(0, 0), _Time(whole, part))
    if _kernel().timerfd_settime(timer, 0, ctypes.byref(setting), None) < 0:
        os.close(timer)
        raise OSError(ctypes.get_errno(), "the timer cannot be set")
    return timer


# A nap: until somebody rings, or until its time, to a fraction of a millisecond.


class TimedWait:
    """What one sleeper rests on, again and again. To ring before it rests keeps it awake."""

    def __init__(self) -> None:
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self._rung = True
        self._end()

    def forget(self) -> None:
        """Forget earlier rings."""
        self._rung = False

    async def take(self, seconds: float) -> bool:
        """Rest; whether somebody has rung."""
        if self._rung:
            return True
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        alarm = Timer(loop, seconds, self._end)
        try:
            await self._waiter
        finally:
            alarm.cancel()
            self._waiter = None
        return self._rung

    def _end(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

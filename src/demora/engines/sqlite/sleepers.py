"""Waiting without polling: a sleeper is woken by a bell, and only as a safety net looks at the clock and at the file."""

import asyncio
from collections.abc import Awaitable, Callable

from ...clock import Clock
from ...errors import StoreError
from ...store import Topic

CLOCK_LOOK = 0.95  # seconds between looks for a stepped clock
CLOCK_STEP = 50  # milliseconds that count as a step
FILE_LOOKS = 3  # looks at the clock for one look at the file, when bells can reach us
CLOSE_ENOUGH = 0.0001  # seconds; a timer may fire a little early
DEAF_LOOK = 0.02  # seconds between looks at the file when no bell can reach us


class Sleeper:
    """A subscription on one topic."""

    def __init__(self, topic: Topic, clock: Clock, data_version: Callable[[], Awaitable[int]] | None) -> None:
        self.topic = topic
        self.reachable = True
        self._clock, self._data_version = clock, data_version
        self._seen: int | None = None
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        self._rung = True
        self._nudge()

    def clear(self) -> None:
        self._rung = False

    async def wait(self, timeout: float | None) -> None:
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        drift = self._drift()
        for look in range(1, 2**31):
            if await self._rest(None if deadline is None else deadline - loop.time()):
                return
            if deadline is not None and deadline - loop.time() < CLOSE_ENOUGH:
                return
            if abs(self._drift() - drift) > CLOCK_STEP or await self._file_changed(look):
                return

    async def _rest(self, left: float | None) -> bool:
        """Sleep until rung, but not for long; True if rung."""
        pause = CLOCK_LOOK if self.reachable else DEAF_LOOK
        if left is not None:
            pause = min(pause, max(left, 0))
        if self._rung:
            return True
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(pause, self._nudge)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None
        return self._rung

    def _nudge(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _drift(self) -> float:
        """Moves when the wall clock is stepped, and when the machine slept, which the loop's clock does not count."""
        return self._clock.wall_us() / 1000 - asyncio.get_running_loop().time() * 1000

    async def _file_changed(self, look: int) -> bool:
        """Whether another process wrote to the file, whose bell we may have missed; at first sight it may have."""
        if self._data_version is None or (self.reachable and look % FILE_LOOKS):
            return False
        try:
            seen, self._seen = self._seen, await self._data_version()
        except StoreError:
            return True  # whoever looks next hears of the trouble
        return seen != self._seen

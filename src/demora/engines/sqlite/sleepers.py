"""Waiting without polling: a sleeper is woken by a bell, and only as a safety net looks at the clock and at the file."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

from ...clock import Clock
from ...errors import StoreError
from ...store import Topic
from ..naps import Nap

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
        self._nap = Nap()

    def wake(self) -> None:
        self._nap.ring()

    def clear(self) -> None:
        self._nap.forget()

    async def wait(self, timeout: float | None) -> bool:
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        drift = self._drift()
        for look in count(1):
            if await self._rest(None if deadline is None else deadline - loop.time()):
                return True
            if deadline is not None and deadline - loop.time() < CLOSE_ENOUGH:
                return False
            if abs(self._drift() - drift) > CLOCK_STEP or await self._file_changed(look):
                return True
        raise AssertionError("it looks without end")

    async def _rest(self, left: float | None) -> bool:
        """Sleep until rung, but not for long; True if rung."""
        pause = CLOCK_LOOK if self.reachable else DEAF_LOOK
        return await self._nap.take(pause if left is None else min(pause, max(left, 0)))

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

"""Waiting without polling: a sleeper is woken by a bell, and as a safety net comes back after a while by itself."""

import asyncio
import contextlib
from collections.abc import Callable

from ...store import Topic

CLOCK_LOOK = 1.95  # seconds between looks for a stepped clock
CLOCK_STEP = 50  # milliseconds that count as a step
SAFETY = 5.0  # seconds after which a sleeper looks again although nobody rang
DEAF_LOOK = 0.25  # seconds between looks when no bell can reach us
# What nobody waits for: no claim hands out a job that expired, and each follows the paces as they are.
UNHURRIED = frozenset({Topic.EXPIRY, Topic.PACE})


class Sleeper:
    """A subscription on one topic. `reachable` says whether bells can be heard."""

    def __init__(self, topic: Topic, reachable: Callable[[], bool]) -> None:
        self.topic = topic
        self._reachable = reachable
        self._rung = asyncio.Event()

    def wake(self) -> None:
        self._rung.set()

    def clear(self) -> None:
        self._rung.clear()

    async def wait(self, timeout: float | None) -> None:
        longest = SAFETY if self._reachable() else DEAF_LOOK
        if self.topic in UNHURRIED and timeout is not None:
            longest = timeout
        pause = longest if timeout is None else min(timeout, longest)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._rung.wait()

"""Waiting without polling: a sleeper is woken by a bell, and as a safety net comes back after a while by itself."""

from collections.abc import Callable

from ...store import Topic
from ..naps import Nap

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
        self._nap = Nap()

    def wake(self) -> None:
        self._nap.ring()

    def clear(self) -> None:
        self._nap.forget()

    async def wait(self, timeout: float | None) -> bool:
        longest = SAFETY if self._reachable() else DEAF_LOOK
        if self.topic in UNHURRIED and timeout is not None:
            longest = timeout
        return await self._nap.take(longest if timeout is None else min(timeout, longest))

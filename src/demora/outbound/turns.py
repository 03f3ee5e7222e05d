"""Turns at other people's servers: so many calls of one host at a time, and an estimate of when the next one can be made."""

import asyncio
import random
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from ..core.outbound import GUESS, Crowd, average, come_back
from ..errors import DemoraError

PATIENCE = 1.0  # seconds that a call waits for its turn at most, while it holds a slot of its worker
MOST_IDLE = 1000  # hosts without calls that are remembered before those are dropped whose jobs should be back


class Crowded(DemoraError):
    """As many calls as one host may have are under way; nothing was sent. `wait` is when to ask again."""

    def __init__(self, host: str, most: int, wait: timedelta) -> None:
        super().__init__(f"{most} calls of {host} are under way, which is as many as there may be")
        self.wait = wait


class Turns:
    """Keeps the calls of each host to `per_host` at a time. May be used from several loops."""

    def __init__(
        self,
        per_host: int,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.per_host, self._asked_for = per_host, per_host
        self._waiting_room = per_host
        self._monotonic, self._chance = monotonic, chance
        self._hosts: dict[str, _Host] = {}
        self._sweep_at = MOST_IDLE
        self._lock = threading.Lock()

    def leave_room(self, slots: int) -> None:
        """Let no host have all slots of a worker with so many: calls under way take at most all but one, those that wait
        for their turn at most half of the slots together with these."""
        self.per_host = min(self._asked_for, max(1, slots - 1))
        self._waiting_room = max(0, min(self.per_host, slots // 2 - self.per_host))

    @asynccontextmanager
    async def at(self, name: str) -> AsyncIterator[None]:
        """Hold a place at a host while the block runs. If all are taken and none will be free within a moment, `Crowded`."""
        with self._lock:
            host = self._host(name)
            waiter = None if host.take(self.per_host, self._monotonic()) else self._queue_up(name, host)
        if waiter is not None:
            await self._turn(name, host, waiter)
        began = self._monotonic()
        try:
            yield
        finally:
            self._give_back(name, host, began)

    def _host(self, name: str) -> "_Host":
        found = self._hosts.get(name)
        if found is None:
            if len(self._hosts) >= self._sweep_at:
                now = self._monotonic()
                self._hosts = {name: host for name, host in self._hosts.items() if not host.forgettable(now)}
                self._sweep_at = max(MOST_IDLE, 2 * len(self._hosts))
            found = self._hosts[name] = _Host()
        return found

    def _queue_up(self, name: str, host: "_Host") -> "_Waiter":
        """A place in the short queue, if a turn there is near."""
        expected = self._gap(host) * (len(host.waiters) + 1)
        if len(host.waiters) >= self._waiting_room or expected > PATIENCE:
            raise self._crowded(name, host)
        waiter = _Waiter()
        host.waiters.append(waiter)
        return waiter

    async def _turn(self, name: str, host: "_Host", waiter: "_Waiter") -> None:
        try:
            await asyncio.wait([waiter.future], timeout=PATIENCE)
        except asyncio.CancelledError:
            if not self._withdrawn(host, waiter):
                self._give_back(name, host, None)
            raise
        if self._withdrawn(host, waiter):
            with self._lock:
                raise self._crowded(name, host)

    def _withdrawn(self, host: "_Host", waiter: "_Waiter") -> bool:
        """Leave the queue; False if the waiter has got a place meanwhile."""
        with self._lock:
            if not waiter.granted:
                host.waiters.remove(waiter)
            return not waiter.granted

    def _crowded(self, name: str, host: "_Host") -> Crowded:
        host.crowd, wait = come_back(host.crowd, now=self._monotonic(), gap=self._gap(host), drawn=self._chance())
        return Crowded(name, self.per_host, timedelta(seconds=wait))

    def _gap(self, host: "_Host") -> float:
        """The time between two ends of calls: what calls took lately, or more if those under way take longer."""
        held = self._monotonic() - host.last_taken
        return max(GUESS if host.took is None else host.took, held) / self.per_host

    def _give_back(self, name: str, host: "_Host", began: float | None) -> None:
        with self._lock:
            now = self._monotonic()
            if began is not None:
                host.took = average(host.took, now - began)
            host.under_way -= 1
            while host.waiters and host.under_way < self.per_host:
                if host.waiters.popleft().grant():
                    host.take(self.per_host, now)
            if host.forgettable(now):
                self._hosts.pop(name, None)


class _Host:
    """The calls of one host: those under way, those that wait in a slot, and what is known of those sent away."""

    __slots__ = ("crowd", "last_taken", "took", "under_way", "waiters")

    def __init__(self) -> None:
        self.under_way = 0
        self.last_taken = 0.0
        self.took: float | None = None
        self.waiters: deque[_Waiter] = deque()
        self.crowd: Crowd | None = None

    def take(self, most: int, now: float) -> bool:
        if self.under_way >= most:
            return False
        self.under_way, self.last_taken = self.under_way + 1, now
        return True

    def forgettable(self, now: float) -> bool:
        return not self.under_way and not self.waiters and (self.crowd is None or self.crowd.over(now))


class _Waiter:
    __slots__ = ("future", "granted")

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.granted = False

    def grant(self) -> bool:
        """Hand over a place; False if the loop of the waiter is closed, and its call gone with it."""
        try:
            self.future.get_loop().call_soon_threadsafe(self._tell)
        except RuntimeError:
            return False
        self.granted = True
        return True

    def _tell(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

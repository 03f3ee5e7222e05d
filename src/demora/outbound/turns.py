"""Limits the concurrent requests to one host, and estimates when a request that found no place should come back."""

import asyncio
import random
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from ..core.outbound.turns import GUESS, Crowd, average, come_back
from ..errors import DemoraError

TURN_TIMEOUT = 1.0  # seconds that a request waits for its turn at most, while it holds a slot of its worker
MOST_IDLE = 1000  # idle hosts that are remembered before the outdated ones are dropped


class Crowded(DemoraError):
    """The host has as many requests in flight as it may; nothing was sent. Try again after `wait`."""

    def __init__(self, host: str, most: int, wait: timedelta) -> None:
        super().__init__(f"{host} already has {most} requests in flight, which is the limit")
        self.wait = wait


class HostTurns:
    """Limits the requests to each host to `per_host` at a time. Several event loops can share it."""

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
        """Make sure that no host takes all slots of a worker.

        Requests in flight take at most all slots but one. Together with waiting requests they take at most half.
        """
        self.per_host = min(self._asked_for, max(1, slots - 1))
        self._waiting_room = max(0, min(self.per_host, slots // 2 - self.per_host))

    @asynccontextmanager
    async def at(self, name: str) -> AsyncIterator[None]:
        """Hold a place at a host while the block runs. Raises `Crowded` if none becomes free within a second."""
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
        """Join the short queue of a host, or raise `Crowded` if the turn would come too late."""
        expected = self._gap(host) * (len(host.waiters) + 1)
        if len(host.waiters) >= self._waiting_room or expected > TURN_TIMEOUT:
            raise self._crowded(name, host)
        waiter = _Waiter()
        host.waiters.append(waiter)
        return waiter

    async def _turn(self, name: str, host: "_Host", waiter: "_Waiter") -> None:
        try:
            await asyncio.wait([waiter.future], timeout=TURN_TIMEOUT)
        except asyncio.CancelledError:
            if not self._withdrawn(host, waiter):
                self._give_back(name, host, None)
            raise
        if self._withdrawn(host, waiter):
            with self._lock:
                raise self._crowded(name, host)

    def _withdrawn(self, host: "_Host", waiter: "_Waiter") -> bool:
        """Leave the queue. Returns False if the waiter has got a place in the meantime."""
        with self._lock:
            if not waiter.granted:
                host.waiters.remove(waiter)
            return not waiter.granted

    def _crowded(self, name: str, host: "_Host") -> Crowded:
        host.crowd, wait = come_back(host.crowd, now=self._monotonic(), gap=self._gap(host), drawn=self._chance())
        return Crowded(name, self.per_host, timedelta(seconds=wait))

    def _gap(self, host: "_Host") -> float:
        """Estimate the time between two ends: the recent duration, or more if the current requests take longer."""
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
    """The requests to one host: those in flight, those that wait for a place, and an estimate of those sent back."""

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
        """Give the waiter a place. Returns False if its event loop is closed, so that its request is gone."""
        try:
            self.future.get_loop().call_soon_threadsafe(self._resolve)
        except RuntimeError:
            return False
        self.granted = True
        return True

    def _resolve(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

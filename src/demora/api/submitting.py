"""What an API key may submit, kept at the edge: its queues and types, how many names it uses, and how many of its jobs wait.

A request of a key that uses known names costs no look at the database: this process remembers the names that it has seen
a key use, and part of the room for waiting jobs that it has counted.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from ..client.client import Client
from ..core.access import ApiKey, KeyLimits, NameKind, check_allowed, too_many_names
from ..core.job import Job, NewJob, in_namespace
from ..errors import TooManyWaiting
from ..settings import Settings

MOST_NAMES = 200_000  # remembered by a process, of all keys together
ROOM_FOR = 1.0  # seconds that a count of waiting jobs is believed
SHARE = 10  # a process takes this part of the room at a time, since others may take from the same


class Submissions:
    """Adds jobs on behalf of keys, or raises why not. Nothing is limited where no key is needed."""

    def __init__(self, settings: Settings, *, timer: Callable[[], float] = time.monotonic) -> None:
        self._usual, self._timer = settings.key_limits, timer
        self._names: dict[str, set[tuple[NameKind, str]]] = {}
        self._rooms: dict[str, _Room] = {}

    async def add(self, client: Client, key: ApiKey | None, jobs: Sequence[NewJob]) -> list[tuple[Job, bool]]:
        """`Client.add` in the namespace of the key, within its limits."""
        if key is None:
            return await client.add(jobs)
        limits = key.limits.over(self._usual)
        check_allowed(limits, jobs)
        await self._use_names(client, key, limits, jobs)
        if not limits.max_waiting:
            return await client.add([in_namespace(job, key.namespace) for job in jobs] if key.namespace else jobs)
        room = self._rooms.setdefault(key.id, _Room(self._timer))
        most = limits.max_waiting
        await room.take(len(jobs), most, lambda: client.keys.waiting(key, most=most))
        try:
            return await client.add([in_namespace(job, key.namespace, key.id) for job in jobs])
        finally:
            room.stored(len(jobs))

    async def _use_names(self, client: Client, key: ApiKey, limits: KeyLimits, jobs: Sequence[NewJob]) -> None:
        known = self._names.setdefault(key.id, set())
        queues = {job.queue for job in jobs} if limits.max_queues else set()
        types = {job.type for job in jobs} if limits.max_types else set()
        new = {(NameKind.QUEUE, name) for name in queues} | {(NameKind.TYPE, name) for name in types}
        if new <= known:
            return
        too_many = await client.keys.name(key, queues, types, limits)
        if too_many is not None:
            raise too_many_names(too_many, limits)
        if sum(map(len, self._names.values())) + len(new) > MOST_NAMES:
            self._names.clear()
        self._names.setdefault(key.id, set()).update(new)


class _Room:
    """How many more jobs of a key may wait, as far as this process has taken room for them.

    In one process the limit is exact. Another process may have counted the same room, but takes a tenth of it too.
    """

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer, self._lock = timer, asyncio.Lock()
        self._taken, self._until = 0, 0.0  # room that is taken and not used, and until when
        self._full_until = 0.0
        self._under_way = 0  # jobs that are being stored, which a count may miss or not
        self._idle = asyncio.Event()
        self._idle.set()

    async def take(self, jobs: int, most: int, count: Callable[[], Awaitable[int]]) -> None:
        """Take room for so many jobs, or raise `TooManyWaiting`; `stored` ends it."""
        async with self._lock:
            if self._timer() < self._full_until:
                raise TooManyWaiting(most)
            if self._taken < jobs or self._timer() >= self._until:
                self._taken = await self._look(jobs, most, count)
                self._until = self._timer() + ROOM_FOR
            self._taken -= jobs
            self._under_way += jobs
            self._idle.clear()

    def stored(self, jobs: int) -> None:
        self._under_way -= jobs
        if not self._under_way:
            self._idle.set()

    async def _look(self, jobs: int, most: int, count: Callable[[], Awaitable[int]]) -> int:
        under_way = self._under_way  # before the count: those that end meanwhile may be in it
        room = most - under_way - await count()
        if room < jobs and under_way:
            await self._idle.wait()  # they may have been counted twice
            room = most - await count()
        if room < jobs:
            if room <= 0:
                self._full_until = self._timer() + ROOM_FOR  # so that those who are refused cost no count each
            raise TooManyWaiting(most)
        return max(jobs, room // SHARE)

"""Enforces what an API key may submit: its queues and types, its number of names, and its number of waiting jobs.

A request with known names costs no database query: the process remembers the names that a key has used, and reserves part
of its room for waiting jobs in advance.
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
ROOM_FOR = 1.0  # seconds that a count of waiting jobs is used
SHARE = 10  # a process reserves a tenth of the room at a time, because other processes share it


class Submissions:
    """Adds jobs on behalf of API keys, within their limits. There are no limits where no key is needed."""

    def __init__(self, settings: Settings, *, timer: Callable[[], float] = time.monotonic) -> None:
        self._usual, self._timer = settings.key_limits, timer
        self._names: dict[str, set[tuple[NameKind, str]]] = {}
        self._rooms: dict[str, _Room] = {}

    def add(self, client: Client, key: ApiKey | None, jobs: Sequence[NewJob]) -> Awaitable[list[tuple[Job, bool]]]:
        """Add jobs in the namespace of the key. Raises the error of the limit that it would exceed."""
        return client.add(jobs) if key is None else self._add(client, key, jobs)

    async def _add(self, client: Client, key: ApiKey, jobs: Sequence[NewJob]) -> list[tuple[Job, bool]]:
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
    """The room for waiting jobs of a key that this process has reserved.

    With one process the limit is exact. Several processes may count the same room, but each reserves only a tenth of it.
    """

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer, self._lock = timer, asyncio.Lock()
        self._taken, self._until = 0, 0.0  # reserved room that is not used yet, and until when
        self._full_until = 0.0
        self._under_way = 0  # jobs that are being stored, which a count may or may not include
        self._idle = asyncio.Event()
        self._idle.set()

    async def take(self, jobs: int, most: int, count: Callable[[], Awaitable[int]]) -> None:
        """Reserve room for jobs, or raise `TooManyWaiting`. Call `stored` afterwards."""
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
        under_way = self._under_way  # read before the count, which may include jobs stored meanwhile
        room = most - under_way - await count()
        if room < jobs and under_way:
            await self._idle.wait()  # they may be counted twice
            room = most - await count()
        if room < jobs:
            if room <= 0:
                self._full_until = self._timer() + ROOM_FOR  # so that refused requests do not count again
            raise TooManyWaiting(most)
        return max(jobs, room // SHARE)

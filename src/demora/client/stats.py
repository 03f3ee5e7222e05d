"""How many jobs there are in each state. Counting reads the whole index of waiting jobs, so callers share one count."""

import asyncio
from datetime import UTC, datetime

import msgspec

from ..store.jobs import Queue
from ..store.store import Store

MOST_QUEUES = 1000  # named in the answer: those with the most jobs
REUSED_FOR = 1.0  # seconds for which a count is reused at least
REUSED_TIMES = 20  # a count that took long is reused for so many times as long: counting costs at most 5 % of a core


class JobCounts(msgspec.Struct, frozen=True):
    """The number of jobs that are ready (`priority`), delayed, running (`processing`) and FAILED (`dlq`)."""

    priority: int = 0
    delayed: int = 0
    processing: int = 0
    dlq: int = 0


class Stats(msgspec.Struct, frozen=True):
    """The counts of all queues together, and of each. `more_queues` says how many queues are left out of `queues`."""

    total: JobCounts
    queues: dict[str, JobCounts]
    more_queues: int
    counted_at: datetime


class Counter:
    """Counts the jobs of one store, for all callers on this event loop together: one count at a time."""

    def __init__(self, store: Store) -> None:
        self._store, self._turn = store, asyncio.Lock()
        self._last: Stats | None = None
        self._began = self._reusable_until = 0.0

    async def stats(self, *, fresh: bool = False) -> Stats:
        """Return how many jobs there are in each state. `counted_at` says when they were counted: at most a second ago, or
        20 times as long ago as counting takes. With `fresh` they are counted after this call began."""
        now = asyncio.get_running_loop().time
        asked = now()
        async with self._turn:
            last = self._last
            if last is None or (self._began < asked if fresh else now() >= self._reusable_until):
                last = self._last = await self._count()
            return last

    async def _count(self) -> Stats:
        now = asyncio.get_running_loop().time
        counted_at, began = datetime.now(UTC), now()
        stats = summarise(await self._store.queues(), counted_at)
        self._began, self._reusable_until = began, now() + max(REUSED_FOR, REUSED_TIMES * (now() - began))
        return stats


def summarise(queues: list[Queue], counted_at: datetime) -> Stats:
    """Return the counts of all queues together, and those of the queues with the most jobs."""
    counts = {queue.name: JobCounts(queue.ready, queue.delayed, queue.processing, queue.dead) for queue in queues}
    largest = sorted(counts, key=lambda name: (-sum(msgspec.structs.astuple(counts[name])), name))[:MOST_QUEUES]
    columns = zip(*(msgspec.structs.astuple(one) for one in counts.values()), strict=True)
    shown = {name: counts[name] for name in sorted(largest)}
    return Stats(JobCounts(*map(sum, columns)), shown, len(counts) - len(shown), counted_at)

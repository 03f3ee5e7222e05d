"""A claim with a line: the line says which jobs are next, and the SQL store leases them.

The SQL store claims alone while the line is away, when a pace may release a job, when a parked job may be ready, and every
few seconds as a safety net.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import msgspec

from ..core.job import Lane
from ..core.pace import Release
from ..core.spans import ZERO, to_ms
from ..errors import StoreError
from ..store.jobs import LOCKED_RETRY, Claimed, ClaimedJob, ClaimRequest
from ..store.line_feed import ClaimedByIds, Entry, LineFeed, Place
from ..store.store import Store
from ..system import crash
from .maintainer import Maintainer
from .port import HandedOut, PutMode

SQL_CLAIM_EVERY = 5.0  # seconds after which a claim asks the SQL store alone, for jobs that fell out of the line
ROUNDS = 8  # times that one claim asks the line, if jobs that it hands out have moved on
LONG_DUE = 100_000  # microseconds, more than the estimated clock is off: a job due for longer that is not leased is locked
MICROSECOND = timedelta(microseconds=1)


_Which = tuple[frozenset[str] | None, frozenset[str] | None]  # the queues and the types of a claim


class ClaimTimes:
    """Times for the claims of one set of queues and types: when a claim last asked the SQL store alone, by the loop's clock;
    when a pace may release a job next, and when a parked job is due, in microseconds of the database's clock."""

    __slots__ = ("parked_at", "release_at", "sql_claimed_at")

    def __init__(self, sql_claimed_at: float) -> None:
        self.sql_claimed_at, self.release_at, self.parked_at = sql_claimed_at, 0.0, math.inf


class Claimer:
    """Claims jobs of the SQL store for workers, in the order of the line. It calls `sweep_unplaced` wherever jobs may
    have been recorded that no process has put into the line."""

    def __init__(self, store: Store, feed: LineFeed, sweep_unplaced: Callable[[], Awaitable[None]]) -> None:
        self._store, self._feed, self._sweep_unplaced = store, feed, sweep_unplaced
        self._times: dict[_Which, ClaimTimes] = {}

    async def claim(self, maintainer: Maintainer, request: ClaimRequest) -> Claimed:
        """Lease the jobs that the line names, or those that the SQL store finds by itself. The promises are those of
        `Store.claim`; as there, no row is leased that is not due."""
        loop = asyncio.get_running_loop()
        await self._sweep_unplaced()
        which = None if request.queues is None else frozenset(request.queues), request.types
        times = self._times.get(which) or self._times.setdefault(which, ClaimTimes(loop.time()))
        parked = times.parked_at <= maintainer.clock.now_us()  # the line does not know these jobs
        if request.limit and not parked and loop.time() < times.sql_claimed_at + SQL_CLAIM_EVERY:
            claimed = await self._claim_by_line_unless_release_due(maintainer, times, request)
            if claimed is not None:
                return claimed
        claimed = await self._claim_by_sql(maintainer, times, request)
        if request.limit:
            times.sql_claimed_at = loop.time()
        await self._sweep_unplaced()
        return claimed

    def expect_releases(self) -> None:
        """Have the next claim check whether a pace releases a job: delayed jobs have moved, or settings have changed."""
        for times in self._times.values():
            times.release_at = 0.0

    async def _claim_by_line_unless_release_due(
        self, maintainer: Maintainer, times: ClaimTimes, request: ClaimRequest
    ) -> Claimed | None:
        """Claim by the line. None if it is away, or if it has no job and there may be a parked one or one that a pace
        releases: SQL does all of this at once."""
        claimed = await self._claim_by_line(maintainer, times, request)
        if claimed is not None and not claimed.jobs and times.parked_at <= maintainer.clock.now_us():
            return None
        if claimed is None or not maintainer.paced:
            return claimed
        left = times.release_at - maintainer.clock.now_us()
        if left <= 0 and not claimed.jobs:
            return None
        if left == math.inf:
            return claimed
        release = max(left, 0) * MICROSECOND
        next_in = release if claimed.next_in is None else min(claimed.next_in, release)
        return msgspec.structs.replace(claimed, next_in=next_in)

    async def _claim_by_sql(self, maintainer: Maintainer, times: ClaimTimes, request: ClaimRequest) -> Claimed:
        """Claim by the SQL store alone, which also releases the jobs that a pace allows, and bring the line in step."""
        parked = times.parked_at <= maintainer.clock.now_us()
        times.release_at = times.parked_at = math.inf  # `expect_releases` may lower the first meanwhile
        claimed = await self._store.claim(request)
        if parked and len(claimed.jobs) == request.limit:  # perhaps more of them are ready, and the next in order
            times.parked_at = 0.0
        if claimed.next_in is not None:
            times.release_at = min(times.release_at, maintainer.clock.now_us() + claimed.next_in / MICROSECOND)
        await maintainer.remove([Entry(job.lease.id, job.queue) for job in claimed.jobs])
        leased = {job.lease.id for job in claimed.jobs}
        await put_released(maintainer, [job for job in claimed.released if job.id not in leased])
        return claimed

    async def _claim_by_line(self, maintainer: Maintainer, times: ClaimTimes, request: ClaimRequest) -> Claimed | None:
        """Lease the jobs that the line hands out, and ask it again if some have moved on. None if it is away."""
        jobs: list[ClaimedJob] = []
        parked: frozenset[str] = frozenset()
        expired = 0
        for last in reversed(range(ROUNDS)):
            want = request.limit - len(jobs) - expired
            taken = await maintainer.take(request.queues, want, in_turn=request.in_turn)
            if taken is None:
                break
            crash.at("line.taken")
            asked = time.monotonic()
            try:
                by_ids = await self._feed.claim_by_ids(request, taken.entries)
            except StoreError:
                if jobs:  # the worker holds these leases already
                    break
                raise
            maintainer.clock.learn(by_ids.wall_us, asked)
            crash.at("line.claimed")
            missed, moved = await self._settle_entries(maintainer, taken.entries, by_ids)
            jobs += by_ids.claimed.jobs
            expired += by_ids.expired
            parked |= by_ids.claimed.parked
            times.parked_at = math.inf if by_ids.parked_in is None else by_ids.wall_us + by_ids.parked_in / MICROSECOND
            await self._sweep_unplaced()
            more = len(taken.entries) >= want and len(jobs) + expired < request.limit
            if missed or last == 0 or not (more or moved):
                next_in = ZERO if more or expired else _next_in(taken, by_ids, missed, maintainer.clock.answer_us())
                return Claimed(jobs, by_ids.claimed.lapsed, next_in, parked=parked)
        return Claimed(jobs, [], ZERO, parked=parked) if jobs else None

    async def _settle_entries(
        self, maintainer: Maintainer, entries: Sequence[Entry], by_ids: ClaimedByIds
    ) -> tuple[list[Place], bool]:
        """Tell the line what became of the jobs that it handed out. Return the places of those that were not leased and
        still wait in the queue of their entry, and whether others wait in another queue, where they may be next."""
        leased = {job.lease.id for job in by_ids.claimed.jobs}
        missed = [entry for entry in entries if entry.id not in leased]
        places: list[Place] = []
        if missed:
            try:
                row_places = await self._feed.row_places([entry.id for entry in missed])
            except StoreError:  # the line hands out again those that are not done
                await maintainer.done([entry for entry in entries if entry.id in leased])
                return [], False
            places = [row.place for row in row_places if row.waiting]
        asked, now_us = {(entry.id, entry.queue) for entry in missed}, maintainer.clock.now_us()
        still = [place for place in places if (place.id, place.queue) in asked]
        locked = [place for place in still if _is_locked(place, now_us)]
        await maintainer.put(locked, mode=PutMode.RETURNED)
        await maintainer.put([place for place in places if place not in locked])
        back = {(place.id, place.queue) for place in places if place.due_at <= maintainer.reach()}
        await maintainer.done([entry for entry in entries if (entry.id, entry.queue) not in back])
        return still, len(still) < len(places)


async def put_released(maintainer: Maintainer, jobs: Sequence[Release], *, quiet: bool = False) -> None:
    """Put jobs where their release has moved them. A claim drops those that have moved on since then."""
    crash.at("line.recorded")
    places = [Place(job.id, job.queue, Lane.RELEASED, job.priority, to_ms(job.release_at)) for job in jobs]
    await maintainer.put(places, quiet=quiet)
    crash.at("line.updated")


def _next_in(taken: HandedOut, by_ids: ClaimedByIds, missed: Sequence[Place], answer_us: int) -> timedelta | None:
    """Return how long until the next job is due, the next lease lapses, or a locked job should be tried again."""
    locked = [place for place in missed if _is_locked(place, answer_us)]
    dues = [place.due_at for place in missed if place not in locked] + ([] if taken.next_due is None else [taken.next_due])
    waits = [timedelta(microseconds=max(due * 1000 - answer_us, 0)) for due in dues]
    waits += [wait for wait in (by_ids.claimed.next_in, by_ids.parked_in) if wait is not None]
    waits += [LOCKED_RETRY] * bool(locked)
    return min(waits, default=None)


def _is_locked(place: Place, now_us: int) -> bool:
    """Return whether a job that could not be leased is locked by a transaction, and not only due later than estimated."""
    return place.due_at * 1000 < now_us - LONG_DUE

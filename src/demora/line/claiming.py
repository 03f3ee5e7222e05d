"""A claim by the line: it says who is next, SQL leases. What paces allow is let go where the line has nothing."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from .. import crash
from ..core.job import Lane
from ..core.pace import Release
from ..core.spans import ZERO, to_ms
from ..errors import StoreError
from ..line_feed import Drawn, Entry, Place
from ..store import HELD_LOOK, Claimed, ClaimedJob
from .inner import Inner
from .maintainer import Tender
from .port import Putting, Taken

MICROSECOND = timedelta(microseconds=1)
LONG_DUE = 100_000  # microseconds for which a job has been due that could not be had, if not for the clock's sake
ROUNDS = 8  # of asking the line in one claim, while what it hands out has moved on


class Asked:
    """What is known to those who ask for the same queues: when SQL was asked alone, by the loop's time, and when a pace may
    let something go, in microseconds of the database's."""

    __slots__ = ("let_go_at", "looked_at")

    def __init__(self, looked_at: float) -> None:
        self.looked_at, self.let_go_at = looked_at, 0.0


class Claiming(ABC):
    """How a store with a line claims."""

    inner: Inner

    @abstractmethod
    async def _line_up_rest(self) -> None: ...

    async def _claim_at_pace(self, tender: Tender, asked: Asked, *wish: Any) -> Claimed | None:
        """Ask the line. None if it is away, or if it has nothing and a pace may let something go: SQL does both at once."""
        claimed = await self._claim_by_line(tender, *wish)
        if claimed is None or not tender.paced:
            return claimed
        left = asked.let_go_at - tender.present.now_us()
        if left <= 0 and not claimed.jobs:
            return None
        if left == math.inf:
            return claimed
        slot = max(left, 0) * MICROSECOND
        next_in = slot if claimed.next_in is None else min(claimed.next_in, slot)
        return msgspec.structs.replace(claimed, next_in=next_in)

    async def _claim_by_sql(self, tender: Tender, asked: Asked, *wish: Any) -> Claimed:
        """Ask SQL alone, which lets go what paces allow, and bring the line in step."""
        worker_id, limit, lease, queues, in_turn = wish
        asked.let_go_at = math.inf  # what is put meanwhile sets it anew
        claimed = await self.inner.claim(worker_id, limit, lease=lease, queues=queues, in_turn=in_turn)
        if claimed.next_in is not None:
            asked.let_go_at = min(asked.let_go_at, tender.present.now_us() + claimed.next_in / MICROSECOND)
        await tender.remove([Entry(job.lease.id, job.queue) for job in claimed.jobs])
        got = {job.lease.id for job in claimed.jobs}
        await self._line_up_released(tender, [job for job in claimed.released if job.id not in got])
        return claimed

    async def _line_up_released(self, tender: Tender, jobs: Sequence[Release], *, quiet: bool = False) -> None:
        """Put jobs where the release has moved them; what has moved on since then is found out when it is handed out."""
        crash.at("line.recorded")
        places = [Place(job.id, job.queue, Lane.RELEASED, job.priority, to_ms(job.slot_at)) for job in jobs]
        await tender.put(places, quiet=quiet)
        crash.at("line.told")

    async def _claim_by_line(
        self, tender: Tender, worker_id: str, limit: int, lease: timedelta, queues: Sequence[str] | None, in_turn: bool
    ) -> Claimed | None:
        """Lease what the line hands out; asks it again while what it handed out had moved on. None if it is away."""
        jobs: list[ClaimedJob] = []
        expired = 0
        for last in reversed(range(ROUNDS)):
            want = limit - len(jobs) - expired
            taken = await tender.take(queues, want, in_turn=in_turn)
            if taken is None:
                break
            crash.at("line.taken")
            asked = time.monotonic()
            try:
                drawn = await self.inner.draw(worker_id, taken.entries, lease=lease)
            except StoreError:
                if jobs:  # these are ours already
                    break
                raise
            tender.present.learn(drawn.wall_us, asked)
            crash.at("line.drawn")
            missed, moved = await self._settle_entries(tender, taken.entries, drawn)
            jobs += drawn.claimed.jobs
            expired += drawn.expired
            await self._line_up_rest()
            more = len(taken.entries) >= want and len(jobs) + expired < limit
            if missed or last == 0 or not (more or moved):
                next_in = ZERO if more or expired else _next_in(taken, drawn, missed, tender.present.soon_us())
                return Claimed(jobs, drawn.claimed.lapsed, next_in)
        return Claimed(jobs, [], ZERO) if jobs else None

    async def _settle_entries(self, tender: Tender, entries: Sequence[Entry], drawn: Drawn) -> tuple[list[Place], bool]:
        """Tell the line what became of what it handed out; answers with the places of those that still wait there, and
        whether others have left for another queue, where they may be next."""
        got = {job.lease.id for job in drawn.claimed.jobs}
        missed = [entry for entry in entries if entry.id not in got]
        places: list[Place] = []
        if missed:
            try:
                standings = await self.inner.standings([entry.id for entry in missed])
            except StoreError:  # what was handed out and is not done comes again
                await tender.done([entry for entry in entries if entry.id in got])
                return [], False
            places = [standing.place for standing in standings if standing.waiting]
        asked, now_us = {(entry.id, entry.queue) for entry in missed}, tender.present.now_us()
        still = [place for place in places if (place.id, place.queue) in asked]
        held = [place for place in still if _is_held(place, now_us)]
        await tender.put(held, how=Putting.BACK)
        await tender.put([place for place in places if place not in held])
        back = {(place.id, place.queue) for place in places}
        await tender.done([entry for entry in entries if (entry.id, entry.queue) not in back])
        return still, len(still) < len(places)


def _next_in(taken: Taken, drawn: Drawn, missed: Sequence[Place], soon_us: int) -> timedelta | None:
    """Until the line is to be asked for what is due next, or until the next lapse."""
    held = [place for place in missed if _is_held(place, soon_us)]
    dues = [place.due_at for place in missed if place not in held] + ([] if taken.next_due is None else [taken.next_due])
    waits = [timedelta(microseconds=max(due * 1000 - soon_us, 0)) for due in dues]
    waits += ([] if drawn.claimed.next_in is None else [drawn.claimed.next_in]) + [HELD_LOOK] * bool(held)
    return min(waits, default=None)


def _is_held(place: Place, now_us: int) -> bool:
    """Whether a job that could not be had is held by somebody, and not only due a little later than was believed."""
    return place.due_at * 1000 < now_us - LONG_DUE

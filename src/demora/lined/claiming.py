"""A claim by the line: it says who is next, SQL leases. What paces allow is let go first."""

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
from ..line import Entry, Place, Taken
from ..outbox import Drawn
from ..store import Claimed, ClaimedJob
from .inner import Inner
from .tending import Tender

MICROSECOND = timedelta(microseconds=1)
ROUNDS = 8  # of asking the line in one claim, while what it hands out has moved on


class Claiming(ABC):
    """How a store with a line claims."""

    inner: Inner
    _let_go_at: float = 0  # when a pace may let something go, in microseconds of the database's time

    @abstractmethod
    async def _line_up_deliveries(self) -> None: ...

    @abstractmethod
    def _woken(self, delayed: bool) -> None: ...

    async def _claim_at_pace(self, tender: Tender, *wish: Any) -> Claimed | None:
        """Ask the line, and where that has nothing and there are paces, let go what they allow and ask again."""
        claimed = await self._claim_by_line(tender, *wish)
        if claimed is None or not tender.paced:
            return claimed
        released: Sequence[Release] = ()
        if not claimed.jobs:  # else these first: what a pace allows is let go by the next claim
            released = await self._let_go(tender, queues=wish[3])
            claimed = await self._claim_by_line(tender, *wish) if released else claimed
        if claimed is None:
            return None
        if len(released) > len(claimed.jobs):  # there is work for others
            self._woken(False)
        return self._until_let_go(tender, claimed, released)

    async def _let_go(self, tender: Tender, queues: Sequence[str] | None) -> Sequence[Release]:
        """Let go what paces allow, if it is time."""
        if tender.now_us() < self._let_go_at:
            return ()
        self._let_go_at = math.inf  # what is put meanwhile sets it anew
        released = await self.inner.release(queues, wake=False)
        await self._line_up_released(tender, released.jobs, quiet=True)
        if released.next_in is not None:
            self._let_go_at = min(self._let_go_at, tender.now_us() + released.next_in / MICROSECOND)
        return released.jobs

    async def _line_up_released(self, tender: Tender, jobs: Sequence[Release], *, quiet: bool = False) -> None:
        """Put jobs where the release has moved them; what has moved on since then is found out when it is handed out."""
        crash.at("line.recorded")
        places = [Place(job.id, job.queue, Lane.RELEASED, job.priority, to_ms(job.slot_at)) for job in jobs]
        await tender.put(places, quiet=quiet)
        crash.at("line.told")

    def _until_let_go(self, tender: Tender, claimed: Claimed, released: Sequence[Release]) -> Claimed:
        """The claim, with what was let go before it, and its next moment no later than that of a pace."""
        next_in = claimed.next_in
        if self._let_go_at < math.inf:
            slot = max(self._let_go_at - tender.now_us(), 0) * MICROSECOND
            next_in = slot if next_in is None else min(next_in, slot)
        return msgspec.structs.replace(claimed, next_in=next_in, released=released)

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
            tender.learn(drawn.wall_us, asked)
            crash.at("line.drawn")
            missed, moved = await self._settle_entries(tender, taken.entries, drawn)
            jobs += drawn.claimed.jobs
            expired += drawn.expired
            await self._line_up_deliveries()
            more = len(taken.entries) >= want and len(jobs) + expired < limit
            if missed or last == 0 or not (more or moved):
                next_in = ZERO if more or expired else _next_in(taken, drawn, missed, tender.now_us())
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
            await tender.put(places)
        back = {(place.id, place.queue) for place in places}
        await tender.done([entry for entry in entries if (entry.id, entry.queue) not in back])
        asked = {(entry.id, entry.queue) for entry in missed}
        still = [place for place in places if (place.id, place.queue) in asked]
        return still, len(still) < len(places)


def _next_in(taken: Taken, drawn: Drawn, missed: Sequence[Place], now_us: int) -> timedelta | None:
    """Until the next due time or lapse."""
    dues = [place.due_at for place in missed] + ([] if taken.next_due is None else [taken.next_due])
    waits = [timedelta(microseconds=max(due * 1000 - now_us, 0)) for due in dues]
    waits += [] if drawn.claimed.next_in is None else [drawn.claimed.next_in]
    return min(waits, default=None)

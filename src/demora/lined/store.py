"""The store on top of an SQL store and a line.

Every verb asks SQL first and tells the line second. What a crash between the two leaves is a waiting row without a place
there, which the next sweep gives it, or an entry in the line whose row has moved on, which is dropped when it is handed
out. Without its line it is the SQL store that it stands on.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from .. import crash
from ..core.job import Job, Lane, NewJob
from ..core.pace import USUAL_PACE, Pace
from ..core.pace_wish import PaceWish
from ..core.retention import Retention
from ..core.spans import to_ms
from ..core.states import Status
from ..line import Entry, Line, Place, Putting
from ..pacing import Pacing, Released
from ..reconciling import Comparison
from ..store import (
    ALL_QUEUES,
    Added,
    Answer,
    Change,
    Claimed,
    Heard,
    Lease,
    Page,
    Query,
    Queue,
    QueueChange,
    QueueQuery,
    Report,
    Settlement,
    Subscription,
    Tidied,
    Topic,
    Worker,
)
from ..transactions import Transaction, Transactional
from .claiming import Asked, Claiming
from .comparing import compare
from .inner import Inner, Passed
from .tending import Tender

LOOK = 5.0  # seconds after which a worker asks SQL alone, for jobs that fell out of the line


class LinedStore(Claiming, Passed):
    """Keeps the port's promises by those of the SQL store; the line only makes it quick to find who is next."""

    def __init__(self, inner: Inner, make_line: Callable[[], Line], *, eager: bool = True, ticks: bool = True) -> None:
        self.inner, self._make_line = inner, make_line
        self._eager, self._ticks = eager, ticks
        self._sleepers: dict[Subscription, None] = {}  # in the order of their coming
        self._opening: asyncio.Future[Tender] | None = None
        self._asked: dict[frozenset[str] | None, Asked] = {}  # by the queues asked for
        self._unlined = False  # whether jobs were recorded that nobody has lined up

    async def open(self) -> None:
        await self.inner.open()
        if self._opening is None and self._eager:
            try:
                await self._tended()
            except BaseException:
                self._opening = None
                await self.inner.close()
                raise

    async def close(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None and not opening.cancelled():
            with contextlib.suppress(Exception):
                await (await opening).close()
        await self.inner.close()

    def sibling(self) -> "LinedStore | None":
        inner: Any = self.inner.sibling()
        return None if inner is None else type(self)(inner, self._make_line, eager=False)

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        tender = await self._tended()
        answers = await self.inner.add(jobs)
        crash.at("line.recorded")
        if not any(answer.conflict for answer in answers):
            new = [(job, answer) for job, answer in zip(jobs, answers, strict=True) if not (answer.replayed or answer.kept)]
            await tender.put([_place(*pair) for pair in new if not pair[1].replaced], how=Putting.FRESH)
            await tender.remove([Entry(answer.id, answer.left) for _, answer in new if answer.left is not None])
            await tender.put([_place(*pair) for pair in new if pair[1].replaced])
            crash.at("line.told")
        return answers

    async def claim(
        self,
        worker_id: str,
        limit: int,
        *,
        lease: timedelta,
        queues: Sequence[str] | None = None,
        in_turn: bool = False,
    ) -> Claimed:
        """Asks the line who is next and leases those rows; asks SQL alone while the line is away, and now and then as a
        safety net."""
        tender, loop = await self._tended(), asyncio.get_running_loop()
        wish = worker_id, limit, lease, queues, in_turn
        await self._line_up_rest()
        which = None if queues is None else frozenset(queues)
        asked = self._asked.get(which) or self._asked.setdefault(which, Asked(loop.time()))
        if limit and loop.time() < asked.looked_at + LOOK:
            claimed = await self._claim_at_pace(tender, asked, *wish)
            if claimed is not None:
                return claimed
        claimed = await self._claim_by_sql(tender, asked, *wish)
        if limit:
            asked.looked_at = loop.time()
        await self._line_up_rest()
        return claimed

    async def renew(self, reports: Sequence[Report], *, lease: timedelta) -> Heard:
        return await self.inner.renew(reports, lease=lease)

    async def listen(self, leases: Sequence[Lease]) -> Heard:
        return await self.inner.listen(leases)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        answers = await self.inner.settle(settlements)
        pairs = zip(settlements, answers, strict=True)
        await self._follow([s.report.lease.id for s, status in pairs if status is not None and status.waiting])
        await self._line_up_rest()
        return answers

    async def cancel(self, ids: Sequence[str]) -> list[Answer]:
        answers = await self.inner.cancel(ids)
        await self._follow([id for id, answer in zip(ids, answers, strict=True) if answer.did])
        await self._line_up_rest()
        return answers

    async def retry(self, ids: Sequence[str]) -> list[Answer]:
        answers = await self.inner.retry(ids)
        await self._follow([id for id, answer in zip(ids, answers, strict=True) if answer.did])
        return answers

    async def change(self, id: str, change: Change) -> Answer:
        answer = await self.inner.change(id, change)
        await self._follow([id] if answer.did else [])
        return answer

    async def remove(self, ids: Sequence[str]) -> list[Answer]:
        return await self.inner.remove(ids)

    async def purge(self, status: Status, *, older_than: timedelta, limit: int, queue: str | None = None) -> int:
        return await self.inner.purge(status, older_than=older_than, limit=limit, queue=queue)

    async def tidy(self, retention: Retention, *, limit: int) -> Tidied:
        tidied = await self.inner.tidy(retention, limit=limit)
        await self._line_up_rest()
        return tidied

    async def get(self, id: str) -> Job | None:
        return await self.inner.get(id)

    async def find(self, query: Query) -> Page:
        return await self.inner.find(query)

    async def queues(self, which: QueueQuery = ALL_QUEUES) -> list[Queue]:
        return await self.inner.queues(which)

    async def set_queue(self, name: str, change: QueueChange) -> Queue:
        queue = await self.inner.set_queue(name, change)
        await self._arrange()
        return queue

    async def set_pace(
        self, queue: str, wish: PaceWish | None, *, by: str, usual: Pace = USUAL_PACE, setting: str | None = None
    ) -> Pacing | None:
        pacing = await self.inner.set_pace(queue, wish, by=by, usual=usual, setting=setting)
        await self._arrange()
        return pacing

    async def release(self, queues: Sequence[str] | None = None, *, wake: bool = True) -> Released:
        released = await self.inner.release(queues, wake=wake)
        if released.jobs:
            await self._line_up_released(await self._tended(), released.jobs, quiet=not wake)
        return released

    async def heartbeat(self, worker: Worker) -> None:
        await self.inner.heartbeat(worker)

    async def retire(self, worker_id: str) -> None:
        await self.inner.retire(worker_id)

    async def workers(self) -> list[Worker]:
        return await self.inner.workers()

    @contextlib.contextmanager
    def subscribe(self, topic: Topic) -> Iterator[Subscription]:
        """The SQL store's own place, woken by the line too."""
        with self.inner.subscribe(topic) as sleeper:
            if topic is Topic.READY:
                self._sleepers[sleeper] = None
            try:
                yield sleeper
            finally:
                self._sleepers.pop(sleeper, None)

    # What those who look after it may ask

    def notes(self) -> tuple[str, ...]:
        opening = self._opening
        if opening is None or not opening.done() or opening.cancelled() or opening.exception() is not None:
            return self.inner.notes()
        tender = opening.result()
        if tender.trusted:
            return self.inner.notes()
        why = "it is being filled" if tender.up else tender.trouble
        return *self.inner.notes(), f"the Redis line is not used ({why}): jobs are handed out by the database"

    # How rows and line agree

    async def compare(self, *, repair: bool = False) -> Comparison:
        return await compare(self.inner, await self._tended(), repair=repair)

    async def rebuild(self) -> int:
        return await (await self._tended()).rebuild()

    # How it is done

    def _tended(self) -> "asyncio.Future[Tender]":
        """The tender of this store's line, opened when it is first needed."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open_line())
        return asyncio.shield(self._opening)

    async def _open_line(self) -> Tender:
        self.inner.hear_of_unlined(self._heard_of_unlined)
        tender = Tender(self.inner, self._make_line(), self._woken, ticks=self._ticks)
        await tender.open()
        return tender

    async def _arrange(self) -> None:
        tender = await self._tended()
        crash.at("line.recorded")
        await tender.arrange()
        crash.at("line.told")
        self._let_go_again()

    async def _follow(self, ids: Sequence[str]) -> None:
        if ids:
            tender = await self._tended()
            crash.at("line.recorded")
            await tender.follow(ids)
            crash.at("line.told")

    async def _line_up_rest(self) -> None:
        """Line up what nobody else does, if there is something: what tells of the ends of jobs, and what a transaction of a
        caller's has brought."""
        if self._unlined:
            self._unlined = False
            await (await self._tended()).sweep()

    def _heard_of_unlined(self) -> None:
        self._unlined = True

    def _let_go_again(self) -> None:
        """Let the next claim look whether a pace lets something go."""
        for asked in self._asked.values():
            asked.let_go_at = 0.0

    def _woken(self, delayed: bool) -> None:
        if delayed:
            self._let_go_again()
        for sleeper in list(self._sleepers):
            sleeper.wake()


class JoiningLinedStore(LinedStore):
    """A store whose SQL store can join transactions: what is added so is lined up by whoever first hears of the commit, and
    else by the next sweep."""

    def within(self, connection: Any) -> Transaction:
        assert isinstance(self.inner, Transactional)
        return self.inner.within(connection)


def _place(job: NewJob, added: Added) -> Place:
    """Where a job stands that was added just now."""
    lane = Lane.SCHEDULED if added.scheduled_at > added.created_at else Lane.REALTIME
    return Place(added.id, job.queue, lane, job.priority, to_ms(added.scheduled_at))

"""The store on top of an SQL store and a line.

Every verb that moves jobs writes to SQL first and to the line second. A crash between the two leaves a waiting row without a
place in the line, which the next sweep puts there, or an entry whose row has moved on, which a claim drops when the line
hands it out. While its line is away this store behaves as the SQL store alone.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from ..core.job import NewJob, lane_for
from ..core.pace import USUAL_PACE, Pace, PaceRequest
from ..core.retention import Retention
from ..core.spans import to_ms
from ..core.states import Status
from ..store.diagnostics import DiagnosticsStore, Probed
from ..store.jobs import (
    Added,
    Answer,
    Change,
    Claimed,
    ClaimRequest,
    HousekeepingResult,
    Queue,
    QueueChange,
    Settlement,
    Subscription,
    Topic,
)
from ..store.line_feed import Entry, LineFeed, Place
from ..store.paces import PaceStore, Pacing, Released
from ..store.schedules import Backfilled, Fired, Firing, ScheduleStore
from ..store.store import Store
from ..store.transaction import Transactional
from ..system import crash
from .claiming import Claimer, put_released
from .filling import HORIZON
from .maintainer import Maintainer
from .port import Line, PutMode
from .reconcile import Reconciliation, reconcile

T = TypeVar("T")


class SqlStore(Store, Protocol):
    """A store that can have a line."""

    @property
    def line_feed(self) -> LineFeed:
        """What the line reads."""
        ...


class LinedStore:
    """The SQL store `inner`, with a line that makes it quick to find the next job.

    Every promise of the port is kept by the SQL store, except the order among jobs that are due in the same millisecond: the
    line hands them out in the order of their ids, which is that of adding within a process.

    Unless `eager`, the line is opened when a verb first needs it. The line holds the jobs that are due within the `horizon`.
    Without `ticks` no task maintains the line in the background: for tests.
    """

    def __init__(
        self,
        inner: SqlStore,
        make_line: Callable[[], Line],
        *,
        horizon: timedelta = HORIZON,
        eager: bool = True,
        ticks: bool = True,
    ) -> None:
        self.inner, self._make_line, self._horizon = inner, make_line, horizon
        self._eager, self._ticks = eager, ticks
        self._waiters: dict[Subscription, None] = {}  # in the order of their subscription
        self._opening: asyncio.Future[Maintainer] | None = None
        self._unplaced = False  # whether jobs were recorded that no process has put into the line
        self._claimer = Claimer(inner, inner.line_feed, self._sweep_unplaced)

        self.paces = LinedPaces(inner.paces, self._maintainer, self._arrange)
        self.schedules = LinedSchedules(inner.schedules, self._maintainer, self._sweep_unplaced)
        self.diagnostics = LinedDiagnostics(inner.diagnostics, self._line_note)

        # The line has no part in these.
        self.api_keys, self.webhooks, self.audit = inner.api_keys, inner.webhooks, inner.audit
        self.statistics = inner.statistics
        self.events = inner.events
        self.renew, self.lease_status = inner.renew, inner.lease_status
        self.claimed, self.leased = inner.claimed, inner.leased
        self.remove, self.purge = inner.remove, inner.purge
        self.get, self.find, self.count, self.queues = inner.get, inner.find, inner.count, inner.queues
        self.heartbeat, self.retire, self.workers = inner.heartbeat, inner.retire, inner.workers
        if isinstance(inner, Transactional):  # its callers can add jobs in a transaction of their own
            self.within = inner.within

    async def open(self) -> None:
        await self.inner.open()
        if self._opening is None and self._eager:
            try:
                await self._maintainer()
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
        return None if inner is None else type(self)(inner, self._make_line, horizon=self._horizon, eager=False)

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        maintainer = await self._maintainer()
        answers = await self.inner.add(jobs)
        crash.at("line.recorded")
        if not any(answer.conflict for answer in answers):
            new = [(job, answer) for job, answer in zip(jobs, answers, strict=True) if not (answer.replayed or answer.kept)]
            await maintainer.put([_place(*pair) for pair in new if not pair[1].replaced], mode=PutMode.FRESH)
            await maintainer.remove([Entry(answer.id, answer.left) for _, answer in new if answer.left is not None])
            await maintainer.put([_place(*pair) for pair in new if pair[1].replaced])
            crash.at("line.updated")
        return answers

    async def claim(self, request: ClaimRequest) -> Claimed:
        return await self._claimer.claim(await self._maintainer(), request)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        answers = await self.inner.settle(settlements)
        pairs = zip(settlements, answers, strict=True)
        await self._follow([s.report.lease.id for s, status in pairs if status is not None and status.waiting])
        await self._sweep_unplaced()
        return answers

    async def cancel(self, ids: Sequence[str]) -> list[Answer]:
        answers = await self.inner.cancel(ids)
        await self._follow([id for id, answer in zip(ids, answers, strict=True) if answer.did])
        await self._sweep_unplaced()
        return answers

    async def retry(self, ids: Sequence[str], *, at: datetime | None = None) -> list[Answer]:
        answers = await self.inner.retry(ids, at=at)
        await self._follow([id for id, answer in zip(ids, answers, strict=True) if answer.did])
        return answers

    async def restore(self, id: str, *, within: timedelta) -> Answer:
        answer = await self.inner.restore(id, within=within)
        await self._follow([id] if answer.did else [])
        return answer

    async def change(self, id: str, change: Change) -> Answer:
        answer = await self.inner.change(id, change)
        await self._follow([id] if answer.did else [])
        return answer

    async def housekeep(self, retention: Retention, *, limit: int) -> HousekeepingResult:
        result = await self.inner.housekeep(retention, limit=limit)
        await self._follow(result.expired_ids)
        await self._sweep_unplaced()
        return result

    async def set_queue(self, name: str, change: QueueChange) -> Queue:
        queue = await self.inner.set_queue(name, change)
        await self._arrange()
        return queue

    @contextlib.contextmanager
    def subscribe(self, topic: Topic) -> Iterator[Subscription]:
        """A subscription of the SQL store that notifications of the line wake too."""
        with self.inner.subscribe(topic) as waiter:
            if topic is Topic.READY:
                self._waiters[waiter] = None
            try:
                yield waiter
            finally:
                self._waiters.pop(waiter, None)

    def uses_line(self) -> bool:
        maintainer = self._opened()
        return maintainer is not None and maintainer.trusted

    async def reconcile(self, *, repair: bool = False) -> Reconciliation:
        return await reconcile(self.inner.line_feed, await self._maintainer(), repair=repair)

    async def rebuild(self) -> int:
        return await (await self._maintainer()).rebuild()

    # How the verbs reach the line

    def _maintainer(self) -> "asyncio.Future[Maintainer]":
        """The maintainer of this store's line, opened when a verb first needs it."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open_line())
        return asyncio.shield(self._opening)

    async def _open_line(self) -> Maintainer:
        self.inner.line_feed.on_unplaced(self._note_unplaced)
        maintainer = Maintainer(
            self.inner.line_feed, self._make_line(), self._wake, horizon=self._horizon, ticks=self._ticks
        )
        try:
            await maintainer.open()
        except BaseException:
            self._opening = None  # so that the next verb tries again
            raise
        return maintainer

    async def _follow(self, ids: Sequence[str]) -> None:
        """Bring the line in step with the rows of jobs that have just moved."""
        if ids:
            maintainer = await self._maintainer()
            crash.at("line.recorded")
            await maintainer.follow(ids)
            crash.at("line.updated")

    async def _arrange(self) -> None:
        """Have the line serve the queues as their new settings say."""
        maintainer = await self._maintainer()
        crash.at("line.recorded")
        await maintainer.arrange()
        crash.at("line.updated")
        self._claimer.expect_releases()

    async def _sweep_unplaced(self) -> None:
        """Put jobs into the line that no caller puts there, if the SQL store has recorded any: webhook deliveries,
        jobs of schedules, and jobs that were added in a transaction of a caller's own."""
        if self._unplaced:
            self._unplaced = False  # before the sweep: jobs that are recorded meanwhile wait for the next one
            if not await (await self._maintainer()).sweep():
                self._unplaced = True

    def _line_note(self) -> str | None:
        """The reason why the line is not used, None if it is used or no verb has needed it yet."""
        maintainer = self._opened()
        if maintainer is None or maintainer.trusted:
            return None
        why = "it is being filled" if maintainer.up else maintainer.trouble
        return f"the Redis line is not used ({why}): jobs are handed out by the database"

    def _opened(self) -> Maintainer | None:
        """The maintainer, None if no verb has needed it yet."""
        opening = self._opening
        if opening is None or not opening.done() or opening.cancelled() or opening.exception() is not None:
            return None
        return opening.result()

    def _note_unplaced(self) -> None:
        self._unplaced = True

    def _wake(self, delayed: bool) -> None:
        if delayed:
            self._claimer.expect_releases()
        for waiter in list(self._waiters):
            waiter.wake()


class LinedPaces:
    """The paces of the SQL store. Their changes to waiting jobs are also made in the line."""

    def __init__(
        self,
        inner: PaceStore,
        maintainer: Callable[[], Awaitable[Maintainer]],
        arrange: Callable[[], Awaitable[None]],
    ) -> None:
        self._inner, self._maintainer, self._arrange = inner, maintainer, arrange
        self.all, self.of, self.changes = inner.all, inner.of, inner.changes
        self.outlook, self.outlooks = inner.outlook, inner.outlooks

    async def set(
        self, queue: str, request: PaceRequest | None, *, by: str, usual: Pace = USUAL_PACE, setting: str | None = None
    ) -> Pacing | None:
        pacing = await self._inner.set(queue, request, by=by, usual=usual, setting=setting)
        await self._arrange()
        return pacing

    async def follow(self, queue: str, *, by: str) -> bool:
        follows = await self._inner.follow(queue, by=by)
        await self._arrange()
        return follows

    async def release(self, queues: Sequence[str] | None = None, *, wake: bool = True) -> Released:
        released = await self._inner.release(queues, wake=wake)
        if released.jobs:
            await put_released(await self._maintainer(), released.jobs, quiet=not wake)
        return released


class LinedSchedules:
    """The schedules of the SQL store. The jobs that they add are put into the line."""

    def __init__(
        self,
        inner: ScheduleStore,
        maintainer: Callable[[], Awaitable[Maintainer]],
        sweep: Callable[[], Awaitable[None]],
    ) -> None:
        self._inner, self._maintainer, self._sweep = inner, maintainer, sweep
        self.add, self.define, self.change, self.remove = inner.add, inner.define, inner.change, inner.remove
        self.get, self.all, self.records = inner.get, inner.all, inner.records
        self.due, self.foresee = inner.due, inner.foresee
        self.attend, self.leave, self.live, self.attending = inner.attend, inner.leave, inner.live, inner.attending

    async def fire(self, firings: Sequence[Firing]) -> list[Fired]:
        return await self._then_placed(self._inner.fire(firings))

    async def trigger(self, name: str, job: NewJob) -> Added | None:
        return await self._then_placed(self._inner.trigger(name, job))

    async def backfill(self, name: str, fire_times: Sequence[tuple[datetime, NewJob]]) -> Backfilled | None:
        return await self._then_placed(self._inner.backfill(name, fire_times))

    async def _then_placed(self, adding: Awaitable[T]) -> T:
        """Put the jobs that the call added into the line. A claim drops jobs that the call cancelled."""
        await self._maintainer()
        result = await adding
        crash.at("line.recorded")
        await self._sweep()
        crash.at("line.updated")
        return result


class LinedDiagnostics:
    """The diagnostics of the SQL store, with a note if the line is not used."""

    def __init__(self, inner: DiagnosticsStore, line_note: Callable[[], str | None]) -> None:
        self._inner, self._line_note = inner, line_note
        self.overview, self.activity, self.dead_letters = inner.overview, inner.activity, inner.dead_letters
        self.coming, self.sizes = inner.coming, inner.sizes
        if isinstance(inner, Probed):  # readiness tries a write, where a write can hang
            self.probe = inner.probe

    def notes(self) -> tuple[str, ...]:
        note = self._line_note()
        return self._inner.notes() if note is None else (*self._inner.notes(), note)


def _place(job: NewJob, added: Added) -> Place:
    """Return the place of a job that was just added."""
    lane = lane_for(added.scheduled_at, added.created_at)
    return Place(added.id, job.queue, lane, job.priority, to_ms(added.scheduled_at))

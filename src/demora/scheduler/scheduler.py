"""The scheduler: the loops for housekeeping, and for releases that no claim makes in time. `schedules.py` has the loop that
fires schedules."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing, suppress
from functools import partial
from typing import TypeVar

from ..core.retention import Retention
from ..errors import StoreClosed
from ..store.jobs import Queue, Subscription, Topic
from ..store.paces import Released
from ..store.statistics import Depth
from ..store.store import Store
from ..system import notices
from ..system.log_limit import watching
from ..system.seams import Seams
from .pace_log import ChangeLog, HeldLog, ReleaseLog
from .schedules import Define, ScheduleLoop

T = TypeVar("T")

PIECE = 200  # jobs per call, so that other callers do not wait long for the lock
REST = 0.02  # seconds between two pieces
LONGEST = 60.0  # seconds between calls at most: no due time tells when retention by count has work to do
MERGED_EVERY = 20.0  # seconds between two merges of statistics at least
MOST_SAMPLED = 1000  # queues whose depths are recorded: those with the most waiting jobs
CLAIMS_FIRST = 0.25  # seconds that workers' claims have to release a job before the scheduler does
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0  # seconds between calls while the store is in trouble


class Scheduler:
    """Cancels expired jobs, deletes ended jobs that are no longer kept, forgets workers that are gone, merges statistics,
    and releases delayed jobs at the pace of their queue where no worker's claim does; sleeps in between. It also
    fires schedules.

    After an error it waits, longer each time. It ends only when it is stopped or the store is closed.
    """

    def __init__(
        self,
        store: Store,
        retention: Retention,
        *,
        seams: Seams | None = None,
        process_id: str | None = None,
        define: Define | None = None,
    ) -> None:
        self._schedules, self._define = ScheduleLoop(store, process_id, seams=seams), define
        self._store, self._retention, self._chance = store, retention, (seams or Seams()).chance
        self._stopping = False
        self._merges_at = 0.0  # when to merge statistics again, by the loop's clock
        self._subscription: Subscription | None = None

    async def run(self) -> None:
        """Do the housekeeping, release delayed jobs and fire schedules until stopped."""
        others = [
            asyncio.ensure_future(self._keep_releasing()),
            asyncio.ensure_future(self._keep_watching_paces()),
            asyncio.ensure_future(self._schedules.run(self._define)),
        ]
        try:
            await self._keep_housekeeping()
        finally:
            for task in others:
                task.cancel()
            await asyncio.wait(others)

    def stop(self) -> None:
        """Make `run` return soon."""
        self._stopping = True
        if self._subscription is not None:
            self._subscription.wake()

    async def _keep_housekeeping(self) -> None:
        with self._store.subscribe(Topic.EXPIRY) as self._subscription:
            pause = FIRST_PAUSE
            while not self._stopping:
                self._subscription.clear()
                try:
                    wait, pause = await self._housekeep(), FIRST_PAUSE
                    notices.store_well("the housekeeping")
                except StoreClosed:
                    return
                except Exception as problem:
                    wait, pause = pause, min(pause * 2, LONGEST_PAUSE)
                    notices.store_trouble("the housekeeping", problem, wait)
                await self._sleep(wait)

    async def _housekeep(self) -> float:
        """Do one piece of the housekeeping. Returns the seconds until the next."""
        done = await self._store.housekeep(self._retention, limit=PIECE)
        if done.expired or done.removed:
            notices.housekeeping_done(done.expired, done.removed)
        for type in sorted(done.unknown_types):
            notices.type_unknown(type)
        if done.failed:
            notices.unknown_failed(done.failed)
        more = await self._merge_statistics()
        left = REST if more else LONGEST if done.next_in is None else done.next_in.total_seconds()
        return min(max(left, REST), LONGEST * (0.5 + self._chance() / 2))  # so that many schedulers do not call at once

    async def _merge_statistics(self) -> bool:
        """Merge a piece of the statistics, at most every few seconds, and count the waiting jobs if that is due. Returns
        whether there is more to merge."""
        now = asyncio.get_running_loop().time()
        if now < self._merges_at:
            return False
        merged = await self._store.statistics.merge(limit=PIECE)
        self._merges_at = now if merged.more else now + MERGED_EVERY
        if merged.sample:
            queues = await self._store.queues()
            await self._store.statistics.sample(deepest(queues))
        return merged.more

    async def _sleep(self, seconds: float) -> None:
        """Sleep until the next piece, or until a job is added that expires sooner; at least `REST`."""
        if self._subscription is not None and not self._stopping:
            await asyncio.sleep(min(seconds, REST))
            await self._subscription.wait(max(seconds - REST, 0))

    async def _keep_releasing(self) -> None:
        topic: Topic | None = Topic.PACE
        held = HeldLog(self._store.paces)
        with closing(ReleaseLog(self._store.paces)) as log:
            while topic is not None:
                topic = await self._release_on(topic, log, held)

    async def _release_on(self, topic: Topic, log: ReleaseLog, held: HeldLog) -> Topic | None:
        """Release jobs while this is the topic to wait for: every new job where a queue has a pace, otherwise only changes
        of paces. Returns the topic to wait for instead, None if the store is closed."""
        with self._store.subscribe(topic) as subscription:
            while True:
                try:
                    released = await until_done("the release of delayed jobs", subscription, partial(self._release, held))
                except StoreClosed:
                    return None
                log.add(released.jobs)
                needed = Topic.READY if released.paced else Topic.PACE
                if needed is not topic:
                    return needed
                await self._until_release(subscription, released, held)

    async def _release(self, held: HeldLog) -> Released:
        released = await self._store.paces.release()
        if released.next_in is not None:
            await held.sum_up()
        return released

    async def _until_release(self, subscription: Subscription, released: Released, held: HeldLog) -> None:
        """Sleep until there may be a job to release. Where many jobs arrive, a few calls a second are enough."""
        if released.paced:
            await asyncio.sleep(CLAIMS_FIRST)
        waits = [] if released.next_in is None else [released.next_in.total_seconds(), held.due_in()]
        await subscription.wait(min([*waits, LONGEST]))

    async def _keep_watching_paces(self) -> None:
        """Log the paces in force, and then each change of one. While none changes, it reads the store once a minute."""
        paces = self._store.paces
        log = ChangeLog(paces, self._store.events)
        with self._store.subscribe(Topic.PACE) as subscription, suppress(StoreClosed):
            await until_done("the log of paces", subscription, log.look)
            with watching(paces):  # from the first look on: changes before it are not logged here
                while True:
                    await subscription.wait(LONGEST)
                    await until_done("the log of paces", subscription, log.look)


def deepest(queues: Iterable[Queue]) -> dict[str, Depth]:
    """Return how many jobs of each queue wait, of the queues that have the most."""
    waiting = [queue for queue in queues if queue.ready or queue.delayed]
    most = sorted(waiting, key=lambda queue: queue.ready + queue.delayed, reverse=True)[:MOST_SAMPLED]
    return {queue.name: Depth(queue.ready, queue.delayed) for queue in most}


async def until_done(what: str, subscription: Subscription, ask: Callable[[], Awaitable[T]]) -> T:
    """Ask a store until it answers, and return the answer. After each error, wait twice as long as before; a notification
    ends the wait. Raises `StoreClosed` if the store is closed. `what` names the call in the log."""
    pause = FIRST_PAUSE
    while True:
        subscription.clear()
        try:
            answer = await ask()
        except StoreClosed:
            raise
        except Exception as problem:
            notices.store_trouble(what, problem, pause)
            await wait_before_retry(subscription, pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        else:
            notices.store_well(what)
            return answer


async def wait_before_retry(subscription: Subscription, seconds: float) -> None:
    """Wait before the next call to a store in trouble. A notification ends the wait: the store may be back."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while (left := until - loop.time()) > 0 and not await subscription.wait(left):
        pass

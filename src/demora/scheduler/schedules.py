"""Fires schedules: sleeps until the next fire time of any of them, and adds the jobs of the fire times that are due.

Every process with the scheduler role runs this loop, and none is a leader. The store lets one process decide each fire time.
So that not all of them wake for the same fire time, a hash of it chooses which live process looks when it comes; the others
look `OTHERS_LATER` seconds after it, in case that process is dead. Only the database's clock says that a fire time is due,
so none fires early.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta

from ..core.schedules.firing import decide, first_to_look
from ..core.schedules.schedule import job_of
from ..core.spans import ZERO
from ..core.workers import LIVE_WITHIN
from ..errors import StoreClosed
from ..store.jobs import Subscription, Topic
from ..store.schedules import COMING, DueSchedule, DueSchedules, Firing
from ..store.store import Store
from ..system import notices
from ..system.clock import zones_version
from ..system.seams import Seams

PIECE = 500  # schedules that one transaction fires
OTHERS_LATER = COMING.total_seconds()  # from a fire time until the processes look that were not chosen for it
BEATEN = 2  # looks in a row that lost every race; the process then looks again only after `OTHERS_LATER`
LONGEST = 60.0  # seconds between looks at most
STUCK_LOOK = 5.0  # seconds until the next look, if no schedule that is due can be decided on
LIVE_LOOK = 10.0  # seconds until a process reads again which others are live
DEFINE_AGAIN = LIVE_WITHIN.total_seconds()  # seconds until a process retries what it must leave to others for now
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0  # seconds between looks while the store is in trouble
WHAT = "the firing of schedules"

Define = Callable[[], Awaitable[bool]]  # stores the schedules that code defines; True if it must be called again later


class ScheduleLoop:
    """Fires the schedules of a store until it is stopped by cancelling `run`, or the store is closed.

    `process_id` is the id under which this process is live: that of its worker, or the one that it attends with. Without an
    id it is never the first to look while others are live.
    """

    def __init__(self, store: Store, process_id: str | None = None, *, seams: Seams | None = None) -> None:
        self._store, self._process_id, self._new_id = store, process_id, (seams or Seams()).job_id
        self._live: list[str] = []
        self._live_until = 0.0
        self._foreseen = False
        self._beaten = 0  # looks in a row whose firings other processes all applied first
        self._stuck = 0  # schedules at the last look that were due and cannot be decided on

    async def run(self, define: Define | None = None) -> None:
        """Fire schedules at their times. `define` is called now and then until it returns False."""
        defining = asyncio.ensure_future(_keep_defining(define))
        try:
            keeps: bool | None = False
            while keeps is not None:
                keeps = await self._run_while(keeps)
        finally:
            defining.cancel()

    async def _foresee(self) -> None:
        """Compute the next fire times anew if this process has a newer database of time zones than the one that did."""
        if not self._foreseen:
            if moved := await self._store.schedules.foresee(zones_version()):
                notices.schedules_foreseen(moved, zones_version())
            self._foreseen = True

    async def look(self) -> DueSchedules:
        """Fire the schedules that are due now, at most `PIECE` of them, and return them. A lost race shows at the next look.

        Schedules that cannot be decided on stay due. They do not count among the `PIECE`, so they never fill it.
        """
        due = await self._store.schedules.due(limit=PIECE + self._stuck)
        firings = [firing for one in due.schedules if (firing := self._firing(one, due)) is not None]
        if firings:
            fired = await self._store.schedules.fire(firings)
            for firing, result in zip(firings, fired, strict=True):
                if result.applied:
                    notices.schedule_fired(
                        firing.due.schedule.name, result.added, len(firing.decision.fire_times) - result.added
                    )
            self._beaten = 0 if any(result.applied for result in fired) else self._beaten + 1
        self._stuck = len(due.schedules) - len(firings)
        return due

    def _firing(self, due: DueSchedule, found: DueSchedules) -> Firing | None:
        """Decide about one schedule. One that cannot be read in this version must not keep the others from firing."""
        try:
            decision = decide(due.schedule, due.progress, found.now, due.previous)
            jobs = tuple(job_of(due.schedule, self._new_id(), fire_time=fire_time) for fire_time in decision.fired)
        except Exception as problem:
            notices.schedule_broken(due.schedule.name, problem)
            return None
        return Firing(due, decision, jobs)

    async def _run_while(self, keeps: bool) -> bool | None:
        """Fire while a fire time waits for the end of a job, or while none does. None if the store is closed."""
        with contextlib.ExitStack() as stack:
            topics = (Topic.SCHEDULES, Topic.ENDED) if keeps else (Topic.SCHEDULES,)
            subscriptions = [stack.enter_context(self._store.subscribe(topic)) for topic in topics]
            pause = FIRST_PAUSE
            while True:
                for subscription in subscriptions:
                    subscription.clear()
                try:
                    await self._foresee()
                    due = await self.look()
                    wait, pause = await self._wait(due), FIRST_PAUSE
                    notices.store_well(WHAT)
                except StoreClosed:
                    return None
                except Exception as problem:
                    notices.store_trouble(WHAT, problem, pause)
                    due, wait, pause = None, pause, min(pause * 2, LONGEST_PAUSE)
                if due is not None and due.keeps != keeps:
                    return due.keeps
                await _any_of(subscriptions, wait)

    async def _wait(self, due: DueSchedules) -> float:
        """Return the seconds until the next look. What was due may have more fire times, or another process was faster."""
        if len(due.schedules) > self._stuck:
            return OTHERS_LATER if self._beaten >= BEATEN else 0.0
        longest = STUCK_LOOK if self._stuck else LONGEST
        if due.next_in is None:
            return longest
        later = await self._later(due.coming) if due.coming else ZERO
        return min((due.next_in + later).total_seconds(), longest)

    async def _later(self, coming: Sequence[datetime]) -> timedelta:
        """Return how long after the next fire time this process looks: at the first fire time that it is to look at, but no
        later than `COMING` after one that another process is to look at."""
        processes = await self._live_processes()
        for fire_time in coming:
            if first_to_look(fire_time, processes) in (None, self._process_id):
                return fire_time - coming[0]
        return COMING

    async def _live_processes(self) -> list[str]:
        now = asyncio.get_running_loop().time()
        if now >= self._live_until:
            self._live = await self._store.schedules.live()
            self._live_until = now + LIVE_LOOK
        return self._live


async def _keep_defining(define: Define | None) -> None:
    """Store the schedules that code defines, again and again until none of them waits for another process."""
    waits = define is not None
    while define is not None and waits:
        await asyncio.sleep(DEFINE_AGAIN)
        try:
            waits = await define()
        except StoreClosed:
            return
        except Exception as problem:
            notices.store_trouble("defining the schedules", problem, DEFINE_AGAIN)


async def _any_of(subscriptions: Iterable[Subscription], seconds: float) -> None:
    """Wait until one of them is woken, or until the time has passed."""
    waits = [asyncio.ensure_future(subscription.wait(seconds)) for subscription in subscriptions]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()

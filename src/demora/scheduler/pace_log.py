"""What the log says about paces: which ones are in force, what they release, and what they hold."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from logging import DEBUG

from ..core.action import OWN_QUEUES
from ..core.events import Event
from ..core.pace import EVERY_QUEUE, Release, say_pace
from ..errors import StoreError
from ..store.events import EventStore
from ..store.paces import PaceStore, Pacing
from ..system import notices

LOG_EVERY = 1.0  # seconds between two lines about the releases of a queue
SUMMARY_EVERY = 60.0  # seconds between two summaries of a queue that holds jobs
SHARE = 20  # after a count of held jobs, the log does not count again for this many times as long as the count took


def log_policies(pacings: Iterable[Pacing]) -> None:
    """Log the pace of each queue that has one, when a process starts. Queues that follow `*` are in its line."""
    for pacing in pacings:
        if not pacing.inherited:
            notices.pace_in_force(pacing.queue, say_pace(pacing.pace), pacing.set_by)


class ChangeLog:
    """Logs the paces in force at the first look, and at each later one the changes since, whichever process made them."""

    def __init__(self, paces: PaceStore, events: EventStore) -> None:
        self._paces, self._events = paces, events
        self._last: int | None = None  # the number of the last change that was seen

    async def look(self) -> None:
        """Log the changes since the last look. A change during the first look is logged; it may also be among the paces in
        force."""
        signs = await self._events.queue_signs(self._last)
        if self._last is None:
            log_policies(await self._paces.all())
        for change in signs.paces:
            if not _goes_with_another(change, signs.paces):
                pace = None if change.pace is None else say_pace(change.pace)
                notices.pace_set(change.queue or "", pace, change.by or "", follows=change.follows)
        self._last = signs.last_change


class ReleaseLog:
    """Logs how many jobs were released, of how many, and how long after the previous release.

    There is at most one line per queue and second: a fast pace would otherwise write a line for each job, and wait for the
    disk. Where counting the held jobs takes long, a line says only how many were released.
    """

    def __init__(self, paces: PaceStore) -> None:
        self._paces = paces
        self._unlogged: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._count_from = 0.0

    def add(self, released: Iterable[Release]) -> None:
        """Count these jobs. Logs them at once if there was no line within the last second."""
        self._unlogged.update(job.queue for job in released)
        if self._timer is None:
            self._flush()

    def close(self) -> None:
        """Log the rest."""
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            self._writing.cancel()
        self._write({})

    def _flush(self) -> None:
        self._timer = None
        if self._unlogged:
            self._writing = asyncio.ensure_future(self._look_and_write())
            self._timer = asyncio.get_running_loop().call_later(LOG_EVERY, self._flush)

    async def _look_and_write(self) -> None:
        loop, pacings = asyncio.get_running_loop(), dict[str, Pacing | None]()
        started = loop.time()
        if started >= self._count_from:
            with suppress(StoreError):  # the line then says only what was released
                pacings = {queue: await self._paces.of(queue) for queue in list(self._unlogged)}
            self._count_from = loop.time() + SHARE * (loop.time() - started)
        self._write(pacings)

    def _write(self, pacings: dict[str, Pacing | None]) -> None:
        for queue, jobs in self._unlogged.items():
            pacing = pacings.get(queue)
            notices.jobs_released(
                queue,
                jobs,
                held=None if pacing is None else jobs + pacing.held,
                after=None if pacing is None else pacing.state.last_gap,
            )
            if pacing is not None and notices.log.isEnabledFor(DEBUG):
                _log_next(pacing)
        self._unlogged.clear()


class HeldLog:
    """Logs a line a minute about each queue while its pace holds jobs."""

    def __init__(self, paces: PaceStore) -> None:
        self._paces, self._next_at = paces, 0.0

    def due_in(self) -> float:
        """Return the seconds until the next summary."""
        return max(self._next_at - asyncio.get_running_loop().time(), 0)

    async def sum_up(self) -> None:
        """Log what the paces hold, if the last summary is a minute old."""
        if self.due_in() > 0:
            return
        self._next_at = asyncio.get_running_loop().time() + SUMMARY_EVERY
        for pacing in await self._paces.all():
            if pacing.held:
                stats = pacing.stats
                notices.jobs_held(
                    pacing.queue,
                    held=stats.ready_now,
                    delayed=stats.total_delayed,
                    waiting=stats.waiting_for_gap,
                    next_in=stats.next_release_in_seconds,
                    last=stats.time_since_last_release_seconds,
                )


def _log_next(pacing: Pacing) -> None:
    wait = pacing.stats.next_release_in_seconds
    if wait is not None:
        notices.next_release(pacing.queue, wait)


def _goes_with_another(change: Event, changes: Iterable[Event]) -> bool:
    """Return whether the store made this change itself: it leaves demora's own queues out when `*` first gets a pace."""
    own = change.queue in OWN_QUEUES and change.pace is None and not change.follows
    return own and any(other.queue == EVERY_QUEUE and other.by == change.by for other in changes)

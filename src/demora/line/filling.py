"""How waiting rows get into the line: all of them after a loss, and every second those that no process has put there.

Both read the rows page by page and can be repeated, so two processes that do so at once do no harm.
"""

from collections.abc import Sequence
from datetime import timedelta

from ..core.spans import span_ms
from ..store.line_feed import LineFeed, Place
from ..system import crash
from .database_clock import DatabaseClock
from .port import Line, LineLost, LineState, PutMode, WakeWaiters, are_delayed

HORIZON = timedelta(minutes=10)  # jobs that are due later stay in the database alone
STEPS = 10  # in which a horizon advances by its own length: every minute by a minute, if it is 10 minutes
PAGE = 1000  # rows of a sweep at a time, so that no writer waits long for SQLite's lock
FILL_PAGE = 5000  # rows at a time while the line is filled
MAINTAINER_SPAN = 3000  # milliseconds for which one process maintains the line, unless it renews this


class Filler:
    """Puts rows into the line, and knows which of them it holds.

    `filled`, `until` and `position` are as in `LineState`.
    """

    def __init__(
        self, feed: LineFeed, line: Line, clock: DatabaseClock, wake: WakeWaiters, *, process: str, horizon: timedelta
    ) -> None:
        self._feed, self._line, self._clock, self._wake = feed, line, clock, wake
        self._process, self._horizon = process, horizon
        self.filled, self.until, self.position = False, 0, ""

    def adopt(self, state: LineState) -> None:
        """Continue from the line's own record, whichever process wrote it."""
        self.filled, self.until, self.position = state.filled, state.until, state.position

    def reach(self) -> int:
        """Return the time up to which jobs belong in the line."""
        return self._clock.now() + span_ms(self._horizon)

    async def fill(self, pages: int | None = None) -> int | None:
        """Put every waiting job that is due within the horizon into a line that is empty. Return how many there were, or
        None if they were more than this number of pages: then the line is not filled yet."""
        position, until, jobs = await self._feed.position(), self.reach(), 0
        walked = await self._feed.walk(self._horizon, FILL_PAGE)
        while True:
            await self._line.put(walked.places, now=self._clock.now(), mode=PutMode.FRESH)  # the epoch is new
            jobs += len(walked.places)
            await self._line.maintain(self._process, MAINTAINER_SPAN)  # else another process starts to fill it as well
            crash.at("line.filling")
            if walked.next is None:
                break
            if pages is not None and jobs >= pages * FILL_PAGE:
                return None
            walked = await self._feed.walk(self._horizon, FILL_PAGE, walked.next)
        await self._line.checkpoint(until, position, filled=True)
        self.filled, self.until, self.position = True, until, position
        return jobs

    async def sweep(self) -> None:
        """Put the jobs that moved into waiting since the last sweep, whichever process moved them, and those that the
        horizon has reached. `LineLost`, and a new epoch on record, if the line was not filled from this database."""
        until, since = await self._advance_horizon(), self.position
        first = moved = await self._feed.moved(since, self._horizon, PAGE)
        while moved is not None:
            await self._put_missing(moved.places)
            if moved.next is None:
                break
            moved = await self._feed.moved(since, self._horizon, PAGE, moved.next)
        crash.at("line.sweeping")
        if first is None or moved is None:
            await advance_epoch(self._feed, self._line.epoch)
            raise LineLost("it was filled from another database, or from this one before a part of it was lost")
        await self._line.checkpoint(until, first.position)
        self.until, self.position = until, first.position

    async def covers_now(self) -> bool:
        """Return whether the line holds every job that is due by now. Sweeps first if it does not."""
        if self._clock.due_by() < self.until:
            return True
        self.adopt(await self._line.state())
        if self._clock.due_by() >= self.until:
            await self.sweep()
        return self._clock.due_by() < self.until

    async def _advance_horizon(self) -> int:
        """Put the jobs that the horizon has reached, once it is a step ahead. Return the time before which the line holds
        every job that is due."""
        horizon = self.reach()
        since = min(self.until, horizon)  # beyond it after the clock was set back: jobs added since then are not there
        if since > horizon - span_ms(self._horizon) // STEPS:
            return since
        walked = await self._feed.walk(self._horizon, PAGE, since=since)
        while True:
            await self._put_missing(walked.places)
            if walked.next is None:
                return horizon
            walked = await self._feed.walk(self._horizon, PAGE, walked.next, since=since)

    async def _put_missing(self, places: Sequence[Place]) -> None:
        if places and await self._line.put(places, now=self._clock.now(), mode=PutMode.MISSING):
            self._wake(are_delayed(places))


async def advance_epoch(feed: LineFeed, expected: int) -> None:
    """Record the next epoch, unless another process has: the next process that connects begins the line under it."""
    record = await feed.begin()
    await feed.bump(expected, above=expected, run=record.run)

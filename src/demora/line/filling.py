"""How waiting rows get into the line: all of them after a loss, and every second those that no process has put there.

Both read the rows page by page and can be repeated, so two processes that do so at once do no harm.
"""

from datetime import timedelta

from ..core.spans import span_ms
from ..store.line_feed import LineFeed
from ..system import crash
from .database_clock import DatabaseClock
from .placing import Placer
from .port import Line, LineLost, LineState, PutMode

HORIZON = timedelta(minutes=10)  # jobs that are due later stay in the database alone
STEPS = 10  # in which a horizon advances by its own length: every minute by a minute, if it is 10 minutes
PAGE = 1000  # rows of a sweep at a time, so that no writer waits long for SQLite's lock
FILL_PAGE = 5000  # rows at a time while the line is filled
MAINTAINER_SPAN = 3000  # milliseconds for which one process maintains the line, unless it renews this


class Filler:
    """Puts rows into the line, and knows which of them it holds.

    `filled`, `until` and `position` are as in `LineState`.
    """

    def __init__(self, feed: LineFeed, line: Line, clock: DatabaseClock, placer: Placer, *, process: str) -> None:
        self._feed, self._line, self._clock, self._placer = feed, line, clock, placer
        self._process, self._horizon = process, placer.horizon
        self.filled, self.until, self.position = False, 0, ""

    def adopt(self, state: LineState) -> None:
        """Continue from the line's own record, whichever process wrote it."""
        self.filled, self.until, self.position = state.filled, state.until, state.position

    async def fill(self, pages: int | None = None) -> int | None:
        """Put every waiting job that is due within the horizon into a line that is empty, also those that move meanwhile,
        whichever process moves them. Return how many there were, or None if they were more than this number of pages: then
        the line is not filled yet."""
        position, until, jobs = await self._feed.position(), self._placer.reach(), 0
        walked = await self._feed.walk(self._horizon, FILL_PAGE)
        while True:
            await self._placer.put(walked.places, mode=PutMode.FRESH, quiet=True)  # the epoch is new
            jobs += len(walked.places)
            await self._line.maintain(self._process, MAINTAINER_SPAN)  # else another process starts to fill it as well
            crash.at("line.filling")
            if walked.next is None:
                break
            if pages is not None and jobs >= pages * FILL_PAGE:
                return None
            walked = await self._feed.walk(self._horizon, FILL_PAGE, walked.next)
        await self._sweep(until, position, filled=True)
        self.filled = True
        return jobs

    async def sweep(self) -> None:
        """Put the jobs that moved into waiting since the last sweep, whichever process moved them, and those that the
        horizon has reached. `LineLost`, and a new epoch on record, if the line was not filled from this database."""
        await self._sweep(self.until, self.position)

    async def _sweep(self, until: int, since: str, *, filled: bool = False) -> None:
        """Sweep a line that holds every job due before `until`, of those that moved up to `since`. If this completes filling
        it, also remove stale places: the walk may have placed jobs that had already moved."""
        mode = PutMode.MOVED if filled else PutMode.MISSING
        await self._line.done([])  # else a job that was handed back is not put again
        until = await self._advance_horizon(until)
        first = moved = await self._feed.moved(since, self._horizon, PAGE)
        while moved is not None:
            await self._placer.put(moved.places, mode=mode)
            if moved.next is None:
                break
            moved = await self._feed.moved(since, self._horizon, PAGE, moved.next)
        crash.at("line.sweeping")
        if first is None or moved is None:
            await advance_epoch(self._feed, self._line.epoch)
            raise LineLost("it was filled from another database, or from this one before a part of it was lost")
        await self._line.checkpoint(until, first.position, filled=filled)
        self.until, self.position = until, first.position

    async def covers_now(self) -> bool:
        """Return whether the line holds every job that is due by now. Sweeps first if it does not."""
        if self._clock.due_by() < self.until:
            return True
        self.adopt(await self._line.state())
        if self._clock.due_by() >= self.until:
            await self.sweep()
        return self._clock.due_by() < self.until

    async def _advance_horizon(self, until: int) -> int:
        """Once the horizon is a step ahead of `until`, put the jobs in between. Return the time before which the line holds
        every job."""
        horizon = self._placer.reach()
        since = min(until, horizon)  # smaller after the clock was set back: jobs added since then may be missing
        if since > horizon - span_ms(self._horizon) // STEPS:
            return since
        walked = await self._feed.walk(self._horizon, PAGE, since=since)
        while True:
            await self._placer.put(walked.places, mode=PutMode.MISSING)
            if walked.next is None:
                return horizon
            walked = await self._feed.walk(self._horizon, PAGE, walked.next, since=since)


async def advance_epoch(feed: LineFeed, expected: int) -> None:
    """Record the next epoch, unless another process has: the next process that connects begins the line under it."""
    record = await feed.begin()
    await feed.bump(expected, above=expected, run=record.run)

"""Gives jobs the places in the line that their rows say.

Two processes may move one job at the same time, and the one that wrote its row first may write to the line last. So the
rows are read again after each write that can replace a place, and followed where they have moved on: the last write to the
line is then one that a later reading of the row has confirmed.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from ..core.spans import span_ms
from ..errors import StoreError
from ..store.line_feed import Entry, LineFeed, Place, RowPlace
from .database_clock import DatabaseClock
from .port import Line, PutMode, WakeWaiters, are_delayed

READINGS = 8  # times to read rows that keep moving; after that the next sweep puts them


class Placer:
    """Writes to the line of one process. `LineAway` if that fails."""

    def __init__(self, feed: LineFeed, line: Line, clock: DatabaseClock, wake: WakeWaiters, *, horizon: timedelta) -> None:
        self._feed, self._line, self._clock, self._wake = feed, line, clock, wake
        self.horizon = horizon

    def reach(self) -> int:
        """Return the time up to which jobs belong in the line."""
        return self._clock.now() + span_ms(self.horizon)

    async def put(self, places: Iterable[Place], *, mode: PutMode = PutMode.MOVED, quiet: bool = False) -> int:
        """Put those of the jobs that are due within the horizon, and return how many were not in their place. `quiet` wakes
        no waiter of this process."""
        moved = await self._write(due := self._within_reach(places), mode, quiet=quiet)
        if mode is not PutMode.FRESH and (moved or mode is not PutMode.MISSING):
            await self._follow([place.id for place in due], {place.id: RowPlace(place, True) for place in due})
        return moved

    async def follow(self, ids: Sequence[str]) -> None:
        """Bring the line in step with the rows of these jobs. If the rows cannot be read, the next sweep puts those that
        wait, and a claim drops the others when the line hands them out."""
        await self._follow(ids, {})

    async def _follow(self, ids: Sequence[str], known: Mapping[str, RowPlace]) -> None:
        """Follow those whose rows are not as known, until a reading shows no others."""
        for _ in range(READINGS):
            try:
                row_places = await self._feed.row_places(ids) if ids else []
            except StoreError:
                return
            moved = [row for row in row_places if known.get(row.place.id) != row]
            if not moved:
                return
            here = self._within_reach(row.place for row in moved if row.waiting)
            gone = {row.place.id for row in moved} - {place.id for place in here}
            await self._write(here, PutMode.MOVED)
            if gone:
                await self._line.remove([Entry(s.place.id, s.place.queue) for s in moved if s.place.id in gone])
            ids, known = [row.place.id for row in moved], {row.place.id: row for row in moved}

    async def _write(self, places: Sequence[Place], mode: PutMode, *, quiet: bool = False) -> int:
        if not places:
            return 0
        placed = await self._line.put(places, now=self._clock.now(), mode=mode)
        if placed.woken and not quiet:
            self._wake(are_delayed(places))
        return placed.moved

    def _within_reach(self, places: Iterable[Place]) -> list[Place]:
        reach = self.reach()
        return [place for place in places if place.due_at <= reach]

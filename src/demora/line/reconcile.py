"""Compares a line with the rows behind it, and repairs it: every job that is due soon has exactly one place, and every place
has its job."""

import asyncio
from collections import Counter
from typing import Protocol, runtime_checkable

import msgspec

from ..store.line_feed import Entry, LineFeed, Place
from .filling import PAGE
from .maintainer import TICK, Maintainer
from .port import LineAway

LOOKS = 2  # comparisons that must agree on a difference: one that only one of them shows was a job on the move
RECHECK = 2 * TICK  # seconds between them, in which a sweep puts the jobs that it finds missing


class Reconciliation(msgspec.Struct, frozen=True):
    """The differences between the rows and the line, by ids.

    `waiting` is the number of rows that must be in the line. `missing` jobs wait but have no place, `surplus` ones have a
    place but do not wait, and `misplaced` jobs stand elsewhere than their row says, or twice. Jobs that moved during the
    comparison are omitted. `away` is the reason why there was no line to compare with, else None.
    """

    waiting: int = 0
    missing: tuple[str, ...] = ()
    surplus: tuple[str, ...] = ()
    misplaced: tuple[str, ...] = ()
    repaired: bool = False
    away: str | None = None

    @property
    def agrees(self) -> bool:
        return not (self.missing or self.surplus or self.misplaced)


@runtime_checkable
class Reconcilable(Protocol):
    """A store with a line."""

    def uses_line(self) -> bool:
        """Return whether the line hands out the jobs: it can be reached and is filled. Any thread may ask."""
        ...

    async def reconcile(self, *, repair: bool = False) -> Reconciliation:
        """Compare the line with the rows, and with `repair` correct the line where they differ."""
        ...

    async def rebuild(self) -> int:
        """Begin the line under the next epoch, fill it from the rows, and return the epoch. `LineAway` if the line cannot be
        reached."""
        ...


async def reconcile(feed: LineFeed, maintainer: Maintainer, *, repair: bool) -> Reconciliation:
    """Compare a line with its rows, and with `repair` correct it. The result lists the differences before the repair."""
    if not maintainer.up:
        return Reconciliation(away=maintainer.trouble)
    try:
        found = await _compare(feed, maintainer)
        for _ in range(LOOKS - 1):
            if found.agrees:
                return found
            await asyncio.sleep(RECHECK)
            found = _in_both(found, await _compare(feed, maintainer))
        if repair and not found.agrees:
            await _repair(maintainer, found)
            return msgspec.structs.replace(found, repaired=True)
    except LineAway as problem:
        return Reconciliation(away=str(problem))
    return found


async def _compare(feed: LineFeed, maintainer: Maintainer) -> Reconciliation:
    places, handed_out = await maintainer.line.places()
    rows = await _rows(feed, maintainer)
    counts = Counter(place.id for place in places)
    right = {place.id for place in places if rows.get(place.id) == place}
    taken = {entry.id for entry in handed_out}
    others = [place.id for place in places if place.id not in rows]
    waiting = {row.place.id for row in await feed.row_places(others) if row.waiting} if others else set()
    return Reconciliation(
        waiting=len(rows),
        missing=tuple(id for id in rows if id not in counts and id not in taken),
        surplus=tuple(dict.fromkeys(id for id in others if id not in waiting)),
        misplaced=tuple(id for id in rows if id in counts and (counts[id] > 1 or id not in right)),
    )


async def _rows(feed: LineFeed, maintainer: Maintainer) -> dict[str, Place]:
    """Return the rows that must be in the line: those due within half of the horizon, which sweeps have long passed."""
    within = maintainer.horizon / 2
    rows: dict[str, Place] = {}
    walked = await feed.walk(within, PAGE)
    while True:
        rows |= {place.id: place for place in walked.places}
        if walked.next is None:
            return rows
        walked = await feed.walk(within, PAGE, walked.next)


def _in_both(first: Reconciliation, second: Reconciliation) -> Reconciliation:
    def both(name: str) -> tuple[str, ...]:
        kept = set(getattr(first, name))
        return tuple(id for id in getattr(second, name) if id in kept)

    return Reconciliation(second.waiting, both("missing"), both("surplus"), both("misplaced"))


async def _repair(maintainer: Maintainer, found: Reconciliation) -> None:
    """Remove surplus and misplaced jobs from every queue they stand in, and put the waiting ones in their places."""
    places, _ = await maintainer.line.places()
    wrong = {*found.surplus, *found.misplaced}
    await maintainer.remove([Entry(place.id, place.queue) for place in places if place.id in wrong])
    await maintainer.follow([*found.missing, *found.misplaced])

"""Holding a line to the rows behind it: every job that is due soon in exactly one place, and no place without its job."""

import asyncio
from collections import Counter

from ..line_feed import Entry, Outbox, Place
from .maintainer import PAGE, TICK, Tender
from .port import LineAway
from .reconciling import Comparison

LOOKS = 2  # what only one of them shows was moving


async def compare(outbox: Outbox, tender: Tender, *, repair: bool) -> Comparison:
    if not tender.up:
        return Comparison(away=tender.trouble)
    try:
        found = await _look(outbox, tender)
        for _ in range(LOOKS - 1):
            if found.agrees:
                return found
            await asyncio.sleep(2 * TICK)
            again = await _look(outbox, tender)
            found = _common(found, again)
        if repair and not found.agrees:
            await _repair(outbox, tender, found)
            return Comparison(found.waiting, found.missing, found.strays, found.misplaced, repaired=True)
    except LineAway as problem:
        return Comparison(away=str(problem))
    return found


async def _look(outbox: Outbox, tender: Tender) -> Comparison:
    places, out = await tender.line.places()
    rows = await _rows(outbox, tender)
    standing = Counter(place.id for place in places)
    right = {place.id for place in places if rows.get(place.id) == place}
    taken = {entry.id for entry in out}
    others = [place.id for place in places if place.id not in rows]
    waits = {s.place.id for s in await outbox.standings(others) if s.waiting} if others else set()
    return Comparison(
        waiting=len(rows),
        missing=tuple(id for id in rows if id not in standing and id not in taken),
        strays=tuple(dict.fromkeys(id for id in others if id not in waits)),
        misplaced=tuple(id for id in rows if id in standing and (standing[id] > 1 or id not in right)),
    )


async def _rows(outbox: Outbox, tender: Tender) -> dict[str, Place]:
    """All rows that wait and are due soon enough that they must be in the line."""
    within = tender.horizon / 2
    rows: dict[str, Place] = {}
    walked = await outbox.walk(within, PAGE)
    while True:
        rows |= {place.id: place for place in walked.places}
        if walked.next is None:
            return rows
        walked = await outbox.walk(within, PAGE, walked.next)


def _common(first: Comparison, second: Comparison) -> Comparison:
    def both(name: str) -> tuple[str, ...]:
        kept = set(getattr(first, name))
        return tuple(id for id in getattr(second, name) if id in kept)

    return Comparison(second.waiting, both("missing"), both("strays"), both("misplaced"))


async def _repair(outbox: Outbox, tender: Tender, found: Comparison) -> None:
    """Take what stands wrongly out of every queue that it stands in, and put what waits where it belongs."""
    places, _ = await tender.line.places()
    wrong = {*found.strays, *found.misplaced}
    await tender.remove([Entry(place.id, place.queue) for place in places if place.id in wrong])
    await tender.follow([*found.missing, *found.misplaced])

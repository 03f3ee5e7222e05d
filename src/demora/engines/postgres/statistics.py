"""Statistics on PostgreSQL: how the windows that settlements and releases count are merged and read."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from ...core.spans import from_ms, span_ms, to_ms
from ...core.statistics import (
    MOST_PAIRS,
    WINDOW_MS,
    BinCounts,
    Key,
    Name,
    Stretch,
    Tally,
    Window,
    Windows,
    capped,
    widened,
)
from ...store.statistics import Depth, Merged, Standing, Taking
from ..sql.statistics import (
    WIDTHS,
    closed_before,
    first_id,
    first_of,
    hand_over,
    kept_since,
    merged_window,
    sample_key,
    samples,
    standing_of,
    text,
    thinnings,
)
from . import rows
from .connection.connections import Session
from .database import Database

PIECE = 2000  # windows in memory at a time
LOCK = "the statistics"  # while a transaction holds it, no other one writes merged windows


class PostgresStatistics:
    """What became of runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, stretch: Stretch, taking: Taking) -> None:
        await self._database.search(lambda session: _read(session, stretch, taking), None)

    async def merge(self, *, limit: int) -> Merged:
        return await self._database.write_once(lambda session: merge(session, limit))

    async def sample(self, depths: Mapping[str, Depth]) -> None:
        await self._database.write_once(lambda session: sample(session, depths))

    async def added(self, starts: Sequence[datetime], width: timedelta) -> list[int]:
        ms = [to_ms(start) for start in starts]
        firsts, nexts = _ids(ms), _ids(start + span_ms(width) for start in ms)
        found = await self._database.search(lambda session: session.rows("count_added", firsts=firsts, nexts=nexts), None)
        return [row["added"] for row in found]

    async def standing(self) -> Standing:
        return await self._database.search(standing, None)


def _ids(times: Iterable[int]) -> list[UUID]:
    return [UUID(bytes=first_id(ms)) for ms in times]


async def _read(session: Session, stretch: Stretch, taking: Taking) -> None:
    """Hand over the merged windows, and those that processes have written since."""
    # In one snapshot, since a merge moves windows from one table to the other.
    async with session.transaction(isolation="repeatable_read", readonly=True):
        wall = (await session.row("now"))["us"] // 1000
        since = first_of(stretch, wall)
        taking.begin(from_ms(wall))
        async for piece in session.pieces("statistics_since", PIECE, widths=WIDTHS, since=since):
            if not await asyncio.to_thread(hand_over, map(merged_window, piece), taking):
                return
        async for piece in session.pieces("tallies_since", PIECE, since=since):
            if not await asyncio.to_thread(hand_over, map(_live, piece), taking):
                return


def _live(row: rows.Row) -> tuple[Key, Tally]:
    """A window that a process has written."""
    at, queue, type, completed, failed, retried, cancelled, returned, released, realtime, delayed, run, held, *largest = row
    ends = (completed, failed, retried, cancelled, returned, released)
    tally = Tally(*ends, _counts(realtime), _counts(delayed), _counts(run), _counts(held), *largest)
    return Key(queue, type, at, WINDOW_MS), tally


def _counts(counts: Sequence[int] | None) -> BinCounts:
    return {number: count for number, count in enumerate(counts or ()) if count}


async def merge(session: Session, limit: int) -> Merged:
    """Merge in a transaction of the caller, unless another process does."""
    if not (await session.row("merges_alone", what=LOCK))["alone"]:
        return Merged(more=False, sample=False)
    wall = (await session.row("now"))["us"] // 1000
    closed = await session.rows("take_tallies", before=closed_before(wall), limit=limit)
    more = len(closed) >= limit
    await _keep(session, widened(map(_live, closed)))
    for width, before, wider in thinnings(wall):
        old = await session.rows("take_statistics", width=width, before=before, limit=limit)
        await _keep(session, widened(map(merged_window, old), wider))
        more = more or len(old) >= limit
    await session.rows("forget_statistics", widths=WIDTHS, before=kept_since(wall))
    mark = sample_key("", wall)
    unsampled = await session.row("mark_sampled", width=mark.width, at=mark.at, tally=text(Tally()))
    return Merged(more, sample=unsampled is not None)


async def sample(session: Session, depths: Mapping[str, Depth]) -> None:
    """Record depths in a transaction of the caller."""
    wall = (await session.row("now"))["us"] // 1000
    await session.rows("only_one", what=LOCK)
    await _keep(session, samples(depths, wall))


async def _keep(session: Session, windows: Windows) -> None:
    """Add to the windows of all processes."""
    if not windows:
        return
    windows = capped(windows, await _names(session, windows))
    keys = {
        "widths": [key.width for key in windows],
        "ats": [key.at for key in windows],
        "queues": [key.queue for key in windows],
        "types": [key.type for key in windows],
    }
    for key, before in map(merged_window, await session.rows("statistics_of", **keys)):
        windows[key].add(before)
    await session.rows("keep_statistics", **keys, tallies=[text(tally) for tally in windows.values()])


async def _names(session: Session, windows: Windows) -> dict[Window, set[Name]]:
    """The names in the windows that would have more than `MOST_PAIRS` with these."""
    found, names = {(key.width, key.at) for key in windows}, dict[Window, set[Name]]()
    where = {"widths": [width for width, _ in found], "ats": [at for _, at in found]}
    for width, at, queue, type in await session.rows("statistics_names", **where, enough=MOST_PAIRS - len(windows)):
        names.setdefault((width, at), set()).add((queue, type))
    return names


async def standing(session: Session) -> Standing:
    wall = (await session.row("now"))["us"] // 1000
    running = await session.rows("activity_running")
    return standing_of(wall, running, await session.rows("activity_due", wall=wall))

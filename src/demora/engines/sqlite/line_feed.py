"""What a line reads from the database: which jobs wait, which of them moved since its last look, and how queues are set."""

import json
import secrets
from collections.abc import Callable, Sequence
from datetime import timedelta

from ...core.job import PARKED
from ...core.pace import EVERY_QUEUE
from ...core.spans import span_ms
from ...core.states import Status
from ...store.jobs import ClaimRequest
from ...store.line_feed import (
    Arrangement,
    ClaimedByIds,
    Cursor,
    Entry,
    LineRecord,
    Move,
    Moved,
    Place,
    RowPlace,
    Walked,
    arranged,
)
from ..sql import columns
from ..sql.paces import pace_of
from . import rows
from .connection.connections import SQL
from .connection.transactions import Transaction
from .database import Database
from .jobs import heads, runs

_FIRST = -(2**62)  # before any due time


class SqliteLineFeed:
    """What a line reads and writes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def wall_us(self) -> int | None:
        return self._database.clock.wall_us()

    def on_unplaced(self, callback: Callable[[], None]) -> None:
        self._database.on_unplaced = callback

    async def read_clock(self) -> int:
        return self._database.clock.wall_us()

    async def begin(self) -> LineRecord:
        return await self._database.write(begin)

    async def bump(self, expected: int, *, above: int, run: str) -> LineRecord:
        return await self._database.write(lambda tx: bump(tx, expected, above, run))

    async def claim_by_ids(self, request: ClaimRequest, entries: Sequence[Entry]) -> ClaimedByIds:
        return await self._database.write(lambda tx: runs.claim_by_ids(tx, request, entries), len(entries))

    async def row_places(self, ids: Sequence[str]) -> list[RowPlace]:
        return await self._database.read(lambda tx: row_places(tx, ids), len(ids))

    async def position(self) -> str:
        return await self._database.read(position, weight=1)

    async def moved(self, since: str, within: timedelta, limit: int, after: Move | None = None) -> Moved | None:
        return await self._database.read(lambda tx: moved(tx, since, span_ms(within), limit, after))

    async def walk(self, within: timedelta, limit: int, after: Cursor | None = None, *, since: int | None = None) -> Walked:
        return await self._database.read(lambda tx: walk(tx, span_ms(within), limit, after, since))

    async def arrangements(self) -> list[Arrangement]:
        return await self._database.read(arrangements, weight=1)


def begin(tx: Transaction) -> LineRecord:
    tx.stamps.lined = True
    tx.db.execute(SQL["name_line"], (secrets.token_hex(6),))
    return _record(tx)


def bump(tx: Transaction, expected: int, above: int, run: str) -> LineRecord:
    if _record(tx).epoch == expected:
        tx.db.execute(SQL["bump_line"], (str(max(expected, above) + 1), run))
    return _record(tx)


def row_places(tx: Transaction, ids: Sequence[str]) -> list[RowPlace]:
    asked = json.dumps([id.replace("-", "") for id in ids])
    return [
        RowPlace(_place(row), Status(row[5]).waiting and row[2] < PARKED)
        for row in tx.db.execute(SQL["row_places"], (asked,))
    ]


def position(tx: Transaction) -> str:
    [(moves,)] = tx.db.execute(SQL["position"])
    return str(moves)


def moved(tx: Transaction, since: str, within: int, limit: int, after: Move | None) -> Moved | None:
    here = position(tx)
    if int(since) > int(here):
        return None
    move, number, end = after or (0, 0, int(here))
    found = list(tx.db.execute(SQL["moved"], (int(since), tx.wall + within, move, number, limit)))
    full = len(found) == limit and found[-1][5] <= end
    return Moved([_place(row) for row in found], here, (*found[-1][5:7], end) if full else None)


def walk(tx: Transaction, within: int, limit: int, after: Cursor | None, since: int | None) -> Walked:
    """One page of the waiting jobs, one lane and rank of a queue after another, by the index that a claim reads."""
    places: list[Place] = []
    for queue, lane, rank, due_at, _ in sorted(heads.of_all(tx)):
        start = (queue, lane, rank, _FIRST if since is None else since, 0)
        if after is not None and (queue, lane, rank) <= after[:3]:
            if (queue, lane, rank) < after[:3]:
                continue
            start = after
        if due_at > tx.wall + within or lane >= PARKED:
            continue
        found = list(tx.db.execute(SQL["walk"], (*start, tx.wall + within, limit - len(places))))
        places += [_place(row) for row in found]
        if len(places) >= limit:
            return Walked(places, (queue, lane, rank, found[-1][4], found[-1][5]))
    return Walked(places, None)


def arrangements(tx: Transaction) -> list[Arrangement]:
    found = {row[0]: row for row in tx.db.execute(SQL["queues_set"])}
    every = found[EVERY_QUEUE][5] if EVERY_QUEUE in found else None
    return [_arrangement(row, every) for row in found.values()]


def _arrangement(row: rows.Row, every: str | None) -> Arrangement:
    name, step, strict, head_start, paused_at, pace, _, follows = row
    kept = every if follows != 0 else pace
    held = () if kept is None else pace_of(kept).governs.lanes
    return arranged(name, columns.queue_order(step, strict, head_start), held, paused=paused_at is not None)


def _record(tx: Transaction) -> LineRecord:
    kept = dict(tx.db.execute(SQL["line_record"]))
    return LineRecord(kept["line_database"], int(kept["line_epoch"]), kept["line_run"], tx.wall_us)


def _place(row: rows.Row) -> Place:
    id, queue, lane, rank, due_at, *_ = row
    return Place(rows.id_text(id), queue, lane, rank, due_at)

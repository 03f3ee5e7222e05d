"""What a line reads from the database: which jobs wait, which of them moved since its last look, and how queues are set."""

import secrets
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from ...core.job import PARKED
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
from . import rows
from .connection.connections import Session
from .database import Database
from .jobs import runs

_FIRST = -(2**62)  # before any due time


class PostgresLineFeed:
    """What a line reads and writes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def wall_us(self) -> int | None:
        return self._database.wall_us()

    def on_unplaced(self, callback: Callable[[], None]) -> None:
        self._database.on_unplaced = callback

    async def read_clock(self) -> int:
        us: int = (await self._database.read(lambda session: session.row("now")))["us"]
        return us

    async def begin(self) -> LineRecord:
        self._database.opened().lined = True
        return await self._database.write(begin)

    async def bump(self, expected: int, *, above: int, run: str) -> LineRecord:
        return await self._database.write(lambda session: bump(session, expected, above, run))

    async def claim_by_ids(self, request: ClaimRequest, entries: Sequence[Entry]) -> ClaimedByIds:
        numbered = runs.numbered(request)
        return await self._database.write_here(lambda session: runs.claim_by_ids(session, numbered, entries))

    async def row_places(self, ids: Sequence[str]) -> list[RowPlace]:
        return await self._database.read(lambda session: row_places(session, ids))

    async def position(self) -> str:
        return await self._database.read(position)

    async def moved(self, since: str, within: timedelta, limit: int, after: Move | None = None) -> Moved | None:
        return await self._database.read(lambda session: moved(session, since, span_ms(within), limit, after))

    async def walk(self, within: timedelta, limit: int, after: Cursor | None = None, *, since: int | None = None) -> Walked:
        return await self._database.read(lambda session: walk(session, span_ms(within), limit, after, since))

    async def arrangements(self) -> list[Arrangement]:
        return await self._database.read(arrangements)


async def begin(session: Session) -> LineRecord:
    await session.rows("name_line", database=secrets.token_hex(6))
    return await _record(session)


async def bump(session: Session, expected: int, above: int, run: str) -> LineRecord:
    epoch = str(max(expected, above) + 1)
    await session.rows("bump_line", expected=str(expected), epoch=epoch, run=run)
    return await _record(session)


async def _record(session: Session) -> LineRecord:
    row = await session.row("line_record")
    return LineRecord(row["database"], row["epoch"], row["run"], row["us"])


async def row_places(session: Session, ids: Sequence[str]) -> list[RowPlace]:
    found = await session.rows("row_places", ids=[rows.id_key(id) for id in ids])
    return [RowPlace(_place(row), Status(row["status"]).waiting and row["lane"] < PARKED) for row in found]


async def position(session: Session) -> str:
    return _as_position(await session.row("position"))


async def moved(session: Session, since: str, within: int, limit: int, after: Move | None) -> Moved | None:
    seen, _, running = since.partition(":")
    move, seq, end = after or (0, 0, None)
    asked = running.split(",") if running else []
    found = await session.rows("moved", seen=seen, running=asked, within=within, moved=str(move), seq=seq, limit=limit)
    if not found[0]["known"]:
        return None
    end, last = end or int(found[0]["seen"]), found[-1]
    full = len(found) == limit and int(last["moved"]) <= end
    after_this = (int(last["moved"]), last["seq"], end) if full else None
    return Moved([_place(row) for row in found if row["id"] is not None], _as_position(found[0]), after_this)


def _as_position(row: rows.Row) -> str:
    return f"{row['seen']}:{','.join(row['running'])}"


async def walk(session: Session, within: int, limit: int, after: Cursor | None, since: int | None) -> Walked:
    """One page of the waiting jobs, by the index that a claim reads."""
    first = _FIRST if since is None else since
    queue, lane, rank, due_at, seq = after or ("", 0, 0, first, 0)
    where: dict[str, Any] = {"queue": queue, "lane": lane, "rank": rank, "due_at": due_at, "seq": seq, "first": first}
    found = await session.rows("walk", within=within, limit=limit, **where)
    last = found[-1] if len(found) == limit else None
    after_this = None if last is None else (last["queue"], last["lane"], last["rank"], last["due_at"], last["seq"])
    return Walked([_place(row) for row in found], after_this)


async def arrangements(session: Session) -> list[Arrangement]:
    return [
        arranged(name, columns.queue_order(step, strict, head_start), held, paused=paused_at is not None)
        for name, step, strict, head_start, paused_at, held in await session.rows("arrangements")
    ]


def _place(row: rows.Row) -> Place:
    return Place(str(row["id"]), row["queue"], row["lane"], row["rank"], row["due_at"])

"""What is done for the sake of a line: rows that wait and have no place there, and where rows stand."""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from ...core.spans import span_ms
from ...store.jobs import Topic
from ...store.line_feed import Arrangement, Cursor, Drawn, Entry, LineRecord, Move, Moved, Place, Standing, Walked, arranged
from . import claims, rows
from .connections import Pool, Session

T = TypeVar("T")
_FIRST = -(2**62)  # before any due time


class Lining:
    """The part of the store that is an `Outbox`."""

    def wall_us(self) -> int | None:
        return self._wall_us()

    def on_unplaced(self, callback: Callable[[], None]) -> None:
        self._unplaced = callback

    async def read_clock(self) -> int:
        us: int = (await self._read(lambda session: session.row("now")))["us"]
        return us

    async def begin_lining(self) -> LineRecord:
        self._opened().lined = True
        return await self._write(lambda session, again: _begin(session))

    async def bump(self, expected: int, *, above: int, run: str) -> LineRecord:
        return await self._write(lambda session, again: _bump(session, expected, above, run))

    async def draw(self, worker_id: str, entries: Sequence[Entry], *, lease: timedelta) -> Drawn:
        request = claims.ClaimRequest(worker_id, len(entries), span_ms(lease), None, False)
        return await self._taking(lambda session, topics, again: claims.draw(session, request, entries, topics, again))

    async def standings(self, ids: Sequence[str]) -> list[Standing]:
        return await self._read(lambda session: _standings(session, ids))

    async def position(self) -> str:
        return await self._read(_position)

    async def moved(self, since: str, within: timedelta, limit: int, after: Move | None = None) -> Moved | None:
        return await self._read(lambda session: _moved(session, since, span_ms(within), limit, after))

    async def walk(self, within: timedelta, limit: int, after: Cursor | None = None, *, since: int | None = None) -> Walked:
        first = _FIRST if since is None else since
        return await self._read(lambda session: _walk(session, span_ms(within), limit, first, after))

    async def arrangements(self) -> list[Arrangement]:
        return await self._read(_arrangements)

    # What the store is besides

    def _wall_us(self) -> int | None:
        raise NotImplementedError

    def _opened(self) -> Pool:
        raise NotImplementedError

    async def _taking(self, verb: Callable[[Session, set[Topic], bool], Awaitable[T]]) -> T:
        raise NotImplementedError

    async def _write(self, verb: Callable[[Session, bool], Awaitable[T]]) -> T:
        raise NotImplementedError

    async def _read(self, look: Callable[[Session], Awaitable[T]]) -> T:
        raise NotImplementedError


async def _begin(session: Session) -> LineRecord:
    await session.rows("name_line", database=secrets.token_hex(6))
    return await _record(session)


async def _bump(session: Session, expected: int, above: int, run: str) -> LineRecord:
    epoch = str(max(expected, above) + 1)
    await session.rows("bump_line", expected=str(expected), epoch=epoch, run=run)
    return await _record(session)


async def _record(session: Session) -> LineRecord:
    row = await session.row("line_record")
    return LineRecord(row["database"], row["epoch"], row["run"], row["us"])


async def _standings(session: Session, ids: Sequence[str]) -> list[Standing]:
    found = await session.rows("standings", ids=[rows.id_key(id) for id in ids])
    return [Standing(_place(row), row["status"] < 3) for row in found]


async def _position(session: Session) -> str:
    return _as_position(await session.row("position"))


async def _moved(session: Session, since: str, within: int, limit: int, after: Move | None) -> Moved | None:
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


async def _walk(session: Session, within: int, limit: int, first: int, after: Cursor | None) -> Walked:
    queue, lane, rank, due_at, seq = after or ("", 0, 0, first, 0)
    where: dict[str, Any] = {"queue": queue, "lane": lane, "rank": rank, "due_at": due_at, "seq": seq, "first": first}
    found = await session.rows("walk", within=within, limit=limit, **where)
    last = found[-1] if len(found) == limit else None
    after_this = None if last is None else (last["queue"], last["lane"], last["rank"], last["due_at"], last["seq"])
    return Walked([_place(row) for row in found], after_this)


async def _arrangements(session: Session) -> list[Arrangement]:
    return [
        arranged(name, rows.queue_order(step, strict, head_start), held, paused=paused_at is not None)
        for name, step, strict, head_start, paused_at, held in await session.rows("arrangements")
    ]


def _place(row: rows.Row) -> Place:
    return Place(str(row["id"]), row["queue"], row["lane"], row["rank"], row["due_at"])

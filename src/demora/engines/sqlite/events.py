"""Reads on SQLite what events are made of. A position is the number of the last write that settled jobs."""

from ...core.spans import from_ms
from ...store.events import NewJobs, QueueSigns, RunningJobs, SettledCursor, SettledJobs
from ..sql.events import event_job, paced, paused
from . import rows
from .connection.connections import SQL
from .connection.transactions import Transaction
from .database import Database

_REUSED = 1000  # row ids to look back, since SQLite reuses the row id of a deleted last row
_LONGEST = 18  # digits of a position


class SqliteEvents:
    """What events are made of."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self) -> None:
        if not await self._database.read(has_begun, weight=1):
            await self._database.write(begin)

    async def position(self) -> str:
        return await self._database.read(position, weight=1)

    async def settled(self, since: str, limit: int, after: SettledCursor | None = None) -> SettledJobs | None:
        return await self._database.read(lambda tx: settled(tx, since, limit, after))

    async def added(self, since: str | None, limit: int) -> NewJobs:
        return await self._database.read(lambda tx: added(tx, since, limit))

    async def running(self, limit: int) -> RunningJobs:
        return await self._database.read(lambda tx: running(tx, limit))

    async def queue_signs(self, since: int | None) -> QueueSigns:
        return await self._database.read(lambda tx: queue_signs(tx, since))


def has_begun(tx: Transaction) -> bool:
    return tx.db.execute(SQL["settled_position"]).fetchone() is not None


def begin(tx: Transaction) -> None:
    tx.db.execute(SQL["begin_events"])


def position(tx: Transaction) -> str:
    row = tx.db.execute(SQL["settled_position"]).fetchone()
    return "0" if row is None else str(row[0])


def settled(tx: Transaction, since: str, limit: int, after: SettledCursor | None) -> SettledJobs | None:
    here = position(tx)
    if not (since.isascii() and since.isdecimal() and len(since) <= _LONGEST and int(since) <= int(here)):
        return None
    number, row_id, until = after or (int(since), 2**62, here)
    found = list(tx.db.execute(SQL["settled_since"], (number, int(until), row_id, limit)))
    following = (*found[-1][:2], until) if len(found) == limit else None
    return SettledJobs([event_job(row[2:], rows.id_text) for row in found], until, following)


def added(tx: Transaction, since: str | None, limit: int) -> NewJobs:
    found: list[rows.Row] = []
    if since is not None:
        row_id, id, wall = since.split(":")
        there = row_id == "0" or tx.db.execute(SQL["is_there"], (int(row_id), bytes.fromhex(id))).fetchone() is not None
        first, earliest = (int(row_id), 0) if there else (int(row_id) - _REUSED, int(wall))
        found = list(tx.db.execute(SQL["added_since"], (first, earliest, limit)))
    last = found[-1][:2] if len(found) == limit else tx.db.execute(SQL["last_added"]).fetchone() or (0, b"")
    return NewJobs([event_job(row[1:], rows.id_text) for row in found], f"{last[0]}:{last[1].hex()}:{tx.wall}")


def running(tx: Transaction, limit: int) -> RunningJobs:
    return RunningJobs(
        [event_job(row, rows.id_text) for row in tx.db.execute(SQL["running_jobs"], (limit,))], from_ms(tx.wall)
    )


def queue_signs(tx: Transaction, since: int | None) -> QueueSigns:
    pauses = {row[0]: paused(*row) for row in tx.db.execute(SQL["paused_queues"])}
    [(last,)] = tx.db.execute(SQL["last_paced"])
    changed = [] if since is None or since >= last else list(tx.db.execute(SQL["paced_since"], (since,)))
    return QueueSigns(pauses, [paced(*row[1:]) for row in changed], last, from_ms(tx.wall))

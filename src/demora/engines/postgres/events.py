"""Reads on PostgreSQL what events are made of. A position is a snapshot: the transactions that had ended when it was
taken."""

import asyncio
import re

from ...core.spans import from_ms
from ...store.events import NewJobs, QueueSigns, RunningJobs, SettledCursor, SettledJobs
from ..sql.events import event_job, paced, paused
from .connection.connections import Session
from .database import Database

MOST_RUNNING = 500  # transactions that a position names
_LOOKS, _BETWEEN = 100, 0.01  # looks for transactions that have not ended, and seconds between them
_MOST_LOOKS = 32  # earlier looks for new jobs that a mark remembers
_SNAPSHOT = re.compile(r"([1-9]\d{0,17}):([1-9]\d{0,17}):((?:[1-9]\d{0,17},)*[1-9]\d{0,17})?", re.ASCII)


class PostgresEvents:
    """What events are made of."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self) -> None:
        first = await self._database.write_once(begin)
        if first is not None:
            await self._until_ended(first)

    async def position(self) -> str:
        return await self._database.read(position)

    async def settled(self, since: str, limit: int, after: SettledCursor | None = None) -> SettledJobs | None:
        return await self._database.read(lambda session: settled(session, since, limit, after))

    async def added(self, since: str | None, limit: int) -> NewJobs:
        return await self._database.read(lambda session: added(session, since, limit))

    async def running(self, limit: int) -> RunningJobs:
        return await self._database.read(lambda session: running(session, limit))

    async def queue_signs(self, since: int | None) -> QueueSigns:
        return await self._database.read(lambda session: queue_signs(session, since))

    async def _until_ended(self, number: str) -> None:
        """Wait for transactions that began before the first listener, but not for long ones."""
        for _ in range(_LOOKS):
            if (await self._database.read(lambda session: session.row("has_ended", number=number)))["ended"]:
                return
            await asyncio.sleep(_BETWEEN)


async def begin(session: Session) -> str | None:
    first = await session.row("begin_events")
    return None if first is None else first["number"]


async def position(session: Session) -> str:
    here: str = (await session.row("settled_position", most=MOST_RUNNING))["position"]
    return here


async def settled(session: Session, since: str, limit: int, after: SettledCursor | None) -> SettledJobs | None:
    if not _is_snapshot(since):
        return None
    number, seq, until = after or (0, 0, None)
    what = {"since": since, "until": until, "settled": str(number), "seq": seq, "limit": limit, "most": MOST_RUNNING}
    found = await session.rows("settled_since", **what)
    if not found[0]["known"]:
        return None
    here, last = until or found[0]["position"], found[-1]
    following = (int(last["settled"]), last["seq"], here) if len(found) == limit and last["seq"] is not None else None
    return SettledJobs([event_job(tuple(row)[4:], str) for row in found if row["id"] is not None], here, following)


def _is_snapshot(text: str) -> bool:
    """Whether the server would accept the text as a snapshot: any other error of a read is a real one."""
    parts = _SNAPSHOT.fullmatch(text)
    if parts is None:
        return False
    oldest, ahead = int(parts[1]), int(parts[2])
    running = [int(number) for number in parts[3].split(",")] if parts[3] else []
    return oldest <= ahead and running == sorted(set(running)) and all(oldest <= number < ahead for number in running)


async def added(session: Session, since: str | None, limit: int) -> NewJobs:
    floor, looks = (-1, []) if since is None else _read_mark(since)
    found = await session.rows("added_since", seq=floor, limit=limit)
    jobs = [event_job(tuple(row)[4:], str) for row in found if row["id"] is not None]
    if len(jobs) == limit:  # a reader that is this far behind does not wait for long transactions
        return NewJobs(jobs, _mark(found[-1]["seq"], []))
    last, oldest, ahead = found[0]["last"], int(found[0]["oldest"]), int(found[0]["ahead"])
    if since is None:
        return NewJobs([], _mark(last, [(last, ahead)]))
    over = [top for top, then in looks[:-1] if then <= oldest]
    return NewJobs(jobs, _mark(max(over, default=floor), [*looks[len(over) :], (last, ahead)][-_MOST_LOOKS:]))


def _mark(floor: int, looks: list[tuple[int, int]]) -> str:
    """The mark as text: the number up to which no transaction can add a job any more, and earlier looks. A look is the last
    number that it saw, and the first transaction that had not begun then. Once all transactions before that one have ended,
    no smaller number can appear."""
    return ":".join([str(floor), *(f"{top}@{ahead}" for top, ahead in looks)])


def _read_mark(mark: str) -> tuple[int, list[tuple[int, int]]]:
    floor, *looks = mark.split(":")
    pairs = [look.split("@") for look in looks]
    return int(floor), [(int(top), int(ahead)) for top, ahead in pairs]


async def running(session: Session, limit: int) -> RunningJobs:
    found = await session.rows("running_jobs", limit=limit)
    return RunningJobs([event_job(tuple(row)[1:], str) for row in found if row["id"] is not None], from_ms(found[0]["wall"]))


async def queue_signs(session: Session, since: int | None) -> QueueSigns:
    pauses = {row["name"]: paused(*row) for row in await session.rows("paused_queues")}
    last = await session.row("last_paced")
    changed = [] if since is None or since >= last["seq"] else await session.rows("paced_since", seq=since)
    now = await session.row("now")
    return QueueSigns(pauses, [paced(*tuple(row)[1:]) for row in changed], last["seq"], from_ms(now["us"] // 1000))

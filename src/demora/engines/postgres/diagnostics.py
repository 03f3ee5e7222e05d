"""Diagnostics on PostgreSQL: the examination of the server from outside, and the overview of jobs."""

import asyncio
import secrets
import time
from datetime import timedelta
from typing import Any

import asyncpg

from ...core.spans import from_ms, span_ms
from ...core.workers import Running
from ...errors import StoreError
from ...store.diagnostics import AGES, Activity, DeadLetterGroup, Examination, Finding, JobsOverview, Size
from ..options import PostgresOptions
from ..sql import columns
from . import notifier, registry
from .connection import connections, migrating
from .connection.connections import Session, statements
from .database import Database

OLDEST = 14  # version of the server that demora supports
CLOCKS_APART = 1.0  # seconds
WAKE_UP_LIMIT = 3.0  # seconds that a notification may take


async def examine(url: str, options: PostgresOptions) -> Examination:
    """Examine the database without opening the store. Creates and changes nothing."""
    try:
        async with connections.connected(url) as connection:
            schema, usable = await _schema(connection, options.schema)
            found = [await _server(connection), await _place(connection), schema]
            return Examination([*found, await _clock(connection), await _wakeups(connection, url, options)], usable)
    except (StoreError, *connections.DRIVER) as problem:
        advice = "is the server up, and are host, database, user and password in the database URL right?"
        return Examination([Finding("database", "problem", str(problem), advice)], usable=False)


async def _server(connection: Any) -> Finding:
    version = connection.get_server_version()
    fact = f"PostgreSQL {version.major}.{version.minor}, asyncpg {asyncpg.__version__}"
    if version.major < OLDEST:
        return Finding("postgresql", "problem", fact, f"demora needs PostgreSQL {OLDEST} or later: upgrade the server")
    return Finding("postgresql", "ok", fact)


async def _place(connection: Any) -> Finding:
    name, user, standby = await connection.fetchrow("select current_database(), current_user, pg_is_in_recovery()")
    if standby:
        fact = f"the server of database {name} is a standby, which cannot be written to"
        return Finding("database", "problem", fact, "correct the database URL: it must lead to the primary")
    return Finding("database", "ok", f"database {name}, as user {user}")


async def _schema(connection: Any, schema: str) -> tuple[Finding, bool]:
    """The finding, and whether the schema is the one that this demora uses."""
    found, known = await connections.version_of(connection, schema), migrating.newest()
    if found == 0:
        fact = f"there is no schema {schema} with demora's tables"
        return Finding("schema", "problem", fact, "demora migrate makes it; is DEMORA_DATABASE_SCHEMA right?"), False
    if found > known and await migrating.is_usable(connection, schema):
        fact = f"{schema} has schema {found}, which this demora may use; it knows up to {known}"
        return Finding("schema", "ok", fact), True
    if found > known:
        fact = f"{schema} has schema {found}, this demora knows up to {known}"
        return Finding("schema", "problem", fact, "use the newer demora that migrated it"), False
    if found < known:
        fact = f"{schema} has schema {found}, this demora uses {known}; its jobs were not looked at"
        return Finding("schema", "warning", fact, "demora migrate brings it up to date; older processes go on"), False
    return Finding("schema", "ok", f"{schema} has schema {found}, as this demora uses it"), True


async def _clock(connection: Any) -> Finding:
    """How far the server's clock is from this host's, at least: the time that the answer took may explain a part."""
    before = time.time()
    us = await connection.fetchval(statements("demora")["now"].sql, None)
    after = time.time()
    apart = max(before - us / 1e6, us / 1e6 - after, 0.0)
    if apart > CLOCKS_APART:
        fact = f"the clocks of this host and of the server are {apart:.1f} s apart; jobs go by the server's"
        return Finding("clocks", "warning", fact, "set both by NTP: times that this host names are off by that")
    return Finding("clocks", "ok", f"this host and the server agree to within {max(apart, after - before) * 1000:.0f} ms")


async def _wakeups(connection: Any, url: str, options: PostgresOptions) -> Finding:
    """Whether a notification through the database URL arrives where workers listen."""
    if (note := notifier.switched_off(options)) is not None:
        return Finding("wake-ups", "ok", note)
    try:
        arrived = await _notification_arrives(connection, options.listen_url or url)
    except (StoreError, *connections.DRIVER):
        arrived = False
    if arrived:
        return Finding("wake-ups", "ok", "LISTEN and NOTIFY work: idle workers are woken")
    advice = "behind a pooler set DEMORA_DATABASE_POOLER, and DEMORA_DATABASE_LISTEN_URL to the database itself"
    return Finding("wake-ups", "warning", notifier.UNHEARD, advice)


async def _notification_arrives(connection: Any, listen_url: str) -> bool:
    received, channel = asyncio.Event(), f"demora_doctor_{secrets.token_hex(8)}"
    async with connections.connected(listen_url) as listener:
        await listener.add_listener(channel, lambda *_: received.set())
        await connection.execute("select pg_notify($1, '')", channel)
        async with asyncio.timeout(WAKE_UP_LIMIT):
            return await received.wait()


# The overview of jobs


class PostgresDiagnostics:
    """The state of the jobs, and of the connection that listens for notifications."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def overview(self, *, ended: bool = True) -> JobsOverview:
        return await self._database.read(lambda session: overview(session, ended))

    async def activity(self, mark: int | None = None) -> Activity:
        return await self._database.read(lambda session: activity(session, mark))

    async def dead_letters(self, limit: int, *, within: timedelta | None = None) -> list[DeadLetterGroup]:
        return await self._database.search(lambda session: dead_letters(session, limit), within)

    async def coming(self, until: timedelta, steps: int, *, within: timedelta | None = None) -> list[int]:
        return await self._database.search(lambda session: coming(session, span_ms(until), steps), within)

    async def sizes(self) -> list[Size]:
        return await self._database.read(sizes)

    def notes(self) -> tuple[str, ...]:
        note = self._database.notifier.note()
        return () if note is None else (note,)


async def overview(session: Session, ended: bool) -> JobsOverview:
    async with session.transaction(isolation="repeatable_read"):
        wall = await _freeze(session)
        lapsed = await session.row("overview_lapsed", wall=wall)
        ahead = await session.row("overview_ahead" if ended else "overview_ahead_waiting", wall=wall)
        return JobsOverview(
            now=from_ms(wall),
            waiting=[columns.waiting(row) for row in await session.rows("overview_waiting", wall=wall)],
            lapsed=lapsed["lapsed"],
            lapsed_for=timedelta(milliseconds=wall - lapsed["first"] if lapsed["lapsed"] else 0),
            ahead=ahead["ahead"],
            ahead_waiting=ahead["waiting"],
            ahead_by=timedelta(milliseconds=ahead["latest"] - wall if ahead["ahead"] else 0),
            running=await running(session, wall),
        )


async def dead_letters(session: Session, limit: int) -> list[DeadLetterGroup]:
    found = await session.rows("dead_letters", limit=limit, ages=[span_ms(age) for age in AGES])
    return [
        DeadLetterGroup(queue, type, error, band, jobs, from_ms(first), from_ms(last), id)
        for queue, type, error, band, jobs, first, last, id in found
    ]


async def coming(session: Session, until: int, steps: int) -> list[int]:
    counts = {row["step"]: row["jobs"] for row in await session.rows("coming", until=until, steps=steps)}
    return [counts.get(step, 0) for step in range(steps)]


async def sizes(session: Session) -> list[Size]:
    return [Size(row["name"], row["bytes"]) for row in await session.rows("sizes")]


async def running(session: Session, wall: int) -> list[Running]:
    """The jobs whose leases hold at this time, by worker and type."""
    return [
        Running(worker_id, type, jobs, str(longest), from_ms(since), from_ms(latest))
        for worker_id, type, jobs, longest, since, latest in await session.rows("running", wall=wall)
    ]


async def activity(session: Session, mark: int | None) -> Activity:
    async with session.transaction(isolation="repeatable_read"):
        wall = await _freeze(session)
        return Activity(
            now=from_ms(wall),
            mark=(await session.row("activity_mark"))["mark"],
            queues=await registry.queues(session),
            added={} if mark is None else {row[0]: row[1] for row in await session.rows("activity_added", mark=mark)},
            running={row[0]: row[1] for row in await session.rows("activity_running")},
            due_since={row[0]: from_ms(row[1]) for row in await session.rows("activity_due", wall=wall)},
        )


async def _freeze(session: Session) -> int:
    """Use one time for all statements of this session, and return it in milliseconds."""
    session.wall_us = int((await session.row("now"))["us"])
    return session.wall_us // 1000

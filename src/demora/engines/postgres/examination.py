"""Examines a server from outside: whether it can be reached and is new enough, its schema, its clock, and wake-ups."""

import asyncio
import secrets
import time
from typing import Any

import asyncpg

from ...errors import StoreError
from ...survey import Examination, Finding
from ..options import PostgresOptions
from . import bells, connections, troubles
from .statements import statements

OLDEST = 14  # of the server
CLOCKS_APART = 1.0  # seconds
HEARD = 3.0  # seconds that a ring may take


async def examine(url: str, options: PostgresOptions) -> Examination:
    """All that can be said without opening the store. Makes and changes nothing."""
    try:
        async with connections.connected(url) as connection:
            schema, usable = await _schema(connection, options.schema)
            found = [await _server(connection), await _place(connection), schema]
            return Examination([*found, await _clock(connection), await _wakeups(connection, url, options)], usable)
    except (StoreError, *troubles.DRIVER) as problem:
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
    found, known = await connections.version_of(connection, schema), connections.newest()
    if found == 0:
        fact = f"there is no schema {schema} with demora's tables"
        return Finding("schema", "problem", fact, "demora migrate makes it; is DEMORA_DATABASE_SCHEMA right?"), False
    if found > known:
        fact = f"{schema} has schema {found}, this demora knows up to {known}"
        return Finding("schema", "problem", fact, "use the newer demora that migrated it"), False
    if found < known:
        fact = f"{schema} has schema {found}, this demora uses {known}; its jobs were not looked at"
        return Finding("schema", "warning", fact, "demora migrate brings it up to date; older processes go on"), False
    return Finding("schema", "ok", f"{schema} has schema {found}, as this demora uses it"), True


async def _clock(connection: Any) -> Finding:
    """How far the server's clock is from this host's; how long the answer took is counted for neither."""
    before = time.time()
    us = await connection.fetchval(statements("demora")["now"].sql, None)
    after = time.time()
    apart = max(before - us / 1e6, us / 1e6 - after, 0.0)
    if apart > CLOCKS_APART:
        fact = f"the clocks of this host and of the server are {apart:.1f} s apart; jobs go by the server's"
        return Finding("clocks", "warning", fact, "set both by NTP: times that this host names are off by that")
    return Finding("clocks", "ok", f"this host and the server agree to within {max(apart, after - before) * 1000:.0f} ms")


async def _wakeups(connection: Any, url: str, options: PostgresOptions) -> Finding:
    """Whether a ring by the database URL is heard where workers listen."""
    if (note := bells.switched_off(options)) is not None:
        return Finding("wake-ups", "ok", note)
    try:
        heard = await _heard(connection, options.listen_url or url)
    except (StoreError, *troubles.DRIVER):
        heard = False
    if heard:
        return Finding("wake-ups", "ok", "LISTEN and NOTIFY work: idle workers are woken")
    advice = "behind a pooler set DEMORA_DATABASE_POOLER, and DEMORA_DATABASE_LISTEN_URL to the database itself"
    return Finding("wake-ups", "warning", bells.UNHEARD, advice)


async def _heard(connection: Any, listen_url: str) -> bool:
    rung, channel = asyncio.Event(), f"demora_doctor_{secrets.token_hex(8)}"
    async with connections.connected(listen_url) as listener:
        await listener.add_listener(channel, lambda *_: rung.set())
        await connection.execute("select pg_notify($1, '')", channel)
        async with asyncio.timeout(HEARD):
            return await rung.wait()

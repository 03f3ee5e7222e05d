"""What the cases run on: a new SQLite file for each, or a new database on one durable PostgreSQL, which may have a line."""

import itertools
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import redis.asyncio

from bench import floor
from tests.servers import postgres, valkey

_WRITTEN = """
select pg_current_wal_lsn() - '0/0'::pg_lsn as "WAL bytes",
    (select sum(pg_total_relation_size(oid)) from pg_class where relkind = 'r' and relnamespace = 'demora'::regnamespace)
        as "table and index bytes"
"""


class Databases(Protocol):
    """Where new databases are made, and what the machine can do there at best. `redis_url` is where their line is."""

    redis_url: str | None

    def new(self) -> AbstractAsyncContextManager[str]:
        """The URL of an empty database, gone afterwards."""
        ...

    def floor(self) -> Any:
        """What `floor.measure` measures."""
        ...

    async def written(self, url: str) -> Counter[str]:
        """The bytes written so far, by what they were written to."""
        ...


class SqliteFiles:
    redis_url: str | None = None

    @asynccontextmanager
    async def new(self) -> AsyncIterator[str]:
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{Path(folder) / 'bench.db'}"

    def floor(self) -> Any:
        return floor.Sqlite()

    async def written(self, url: str) -> Counter[str]:
        return Counter()


class LinedFiles(SqliteFiles):
    """Files with their line on a Valkey of our own."""

    def __init__(self, line: valkey.Server) -> None:
        self.redis_url = line.url

    @asynccontextmanager
    async def new(self) -> AsyncIterator[str]:
        await _flush(self.redis_url)
        async with super().new() as url:
            yield url


class PostgresServer:
    """Databases on a running server; `url` names one that may make others."""

    redis_url: str | None = None

    def __init__(self, url: str) -> None:
        self._url = url
        self._numbers = itertools.count(1)

    @asynccontextmanager
    async def new(self) -> AsyncIterator[str]:
        name = f"demora_bench_{next(self._numbers)}"
        await self._ask(f"drop database if exists {name} with (force)")
        await self._ask(f"create database {name}")
        try:
            yield self._url.rpartition("/")[0] + f"/{name}"
        finally:
            await self._ask(f"drop database {name} with (force)")
            await self._ask("checkpoint")  # what one case wrote is not flushed at the cost of the next

    def floor(self) -> Any:
        return floor.Postgres(self._url)

    async def written(self, url: str) -> Counter[str]:
        import asyncpg

        connection = await asyncpg.connect(url)
        try:
            return Counter(dict(await connection.fetchrow(_WRITTEN)))
        finally:
            await connection.close()

    async def _ask(self, sql: str) -> None:
        import asyncpg

        connection = await asyncpg.connect(self._url)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()


class LinedServers(PostgresServer):
    """Databases on a PostgreSQL of our own, with their line on a Valkey of our own."""

    def __init__(self, server: postgres.Server, line: valkey.Server) -> None:
        super().__init__(server.url)
        self.server, self.line, self.redis_url = server, line, line.url

    def without_line(self) -> PostgresServer:
        return PostgresServer(self._url)

    @asynccontextmanager
    async def new(self) -> AsyncIterator[str]:
        await _flush(self.redis_url)
        async with super().new() as url:
            yield url

    def floor(self) -> Any:
        return floor.Line(self._url, self.line.url)

    async def written(self, url: str) -> Counter[str]:
        async with redis.asyncio.from_url(self.line.url) as client:
            commands = (await client.info("stats"))["total_commands_processed"]
            calls = (await client.info("commandstats")).items()
        scripts = sum(of["calls"] for name, of in calls if name in ("cmdstat_eval", "cmdstat_evalsha"))
        told = {"Redis scripts": scripts, "Redis commands, also in scripts,": commands}
        return await super().written(url) + Counter(told)


async def _flush(url: str | None) -> None:
    async with redis.asyncio.from_url(url) as client:
        await client.flushall()

"""Closing: a store leaves no connection behind, and a connection that another task closes ends no call."""

import asyncio
import errno
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from asyncpg.connection import Connection

from demora.core.filters import JobFilter
from demora.engines.postgres import PostgresOptions, PostgresStore
from demora.store.jobs import Query, Topic
from tests.builders import add_one
from tests.facts import eventually


async def test_a_closed_store_has_no_connection_of_any_kind(url: str, schema: str) -> None:
    looking = await asyncpg.connect(url)
    await looking.execute(f"create database {schema}")

    async def connections() -> int:
        return int(await looking.fetchval("select count(*) from pg_stat_activity where datname = $1", schema))

    store = PostgresStore(urlsplit(url)._replace(path=f"/{schema}").geturl(), PostgresOptions(connections=1))
    await store.open()
    with store.subscribe(Topic.READY):
        await add_one(store)
        assert (await store.api_keys.find("nobody's")).key is None  # a quick read
        assert len((await store.find(Query(JobFilter()))).jobs) == 1  # a search
        assert await connections() >= 3
    await store.close()
    await eventually(connections, lambda number: number == 0, within=10)
    await looking.execute(f"drop database {schema}")
    await looking.close()


async def test_a_call_goes_on_when_another_task_closes_its_connection(
    url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is closed once its statement is prepared: the driver raises an AttributeError then."""
    prepare, closed = Connection._get_statement, list[Connection]()

    async def closing(connection: Connection, *arguments: Any, **options: Any) -> Any:
        statement = await prepare(connection, *arguments, **options)
        if not closed:
            closed.append(connection)
            connection.terminate()
        return statement

    store = PostgresStore(url, PostgresOptions(schema=schema, connections=1))
    await store.open()
    try:
        monkeypatch.setattr(Connection, "_get_statement", closing)
        added = await add_one(store)
        assert closed
        closed.clear()
        job = await store.get(added.id)
        assert closed
        assert job is not None
    finally:
        await store.close()


async def test_a_connection_that_breaks_while_it_is_closed_is_closed(
    url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    close, loop, broken = Connection.close, asyncio.get_running_loop(), list[Connection]()

    async def breaking(connection: Connection, *, timeout: float | None = None) -> None:
        broken.append(connection)
        loop.call_soon(connection._transport._force_close, BrokenPipeError(errno.EPIPE, "broken pipe"))
        await close(connection, timeout=timeout)

    store = PostgresStore(url, PostgresOptions(schema=schema, connections=1))
    await store.open()
    monkeypatch.setattr(Connection, "close", breaking)
    await store.close()
    assert broken

"""A database that is dropped and created anew under an open store."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from demora.core.retention import Retention
from demora.engines.postgres import PostgresOptions, PostgresStore
from demora.errors import StoreGone
from demora.store.jobs import Query
from demora.system import notices
from tests.builders import add_one, claim

NAME = "replaced"
Replace = Callable[[], Awaitable[None]]


@asynccontextmanager
async def administered(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def place(url: str) -> AsyncIterator[str]:
    async with administered(url) as server:
        await server.execute(f"drop database if exists {NAME} with (force)")
        await server.execute(f"create database {NAME}")
        yield url.rpartition("/")[0] + f"/{NAME}"
        await server.execute(f"drop database if exists {NAME} with (force)")


@pytest.fixture
def replace(url: str) -> Replace:
    async def replace() -> None:
        async with administered(url) as server:
            await server.execute(f"drop database {NAME} with (force)")
            await server.execute(f"create database {NAME}")

    return replace


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, PostgresOptions(connections=2))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.mark.parametrize("migrated", [False, True])
async def test_every_verb_refuses_a_database_that_was_created_anew(place: str, replace: Replace, migrated: bool) -> None:
    async with opened(place) as store:
        await add_one(store)
        await replace()
        if migrated:
            async with opened(place):
                pass
        for verb in (
            lambda: add_one(store),
            lambda: claim(store),
            lambda: store.find(Query()),
            lambda: store.queues(),
            lambda: store.workers(),
            lambda: store.housekeep(Retention(), limit=1),
        ):
            with pytest.raises(StoreGone, match=f"the database {NAME} was dropped and created anew"):
                await verb()
    async with administered(place) as there:
        assert await there.fetchval("select to_regclass('demora.jobs') is not null") is migrated
        if migrated:
            assert await there.fetchval("select count(*) from demora.jobs") == 0


async def test_the_log_says_once_that_the_database_is_another_one(
    place: str, replace: Replace, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_said", {})
    caplog.set_level(logging.ERROR, "demora")
    async with opened(place) as store:
        await replace()
        for _ in range(3):
            with pytest.raises(StoreGone):
                await add_one(store)
    assert [record.__dict__["event"] for record in caplog.records] == ["store.damaged"]


async def test_a_store_that_is_opened_again_accepts_the_new_database(place: str, replace: Replace) -> None:
    async with opened(place) as store:
        await replace()
        await store.close()
        await store.open()
        await add_one(store)


async def test_a_database_that_only_lost_its_connections_is_the_same(place: str, url: str) -> None:
    async with opened(place) as store:
        await add_one(store)
        async with administered(url) as server:
            await server.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", NAME)
        await add_one(store)

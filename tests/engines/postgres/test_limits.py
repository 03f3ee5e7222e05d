"""Calls that another session holds up for too long: they fail with the reason, and write nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import pytest

from demora.engines.postgres import PostgresOptions, PostgresStore
from demora.engines.postgres.connection import connections
from demora.engines.postgres.connection.connections import in_schema
from demora.errors import StoreBusy, StoreError
from tests.builders import add_one, claim_ids, new_job


@asynccontextmanager
async def limited(url: str, schema: str, timeout: timedelta) -> AsyncIterator[PostgresStore]:
    """A store whose calls may take so long."""
    store = PostgresStore(url, PostgresOptions(schema=schema, connections=2, timeout=timeout))
    await store.open()
    yield store
    await store.close()


@asynccontextmanager
async def locked(url: str, schema: str) -> AsyncIterator[None]:
    """The table of jobs, in the hands of another session."""
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        await connection.execute(in_schema("lock table demora.jobs", schema))
        yield
    await connection.close()


async def test_a_write_that_waits_too_long_for_a_lock_finds_the_store_busy(
    url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LOCKED", 50)
    async with limited(url, schema, timedelta(seconds=60)) as store:
        async with locked(url, schema):
            with pytest.raises(StoreBusy, match="rows stayed locked by another session; nothing was written"):
                await store.add([new_job()])
        assert await claim_ids(store) == []
        added = await add_one(store)
        assert await claim_ids(store) == [added.id]


async def test_a_call_that_takes_too_long_says_which_setting_ended_it(url: str, schema: str) -> None:
    async with limited(url, schema, timedelta(seconds=1)) as store:
        added = await add_one(store)
        async with locked(url, schema):
            with pytest.raises(StoreError, match="took longer than DEMORA_DATABASE_TIMEOUT; nothing was written") as raised:
                await store.add([new_job()])
        assert not isinstance(raised.value, StoreBusy)
        assert await claim_ids(store) == [added.id]

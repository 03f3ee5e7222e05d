"""A store that is closed leaves no connection behind, whichever of its pools were used."""

from urllib.parse import urlsplit

import asyncpg

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

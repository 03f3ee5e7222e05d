"""Behind a pgbouncer in transaction mode. The whole conformance suite runs there with DEMORA_TEST_ENGINE=pgbouncer."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from demora.core.states import Status
from demora.engines.postgres import PostgresOptions, PostgresStore
from demora.store.jobs import Topic
from tests.builders import add_ids, add_one, claim_ids, run_one, status_of
from tests.setups import pgbouncer_url


@pytest.fixture
async def pooled(url: str, schema: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(pgbouncer_url(), PostgresOptions(schema=schema, pooler=True))
    await store.open()
    yield store
    await store.close()


async def test_jobs_are_added_claimed_and_settled(pooled: PostgresStore) -> None:
    await add_one(pooled)
    assert await status_of(pooled, await run_one(pooled)) is Status.COMPLETED
    assert await claim_ids(pooled) == []
    ids = await add_ids(pooled, *[{} for _ in range(50)])
    assert await claim_ids(pooled) == ids


async def test_many_at_once_share_few_connections(pooled: PostgresStore) -> None:
    await asyncio.gather(*(add_one(pooled) for _ in range(200)))
    claims = await asyncio.gather(*(claim_ids(pooled, 20) for _ in range(10)))
    assert len({id for claim in claims for id in claim}) == sum(map(len, claims)) == 200


async def test_without_a_way_past_it_idle_workers_look_by_themselves_and_health_says_so(pooled: PostgresStore) -> None:
    with pooled.subscribe(Topic.READY) as subscription:
        assert await claim_ids(pooled) == []
        assert any("250 ms" in note for note in pooled.diagnostics.notes())
        await add_one(pooled)
        async with asyncio.timeout(10):
            await subscription.wait(None)


async def test_past_it_they_are_woken(pooled: PostgresStore, url: str) -> None:
    options = PostgresOptions(schema=pooled.options.schema, pooler=True, listen_url=url)
    other = PostgresStore(pgbouncer_url(), options)
    await other.open()
    try:
        with other.subscribe(Topic.READY) as subscription:
            assert await claim_ids(other) == []
            assert other.diagnostics.notes() == ()
            subscription.clear()
            await add_one(pooled)
            async with asyncio.timeout(10):
                await subscription.wait(None)
    finally:
        await other.close()

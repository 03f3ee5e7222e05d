"""The counts of a queue are of one moment, whatever moves meanwhile."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from demora.core.verdict import HandedBack
from demora.engines.postgres import PostgresOptions, PostgresStore
from tests.builders import add_one, claim_one, settle

LOOKS = 300


@pytest.fixture
async def other(store: PostgresStore, url: str, schema: str) -> AsyncIterator[PostgresStore]:
    other = PostgresStore(url, PostgresOptions(schema=schema, connections=1), clock=store.clock)
    await other.open()
    yield other
    await other.close()


async def test_a_job_that_moves_between_two_states_is_counted_once(store: PostgresStore, other: PostgresStore) -> None:
    await add_one(store)
    moving = asyncio.ensure_future(_move(store))
    seen = set()
    for _ in range(LOOKS):
        [queue] = await other.queues()
        seen.add((queue.ready, queue.processing))
    moving.cancel()
    await asyncio.wait([moving])
    assert seen == {(1, 0), (0, 1)}


async def _move(store: PostgresStore) -> None:
    """Claim the job and hand it back, for ever."""
    while True:
        await settle(store, await claim_one(store), HandedBack())

"""A release that skips jobs which other transactions have locked: it uses as many release times as it moves jobs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from demora.core.pace import Pace, request_of
from demora.engines.postgres import PostgresStore
from demora.engines.postgres.connection.connections import connected
from demora.store.jobs import LOCKED_RETRY
from demora.store.paces import Released
from tests.builders import add_ids, claim, seconds
from tests.clock import TestClock

PACE = Pace(gap=seconds(60), burst=2, stagger=seconds(1), rapid=None)


@asynccontextmanager
async def locked(store: PostgresStore, *ids: str) -> AsyncIterator[None]:
    """Another transaction holds the rows of these jobs."""
    async with connected(store.url) as connection, connection.transaction():
        await connection.execute(f"select from {store.options.schema}.jobs where id = any($1) for update", list(ids))
        yield


async def backlog(store: PostgresStore, clock: TestClock, jobs: int) -> list[str]:
    await store.paces.set("q", request_of(PACE), by="ann")
    ids = await add_ids(store, *[{"queue": "q", "delay": seconds(1)}] * jobs)
    clock.turn(5)
    return ids


async def test_a_release_that_finds_all_jobs_locked_uses_no_release_time(store: PostgresStore, clock: TestClock) -> None:
    [id] = await backlog(store, clock, 1)
    before = await store.paces.of("q")
    async with locked(store, id):
        assert await store.paces.release(["q"]) == Released([], LOCKED_RETRY, paced=True)
    after = await store.paces.of("q")
    assert before is not None
    assert after is not None
    assert after.state == before.state
    assert [job.id for job in (await store.paces.release(["q"])).jobs] == [id]


async def test_a_release_that_finds_some_jobs_locked_leaves_the_release_times_of_these(
    store: PostgresStore, clock: TestClock
) -> None:
    first, second = await backlog(store, clock, 2)
    async with locked(store, first):
        [released] = (await store.paces.release(["q"])).jobs
    assert released.id == second
    [late] = (await store.paces.release(["q"])).jobs
    assert late.id == first
    assert late.release_at == released.release_at + PACE.stagger
    assert (await store.paces.release(["q"])).jobs == []


async def test_a_claim_that_finds_all_jobs_of_a_pace_locked_says_when_to_try_again(
    store: PostgresStore, clock: TestClock
) -> None:
    [id] = await backlog(store, clock, 1)
    async with locked(store, id):
        claimed = await claim(store)
        assert (claimed.jobs, claimed.next_in) == ([], LOCKED_RETRY)
    assert [job.lease.id for job in (await claim(store)).jobs] == [id]

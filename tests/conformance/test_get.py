"""get: the whole job, or None."""

import asyncio

import pytest

from demora.core.verdict import Raised
from demora.store.store import Store
from tests.builders import DONE, NO_IDS, NO_SUCH_ID, add_ids, add_one, claim_one, job_of, ms, settle


@pytest.mark.parametrize("id", [NO_SUCH_ID, *NO_IDS])
async def test_no_job_has_an_id_that_is_no_id(store: Store, id: str) -> None:
    await add_one(store)
    assert await store.get(id) is None


async def test_a_job_comes_with_its_own_attempts_and_its_own_log(store: Store) -> None:
    mine, other = await add_ids(store, {"retry_delay": ms(0)}, {"queue": "other"})
    for queue, outcome in (("default", Raised("no")), ("other", Raised("other")), ("default", DONE)):
        job = await claim_one(store, queues=[queue])
        await settle(store, job, outcome, log=((ms(0), f"{queue} {job.retry_state.attempt}"),))
    job = await job_of(store, mine)
    assert [(attempt.token, attempt.error) for attempt in job.attempts] == [(1, "no"), (2, None)]
    assert [line.line for line in job.log] == ["default 1", "default 2"]
    assert [line.line for line in (await job_of(store, other)).log] == ["other 1"]


async def test_a_write_is_seen_by_the_next_read(store: Store) -> None:
    for _ in range(20):
        assert await store.get((await add_one(store)).id)


async def test_a_write_is_seen_through_another_store(pair: tuple[Store, Store]) -> None:
    one, other = pair
    added = await add_one(one)
    assert await job_of(other, added.id) == await job_of(one, added.id)


async def test_an_id_may_be_written_in_capitals(store: Store) -> None:
    added = await add_one(store)
    assert await job_of(store, added.id.upper()) == await job_of(store, added.id)


async def test_simultaneous_reads_each_get_their_own_job(store: Store) -> None:
    ids = await add_ids(store, *({"name": f"job {n}"} for n in range(20)))
    found = await asyncio.gather(*(store.get(id) for id in [*ids, NO_SUCH_ID, *ids]))
    assert [None if job is None else job.id for job in found] == [*ids, None, *ids]

"""remove: ended jobs go with their history; others stay."""

import pytest

from demora.core.states import Status
from demora.core.verdict import Raised
from demora.store.jobs import Answer, Query
from demora.store.store import Store
from tests.builders import (
    DONE,
    NO_IDS,
    NO_SUCH_ID,
    add_ids,
    add_one,
    claim_one,
    ended_one,
    job_of,
    ms,
    new_job,
    run_one,
    settle,
)


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
async def test_an_ended_job_is_removed(store: Store, status: Status) -> None:
    id = await ended_one(store, status)
    assert await store.remove([id]) == [Answer(True, status)]
    assert await store.get(id) is None
    assert (await store.find(Query())).jobs == []
    assert await store.remove([id]) == [Answer(False, None)]


async def test_waiting_and_running_jobs_stay(store: Store) -> None:
    ids = await add_ids(store, {}, {})
    await claim_one(store)
    before = [await job_of(store, id) for id in ids]
    assert await store.remove(ids) == [Answer(False, Status.PROCESSING), Answer(False, Status.QUEUED)]
    assert [await job_of(store, id) for id in ids] == before


async def test_its_history_goes_with_it(store: Store) -> None:
    asked = new_job(retry_delay=ms(0))
    await store.add([asked])
    await settle(store, await claim_one(store), Raised("no"), log=((ms(0), "one"),))
    await settle(store, await claim_one(store), DONE, log=((ms(0), "two"),))
    await store.remove([asked.id])
    await store.add([asked])
    again = await job_of(store, asked.id)
    assert (again.attempts, again.log, again.token) == ((), (), 0)


async def test_a_removed_dead_letter_is_no_longer_counted(store: Store) -> None:
    kept, gone = await ended_one(store, Status.FAILED), await ended_one(store, Status.FAILED)
    await store.remove([gone])
    [queue] = await store.queues()
    assert queue.dead == 1
    assert await store.get(kept)


async def test_many_are_removed_in_one_call_and_answered_in_order(store: Store) -> None:
    waiting = (await add_one(store, queue="z", delay=ms(1))).id
    await add_one(store)
    ended = await run_one(store)
    answers = await store.remove([NO_SUCH_ID, waiting, ended])
    assert answers == [Answer(False, None), Answer(False, Status.QUEUED), Answer(True, Status.COMPLETED)]
    assert await store.remove(NO_IDS) == [Answer(False, None)] * len(NO_IDS)

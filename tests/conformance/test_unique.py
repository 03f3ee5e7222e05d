"""Uniqueness: of one type and key at most one job waits that was never claimed."""

import asyncio
from datetime import timedelta

import pytest

from demora.core.job import Priority, Unique
from demora.core.states import Status
from demora.core.verdict import HandedBack, Raised
from demora.store.jobs import ClaimedJob, Query
from demora.store.store import Store
from tests.builders import DONE, add_one, claim_ids, claim_one, job_of, key, new_job, run_one, seconds, settle, windows_of
from tests.clock import TestClock

KEEP, REPLACE = Unique("k"), Unique("k", replace=True)


async def number_of_jobs(store: Store) -> int:
    return len((await store.find(Query(limit=200))).jobs)


async def test_a_second_job_of_the_same_key_is_not_stored_and_the_first_is_kept(store: Store, clock: TestClock) -> None:
    first = await add_one(store, unique=KEEP, payload=b'{"n":1}', delay=seconds(5))
    clock.turn(1)
    second = await add_one(store, unique=KEEP, payload=b'{"n":2}')
    assert (second.id, second.kept, second.replaced) == (first.id, True, False)
    assert (second.created_at, second.scheduled_at) == (first.created_at, first.scheduled_at)
    job = await job_of(store, first.id)
    assert (job.payload, job.unique_key, await number_of_jobs(store)) == ({"n": 1}, "k", 1)


async def test_a_job_that_is_replaced_keeps_its_id_and_becomes_what_the_new_one_asks_for(
    store: Store, clock: TestClock
) -> None:
    first = await add_one(store, unique=KEEP, payload=b'{"n":1}', delay=seconds(5), tags=("old",))
    clock.turn(1)
    asked = {"payload": b'{"n":2}', "delay": seconds(9), "priority": Priority.HIGH, "queue": "other", "max_retries": 7}
    second = await add_one(store, unique=REPLACE, **asked)
    assert (second.id, second.kept, second.replaced) == (first.id, False, True)
    assert (second.created_at, second.scheduled_at) == (first.created_at, clock.now() + seconds(9))
    job = await job_of(store, first.id)
    assert (job.payload, job.priority, job.queue, job.max_retries, job.tags) == ({"n": 2}, Priority.HIGH, "other", 7, ())
    assert (job.due_at, job.scheduled_at, job.created_at) == (clock.now() + seconds(9),) * 2 + (first.created_at,)
    assert await number_of_jobs(store) == 1


@pytest.mark.parametrize(("first", "second"), [(seconds(5), None), (None, seconds(5))], ids=["to run now", "to run later"])
async def test_a_job_that_is_replaced_is_as_urgent_as_the_new_one(
    store: Store, clock: TestClock, first: timedelta | None, second: timedelta | None
) -> None:
    await add_one(store, unique=KEEP, delay=first)
    await add_one(store, unique=REPLACE, delay=second)
    clock.turn(5)
    await run_one(store)
    [(_, tally)] = await windows_of(store)
    assert (bool(tally.realtime), bool(tally.delayed)) == (second is None, second is not None)


async def test_other_keys_and_other_types_are_other_jobs(store: Store) -> None:
    await add_one(store, unique=KEEP)
    others = [await add_one(store, unique=Unique("l")), await add_one(store, unique=KEEP, type="demo.sleep")]
    assert not any(added.kept for added in others)
    assert await number_of_jobs(store) == 3


async def test_once_a_worker_has_taken_it_another_may_wait(store: Store) -> None:
    first = await add_one(store, unique=KEEP)
    await claim_one(store)
    second = await add_one(store, unique=KEEP)
    assert second.id != first.id


async def test_a_replacement_leaves_the_jobs_that_had_the_key_before_as_they_are(store: Store) -> None:
    ended, runs, waits = [await _taken(store, n) for n in range(3)]
    await settle(store, ended, DONE)
    before = [await job_of(store, run.lease.id) for run in (ended, runs)]
    assert await settle(store, waits, HandedBack()) is Status.QUEUED
    third = await add_one(store, unique=KEEP, payload=b'{"n":3}', delay=seconds(5))
    replaced = await add_one(store, unique=REPLACE, payload=b'{"n":4}')
    assert (replaced.id, replaced.replaced) == (third.id, True)
    assert [await job_of(store, run.lease.id) for run in (ended, runs)] == before
    assert (await job_of(store, waits.lease.id)).payload == {"n": 2}
    assert (await job_of(store, third.id)).payload == {"n": 4}


async def _taken(store: Store, n: int) -> ClaimedJob:
    await add_one(store, unique=KEEP, payload=b'{"n":%d}' % n)
    return await claim_one(store)


async def test_a_job_that_comes_back_to_waiting_is_in_nobodys_way(store: Store, clock: TestClock) -> None:
    """Also not in that of another that was added meanwhile."""
    await add_one(store, unique=KEEP)
    run = await claim_one(store)
    second = await add_one(store, unique=KEEP)
    assert await settle(store, run, HandedBack()) is Status.QUEUED
    assert await settle(store, await claim_one(store), Raised("ValueError: no")) is Status.RETRYING
    clock.turn(60)
    assert (await add_one(store, unique=KEEP)).id == second.id


async def test_a_cancelled_job_that_is_retried_by_hand_is_in_nobodys_way(store: Store) -> None:
    first = await add_one(store, unique=KEEP)
    await store.cancel([first.id])
    second = await add_one(store, unique=KEEP)
    [answer] = await store.retry([first.id])
    assert answer.did
    assert await claim_ids(store) == [second.id, first.id]


async def test_a_job_that_was_retried_by_hand_stands_for_no_new_one(store: Store) -> None:
    first = await add_one(store, unique=KEEP)
    await store.cancel([first.id])
    await store.retry([first.id])
    second = await add_one(store, unique=REPLACE, payload=b'{"n":2}')
    assert (second.id == first.id, second.kept, second.replaced) == (False, False, False)
    assert (await add_one(store, unique=KEEP)).id == second.id
    assert (await job_of(store, first.id)).payload == {"hi": 1}


async def test_within_one_call_the_first_stands_for_the_others(store: Store) -> None:
    jobs = [new_job(unique=KEEP), new_job(), new_job(unique=KEEP), new_job(unique=REPLACE, payload=b'{"n":3}')]
    first, plain, kept, replaced = await store.add(jobs)
    assert (kept.id, kept.kept, replaced.id, replaced.replaced) == (first.id, True, first.id, True)
    assert plain.id == jobs[1].id
    assert (await job_of(store, first.id)).payload == {"n": 3}
    assert await number_of_jobs(store) == 2


async def test_adding_the_same_id_twice_is_adding_it_once(store: Store) -> None:
    job = new_job(unique=KEEP)
    await store.add([job])
    [again] = await store.add([job])
    assert (again.id, again.replayed, again.kept) == (job.id, True, False)
    await claim_one(store)
    other = await add_one(store, unique=KEEP)
    [again] = await store.add([job])
    assert (again.id, again.replayed) == (job.id, True)
    assert other.id != job.id


async def test_one_id_twice_in_one_call_is_a_job_and_its_replay(store: Store) -> None:
    job = new_job(unique=KEEP)
    answers = await store.add([job, job])
    assert [(added.id, added.replayed) for added in answers] == [(job.id, False), (job.id, True)]


async def test_an_idempotency_key_means_the_job_that_stood_for_it(store: Store) -> None:
    first = await add_one(store, unique=KEEP)
    second = await add_one(store, unique=KEEP, key=key("request"))
    again = await add_one(store, unique=KEEP, key=key("request"))
    assert (second.id, second.kept) == (first.id, True)
    assert (again.id, again.replayed) == (first.id, True)


async def test_two_jobs_of_one_call_with_one_idempotency_key_are_a_job_and_its_replay(store: Store) -> None:
    first, again = await store.add([new_job(unique=KEEP, key=key("i")), new_job(unique=KEEP, key=key("i"))])
    assert [(added.id, added.replayed, added.kept) for added in (first, again)] == [
        (first.id, False, False),
        (first.id, True, False),
    ]
    assert await number_of_jobs(store) == 1


@pytest.mark.parametrize("unique", [KEEP, REPLACE], ids=["keep", "replace"])
async def test_a_replay_within_one_call_means_the_job_that_stood_for_the_first(store: Store, unique: Unique) -> None:
    waiting = await add_one(store, unique=KEEP, delay=seconds(5))
    asked_for = [new_job(unique=unique, key=key("i"), delay=seconds(9)) for _ in range(2)]
    answers = await store.add(asked_for)
    assert [(added.id, added.replayed) for added in answers] == [(waiting.id, False), (waiting.id, True)]
    assert (answers[0].kept, answers[0].replaced) == (not unique.replace, unique.replace)
    assert (answers[1].kept, answers[1].replaced) == (False, False)
    assert await number_of_jobs(store) == 1


async def test_of_many_adders_at_once_one_stores(pair: tuple[Store, Store]) -> None:
    added = await asyncio.gather(*(add_one(store, unique=KEEP) for store in pair * 10))
    assert len({one.id for one in added}) == 1
    assert sum(not one.kept for one in added) == 1

"""Expiry: a job that nobody started by then is never started, whoever finds it."""

import pytest

from demora.core.job import Unique
from demora.core.retention import Retention
from demora.core.states import Status
from demora.core.verdict import EXPIRED, HandedBack, Raised, Snoozed
from demora.store.jobs import QueueChange
from demora.store.store import Store
from tests.builders import add_ids, add_one, claim, claim_ids, claim_one, job_of, ms, new_job, seconds, settle
from tests.clock import TestClock


async def test_a_job_can_be_claimed_until_its_expiry(store: Store, clock: TestClock) -> None:
    added = await add_one(store, expires_in=seconds(10))
    clock.turn(10, ms=-1)
    assert await claim_ids(store) == [added.id]


async def test_a_claim_cancels_what_expired_and_says_why(store: Store, clock: TestClock) -> None:
    added = await add_one(store, expires_in=seconds(10))
    clock.turn(10)
    assert await claim_ids(store) == []
    job = await job_of(store, added.id)
    assert (job.status, job.error, job.attempts) == (Status.CANCELLED, EXPIRED.error, ())
    assert (job.completed_at, job.token, job.started_at) == (clock.now(), 0, None)


async def test_a_claim_that_met_expired_jobs_comes_back_at_once_for_those_behind(store: Store, clock: TestClock) -> None:
    *_, alive = await add_ids(store, {"expires_in": ms(1)}, {"expires_in": ms(1)}, {})
    clock.turn(ms=1)
    first = await claim(store, 2)
    assert (first.jobs, first.next_in) == ([], seconds(0))
    assert await claim_ids(store, 2) == [alive]


async def test_expired_jobs_do_not_take_the_place_of_others(store: Store, clock: TestClock) -> None:
    expired, alive = await add_ids(store, {"expires_in": ms(5)}, {})
    clock.turn(ms=5)
    assert await claim_ids(store) == [alive]
    assert (await job_of(store, expired)).status is Status.CANCELLED


async def test_an_expiry_can_be_a_time(store: Store, clock: TestClock) -> None:
    added = await add_one(store, expires_at=clock.now() + seconds(5))
    assert (await job_of(store, added.id)).expires_at == clock.now() + seconds(5)
    clock.turn(5)
    assert await claim_ids(store) == []


async def test_a_job_that_was_tried_once_does_not_expire(store: Store, clock: TestClock) -> None:
    added = await add_one(store, expires_in=seconds(10), retry_delay=seconds(20))
    await settle(store, await claim_one(store), Raised("ValueError: no"))
    clock.turn(20)
    assert (await store.housekeep(Retention(), limit=10)).expired == 0
    assert await claim_ids(store) == [added.id]


@pytest.mark.parametrize("outcome", [HandedBack(), Snoozed(ms(1))], ids=["handed back", "snoozed"])
async def test_a_run_that_did_not_count_does_not_keep_a_job_from_expiring(
    store: Store, clock: TestClock, outcome: HandedBack | Snoozed
) -> None:
    added = await add_one(store, expires_in=seconds(10))
    await settle(store, await claim_one(store), outcome)
    clock.turn(10)
    assert await claim_ids(store) == []
    assert (await job_of(store, added.id)).status is Status.CANCELLED


async def test_a_job_that_runs_at_its_expiry_goes_on(store: Store, clock: TestClock) -> None:
    await add_one(store, expires_in=seconds(1))
    run = await claim_one(store)
    clock.turn(1)
    assert (await store.housekeep(Retention(), limit=10)).expired == 0
    assert (await store.lease_status([run.lease])).lost == frozenset()


async def test_a_retry_by_hand_takes_the_expiry_off(store: Store, clock: TestClock) -> None:
    added = await add_one(store, expires_in=seconds(1))
    clock.turn(1)
    await claim(store)
    await store.retry([added.id])
    assert (await job_of(store, added.id)).expires_at is None
    assert await claim_ids(store) == [added.id]


async def test_housekeeping_cancels_what_expired_even_where_nobody_claims(store: Store, clock: TestClock) -> None:
    expired, alive = await add_ids(store, {"expires_in": seconds(1)}, {"expires_in": seconds(2)})
    await store.set_queue("default", QueueChange(paused=True))
    clock.turn(1)
    assert (await store.housekeep(Retention(), limit=10)).expired == 1
    assert [(await job_of(store, id)).status for id in (expired, alive)] == [Status.CANCELLED, Status.QUEUED]


async def test_housekeeping_says_when_the_next_job_expires(store: Store, clock: TestClock) -> None:
    await add_ids(store, {"expires_in": seconds(7)}, {"expires_in": seconds(5)}, {"delay": seconds(1)})
    assert (await store.housekeep(Retention(), limit=10)).next_in == seconds(5)
    clock.turn(5)
    assert (await store.housekeep(Retention(), limit=10)).next_in == seconds(2)
    clock.turn(2)
    done = await store.housekeep(Retention(), limit=10)
    assert (done.expired, done.next_in) == (1, None)


async def test_housekeeping_goes_on_at_once_while_there_is_more(store: Store, clock: TestClock) -> None:
    await add_ids(store, *[{"expires_in": seconds(1)}] * 5)
    clock.turn(1)
    done = [await store.housekeep(Retention(), limit=2) for _ in range(3)]
    assert [(d.expired, d.next_in) for d in done] == [(2, seconds(0)), (2, seconds(0)), (1, None)]


async def test_a_unique_job_that_is_replaced_expires_as_its_replacement_says(store: Store, clock: TestClock) -> None:
    first = await add_one(store, unique=Unique("k"), expires_in=seconds(1))
    await store.add([new_job(unique=Unique("k", replace=True), expires_in=seconds(60))])
    clock.turn(1)
    assert await claim_ids(store) == [first.id]

"""claimed and leased: what a worker holds, read again without writing anything."""

from demora.core.verdict import HandedBack, RetryState
from demora.store.jobs import Lease
from demora.store.store import Store
from tests.builders import DONE, LEASE, NO_IDS, add_ids, add_one, claim, claim_one, job_of, seconds, settle
from tests.clock import TestClock


async def test_the_jobs_of_a_claim_are_read_again_by_its_id(store: Store) -> None:
    await add_ids(store, {"type": "a", "tags": ("x",)}, {"type": "b", "timeout": seconds(5)}, {})
    first = (await claim(store, 2, claim_id="one")).jobs
    [second] = (await claim(store, 2, claim_id="two")).jobs
    assert await store.claimed("ann", "one") == first
    assert await store.claimed("ann", "two") == [second]
    assert await store.claimed("ann", "three") == []
    assert await store.claimed("bob", "one") == []


async def test_a_claim_without_an_id_is_not_found_by_one(store: Store) -> None:
    await add_one(store)
    job = await claim_one(store, claim_id="one")
    await settle(store, job, HandedBack())
    await claim_one(store)
    assert await store.claimed("ann", "one") == []


async def test_a_job_that_was_settled_or_has_lapsed_is_not_claimed_any_more(store: Store, clock: TestClock) -> None:
    await add_ids(store, {}, {})
    settled, left = (await claim(store, claim_id="one")).jobs
    await settle(store, settled, DONE)
    clock.turn(LEASE.total_seconds(), ms=-1)
    assert await store.claimed("ann", "one") == [left]
    assert [job.lease for job in await store.leased("ann")] == [left.lease]
    clock.turn(ms=1)
    assert await store.claimed("ann", "one") == []
    assert await store.leased("ann") == []
    assert await store.leased("ann", [left.lease]) == []


async def test_the_leases_of_a_worker_are_its_own(store: Store, clock: TestClock) -> None:
    await add_ids(store, {"type": "a", "max_retries": 7, "retry_delay": seconds(9)}, {"timeout": seconds(60)}, {})
    first = await claim_one(store)
    clock.turn(3)
    second = await claim_one(store)
    other = await claim_one(store, worker="bob")
    leased = await store.leased("ann")
    assert [job.lease for job in leased] == [first.lease, second.lease]
    assert [job.leased_for for job in leased] == [seconds(3), seconds(0)]
    assert (leased[0].type, leased[0].retry_state) == ("a", RetryState(1, 7, seconds(9)))
    assert [job.timeout for job in leased] == [None, seconds(60)]
    asked = [second.lease, other.lease, Lease(first.lease.id, 2), *(Lease(id, 1) for id in NO_IDS)]
    assert [job.lease for job in await store.leased("ann", asked)] == [second.lease]
    assert await store.leased("ann", []) == []
    assert await store.leased("nobody") == []


async def test_reading_leases_writes_nothing(store: Store) -> None:
    await add_one(store)
    job = await claim_one(store, claim_id="one")
    before = await job_of(store, job.lease.id)
    await store.claimed("ann", "one")
    await store.leased("ann")
    assert await job_of(store, job.lease.id) == before

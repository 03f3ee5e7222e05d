"""lease_status: what a worker must know of the jobs it runs, without writing anything."""

from demora.core.verdict import HandedBack
from demora.store.jobs import Lease, LeaseStatus
from demora.store.store import Store
from tests.builders import LEASE, NO_IDS, add_ids, add_one, claim, claim_one, job_of, run_one, settle
from tests.clock import TestClock


async def test_silence_while_leases_hold_and_nobody_wishes(store: Store) -> None:
    await add_ids(store, {}, {})
    jobs = (await claim(store)).jobs
    assert await store.lease_status([job.lease for job in jobs]) == LeaseStatus(frozenset(), frozenset())
    assert await store.lease_status([]) == LeaseStatus(frozenset(), frozenset())


async def test_a_wish_to_cancel_is_heard(store: Store) -> None:
    cancel_requested, _ = await add_ids(store, {}, {})
    jobs = (await claim(store)).jobs
    await store.cancel([cancel_requested])
    assert await store.lease_status([job.lease for job in jobs]) == LeaseStatus(frozenset(), frozenset({jobs[0].lease}))


async def test_a_lapsed_lease_is_lost(store: Store, clock: TestClock) -> None:
    await add_one(store)
    job = await claim_one(store)
    clock.turn(LEASE.total_seconds(), ms=-1)
    assert (await store.lease_status([job.lease])).lost == frozenset()
    clock.turn(ms=1)
    assert (await store.lease_status([job.lease])).lost == {job.lease}


async def test_a_lease_that_another_took_over_is_lost_with_its_wishes(store: Store) -> None:
    await add_one(store)
    old = await claim_one(store)
    await settle(store, old, HandedBack())
    new = await claim_one(store, worker="bob")
    await store.cancel([new.lease.id])
    assert await store.lease_status([old.lease]) == LeaseStatus(frozenset({old.lease}), frozenset())
    assert await store.lease_status([new.lease]) == LeaseStatus(frozenset(), frozenset({new.lease}))


async def test_ended_jobs_and_ids_that_are_no_ids_are_lost(store: Store) -> None:
    await add_one(store)
    ended = await run_one(store)
    leases = [Lease(id, 1) for id in [ended, *NO_IDS]]
    assert (await store.lease_status(leases)).lost == frozenset(leases)


async def test_reading_the_status_writes_nothing(store: Store, clock: TestClock) -> None:
    await add_one(store)
    job = await claim_one(store)
    before = await job_of(store, job.lease.id)
    await store.lease_status([job.lease])
    assert await job_of(store, job.lease.id) == before

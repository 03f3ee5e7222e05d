"""purge: jobs that ended long ago go, a limited number at a time; so do keys that expired."""

from demora.core.states import Status
from demora.store.jobs import Query
from demora.store.store import Store
from tests.builders import add_one, claim_one, ended_one, job_of, key, seconds
from tests.clock import TestClock


async def left(store: Store) -> set[str]:
    return {job.id for job in (await store.find(Query(limit=200))).jobs}


async def purge(store: Store, status: Status, **changes) -> int:
    return await store.purge(status, **{"older_than": seconds(60), "limit": 100, **changes})


async def test_what_ended_so_long_ago_goes_and_the_rest_stays(store: Store, clock: TestClock) -> None:
    await ended_one(store, Status.COMPLETED)
    clock.turn(ms=1)
    young = await ended_one(store, Status.COMPLETED)
    clock.turn(60, ms=-1)
    assert await purge(store, Status.COMPLETED) == 1
    assert await left(store) == {young}


async def test_only_the_status_asked_for_goes(store: Store, clock: TestClock) -> None:
    completed, _, cancelled = [
        await ended_one(store, status) for status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED)
    ]
    clock.turn(60)
    assert await purge(store, Status.FAILED) == 1
    assert await left(store) == {completed, cancelled}


async def test_age_counts_from_the_end(store: Store, clock: TestClock) -> None:
    await add_one(store)
    clock.turn(3600)
    assert await ended_one(store, Status.COMPLETED)
    assert await purge(store, Status.COMPLETED) == 0


async def test_jobs_that_have_not_ended_are_never_purged(store: Store, clock: TestClock) -> None:
    await add_one(store)
    await claim_one(store)
    await add_one(store)
    clock.turn(3600)
    assert [await purge(store, status) for status in (Status.QUEUED, Status.PROCESSING)] == [0, 0]
    assert len(await left(store)) == 2


async def test_no_more_than_the_limit_goes_at_once(store: Store, clock: TestClock) -> None:
    for _ in range(5):
        await ended_one(store, Status.COMPLETED)
    clock.turn(60)
    assert [await purge(store, Status.COMPLETED, limit=2) for _ in range(4)] == [2, 2, 1, 0]


async def test_a_purge_can_be_kept_to_one_queue(store: Store, clock: TestClock) -> None:
    kept = await ended_one(store, Status.COMPLETED, queue="a")
    await ended_one(store, Status.COMPLETED, queue="b")
    clock.turn(60)
    assert await purge(store, Status.COMPLETED, queue="b") == 1
    assert await left(store) == {kept}


async def test_a_purge_takes_expired_keys_and_leaves_the_others(store: Store, clock: TestClock) -> None:
    await add_one(store, key=key("short", kept=seconds(60)))
    kept = await add_one(store, key=key("long", kept=seconds(61)))
    clock.turn(60)
    assert await purge(store, Status.COMPLETED) == 0
    assert (await add_one(store, key=key("long"))).id == kept.id
    assert not (await add_one(store, key=key("short"))).replayed


async def test_a_job_that_was_retried_by_hand_is_no_longer_old(store: Store, clock: TestClock) -> None:
    id = await ended_one(store, Status.FAILED)
    clock.turn(3600)
    await store.retry([id])
    assert await purge(store, Status.FAILED) == 0
    assert (await job_of(store, id)).generation == 2

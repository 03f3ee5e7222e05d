"""housekeep: what becomes of jobs of types that no live worker knows."""

from demora.core.retention import Retention
from demora.core.states import Status
from demora.core.workers import WorkerRecord
from demora.store.jobs import HousekeepingResult
from demora.store.store import Store
from tests.builders import add_ids, add_one, claim, claim_ids, job_of, ms, seconds, status_of
from tests.clock import TestClock

MAIL = frozenset({"mail"})
HOUR = 3600


async def beat(store: Store, id: str = "ann", *types: str, queues: tuple[str, ...] = ()) -> None:
    await store.heartbeat(WorkerRecord(id, "host", 1, 4, queues=queues, types=types))


async def housekeep(store: Store, limit: int = 100) -> HousekeepingResult:
    return await store.housekeep(Retention(), limit=limit)


async def parked(store: Store, **changes: object) -> str:
    """A job that a live worker without a handler for it has passed over."""
    added = await add_one(store, type="report", **changes)
    await beat(store, "ann", "mail")
    await claim(store, types=MAIL)
    return added.id


async def after(store: Store, clock: TestClock, seconds: float) -> HousekeepingResult:
    """Turn the clock while the worker lives on."""
    clock.turn(seconds)
    await beat(store, "ann", "mail")
    return await housekeep(store)


async def test_a_job_fails_when_no_live_worker_has_known_its_type_for_an_hour(store: Store, clock: TestClock) -> None:
    id = await parked(store)
    first = await housekeep(store)
    assert (first.failed, first.unknown_types, first.next_in) == (0, {"report"}, seconds(HOUR))
    almost = await after(store, clock, HOUR - 1)
    assert (almost.failed, almost.next_in) == (0, seconds(1))
    assert (await after(store, clock, 1)).failed == 1
    job = await job_of(store, id)
    assert (job.status, job.token, job.attempt, job.completed_at) == (Status.FAILED, 0, 0, clock.now())
    assert job.error is not None
    assert job.error.startswith("UnknownType")
    assert (await housekeep(store)).unknown_types == frozenset()


async def test_a_parked_job_fails_also_if_every_worker_knew_its_type_for_a_while(store: Store, clock: TestClock) -> None:
    id = await parked(store)
    await store.retire("ann")
    await beat(store, "bob", "mail", "report")
    assert (await housekeep(store)).unknown_types == frozenset()
    await store.retire("bob")
    await beat(store, "ann", "mail")
    assert (await housekeep(store)).unknown_types == {"report"}
    assert (await after(store, clock, HOUR)).failed == 1
    assert await status_of(store, id) is Status.FAILED


async def test_each_job_has_an_hour_of_its_own(store: Store, clock: TestClock) -> None:
    old = await parked(store)
    await after(store, clock, HOUR / 2)
    young = await parked(store)
    await after(store, clock, HOUR / 2)
    assert [await status_of(store, id) for id in (old, young)] == [Status.FAILED, Status.QUEUED]


async def test_a_live_worker_that_knows_the_type_starts_the_hour_anew(store: Store, clock: TestClock) -> None:
    id = await parked(store)
    await after(store, clock, HOUR - 1)
    await beat(store, "bob", "report")
    assert (await housekeep(store)).unknown_types == frozenset()
    await store.retire("bob")
    assert (await after(store, clock, 1)).failed == 0
    assert await status_of(store, id) is Status.QUEUED
    assert (await after(store, clock, HOUR)).failed == 1


async def test_a_worker_of_another_queue_does_not_help(store: Store, clock: TestClock) -> None:
    await parked(store)
    clock.turn(HOUR)
    await beat(store, "bob", "report", queues=("elsewhere",))
    await beat(store, "ann", "mail")
    assert (await housekeep(store)).failed == 1


async def test_without_a_live_worker_nothing_is_unknown(store: Store, clock: TestClock) -> None:
    await parked(store)
    clock.turn(HOUR * 2)
    result = await housekeep(store)
    assert (result.failed, result.unknown_types) == (0, frozenset())
    assert (await after(store, clock, 0)).failed == 0  # the hour begins with the worker


async def test_no_more_than_the_limit_fails_at_once(store: Store, clock: TestClock) -> None:
    await add_ids(store, *[{"type": "report"} for _ in range(5)])
    await parked(store)
    clock.turn(HOUR)
    await beat(store, "ann", "mail")
    results = [await housekeep(store, limit=4), await housekeep(store, limit=4)]
    assert [result.failed for result in results] == [4, 2]
    assert results[0].next_in == ms(0)


async def test_the_end_of_an_unknown_job_is_told_to_its_webhook(store: Store, clock: TestClock) -> None:
    id = await parked(store, webhook_url="https://example.com/hook")
    await after(store, clock, HOUR)
    [delivery] = await store.webhooks.deliveries(id)
    assert await claim_ids(store) == [delivery.id]


async def test_a_job_that_failed_so_can_be_retried_by_hand(store: Store, clock: TestClock) -> None:
    id = await parked(store)
    await after(store, clock, HOUR)
    assert [answer.did for answer in await store.retry([id])] == [True]
    assert await claim_ids(store, types=frozenset({"report"})) == [id]

"""subscribe: whatever happens after the look ends the wait, in this process or another."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from demora.core.job import Unique
from demora.core.states import Status
from demora.core.verdict import Cancelled, HandedBack, Raised, Snoozed
from demora.line import maintainer as maintaining
from demora.store.jobs import Change, ClaimRequest, QueueChange, Topic
from demora.store.store import Store
from tests.builders import BROKEN, DONE, LEASE, add_one, claim_one, ended_one, ms, new_job, seconds, settle, settle_lapsed
from tests.clock import TestClock
from tests.setups import NOTIFIERS

Waiting = asyncio.Task[None]
SOON = 2.0  # seconds: well before any safety net


@pytest.fixture(autouse=True)
def no_safety_net(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that stands still looks like a machine that slept, for which sleepers wake, and whoever looks after a line may
    wake them for nothing; here only wake-ups may do it."""
    look_at_clock(monkeypatch, every=60.0)
    monkeypatch.setattr(maintaining, "TICK", 60.0)


def look_at_clock(monkeypatch: pytest.MonkeyPatch, *, every: float, step: int = 60_000) -> None:
    for sleepers in NOTIFIERS:
        monkeypatch.setattr(sleepers, "CLOCK_LOOK", every)
        monkeypatch.setattr(sleepers, "CLOCK_STEP", step)


@asynccontextmanager
async def asleep(store: Store, topic: Topic = Topic.READY) -> AsyncIterator[Waiting]:
    """A sleeper that subscribed, looked and now waits."""
    with store.subscribe(topic) as place:
        place.clear()
        await store.queues()
        waiting = asyncio.create_task(place.wait(None))
        try:
            yield waiting
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)


async def woken(waiting: Waiting) -> None:
    async with asyncio.timeout(SOON):
        await waiting


async def still_asleep(store: Store, waiting: Waiting) -> None:
    for _ in range(3):
        await store.queues()
    assert not waiting.done()


async def test_a_ready_job_wakes_sleepers(store: Store) -> None:
    async with asleep(store) as waiting:
        await add_one(store)
        await woken(waiting)


async def test_ready_jobs_of_one_call_wake_sleepers(store: Store) -> None:
    async with asleep(store) as waiting:
        await store.add([new_job(), new_job()])
        await woken(waiting)


async def test_a_wake_up_between_the_look_and_the_wait_is_not_missed(store: Store) -> None:
    with store.subscribe(Topic.READY) as place:
        place.clear()
        await store.queues()
        await add_one(store)
        await asyncio.wait_for(place.wait(None), SOON)


async def test_clearing_forgets_earlier_wake_ups(store: Store) -> None:
    with store.subscribe(Topic.READY) as place:
        await add_one(store)
        place.clear()
        waiting = asyncio.create_task(place.wait(None))
        await still_asleep(store, waiting)
        await add_one(store)
        await woken(waiting)


async def test_the_earliest_job_of_a_call_decides_whether_sleepers_wake(store: Store) -> None:
    await add_one(store, delay=seconds(7))
    async with asleep(store) as waiting:
        await store.add([new_job(delay=seconds(5)), new_job(delay=seconds(10))])
        await woken(waiting)


@pytest.mark.parametrize("topic", Topic)
async def test_closing_wakes_sleepers(store: Store, topic: Topic) -> None:
    async with asleep(store, topic) as waiting:
        await store.close()
        await woken(waiting)


async def test_a_sleeper_can_be_woken_from_within(store: Store) -> None:
    with store.subscribe(Topic.READY) as place:
        place.clear()
        place.wake()
        await asyncio.wait_for(place.wait(None), SOON)


async def test_a_wait_ends_after_its_timeout(store: Store) -> None:
    with store.subscribe(Topic.READY) as place:
        for timeout in (0, 0.01):
            await asyncio.wait_for(place.wait(timeout), SOON)


async def test_a_new_head_wakes_sleepers_and_a_later_job_does_not(store: Store) -> None:
    await add_one(store, delay=seconds(60))
    async with asleep(store) as waiting:
        await add_one(store, delay=seconds(61))
        await store.add([])
        await still_asleep(store, waiting)
        await add_one(store, delay=seconds(59))
        await woken(waiting)


async def test_the_first_delayed_job_is_a_head(store: Store) -> None:
    async with asleep(store) as waiting:
        await add_one(store, delay=seconds(3600))
        await woken(waiting)


async def test_a_refused_add_wakes_nobody(store: Store) -> None:
    async with asleep(store) as waiting:
        bad, _ = await asyncio.gather(add_one(store, payload=b"\xff"), store.queues(), return_exceptions=True)
        assert isinstance(bad, UnicodeDecodeError)
        await still_asleep(store, waiting)


async def test_a_resumed_queue_wakes_sleepers(store: Store) -> None:
    await store.set_queue("default", QueueChange(paused=True))
    async with asleep(store) as waiting:
        await store.set_queue("default", QueueChange(paused=False))
        await woken(waiting)


async def test_a_retry_by_hand_wakes_sleepers(store: Store) -> None:
    id = await ended_one(store, Status.FAILED)
    async with asleep(store) as waiting:
        await store.retry([id])
        await woken(waiting)


async def test_a_job_brought_forward_wakes_sleepers(store: Store, clock: TestClock) -> None:
    await add_one(store, delay=seconds(60))
    moved = await add_one(store, delay=seconds(3600))
    async with asleep(store) as waiting:
        await store.change(moved.id, Change(at=clock.now() + seconds(1800)))
        await still_asleep(store, waiting)
        await store.change(moved.id, Change(at=clock.now() + seconds(59)))
        await woken(waiting)


async def test_a_job_that_is_made_ready_wakes_sleepers_although_others_are_ready(store: Store, clock: TestClock) -> None:
    """A sleeper that cannot run those may be able to run this one."""
    moved = await add_one(store, delay=seconds(3600))
    await add_one(store, delay=seconds(1))
    clock.turn(2)
    async with asleep(store) as waiting:
        await store.change(moved.id, Change(at=clock.now()))
        await woken(waiting)


@pytest.mark.parametrize("outcome", [HandedBack(), Raised("no"), Snoozed(ms(0)), Snoozed(seconds(60))])
async def test_a_job_that_waits_again_wakes_sleepers(store: Store, outcome) -> None:
    await add_one(store)
    job = await claim_one(store)
    async with asleep(store) as waiting:
        await settle(store, job, outcome)
        await woken(waiting)


async def test_a_settled_lapse_wakes_sleepers(store: Store, clock: TestClock) -> None:
    await add_one(store)
    await claim_one(store)
    clock.turn(LEASE.total_seconds())
    async with asleep(store) as waiting:
        await settle_lapsed(store)
        await woken(waiting)


@pytest.mark.parametrize("outcome", [DONE, BROKEN, Cancelled("no need")])
async def test_an_ended_job_wakes_those_who_wait_for_ends_and_no_others(store: Store, outcome) -> None:
    await add_one(store)
    job = await claim_one(store)
    async with asleep(store, Topic.ENDED) as waiting, asleep(store) as idle:
        await settle(store, job, outcome)
        await woken(waiting)
        await still_asleep(store, idle)


async def test_a_cancelled_job_wakes_those_who_wait_for_ends(store: Store) -> None:
    added = await add_one(store, delay=seconds(60))
    async with asleep(store, Topic.ENDED) as waiting:
        await store.cancel([added.id])
        await woken(waiting)


async def test_a_new_job_does_not_wake_those_who_wait_for_ends(store: Store) -> None:
    async with asleep(store, Topic.ENDED) as waiting:
        await add_one(store)
        await still_asleep(store, waiting)


async def test_a_lost_settlement_wakes_nobody(store: Store, clock: TestClock) -> None:
    await add_one(store)
    job = await claim_one(store)
    clock.turn(LEASE.total_seconds())
    async with asleep(store) as ready, asleep(store, Topic.ENDED) as ended:
        assert await store.settle([]) == []
        assert await settle(store, job, DONE) is None
        assert await settle(store, job, Raised("no")) is None
        await still_asleep(store, ready)
        await still_asleep(store, ended)


async def test_all_sleepers_are_woken(store: Store) -> None:
    async with asleep(store) as one, asleep(store) as other:
        await add_one(store)
        await woken(one)
        await woken(other)


async def test_a_sleeper_notices_a_stepped_clock(store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch) -> None:
    look_at_clock(monkeypatch, every=0.95)
    async with asleep(store) as waiting:
        await still_asleep(store, waiting)
        clock.step_wall(3600)
        await woken(waiting)


async def test_a_sleeper_notices_that_the_machine_slept(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_at_clock(monkeypatch, every=0.95)
    async with asleep(store) as waiting:
        await still_asleep(store, waiting)
        clock.turn(3600)  # both clocks of the host count a sleep; the loop's does not
        await woken(waiting)


async def ready(store: Store) -> None:
    await add_one(store)


async def ended(store: Store) -> None:
    await store.cancel([(await add_one(store, delay=seconds(60))).id])


@pytest.mark.parametrize(("topic", "happens"), [(Topic.READY, ready), (Topic.ENDED, ended)], ids=["ready", "ended"])
async def test_sleepers_of_another_store_are_woken(
    pair: tuple[Store, Store], topic: Topic, happens: Callable[[Store], Awaitable[None]]
) -> None:
    one, other = pair
    async with asleep(one, topic) as waiting:
        await happens(other)
        await woken(waiting)


async def test_a_wake_up_of_another_store_between_the_look_and_the_wait_is_not_missed(pair: tuple[Store, Store]) -> None:
    one, other = pair
    with one.subscribe(Topic.READY) as place:
        place.clear()
        await one.queues()
        await add_one(other)
        await asyncio.wait_for(place.wait(None), SOON)


async def test_a_later_job_in_another_store_wakes_nobody(pair: tuple[Store, Store]) -> None:
    one, other = pair
    await add_one(one, delay=seconds(60))  # by its own store, so that nothing is on its way when the other sleeps
    async with asleep(one) as waiting:
        await add_one(other, delay=seconds(61))
        await still_asleep(one, waiting)


async def test_a_unique_job_that_is_replaced_to_be_ready_wakes_sleepers(store: Store) -> None:
    await add_one(store, unique=Unique("k"), delay=seconds(60))
    async with asleep(store) as waiting:
        await add_one(store, unique=Unique("k", replace=True))
        await woken(waiting)


async def test_a_unique_job_that_is_kept_wakes_nobody(store: Store) -> None:
    await add_one(store, unique=Unique("k"), delay=seconds(60))
    async with asleep(store) as waiting:
        await add_one(store, unique=Unique("k"))
        await still_asleep(store, waiting)


async def test_whoever_waits_for_the_end_of_a_job_hears_of_its_expiry(store: Store, clock: TestClock) -> None:
    await add_one(store, expires_in=seconds(1))
    clock.turn(1)
    async with asleep(store, Topic.ENDED) as waiting:
        await store.claim(ClaimRequest("ann", 1, lease=LEASE))
        await woken(waiting)


async def test_a_job_that_expires_before_all_others_wakes_who_waits_for_expiries(store: Store) -> None:
    await add_one(store, expires_in=seconds(60))
    async with asleep(store, Topic.EXPIRY) as waiting:
        await add_one(store, expires_in=seconds(30))
        await woken(waiting)


async def test_a_job_that_expires_after_another_wakes_nobody(store: Store) -> None:
    await add_one(store, expires_in=seconds(30))
    async with asleep(store, Topic.EXPIRY) as waiting:
        await add_one(store, expires_in=seconds(60))
        await add_one(store)
        await still_asleep(store, waiting)

"""heartbeat, retire and workers: the registry."""

import msgspec

from demora.core.workers import WorkerRecord
from demora.store.store import Store
from tests.builders import seconds
from tests.clock import TestClock

ANN = WorkerRecord("ann", "host-a", 11, slots=8, queues=("mail", "default"), types=("a.b", "c.d"))
BOB = WorkerRecord("bob", "host-b", 12, slots=1)


async def test_a_worker_is_listed_as_it_registered_itself(store: Store, clock: TestClock) -> None:
    await store.heartbeat(BOB)
    await store.heartbeat(ANN)
    assert await store.workers() == [msgspec.structs.replace(worker, started_at=clock.now()) for worker in (ANN, BOB)]


async def test_a_heartbeat_renews_the_age_and_keeps_the_start(store: Store, clock: TestClock) -> None:
    await store.heartbeat(ANN)
    started = clock.now()
    clock.turn(7)
    assert [worker.heartbeat_ago for worker in await store.workers()] == [seconds(7)]
    await store.heartbeat(msgspec.structs.replace(ANN, slots=3, queues=("reports",), types=("e.f",)))
    [worker] = await store.workers()
    assert (worker.heartbeat_ago, worker.started_at) == (seconds(0), started)
    assert (worker.slots, worker.queues, worker.types) == (3, ("reports",), ("e.f",))


async def test_a_jump_of_the_wall_clock_ages_nobody(steady: Store, clock: TestClock) -> None:
    await steady.heartbeat(ANN)
    clock.step_wall(7200)
    assert [worker.heartbeat_ago for worker in await steady.workers()] == [seconds(0)]


async def test_a_retired_worker_is_forgotten(store: Store) -> None:
    await store.heartbeat(ANN)
    await store.heartbeat(BOB)
    await store.retire("ann")
    await store.retire("ann")
    assert [worker.id for worker in await store.workers()] == ["bob"]


async def test_workers_are_seen_through_any_store(pair: tuple[Store, Store]) -> None:
    one, other = pair
    await one.heartbeat(ANN)
    assert [worker.id for worker in await other.workers()] == ["ann"]

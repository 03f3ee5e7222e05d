"""open and close: connecting, finishing what is under way, and who may come back."""

import asyncio
from pathlib import Path

import pytest

from demora.core.states import Status
from demora.core.verdict import Lapsed
from demora.core.workers import WorkerRecord
from demora.errors import StoreClosed
from demora.store.jobs import Query
from demora.store.store import Store
from tests.builders import DONE, add_one, claim, claim_one, lapsed_one, new_job, settle, status_of
from tests.clock import TestClock
from tests.conformance.conftest import opened
from tests.setups import BOOTING_SETUPS, SHARED_SETUPS, Setup

shared = pytest.mark.parametrize("place", SHARED_SETUPS, ids=lambda setup: setup.name)
booting = pytest.mark.parametrize("place", [s for s in BOOTING_SETUPS if s.shared], ids=lambda setup: setup.name)


async def test_opening_twice_is_opening_once(store: Store) -> None:
    added = await add_one(store)
    await store.open()
    assert await store.get(added.id)


async def test_a_store_that_is_not_open_refuses_every_verb(setup: Setup, tmp_path: Path, clock: TestClock) -> None:
    closed = setup.make(tmp_path, clock)
    with pytest.raises(StoreClosed):
        await closed.add([new_job()])
    with pytest.raises(StoreClosed):
        await closed.find(Query())


async def test_a_closed_store_refuses_and_may_be_closed_again(store: Store) -> None:
    await store.close()
    await store.close()
    with pytest.raises(StoreClosed):
        await store.add([new_job()])


async def test_closing_finishes_the_writes_under_way(store: Store) -> None:
    *added, _ = await asyncio.gather(*(store.add([new_job()]) for _ in range(50)), store.close())
    assert len(added) == 50


async def test_a_store_can_be_opened_again_and_knows_its_queues(store: Store) -> None:
    await add_one(store, queue="mail")
    await store.close()
    await store.open()
    await add_one(store, queue="mail")
    assert [queue.name for queue in await store.queues()] == ["mail"]


@shared
async def test_jobs_outlive_the_store_that_added_them(place: Setup, tmp_path: Path, clock: TestClock) -> None:
    async with opened(place, tmp_path, clock) as before:
        added = await add_one(before)
    async with opened(place, tmp_path, clock) as after:
        assert (await claim_one(after)).lease.id == added.id


@shared
async def test_leases_outlive_the_store_on_the_same_boot(place: Setup, tmp_path: Path, clock: TestClock) -> None:
    async with opened(place, tmp_path, clock) as before:
        await add_one(before)
        job = await claim_one(before)
    async with opened(place, tmp_path, clock) as after:
        assert not (await claim(after)).lapsed
        assert await settle(after, job, DONE) is Status.COMPLETED


@booting
async def test_a_new_boot_lapses_all_leases(place: Setup, tmp_path: Path, clock: TestClock) -> None:
    async with opened(place, tmp_path, clock) as before:
        added = await add_one(before)
        job = await claim_one(before)
    clock.reboot()
    async with opened(place, tmp_path, clock) as after:
        lapsed = await lapsed_one(after)
        assert lapsed.lease == job.lease
        assert await settle(after, job, DONE) is None
        assert await settle(after, lapsed, Lapsed(lapsed.worker_id)) is Status.RETRYING
        assert await status_of(after, added.id) is Status.RETRYING


@booting
async def test_no_worker_of_an_earlier_boot_is_listed(place: Setup, tmp_path: Path, clock: TestClock) -> None:
    async with opened(place, tmp_path, clock) as before:
        await before.heartbeat(WorkerRecord("ann", "host", 1, slots=4))
    clock.reboot()
    async with opened(place, tmp_path, clock) as after:
        assert await after.workers() == []


async def test_two_stores_on_one_place_hand_out_each_job_once(pair: tuple[Store, Store]) -> None:
    added = await pair[0].add([new_job() for _ in range(200)])
    claims = await asyncio.gather(*(claim(store, 10) for store in pair for _ in range(10)))
    taken = [job.lease.id for claimed in claims for job in claimed.jobs]
    assert sorted(taken) == sorted(job.id for job in added)


async def test_a_sibling_is_another_store_on_the_same_jobs(setup: Setup, store: Store) -> None:
    sibling = store.sibling()
    assert (sibling is not None) == setup.shared
    if sibling is not None:
        added = await add_one(store)
        await sibling.open()
        assert (await claim_one(sibling)).lease.id == added.id
        await sibling.close()
        assert await status_of(store, added.id) is Status.PROCESSING

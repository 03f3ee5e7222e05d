"""restore: the cancel of a waiting job is undone, and everything about it is as it was."""

import pytest

from demora.core.retention import Retention
from demora.core.states import Status
from demora.core.verdict import Cancelled, Raised
from demora.store.jobs import Answer
from demora.store.store import Store
from tests.builders import (
    BROKEN,
    DONE,
    NO_IDS,
    add_one,
    claim_ids,
    claim_one,
    job_of,
    new_job,
    seconds,
    settle,
    status_of,
    without,
)
from tests.clock import TestClock

WITHIN = seconds(30)
CHANGED = ("generation",)


async def cancelled(store: Store, **changes: object) -> str:
    added = await add_one(store, **changes)
    assert await store.cancel([added.id]) == [Answer(True, Status.CANCELLED)]
    return added.id


async def test_a_restored_job_is_as_it_was_before_the_cancel(store: Store, clock: TestClock) -> None:
    added = await add_one(store, delay=seconds(3600), expires_in=seconds(7200), tags=("vip",))
    before = await job_of(store, added.id)
    await store.cancel([added.id])
    clock.turn(29)
    assert await store.restore(added.id, within=WITHIN) == Answer(True, Status.QUEUED)
    after = await job_of(store, added.id)
    assert without(after, *CHANGED) == without(before, *CHANGED)
    assert after.generation == before.generation + 1


async def test_a_restored_job_runs_when_it_is_due_and_not_before(store: Store, clock: TestClock) -> None:
    id = await cancelled(store, delay=seconds(60))
    await store.restore(id, within=WITHIN)
    assert await claim_ids(store) == []
    clock.turn(60)
    assert await claim_ids(store) == [id]


async def test_a_restored_retry_keeps_its_error_and_its_attempts(store: Store, clock: TestClock) -> None:
    await store.add([new_job(max_retries=3, retry_delay=seconds(60))])
    job = await claim_one(store)
    await settle(store, job, Raised("ValueError: no"))
    before = await job_of(store, job.lease.id)
    assert before.status is Status.RETRYING
    await store.cancel([before.id])
    assert await store.restore(before.id, within=WITHIN) == Answer(True, Status.RETRYING)
    assert without(await job_of(store, before.id), *CHANGED) == without(before, *CHANGED)
    clock.turn(120)
    again = await claim_one(store)
    assert again.retry_state.attempt == 2
    assert await settle(store, again, DONE) is Status.COMPLETED


async def test_after_the_time_a_cancel_stands(store: Store, clock: TestClock) -> None:
    id = await cancelled(store, delay=seconds(3600))
    clock.turn(30)
    assert await store.restore(id, within=WITHIN) == Answer(False, Status.CANCELLED)
    assert await status_of(store, id) is Status.CANCELLED


async def test_a_job_that_was_cancelled_while_it_ran_is_not_restored(store: Store) -> None:
    await add_one(store)
    job = await claim_one(store)
    await store.cancel([job.lease.id])
    assert await settle(store, job, Raised("ValueError: no")) is Status.CANCELLED
    assert await store.restore(job.lease.id, within=WITHIN) == Answer(False, Status.CANCELLED)


@pytest.mark.parametrize("ends", [True, False])
async def test_a_job_that_was_not_cancelled_is_not_restored(store: Store, ends: bool) -> None:
    added = await add_one(store)
    if ends:
        await settle(store, await claim_one(store), DONE)
    status = await status_of(store, added.id)
    assert await store.restore(added.id, within=WITHIN) == Answer(False, status)


@pytest.mark.parametrize("expires", [True, False])
async def test_a_job_that_was_cancelled_by_itself_is_not_restored(store: Store, clock: TestClock, expires: bool) -> None:
    """It expired, or its handler gave it up."""
    added = await add_one(store, expires_in=seconds(1) if expires else None)
    if expires:
        clock.turn(1)
        await store.housekeep(Retention(), limit=10)
    else:
        await settle(store, await claim_one(store), Cancelled("no need"))
    assert await status_of(store, added.id) is Status.CANCELLED
    assert await store.restore(added.id, within=WITHIN) == Answer(False, Status.CANCELLED)


async def test_a_cancel_that_a_webhook_tells_of_stands(store: Store) -> None:
    told = await cancelled(store, delay=seconds(60), webhook_url="https://shop.example/hook", webhook_on_cancel=True)
    quiet = await cancelled(store, delay=seconds(60), webhook_url="https://shop.example/hook")
    assert await store.restore(told, within=WITHIN) == Answer(False, Status.CANCELLED)
    assert await store.restore(quiet, within=WITHIN) == Answer(True, Status.QUEUED)


async def test_a_webhook_that_told_of_an_earlier_end_keeps_no_cancel(store: Store, clock: TestClock) -> None:
    added = await add_one(store, webhook_url="https://shop.example/hook")
    await settle(store, await claim_one(store), BROKEN)
    clock.turn(1)
    await store.retry([added.id])
    await store.cancel([added.id])
    assert await store.restore(added.id, within=WITHIN) == Answer(True, Status.QUEUED)


async def test_a_cancel_is_undone_once(store: Store) -> None:
    id = await cancelled(store, delay=seconds(60))
    assert (await store.restore(id, within=WITHIN)).did
    assert await store.restore(id, within=WITHIN) == Answer(False, Status.QUEUED)


@pytest.mark.parametrize("id", NO_IDS)
async def test_no_job_has_this_id(store: Store, id: str) -> None:
    assert await store.restore(id, within=WITHIN) == Answer(False, None)

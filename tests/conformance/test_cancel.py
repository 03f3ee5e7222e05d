"""cancel: what waits ends at once; what runs is asked to, and only a success escapes."""

import pytest

from demora.core.states import Status
from demora.core.verdict import Cancelled, HandedBack, NoHandler, Raised, Snoozed
from demora.store.jobs import Answer
from demora.store.store import Store
from tests.builders import (
    BROKEN,
    DONE,
    LEASE,
    NO_IDS,
    NO_SUCH_ID,
    add_ids,
    add_one,
    claim,
    claim_ids,
    claim_one,
    ended_one,
    job_of,
    ms,
    seconds,
    settle,
    settle_lapsed,
)
from tests.clock import TestClock

DID = Answer(True, Status.CANCELLED)
CANCEL_REQUESTED = Answer(True, Status.PROCESSING)


@pytest.mark.parametrize("delay", [None, seconds(60)], ids=["ready", "delayed"])
async def test_a_waiting_job_is_cancelled_at_once_and_never_starts(store: Store, clock: TestClock, delay) -> None:
    added = await add_one(store, delay=delay)
    assert await store.cancel([added.id]) == [DID]
    clock.turn(3600)
    assert await claim_ids(store) == []
    job = await job_of(store, added.id)
    assert (job.status, job.attempts, job.token) == (Status.CANCELLED, (), 0)
    assert job.completed_at == clock.now() - seconds(3600)
    assert job.error


async def test_a_retrying_job_is_cancelled_at_once(store: Store, clock: TestClock) -> None:
    added = await add_one(store)
    await settle(store, await claim_one(store), Raised("no"))
    assert await store.cancel([added.id]) == [DID]
    clock.turn(60)
    assert await claim_ids(store) == []
    assert len((await job_of(store, added.id)).attempts) == 1


async def test_a_running_job_goes_on_with_the_wish_recorded(store: Store, clock: TestClock) -> None:
    added = await add_one(store)
    await claim_one(store)
    asked = clock.now()
    assert await store.cancel([added.id]) == [CANCEL_REQUESTED]
    clock.turn(1)
    assert await store.cancel([added.id]) == [CANCEL_REQUESTED]
    job = await job_of(store, added.id)
    assert (job.status, job.cancel_requested_at, job.completed_at) == (Status.PROCESSING, asked, None)


async def test_a_success_still_ends_completed(store: Store) -> None:
    added = await add_one(store)
    job = await claim_one(store)
    await store.cancel([added.id])
    assert await settle(store, job, DONE) is Status.COMPLETED
    assert (await job_of(store, added.id)).result == "done"


@pytest.mark.parametrize(
    ("outcome", "attempts"),
    [(Raised("no"), 1), (BROKEN, 1), (Cancelled("obeyed"), 1), (Snoozed(ms(0)), 0), (HandedBack(), 0), (NoHandler(), 0)],
    ids=lambda value: type(value).__name__,
)
async def test_anything_else_ends_cancelled(store: Store, clock: TestClock, outcome, attempts: int) -> None:
    added = await add_one(store)
    job = await claim_one(store)
    await store.cancel([added.id])
    assert await settle(store, job, outcome) is Status.CANCELLED
    after = await job_of(store, added.id)
    assert (after.status, after.completed_at, len(after.attempts)) == (Status.CANCELLED, clock.now(), attempts)
    assert (after.attempt, after.retry_count) == (attempts, 0)
    clock.turn(3600)
    assert await claim_ids(store) == []


async def test_the_error_of_a_cancelled_run_is_kept(store: Store) -> None:
    added = await add_one(store)
    job = await claim_one(store)
    await store.cancel([added.id])
    await settle(store, job, Raised("ValueError: no", "trace"))
    after = await job_of(store, added.id)
    [attempt] = after.attempts
    assert (after.error, attempt.error, attempt.traceback) == ("ValueError: no", "ValueError: no", "trace")


async def test_a_lapse_after_the_wish_ends_cancelled_without_a_new_attempt(store: Store, clock: TestClock) -> None:
    added = await add_one(store)
    await claim_one(store)
    await store.cancel([added.id])
    clock.turn(LEASE.total_seconds())
    assert await settle_lapsed(store) is Status.CANCELLED
    clock.turn(3600)
    assert await claim_ids(store) == []
    assert (await job_of(store, added.id)).attempt == 1


async def test_a_wish_after_the_lapse_still_counts(store: Store, clock: TestClock) -> None:
    added = await add_one(store)
    await claim_one(store)
    clock.turn(LEASE.total_seconds())
    assert await store.cancel([added.id]) == [CANCEL_REQUESTED]
    assert await settle_lapsed(store) is Status.CANCELLED


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
async def test_an_ended_job_stays_as_it_ended(store: Store, status: Status) -> None:
    id = await ended_one(store, status)
    before = await job_of(store, id)
    assert await store.cancel([id]) == [Answer(False, status)]
    assert await job_of(store, id) == before


async def test_many_are_cancelled_in_one_call_and_answered_in_order(store: Store) -> None:
    running, waiting = await add_ids(store, {}, {})
    await claim(store, 1)
    assert await store.cancel([waiting, NO_SUCH_ID, running, waiting]) == [
        DID,
        Answer(False, None),
        CANCEL_REQUESTED,
        Answer(False, Status.CANCELLED),
    ]


async def test_there_is_nothing_to_cancel_under_an_id_that_is_no_id(store: Store) -> None:
    assert await store.cancel(NO_IDS) == [Answer(False, None)] * len(NO_IDS)

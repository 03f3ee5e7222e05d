"""retry by hand: a new generation of a failed or cancelled job."""

import pytest

from demora.core.job import Lane
from demora.core.states import Status
from demora.core.verdict import HandedBack, Raised
from demora.store.jobs import Answer
from demora.store.store import Store
from tests.builders import (
    BROKEN,
    NO_IDS,
    NO_SUCH_ID,
    add_one,
    claim_ids,
    claim_one,
    ended_one,
    job_of,
    ms,
    run_one,
    seconds,
    settle,
)
from tests.clock import TestClock

DID = Answer(True, Status.QUEUED)
retryable = pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])


@retryable
async def test_a_retried_job_is_due_now_with_its_history_kept(store: Store, clock: TestClock, status: Status) -> None:
    id = await ended_one(store, status, delay=ms(0), tags=("t",))
    before = await job_of(store, id)
    clock.turn(3600)
    assert await store.retry([id]) == [DID]
    after = await job_of(store, id)
    assert (after.status, after.lane, after.due_at, after.generation) == (Status.QUEUED, Lane.RETRY, clock.now(), 2)
    assert (after.attempts, after.payload, after.tags) == (before.attempts, before.payload, before.tags)
    assert (after.created_at, after.scheduled_at) == (before.created_at, before.scheduled_at)
    assert (after.completed_at, after.error, after.result, after.started_at) == (None,) * 4
    assert await claim_ids(store) == [id]


@retryable
async def test_attempts_are_counted_anew_and_tokens_go_on(store: Store, status: Status) -> None:
    id = await ended_one(store, status)
    await store.retry([id])
    before = await job_of(store, id)
    job = await claim_one(store)
    assert (before.attempt, before.retry_count, before.token) == (0, 0, 1)
    assert (job.retry_state.attempt, job.retry_state.no_handler_claims, job.lease.token) == (1, 0, 2)


async def test_a_new_generation_has_made_no_progress(store: Store) -> None:
    added = await add_one(store)
    await settle(store, await claim_one(store), BROKEN, progress=0.5, message="half")
    await store.retry([added.id])
    after = await job_of(store, added.id)
    assert (after.progress, after.progress_message) == (None, None)


async def test_a_new_generation_has_all_its_retries(store: Store, clock: TestClock) -> None:
    added = await add_one(store, max_retries=1, retry_delay=ms(0))
    for _ in range(2):
        statuses = [await settle(store, await claim_one(store), Raised("no")) for _ in range(2)]
        assert statuses == [Status.RETRYING, Status.FAILED]
        await store.retry([added.id])
    assert [attempt.token for attempt in (await job_of(store, added.id)).attempts] == [1, 2, 3, 4]


async def test_an_old_wish_to_cancel_is_forgotten(store: Store) -> None:
    added = await add_one(store)
    job = await claim_one(store)
    await store.cancel([added.id])
    await settle(store, job, HandedBack())
    await store.retry([added.id])
    again = await claim_one(store)
    assert (await store.lease_status([again.lease])).cancel_requested == frozenset()
    assert await settle(store, again, Raised("no")) is Status.RETRYING


async def test_a_job_cancelled_before_its_time_is_due_at_once(store: Store) -> None:
    added = await add_one(store, delay=seconds(3600))
    await store.cancel([added.id])
    assert await store.retry([added.id]) == [DID]
    assert await claim_ids(store) == [added.id]
    assert (await job_of(store, added.id)).scheduled_at == added.scheduled_at


async def test_other_jobs_are_left_alone(store: Store) -> None:
    completed, running, waiting = await ended_one(store, Status.COMPLETED), await add_one(store), None
    await claim_one(store)
    waiting = await add_one(store)
    ids = [completed, running.id, waiting.id]
    before = [await job_of(store, id) for id in ids]
    statuses = [Status.COMPLETED, Status.PROCESSING, Status.QUEUED]
    assert await store.retry(ids) == [Answer(False, status) for status in statuses]
    assert [await job_of(store, id) for id in ids] == before


async def test_a_run_of_the_old_generation_cannot_settle_the_new_one(store: Store) -> None:
    added = await add_one(store)
    old = await claim_one(store)
    await settle(store, old, Raised("no", permanent=True))
    await store.retry([added.id])
    await claim_one(store)
    assert await settle(store, old, Raised("no", permanent=True)) is None


async def test_many_are_retried_in_one_call_and_answered_in_order(store: Store) -> None:
    await add_one(store)
    failed = await run_one(store, Raised("no", permanent=True))
    assert await store.retry([NO_SUCH_ID, failed, failed]) == [Answer(False, None), DID, Answer(False, Status.QUEUED)]
    assert await store.retry(NO_IDS) == [Answer(False, None)] * len(NO_IDS)


@retryable
async def test_a_job_is_retried_at_a_later_time(store: Store, clock: TestClock, status: Status) -> None:
    id = await ended_one(store, status)
    later = clock.now() + seconds(60)
    assert await store.retry([id], at=later) == [DID]
    job = await job_of(store, id)
    assert (job.status, job.lane, job.due_at) == (Status.QUEUED, Lane.RETRY, later)
    assert await claim_ids(store) == []
    clock.turn(60)
    assert await claim_ids(store) == [id]


async def test_a_retry_in_the_past_is_due_now(store: Store, clock: TestClock) -> None:
    id = await ended_one(store, Status.FAILED)
    await store.retry([id], at=clock.now() - seconds(60))
    assert (await job_of(store, id)).due_at == clock.now()

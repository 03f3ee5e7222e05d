"""claim: who gets which jobs, when, under which token, and when to come back."""

from datetime import timedelta

import pytest

from demora.core.action import RESUMED_TYPES
from demora.core.job import Priority
from demora.core.states import Status
from demora.core.verdict import HandedBack, Lapsed, Raised, Snoozed
from demora.store.jobs import QueueChange
from demora.store.store import Store
from tests.builders import (
    BROKEN,
    LEASE,
    add_ids,
    add_one,
    claim,
    claim_ids,
    claim_one,
    job_of,
    ms,
    new_job,
    run_one,
    seconds,
    settle,
    settle_lapsed,
    settlement,
    status_of,
)
from tests.clock import TestClock


async def test_a_claimed_job_carries_all_that_it_needs_to_run(store: Store) -> None:
    asked = new_job(type="a.b", name="N", queue="q", priority=Priority.LOW, tags=("x",), timeout=seconds(3), max_retries=5)
    [added] = await store.add([asked])
    job = await claim_one(store)
    assert (job.lease.id, job.type, job.name, job.queue, job.priority) == (asked.id, "a.b", "N", "q", Priority.LOW)
    assert (job.payload, job.tags, job.timeout) == (asked.payload, ("x",), seconds(3))
    assert job.scheduled_at == added.scheduled_at
    assert (job.retry_state.attempt, job.retry_state.max_retries, job.retry_state.retry_delay) == (1, 5, asked.retry_delay)


async def test_a_claimed_job_is_leased_to_its_worker(store: Store, clock: TestClock) -> None:
    added = await add_one(store)
    await claim(store, worker="bob", lease=seconds(7))
    job = await job_of(store, added.id)
    assert (job.status, job.worker_id, job.token) == (Status.PROCESSING, "bob", 1)
    assert job.lease_until == clock.now() + seconds(7)


async def test_a_claim_clears_the_progress_of_the_run_before(store: Store) -> None:
    added = await add_one(store, retry_delay=ms(0))
    await settle(store, await claim_one(store), Raised("no"), progress=0.5, message="half")
    await claim_one(store)
    after = await job_of(store, added.id)
    assert (after.progress, after.progress_message) == (None, None)


@pytest.mark.parametrize("type", sorted(RESUMED_TYPES))
@pytest.mark.parametrize("outcome", [Raised("no"), BROKEN])
async def test_a_job_of_a_resumed_type_keeps_the_message_of_its_last_run(store: Store, type: str, outcome: Raised) -> None:
    added = await add_one(store, type=type, retry_delay=ms(0))
    status = await settle(store, await claim_one(store), outcome, progress=0.5, message="half")
    if status is Status.FAILED:
        await store.retry([added.id])
    waiting = await job_of(store, added.id)
    assert waiting.progress_message == "half"
    await claim_one(store)
    after = await job_of(store, added.id)
    assert (after.progress, after.progress_message) == (None, "half")


async def test_no_more_than_the_limit_is_taken(store: Store) -> None:
    ids = await add_ids(store, {}, {}, {})
    assert await claim_ids(store, 0) == []
    assert await claim_ids(store, 2) == ids[:2]
    assert await claim_ids(store, 2) == ids[2:]


@pytest.mark.parametrize("wait", [ms(1), seconds(3600), timedelta(days=365)])
async def test_a_job_starts_when_it_is_due_and_not_a_millisecond_before(store: Store, clock: TestClock, wait) -> None:
    added = await add_one(store, delay=wait)
    clock.turn(wait.total_seconds(), ms=-1)
    assert await claim_ids(store) == []
    clock.turn(ms=1)
    assert await claim_ids(store) == [added.id]


async def test_a_job_behind_one_that_is_due_waits_for_its_own_time(store: Store, clock: TestClock) -> None:
    first, second = await add_ids(store, {"delay": ms(10)}, {"delay": ms(11)})
    clock.turn(ms=10)
    assert await claim_ids(store) == [first]
    clock.turn(ms=1)
    assert await claim_ids(store) == [second]


async def test_a_jump_of_the_wall_clock_makes_scheduled_jobs_due(store: Store, clock: TestClock) -> None:
    added = await add_one(store, delay=seconds(3600))
    clock.step_wall(3600)
    assert await claim_ids(store) == [added.id]


async def test_a_wall_clock_set_back_starts_nothing_early(store: Store, clock: TestClock) -> None:
    added = await add_one(store, delay=seconds(10))
    clock.turn(5)
    clock.step_wall(-3600)
    clock.turn(3604)
    assert await claim_ids(store) == []
    clock.turn(1)
    assert await claim_ids(store) == [added.id]


async def test_a_leased_job_is_not_handed_out_again(store: Store, clock: TestClock) -> None:
    await add_one(store)
    await claim_one(store)
    clock.turn(ms=29_999)
    claimed = await claim(store, worker="bob")
    assert (claimed.jobs, claimed.lapsed) == ([], [])


async def test_a_lapsed_job_is_shown_to_whoever_claims_but_not_handed_out(store: Store, clock: TestClock) -> None:
    await add_one(store, queue="q", max_retries=9)
    job = await claim_one(store, worker="ann")
    clock.turn(LEASE.total_seconds())
    claimed = await claim(store, worker="bob", queues=["other"])
    [lapsed] = claimed.lapsed
    assert claimed.jobs == []
    assert (lapsed.lease, lapsed.type, lapsed.worker_id, lapsed.retry_state) == (job.lease, job.type, "ann", job.retry_state)


@pytest.mark.parametrize("types", [None, frozenset({"demo.echo"})])
async def test_a_claim_of_no_jobs_returns_lapsed_leases_and_leases_none(
    store: Store, clock: TestClock, types: frozenset[str] | None
) -> None:
    await add_one(store)
    job = await claim_one(store)
    waiting = await add_one(store)
    clock.turn(LEASE.total_seconds())
    claimed = await claim(store, 0, types=types)
    assert claimed.jobs == []
    assert [lapsed.lease for lapsed in claimed.lapsed] == [job.lease]
    assert await status_of(store, waiting.id) is Status.QUEUED
    assert await claim_ids(store) == [waiting.id]


async def test_a_jump_of_the_wall_clock_lapses_nothing(steady: Store, clock: TestClock) -> None:
    await add_one(steady)
    await claim_one(steady)
    for jump in (7200, -14400):
        clock.step_wall(jump)
        assert (await claim(steady)).lapsed == []


async def test_a_paused_queue_hands_out_nothing(store: Store) -> None:
    held, other = await add_ids(store, {"queue": "held"}, {"queue": "other"})
    await store.set_queue("held", QueueChange(paused=True))
    assert await claim_ids(store) == [other]
    await store.set_queue("held", QueueChange(paused=False))
    assert await claim_ids(store) == [held]


async def test_only_the_queues_asked_for_are_served(store: Store) -> None:
    a, b, c = await add_ids(store, {"queue": "a"}, {"queue": "b"}, {"queue": "c"})
    assert await claim_ids(store, queues=[]) == []
    assert await claim_ids(store, queues=["c", "a", "unheard-of"]) == [a, c]
    assert await claim_ids(store) == [b]


async def test_tokens_grow_with_each_claim(store: Store, clock: TestClock) -> None:
    added = await add_one(store, retry_delay=ms(0))
    tokens = []
    for outcome in (Raised("no"), HandedBack(), Snoozed(ms(0)), Raised("no")):
        job = await claim_one(store)
        tokens.append(job.lease.token)
        await settle(store, job, outcome)
    assert tokens == [1, 2, 3, 4]
    assert (await job_of(store, added.id)).token == 4


async def test_attempts_are_claims_without_hand_backs_and_snoozes(store: Store, clock: TestClock) -> None:
    added = await add_one(store, retry_delay=ms(0))
    attempts = []
    for outcome in (HandedBack(), Raised("no"), Snoozed(ms(0)), HandedBack(), Raised("no")):
        job = await claim_one(store)
        attempts.append(job.retry_state.attempt)
        await settle(store, job, outcome)
    assert attempts == [1, 1, 2, 2, 2]
    job = await job_of(store, added.id)
    assert (job.attempt, job.retry_count, job.token) == (2, 2, 5)


async def test_a_lapse_is_an_attempt(store: Store, clock: TestClock) -> None:
    added = await add_one(store, max_retries=1, retry_delay=ms(0))
    for expected in (Status.RETRYING, Status.FAILED):
        await claim_one(store)
        clock.turn(LEASE.total_seconds())
        assert await settle_lapsed(store) is expected
    job = await job_of(store, added.id)
    assert (job.attempt, job.retry_count) == (2, 1)
    assert job.error is not None
    assert job.error.startswith("WorkerLost")


async def test_with_nothing_in_sight_there_is_no_next(store: Store) -> None:
    assert (await claim(store)).next_in is None
    await run_one_of_each_end(store)
    assert (await claim(store)).next_in is None


async def run_one_of_each_end(store: Store) -> None:
    await add_ids(store, {}, {})
    await run_one(store)
    await run_one(store, Raised("no", permanent=True))


async def test_next_is_the_earliest_due_time_of_any_kind(store: Store) -> None:
    low, other = {"priority": Priority.LOW, "delay": ms(4000)}, {"queue": "other", "delay": ms(4001)}
    await add_ids(store, {"delay": ms(9000)}, low, other)
    assert (await claim(store)).next_in == ms(4000)
    assert (await claim(store, queues=["other"])).next_in == ms(4001)


async def test_next_looks_past_what_was_just_taken(store: Store, clock: TestClock) -> None:
    await add_ids(store, {"delay": ms(1000)}, {"delay": ms(1500)}, {"delay": ms(1700)})
    clock.turn(1)
    claimed = await claim(store)
    assert len(claimed.jobs) == 1
    assert claimed.next_in == ms(500)


async def test_next_is_the_earliest_lapse_if_that_comes_first(store: Store, clock: TestClock) -> None:
    await add_ids(store, {}, {"delay": seconds(60)})
    assert (await claim(store, lease=ms(2500))).next_in == ms(2500)
    clock.turn(ms=1000)
    assert (await claim(store)).next_in == ms(1500)
    clock.turn(ms=1500)
    assert (await claim(store)).next_in == ms(0)


async def test_a_paused_queue_wakes_nobody(store: Store) -> None:
    await add_one(store, queue="held", delay=seconds(5))
    await store.set_queue("held", QueueChange(paused=True))
    assert (await claim(store)).next_in is None


async def test_what_is_delayed_stays_out_of_the_way(store: Store) -> None:
    await store.add([new_job(delay=seconds(3600 + n), priority=Priority.CRITICAL) for n in range(20_000)])
    added = await add_one(store, priority=Priority.LOW)
    claimed = await claim(store)
    assert [job.lease.id for job in claimed.jobs] == [added.id]
    assert await status_of(store, added.id) is Status.PROCESSING


async def test_more_lapses_than_one_answer_holds_come_with_the_next(store: Store, clock: TestClock) -> None:
    await add_ids(store, *[{} for _ in range(250)])
    await claim_ids(store, 250)
    clock.turn(LEASE.total_seconds())
    settled = 0
    while lapsed := (await claim(store, 0)).lapsed:
        statuses = await store.settle([settlement(job, Lapsed(job.worker_id)) for job in lapsed])
        settled += statuses.count(Status.RETRYING)
    assert settled == 250

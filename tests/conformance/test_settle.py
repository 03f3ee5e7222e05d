"""settle: verdicts are recorded once, under the lease that they were made under, and never over another's."""

import asyncio
from typing import Any

import msgspec
import pytest

from demora.core.job import Attempt, Lane, LogLine
from demora.core.states import Status
from demora.core.verdict import Cancelled, HandedBack, Lapsed, NoHandler, Raised, Snoozed
from demora.store.jobs import Lease, Report
from demora.store.store import Store
from tests.builders import (
    BROKEN,
    DONE,
    LEASE,
    NO_IDS,
    add_ids,
    add_one,
    claim,
    claim_one,
    job_of,
    lapsed_one,
    ms,
    seconds,
    settle,
    settle_lapsed,
    settlement,
    status_of,
)
from tests.clock import TestClock

ALL = [DONE, BROKEN, Raised("no"), Snoozed(ms(5)), Cancelled("no need"), HandedBack(), NoHandler()]
named = pytest.mark.parametrize("outcome", ALL, ids=lambda outcome: type(outcome).__name__)


async def test_a_success_is_recorded_with_its_result(store: Store, clock: TestClock) -> None:
    await add_one(store)
    job = await claim_one(store)
    clock.turn(5)
    assert await settle(store, job, DONE, ran=seconds(4), progress=1.0, message="all") is Status.COMPLETED
    after = await job_of(store, job.lease.id)
    assert (after.status, after.result, after.error, after.lease_until) == (Status.COMPLETED, "done", None, None)
    assert (after.completed_at, after.started_at, after.worker_id) == (clock.now(), clock.now() - seconds(4), "ann")
    assert (after.progress, after.progress_message) == (1.0, "all")
    assert after.attempts == (Attempt(1, after.started_at, after.completed_at, "ann"),)


@pytest.mark.parametrize("report", [{}, {"progress": 0.7}, {"message": "half"}, {"log": ((ms(0), "line"),)}])
async def test_a_success_keeps_what_it_reports_last(store: Store, report: dict[str, Any]) -> None:
    await add_one(store)
    job = await claim_one(store)
    assert await settle(store, job, DONE, **report) is Status.COMPLETED
    after = await job_of(store, job.lease.id)
    assert (after.progress, after.progress_message) == (report.get("progress"), report.get("message"))
    assert [line.line for line in after.log] == [line for _, line in report.get("log", ())]


@pytest.mark.parametrize("result", [b"null", b'"\\u0000\\"\\\\"', '{"é":["💡",1.5e300,-9223372036854775808]}'.encode()])
async def test_a_result_comes_back_byte_for_byte(store: Store, result: bytes) -> None:
    await add_one(store)
    job = await claim_one(store)
    await settle(store, job, type(DONE)(result))
    assert (await job_of(store, job.lease.id)).result_json == result


async def test_a_failure_waits_and_is_kept_in_the_history(store: Store, clock: TestClock) -> None:
    await add_one(store, delay=ms(10))
    clock.turn(1)
    job = await claim_one(store)
    before = await job_of(store, job.lease.id)
    clock.turn(2)
    assert await settle(store, job, Raised("ValueError: no", "trace"), ran=seconds(1)) is Status.RETRYING
    after = await job_of(store, before.id)
    assert (after.status, after.due_at, after.lane) == (Status.RETRYING, clock.now() + seconds(1), Lane.RETRY)
    assert (after.retry_count, after.scheduled_at, after.completed_at) == (1, before.scheduled_at, None)
    assert after.attempts == (Attempt(1, clock.now() - seconds(1), clock.now(), "ann", "ValueError: no", "trace"),)
    assert after.error == "ValueError: no"


async def test_four_runs_and_then_a_dead_letter_with_its_history(store: Store, clock: TestClock) -> None:
    added = await add_one(store)
    waits = []
    for _ in range(4):
        job = await claim_one(store)
        status = await settle(store, job, Raised(f"no {job.retry_state.attempt}"))
        waits.append((await job_of(store, added.id)).due_at - clock.now())
        clock.turn(10)
    after = await job_of(store, added.id)
    assert waits[:3] == [seconds(1), seconds(2), seconds(4)]
    assert (status, after.status, after.retry_count, after.attempt) == (Status.FAILED, Status.FAILED, 3, 4)
    assert [attempt.error for attempt in after.attempts] == ["no 1", "no 2", "no 3", "no 4"]
    assert after.payload == {"hi": 1}


async def test_a_permanent_error_fails_at_once(store: Store, clock: TestClock) -> None:
    added = await add_one(store)
    assert await settle(store, await claim_one(store), BROKEN) is Status.FAILED
    after = await job_of(store, added.id)
    assert (after.completed_at, after.retry_count, len(after.attempts)) == (clock.now(), 0, 1)


async def test_a_hand_back_is_as_if_nothing_had_happened(store: Store, clock: TestClock) -> None:
    added = await add_one(store)
    clock.turn(5)
    assert await settle(store, await claim_one(store), HandedBack()) is Status.QUEUED
    after = await job_of(store, added.id)
    assert (after.lane, after.due_at, after.attempt, after.retry_count) == (Lane.REALTIME, added.created_at, 0, 0)
    assert (after.attempts, after.lease_until, after.token) == ((), None, 1)


async def test_a_snooze_waits_without_an_attempt(store: Store, clock: TestClock) -> None:
    added = await add_one(store)
    assert await settle(store, await claim_one(store), Snoozed(seconds(90))) is Status.QUEUED
    after = await job_of(store, added.id)
    assert (after.due_at, after.lane, after.attempt, after.attempts) == (clock.now() + seconds(90), Lane.RETRY, 0, ())


async def test_a_retried_job_that_is_handed_back_or_snoozed_is_still_retrying(store: Store, clock: TestClock) -> None:
    await add_one(store, retry_delay=ms(0))
    await settle(store, await claim_one(store), Raised("no"))
    for outcome in (HandedBack(), Snoozed(ms(0))):
        assert await settle(store, await claim_one(store), outcome) is Status.RETRYING


async def test_claims_without_a_handler_are_counted_in_a_row(store: Store, clock: TestClock) -> None:
    await add_one(store, retry_delay=ms(0))
    counted = []
    for outcome in (NoHandler(), NoHandler(), Raised("no"), NoHandler()):
        job = await claim_one(store)
        counted.append(job.retry_state.no_handler_claims)
        await settle(store, job, outcome)
        clock.turn(10)
    assert counted == [0, 1, 2, 0]


async def test_a_type_that_nobody_knows_fails_after_an_hour(store: Store, clock: TestClock) -> None:
    added = await add_one(store)
    while await settle(store, await claim_one(store), NoHandler()) is Status.QUEUED:
        clock.turn((await claim(store)).next_in.total_seconds())
    after = await job_of(store, added.id)
    assert (after.status, after.attempt, after.attempts) == (Status.FAILED, 0, ())
    assert after.error.startswith("UnknownType")
    assert seconds(3600) <= clock.now() - added.created_at <= seconds(3660)


async def test_giving_up_ends_cancelled_with_the_reason(store: Store) -> None:
    added = await add_one(store)
    assert await settle(store, await claim_one(store), Cancelled("no need")) is Status.CANCELLED
    assert (await job_of(store, added.id)).error == "no need"


@named
async def test_a_worker_that_outslept_its_lease_changes_nothing(store: Store, clock: TestClock, outcome) -> None:
    await add_one(store)
    job = await claim_one(store)
    clock.turn(LEASE.total_seconds())
    before = await job_of(store, job.lease.id)
    assert await settle(store, job, outcome, log=((ms(0), "late"),), progress=1.0) is None
    assert await settle(store, job, outcome) is None
    assert await job_of(store, job.lease.id) == before


@named
async def test_a_worker_that_lost_its_lease_cannot_settle(store: Store, clock: TestClock, outcome) -> None:
    await add_one(store, retry_delay=ms(0))
    old = await claim_one(store)
    clock.turn(LEASE.total_seconds())
    await settle_lapsed(store)
    await claim_one(store, worker="bob")
    before = await job_of(store, old.lease.id)
    assert await settle(store, old, outcome) is None
    assert await job_of(store, old.lease.id) == before
    assert before.worker_id == "bob"


@named
async def test_a_run_is_settled_once(store: Store, outcome) -> None:
    await add_one(store)
    job = await claim_one(store)
    assert await settle(store, job, outcome) is not None
    before = await job_of(store, job.lease.id)
    for second in ALL:
        assert await settle(store, job, second) is None
    assert await job_of(store, job.lease.id) == before


async def test_a_lapse_is_settled_once_by_whoever_sees_it(store: Store, clock: TestClock) -> None:
    await add_one(store)
    await claim_one(store, worker="dead")
    clock.turn(LEASE.total_seconds())
    seen = [await lapsed_one(store), await lapsed_one(store)]
    assert [await settle(store, job, Lapsed(job.worker_id)) for job in seen] == [Status.RETRYING, None]
    after = await job_of(store, seen[0].lease.id)
    [attempt] = after.attempts
    assert (after.retry_count, attempt.worker_id, attempt.error) == (1, "dead", after.error)
    assert after.due_at == clock.now() + seconds(1)


async def test_a_lease_that_holds_cannot_be_settled_as_lapsed(store: Store, clock: TestClock) -> None:
    await add_one(store)
    job = await claim_one(store)
    clock.turn(29.999)
    assert await settle(store, job, Lapsed("ann")) is None
    assert await settle(store, job, DONE) is Status.COMPLETED


async def test_a_lapse_that_was_renewed_meanwhile_is_not_settled(store: Store, clock: TestClock) -> None:
    await add_one(store, retry_delay=ms(0))
    await claim_one(store)
    clock.turn(LEASE.total_seconds())
    old = await lapsed_one(store)
    await settle_lapsed(store)
    await claim_one(store)
    clock.turn(LEASE.total_seconds())
    assert await settle(store, old, Lapsed("ann")) is None


async def test_one_call_settles_many_and_answers_in_order(store: Store, clock: TestClock) -> None:
    await add_ids(store, {}, {}, {}, {})
    lost = await claim_one(store, lease=seconds(1))
    jobs = (await claim(store)).jobs
    clock.turn(1)
    outcomes = [(jobs[0], Raised("no")), (lost, DONE), (jobs[1], DONE), (jobs[2], BROKEN)]
    statuses = await store.settle([settlement(job, outcome) for job, outcome in outcomes])
    assert statuses == [Status.RETRYING, None, Status.COMPLETED, Status.FAILED]
    assert await store.settle([]) == []


async def test_a_stale_run_is_told_apart_from_the_new_one_in_the_same_call(store: Store) -> None:
    await add_one(store)
    old = await claim_one(store)
    await settle(store, old, HandedBack())
    new = await claim_one(store)
    both = [settlement(old, DONE, log=((ms(0), "stale"),)), settlement(new, DONE, log=((ms(0), "new"),))]
    assert await store.settle(both) == [None, Status.COMPLETED]
    assert [line.line for line in (await job_of(store, new.lease.id)).log] == ["new"]


async def test_the_last_report_is_recorded_with_the_verdict(store: Store, clock: TestClock) -> None:
    for outcome in (DONE, Raised("no"), BROKEN):
        await add_one(store)
        job = await claim_one(store)
        clock.turn(1)
        await settle(store, job, outcome, ran=seconds(1), progress=0.5, message="half", log=((ms(250), "line"),))
        after = await job_of(store, job.lease.id)
        assert (after.progress, after.progress_message) == (0.5, "half")
        assert after.log == (LogLine(clock.now() - ms(750), "line"),)


@pytest.mark.parametrize("outcome", [DONE, BROKEN], ids=["success", "failure"])
async def test_no_run_starts_before_its_claim(store: Store, clock: TestClock, outcome) -> None:
    added = await add_one(store)
    clock.turn(1)
    job = await claim_one(store)
    claimed = clock.now()
    clock.turn(1)
    await settle(store, job, outcome, ran=seconds(3600))
    after = await job_of(store, added.id)
    assert after.started_at == after.attempts[0].started_at == claimed


async def test_ids_that_are_no_ids_settle_nothing(store: Store) -> None:
    await add_one(store)
    job = await claim_one(store)
    for id in [*NO_IDS, job.lease.id.replace("-", "")]:
        stranger = msgspec.structs.replace(job, lease=Lease(id, 1))
        assert [await settle(store, stranger, outcome) for outcome in (DONE, BROKEN)] == [None, None]
    assert await status_of(store, job.lease.id) is Status.PROCESSING


async def test_a_start_that_was_reported_stays_as_it_was(store: Store, clock: TestClock) -> None:
    await add_one(store)
    job = await claim_one(store)
    clock.turn(2)
    await store.renew([Report(job.lease, seconds(1))], lease=LEASE)
    reported = (await job_of(store, job.lease.id)).started_at
    clock.turn(2)
    await settle(store, job, DONE, ran=seconds(3.5))
    assert (await job_of(store, job.lease.id)).started_at == reported


async def test_a_job_that_is_handed_back_shows_no_worker_and_no_start(store: Store) -> None:
    await add_one(store)
    job = await claim_one(store)
    await settle(store, job, HandedBack())
    after = await job_of(store, job.lease.id)
    assert (after.worker_id, after.started_at) == (None, None)


async def test_settlements_at_the_same_time_are_each_answered(store: Store) -> None:
    await add_ids(store, *({} for _ in range(10)))
    jobs = (await claim(store, 10)).jobs
    async with asyncio.timeout(30):
        answers = await asyncio.gather(*(settle(store, job, DONE) for job in (*jobs, jobs[0])))
    assert answers == [*([Status.COMPLETED] * 10), None]

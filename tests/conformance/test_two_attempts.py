"""What stays of one run when the next begins, field by field.

Each test leads a job through two runs. The first ends in one of five ways: it fails, its lease lapses, or it does not count
because the worker handed the job back, the handler snoozed it, or the worker had no handler.
"""

from datetime import datetime

import pytest

from demora.core.job import Job
from demora.core.states import Status
from demora.core.verdict import HandedBack, Lapsed, NoHandler, Outcome, Raised, Snoozed
from demora.store.jobs import ClaimedJob, ClaimRequest, Report
from demora.store.store import Store
from tests.builders import DONE, LEASE, add_one, claim_one, job_of, lapsed_one, seconds, settle, settle_lapsed
from tests.clock import TestClock

UNCOUNTED: dict[str, Outcome] = {"handed back": HandedBack(), "snoozed": Snoozed(seconds(5)), "no handler": NoHandler()}
COUNTED: dict[str, Outcome] = {"failed": Raised("ValueError: first", "the first traceback"), "lapsed": Lapsed("ann")}
WAYS = COUNTED | UNCOUNTED
FIRST_ERRORS = {"failed": "ValueError: first", "lapsed": "WorkerLost: worker ann stopped renewing its lease"}

every_way = pytest.mark.parametrize("way", WAYS)
counted_way = pytest.mark.parametrize("way", COUNTED)
uncounted_way = pytest.mark.parametrize("way", UNCOUNTED)


async def say(store: Store, job: ClaimedJob, ran: float, progress: float, message: str | None, line: str) -> None:
    """Report the progress and a line of a run that began so many seconds ago."""
    report = Report(job.lease, seconds(ran), progress, message, ((seconds(ran), line),))
    status = await store.renew([report], lease=LEASE)
    assert not status.lost


async def end(store: Store, clock: TestClock, job: ClaimedJob, way: str) -> None:
    if way == "lapsed":
        clock.turn(LEASE.total_seconds() + 1)
        assert await settle_lapsed(store) is not None
    else:
        assert await settle(store, job, WAYS[way]) is not None


async def first_run(store: Store, clock: TestClock, way: str, **changes: object) -> Job:
    """The job after a run by ann that reported its progress and a line."""
    added = await add_one(store, **changes)
    job = await claim_one(store, worker="ann")
    clock.turn(2)
    await say(store, job, 1, 0.5, "half", "first line")
    await end(store, clock, job, way)
    return await job_of(store, added.id)


async def second_claim(store: Store, clock: TestClock) -> ClaimedJob:
    clock.turn(3600)
    return await claim_one(store, worker="bob")


@every_way
async def test_progress_and_message_are_those_of_the_run_that_began_last(store: Store, clock: TestClock, way: str) -> None:
    job = await first_run(store, clock, way)
    assert (job.progress, job.progress_message) == (0.5, "half")
    second = await second_claim(store, clock)
    job = await job_of(store, job.id)
    assert (job.progress, job.progress_message) == (None, None)
    await say(store, second, 0, 0.1, None, "second line")
    job = await job_of(store, job.id)
    assert (job.progress, job.progress_message) == (0.1, None)
    await settle(store, second, DONE, progress=1.0, message="all")
    job = await job_of(store, job.id)
    assert (job.progress, job.progress_message) == (1.0, "all")


@every_way
async def test_a_run_that_reports_nothing_shows_no_progress_of_the_one_before(
    store: Store, clock: TestClock, way: str
) -> None:
    job = await first_run(store, clock, way)
    await settle(store, await second_claim(store, clock), DONE)
    job = await job_of(store, job.id)
    assert (job.progress, job.progress_message) == (None, None)


@every_way
async def test_the_log_has_the_lines_of_all_runs_in_order(store: Store, clock: TestClock, way: str) -> None:
    job = await first_run(store, clock, way)
    assert [line.line for line in job.log] == ["first line"]
    second = await second_claim(store, clock)
    assert [line.line for line in (await job_of(store, job.id)).log] == ["first line"]
    await say(store, second, 0, 0.1, None, "second line")
    await settle(store, second, DONE, log=((seconds(0), "last line"),))
    log = (await job_of(store, job.id)).log
    assert [line.line for line in log] == ["first line", "second line", "last line"]
    assert log[0].at < log[1].at <= log[2].at


@every_way
async def test_only_a_run_that_counts_is_an_attempt(store: Store, clock: TestClock, way: str) -> None:
    counts = int(way in COUNTED)
    job = await first_run(store, clock, way)
    assert (job.token, job.attempt, job.retry_count, len(job.attempts)) == (1, counts, counts, counts)
    second = await second_claim(store, clock)
    assert (second.lease.token, second.retry_state.attempt) == (2, 1 + counts)
    job = await job_of(store, job.id)
    assert (job.token, job.attempt, job.retry_count, len(job.attempts)) == (2, 1 + counts, counts, counts)
    await settle(store, second, DONE)
    job = await job_of(store, job.id)
    assert (job.token, job.attempt, job.retry_count) == (2, 1 + counts, counts)


@uncounted_way
@pytest.mark.parametrize("runs", [1, 3])
async def test_a_lapse_after_runs_that_do_not_count_is_the_first_attempt(
    store: Store, clock: TestClock, way: str, runs: int
) -> None:
    added = await add_one(store, max_retries=1)
    for _ in range(runs):
        await end(store, clock, await claim_one(store), way)
        clock.turn(3600)
    await claim_one(store)
    clock.turn(LEASE.total_seconds() + 1)
    lapsed = await lapsed_one(store)
    assert (lapsed.lease.token, lapsed.retry_state.attempt) == (runs + 1, 1)
    assert await settle_lapsed(store) is Status.RETRYING
    job = await job_of(store, added.id)
    assert (job.attempt, job.retry_count, len(job.attempts)) == (1, 1, 1)


@uncounted_way
async def test_runs_that_do_not_count_leave_all_attempts(store: Store, clock: TestClock, way: str) -> None:
    await first_run(store, clock, way, max_retries=1)
    statuses = []
    for _ in range(2):
        statuses.append(await settle(store, await second_claim(store, clock), Raised("ValueError: no")))
    assert statuses == [Status.RETRYING, Status.FAILED]


@uncounted_way
async def test_runs_that_do_not_count_are_credited_between_attempts_too(store: Store, clock: TestClock, way: str) -> None:
    job = await first_run(store, clock, "failed")
    for _ in range(2):
        await end(store, clock, await second_claim(store, clock), way)
    found = await job_of(store, job.id)
    assert (found.status, found.token, found.attempt, found.retry_count) == (Status.RETRYING, 3, 1, 1)
    assert (await second_claim(store, clock)).retry_state.attempt == 2


@every_way
async def test_claims_without_a_handler_count_only_in_a_row(store: Store, clock: TestClock, way: str) -> None:
    await add_one(store)
    for _ in range(2):
        await settle(store, await second_claim(store, clock), NoHandler())
    third = await second_claim(store, clock)
    assert third.retry_state.no_handler_claims == 2
    await end(store, clock, third, way)
    assert (await second_claim(store, clock)).retry_state.no_handler_claims == (3 if way == "no handler" else 0)


async def test_a_lapse_knows_the_claims_without_a_handler_before_it(store: Store, clock: TestClock) -> None:
    await add_one(store)
    for _ in range(2):
        await settle(store, await second_claim(store, clock), NoHandler())
    await second_claim(store, clock)
    clock.turn(LEASE.total_seconds() + 1)
    assert (await lapsed_one(store)).retry_state.no_handler_claims == 2


@pytest.mark.parametrize("message", [None, "all"], ids=["plain success", "with a message"])
@counted_way
async def test_the_error_is_that_of_the_last_attempt_and_gone_after_a_success(
    store: Store, clock: TestClock, way: str, message: str | None
) -> None:
    job = await first_run(store, clock, way)
    assert job.error == FIRST_ERRORS[way]
    second = await second_claim(store, clock)
    assert (await job_of(store, job.id)).error == FIRST_ERRORS[way]
    await settle(store, second, Raised("KeyError: second"))
    assert (await job_of(store, job.id)).error == "KeyError: second"
    await settle(store, await second_claim(store, clock), DONE, message=message)
    found = await job_of(store, job.id)
    assert (found.status, found.error, found.result) == (Status.COMPLETED, None, "done")
    assert [attempt.error for attempt in found.attempts[:2]] == [FIRST_ERRORS[way], "KeyError: second"]


@counted_way
async def test_each_attempt_has_its_own_worker_times_error_and_traceback(store: Store, clock: TestClock, way: str) -> None:
    began = clock.now()
    job = await first_run(store, clock, way)
    first_ended = clock.now()
    second = await second_claim(store, clock)
    claimed = clock.now()
    clock.turn(3)
    await settle(store, second, Raised("KeyError: second", "the second traceback", permanent=True), ran=seconds(2))

    def told(number: int) -> tuple[str | None, datetime | None, datetime | None, str | None, str | None]:
        attempt = found.attempts[number]
        return attempt.worker_id, attempt.started_at, attempt.ended_at, attempt.error, attempt.traceback

    found = await job_of(store, job.id)
    trace = "the first traceback" if way == "failed" else None
    assert told(0) == ("ann", began + seconds(1), first_ended, FIRST_ERRORS[way], trace)
    assert told(1) == ("bob", claimed + seconds(1), clock.now(), "KeyError: second", "the second traceback")


@every_way
async def test_a_result_is_that_of_the_run_that_succeeded(store: Store, clock: TestClock, way: str) -> None:
    job = await first_run(store, clock, way)
    assert (job.result_json, job.completed_at) == (None, None)
    second = await second_claim(store, clock)
    assert (await job_of(store, job.id)).result_json is None
    await settle(store, second, DONE)
    found = await job_of(store, job.id)
    assert (found.result, found.completed_at) == ("done", clock.now())


@every_way
async def test_worker_start_and_lease_are_those_of_the_current_run(store: Store, clock: TestClock, way: str) -> None:
    began = clock.now()
    job = await first_run(store, clock, way)
    waiting = ("ann", began + seconds(1)) if way in COUNTED else (None, None)
    assert (job.worker_id, job.started_at, job.lease_until) == (*waiting, None)
    second = await second_claim(store, clock)
    job = await job_of(store, job.id)
    assert (job.worker_id, job.started_at) == ("bob", None)
    assert job.lease_until is not None
    clock.turn(2)
    await say(store, second, 1, 0.1, None, "second line")
    assert (await job_of(store, job.id)).started_at == clock.now() - seconds(1)


@every_way
async def test_only_an_attempt_keeps_a_job_from_expiring(store: Store, clock: TestClock, way: str) -> None:
    job = await first_run(store, clock, way, expires_in=seconds(120))
    clock.turn(3600)
    claimed = await store.claim(ClaimRequest("bob", 1, lease=LEASE))
    found = await job_of(store, job.id)
    if way in COUNTED:
        assert [one.lease.id for one in claimed.jobs] == [job.id]
    else:
        assert (claimed.jobs, found.status) == ([], Status.CANCELLED)


@every_way
async def test_a_run_of_the_first_claim_writes_nothing_into_the_second(store: Store, clock: TestClock, way: str) -> None:
    added = await add_one(store)
    first = await claim_one(store, worker="ann")
    await end(store, clock, first, way)
    second = await second_claim(store, clock)
    before = await job_of(store, added.id)
    report = Report(first.lease, seconds(1), 0.7, "late", ((seconds(1), "late line"),))
    assert (await store.renew([report], lease=LEASE)).lost == {first.lease}
    assert await settle(store, first, DONE, progress=0.7, message="late") is None
    assert await job_of(store, added.id) == before
    assert await settle(store, second, DONE) is Status.COMPLETED


async def test_a_retry_by_hand_begins_with_a_clean_job_and_keeps_its_history(store: Store, clock: TestClock) -> None:
    job = await first_run(store, clock, "failed", max_retries=0)
    assert job.status is Status.FAILED
    await store.retry([job.id])
    job = await job_of(store, job.id)
    assert (job.progress, job.progress_message, job.error, job.result_json, job.completed_at) == (None,) * 5
    assert (job.attempt, job.retry_count, job.started_at, job.cancel_requested_at) == (0, 0, None, None)
    assert ([line.line for line in job.log], [attempt.error for attempt in job.attempts]) == (
        ["first line"],
        ["ValueError: first"],
    )
    assert (await second_claim(store, clock)).retry_state.attempt == 1

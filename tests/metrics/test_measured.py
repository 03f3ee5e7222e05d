"""What a worker reports comes out as Prometheus reads it."""

from datetime import UTC, datetime, timedelta

import pytest

from demora import Demora, Retry, Snooze
from demora.core.job import Priority
from demora.core.states import Status
from demora.core.verdict import HandedBack, Lapsed, RetryState, Verdict
from demora.metrics import measured as module
from demora.metrics.measured import Histogram, Measured
from demora.store.jobs import ClaimedJob, ClaimRequest, Lease, Report, Settlement
from demora.worker.measures import Measures
from tests.facts import eventually
from tests.metrics.scraping import Samples, collected, named
from tests.worker.conftest import Gate, ended

DUE = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
async def gate() -> Gate:
    return Gate()


def claimed(queue: str = "default", type: str = "a", *, id: str = "1", token: int = 1) -> ClaimedJob:
    standing = RetryState(attempt=token)
    return ClaimedJob(Lease(id, token), type, type, queue, Priority.NORMAL, b"{}", standing, None, DUE, ())


def settle(measured: Measured, job: ClaimedJob, status: Status | None, *, counts: bool = True) -> None:
    measured.ended(job, timedelta(seconds=2))
    verdict = Verdict(status or Status.FAILED, counts=counts)
    measured.settled(Settlement(Report(job.lease, timedelta(0)), HandedBack(), verdict), status)


def settled(outcome: str, queue: str = "default", type: str = "a") -> str:
    return named("demora_jobs_settled_total", queue=queue, type=type, outcome=outcome)


def outcomes(found: Samples) -> Samples:
    """The counts of settled jobs that are not 0."""
    return {name: value for name, value in found.items() if name.startswith("demora_jobs_settled_total") and value}


def test_every_outcome_of_a_pair_begins_at_zero() -> None:
    measured = Measured()
    measured.started(claimed(), waited=0.0, now=DUE.timestamp())
    found = collected(measured)
    assert [found[settled(outcome)] for outcome in ("completed", "retrying", "failed", "cancelled", "returned")] == [0] * 5


async def test_each_outcome_of_a_worker_is_counted_by_queue_and_type() -> None:
    measured, app = Measured(), Demora("sqlite://")

    @app.job("ends")
    async def ends(how: str) -> None:
        if how == "snooze":
            raise Snooze("1h")
        if how == "retry":
            raise Retry(after="1h")
        if how == "fail":
            raise ValueError(how)

    async with app:
        hows = {"": 0, "snooze": 0, "retry": 1, "fail": 0}
        jobs = [await app.enqueue("ends", {"how": how}, max_retries=retries) for how, retries in hows.items()]
        refused = await app.enqueue("demo.echo", queue="mail")
        async with app.worker(measures=measured):
            for job in (jobs[0], jobs[3], refused):
                await ended(app, job)
            for job in jobs[1:3]:
                await eventually(lambda id=job.id: app.get(id), lambda job: job.due_at > job.scheduled_at)
    found = collected(measured)
    assert outcomes(found) == {
        settled("completed", type="ends"): 1,
        settled("returned", type="ends"): 1,
        settled("retrying", type="ends"): 1,
        settled("failed", type="ends"): 1,
        settled("completed", "mail", "demo.echo"): 1,
    }
    assert found[named("demora_job_run_seconds_count", queue="default", type="ends")] == 4
    assert found[named("demora_job_lateness_seconds_count", queue="default")] == 4
    assert found[named("demora_job_lateness_seconds_count", queue="mail")] == 1
    assert found["demora_job_wait_seconds_count"] == 5
    assert min(found["demora_claim_seconds_count"], found["demora_settle_seconds_count"]) >= 1
    assert (found["demora_leases_lost_total"], found["demora_leases_lapsed_total"]) == (0, 0)


async def test_a_cancelled_run_is_counted_as_cancelled_and_takes_a_slot_until_then(gate: Gate) -> None:
    measured, app = Measured(), Demora("sqlite://")

    @app.job("waits")
    async def waits() -> None:
        await gate.arrive()

    async with app:
        job = await waits.enqueue()
        async with app.worker(measures=measured, concurrency=3):
            await gate.reached()
            during = collected(measured)
            await app.cancel(job.id)
            await ended(app, job)
            after = await eventually(lambda: _later(measured), lambda found: found[settled("cancelled", type="waits")])
    assert [seen["demora_worker_busy_slots"] for seen in (during, after)] == [1, 0]
    assert during["demora_worker_slots"] == 3


async def _later(measured: Measured) -> Samples:
    return collected(measured)


async def test_a_lapsed_lease_is_counted_by_the_worker_that_settles_it() -> None:
    measured = Measured()
    async with Demora("sqlite://") as app:
        job = await app.enqueue("demo.echo", max_retries=0)
        await (await app.open()).store.claim(ClaimRequest("a worker that dies", 1, lease=timedelta(milliseconds=20)))
        async with app.worker(measures=measured):
            assert (await ended(app, job)).status is Status.FAILED
    assert collected(measured)["demora_leases_lapsed_total"] == 1


async def test_a_lease_that_another_worker_took_is_counted_as_lost(gate: Gate) -> None:
    measured, app = Measured(), Demora("sqlite://")

    @app.job("waits")
    async def waits() -> None:
        await gate.arrive()

    async with app:
        job = await waits.enqueue()
        async with app.worker(measures=measured):
            await gate.reached()
            store = (await app.open()).store
            verdict = Verdict(Status.RETRYING, delay=timedelta(hours=1), error="taken away")
            await store.settle([Settlement(Report(Lease(job.id, 1), timedelta(0)), Lapsed(None), verdict)])
            await eventually(lambda: _later(measured), lambda found: found["demora_leases_lost_total"] == 1)
            gate.open()
    found = collected(measured)
    assert found["demora_leases_lost_total"] == 1
    assert outcomes(found) == {}


def test_an_outcome_that_the_store_refused_is_a_lost_lease_and_no_settled_job() -> None:
    measured = Measured()
    settle(measured, claimed(), None)
    found = collected(measured)
    assert found["demora_leases_lost_total"] == 1
    assert outcomes(found) == {}


def test_a_run_that_does_not_count_is_returned_unless_the_job_has_ended() -> None:
    measured = Measured()
    settle(measured, claimed(), Status.RETRYING, counts=False)
    settle(measured, claimed(), Status.CANCELLED, counts=False)
    found = collected(measured)
    assert (found[settled("returned")], found[settled("cancelled")]) == (1, 1)
    assert measured._ended == {}


def test_lateness_is_from_the_due_time_to_the_first_start_and_never_negative() -> None:
    measured, due = Measured(), DUE.timestamp()
    measured.started(claimed(), waited=0.02, now=due + 3)
    measured.started(claimed(), waited=0.02, now=due - 1)  # the clock of the database is ahead
    measured.started(claimed(token=2), waited=0.02, now=due + 3600)  # after a retry, which was due later
    found = collected(measured)
    late = {"queue": "default"}
    assert found[named("demora_job_lateness_seconds_count", **late)] == 2
    assert found[named("demora_job_lateness_seconds_sum", **late)] == 3
    assert found[named("demora_job_lateness_seconds_bucket", le="2.5", **late)] == 1
    assert found[named("demora_job_lateness_seconds_bucket", le="5.0", **late)] == 2
    assert found["demora_job_wait_seconds_sum"] == pytest.approx(0.06)


def test_a_span_counts_in_the_bucket_whose_bound_it_reaches() -> None:
    histogram = Histogram()
    for seconds in (0.0, 1.0, 1.0001, 1e9):
        histogram.add(seconds)
    counts = dict(histogram.buckets())
    assert (counts["0.001"], counts["0.5"], counts["1.0"], counts["2.5"], counts["1800.0"], counts["+Inf"]) == (
        1,
        1,
        2,
        3,
        3,
        4,
    )


def test_a_thousand_pairs_have_names_and_the_rest_is_other() -> None:
    measured = Measured()
    for n in range(module.MOST_PAIRS + 500):
        job = claimed(f"queue-{n}", "a", id=str(n))
        measured.started(job, waited=0.0, now=DUE.timestamp())
        settle(measured, job, Status.COMPLETED)
    settle(measured, claimed("queue-0", "a"), Status.COMPLETED)
    found = collected(measured)
    assert len(outcomes(found)) == module.MOST_PAIRS + 1
    assert len([name for name in found if "job_run_seconds_count" in name]) == module.MOST_PAIRS + 1
    assert found[settled("completed", "other", "other")] == 500
    assert found[settled("completed", "queue-0")] == 2
    assert found[named("demora_job_lateness_seconds_count", queue="other")] == 500
    assert found[named("demora_job_run_seconds_count", queue="other", type="other")] == 500


def test_the_line_is_shown_only_where_there_is_one() -> None:
    measured = Measured()
    assert "demora_line_used" not in collected(measured)
    for used in (True, False):
        measured.line_used = lambda used=used: used
        assert collected(measured)["demora_line_used"] == used


def test_a_worker_without_metrics_reports_to_nothing() -> None:
    idle = Measures()
    idle.claimed(1.0)
    idle.started(claimed(), waited=0.0, now=0.0)
    assert vars(idle) == {}

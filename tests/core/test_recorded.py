"""What a settled run is on record with, when its worker settles it again: by the job as it is now."""

from datetime import UTC, datetime
from typing import Any

import pytest

from demora.core.job import Attempt, Job, Lane, Priority
from demora.core.states import Status
from demora.core.verdict import Cancelled, HandedBack, Raised, Succeeded, lost_error, recorded_status
from tests.builders import seconds

NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)
NO = Raised("ValueError: no")
GONE = Raised("ValueError: no", permanent=True)


def run(token: int, error: str | None = "ValueError: no", **changes: Any) -> Attempt:
    return Attempt(**{"token": token, "started_at": NOON, "ended_at": NOON, "worker_id": "ann", "error": error, **changes})


def job(status: Status, *runs: Attempt, attempt: int, **changes: Any) -> Job:
    """A job with these runs, of which the last ones belong to its present series of attempts."""
    usual = {"id": "1", "name": "a", "type": "a", "queue": "default", "payload_json": b"{}", "priority": Priority.NORMAL}
    usual |= {"lane": Lane.REALTIME, "created_at": NOON, "scheduled_at": NOON, "due_at": NOON, "retry_delay": seconds(1)}
    usual |= {"max_retries": 1, "token": runs[-1].token if runs else 1, "attempts": runs}
    return Job(**{**usual, "status": status, "attempt": attempt, **changes})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (job(Status.QUEUED, attempt=0), Status.QUEUED),
        (job(Status.RETRYING, run(0), attempt=1, token=1), Status.RETRYING),
        (job(Status.CANCELLED, attempt=0, cancel_requested_at=NOON), Status.CANCELLED),
        (job(Status.CANCELLED, attempt=0), Status.QUEUED),  # a caller cancelled it later
        (job(Status.CANCELLED, run(0), attempt=1, token=1), Status.RETRYING),
        (job(Status.QUEUED, attempt=0, cancel_requested_at=NOON), Status.QUEUED),
        (job(Status.PROCESSING, attempt=1), None),  # it runs, so it is not settled
        (job(Status.QUEUED, attempt=0, token=2), None),  # another run was handed back after it
        (job(Status.PROCESSING, attempt=1, token=2), None),
    ],
)
def test_a_run_that_was_handed_back_is_on_record_until_the_next_claim(found: Job, expected: Status | None) -> None:
    assert recorded_status(found, 1, "ann", HandedBack()) is expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (job(Status.FAILED, run(1), attempt=1, error=NO.error), Status.FAILED),
        (job(Status.RETRYING, run(1), attempt=1, error=NO.error), Status.RETRYING),
        (job(Status.PROCESSING, run(1), attempt=2, token=2, error=NO.error), Status.RETRYING),
        (job(Status.FAILED, run(1), run(2), attempt=2, error=NO.error), Status.RETRYING),  # the next run ended it
        (job(Status.CANCELLED, run(1), attempt=1, error="by a caller"), Status.RETRYING),
        (job(Status.FAILED, run(1, worker_id="bob"), attempt=1, error=NO.error), None),
        (job(Status.PROCESSING, run(1, ended_at=None), attempt=1), None),
        (job(Status.RETRYING, run(1, lost_error("ann")), attempt=1, error=lost_error("ann")), None),
        (job(Status.RETRYING, run(1, lost_error("bob")), attempt=1, error=lost_error("bob")), Status.RETRYING),
    ],
)
def test_a_run_that_failed_is_on_record_for_good(found: Job, expected: Status | None) -> None:
    assert recorded_status(found, 1, "ann", NO) is expected


def test_a_run_that_succeeded_or_gave_up_is_on_record() -> None:
    completed = job(Status.COMPLETED, run(1, None), attempt=1)
    assert recorded_status(completed, 1, "ann", Succeeded(b"1")) is Status.COMPLETED
    given_up = job(Status.CANCELLED, run(1, "enough"), attempt=1, error="enough")
    assert recorded_status(given_up, 1, "ann", Cancelled("enough")) is Status.CANCELLED


ONCE = job(Status.QUEUED, run(1), run(2), attempt=0, generation=2)
AGAIN = job(Status.PROCESSING, run(1), run(2), run(3), attempt=2, generation=2, token=4)
TWICE = job(Status.QUEUED, run(1), run(2), run(3), run(4), attempt=0, generation=3)


@pytest.mark.parametrize(
    ("found", "token", "expected"),
    [
        (ONCE, 1, Status.RETRYING),
        (ONCE, 2, Status.FAILED),
        (AGAIN, 1, Status.RETRYING),
        (AGAIN, 2, Status.FAILED),
        (AGAIN, 3, Status.RETRYING),  # the first since the retry
        (TWICE, 3, Status.RETRYING),
        (TWICE, 4, Status.FAILED),
    ],
)
def test_a_run_before_a_retry_by_hand_is_decided_anew(found: Job, token: int, expected: Status) -> None:
    assert recorded_status(found, token, "ann", NO) is expected


@pytest.mark.parametrize(("found", "token"), [(ONCE, 1), (TWICE, 2)])
def test_a_permanent_failure_before_a_retry_failed_at_once(found: Job, token: int) -> None:
    assert recorded_status(found, token, "ann", GONE) is Status.FAILED


@pytest.mark.parametrize(("token", "expected"), [(1, Status.RETRYING), (2, Status.FAILED)])
def test_an_outcome_that_is_repeated_in_other_words_counts_by_its_place(token: int, expected: Status) -> None:
    assert recorded_status(ONCE, token, "ann", Raised("ValueError: other", permanent=token == 1)) is expected
    assert recorded_status(ONCE, token, "ann", Succeeded(b"1")) is expected

"""Finds what a settled run is on record with, for a worker that settles it again because the first answer was lost.

A job keeps its runs that failed, each with its token, its worker and its error, but not what became of the job then. That
follows from the runs after it, from the job as it is now, and from the outcome that the worker repeats.
"""

from .job import Attempt, Job
from .states import Status
from .verdict import Outcome, RetryState, decide, lost_error


def recorded_status(job: Job, token: int, worker_id: str, outcome: Outcome) -> Status | None:
    """Return the status that the run of this worker under this token gave to the job, also if the job has moved on since.
    None if the run has no record: its lease lapsed, or it is the run of another worker.

    A run that was handed back or snoozed leaves a record only until the next claim.
    """
    nth = next((n for n, run in enumerate(job.attempts) if run.token == token), None)
    if nth is None:
        return _handed_back(job) if job.token == token and job.status is not Status.PROCESSING else None
    run, counted = job.attempts[nth], job.attempt - (job.status is Status.PROCESSING)
    if run.worker_id != worker_id or run.ended_at is None or run.error == lost_error(worker_id):
        return None
    first = len(job.attempts) - counted  # of the runs since a caller last retried the job
    return _before_retry(job, nth, first, outcome) if nth < first else _since(job, run)


def _handed_back(job: Job) -> Status:
    if job.status is Status.CANCELLED and job.cancel_requested_at is not None:
        return Status.CANCELLED
    return Status.RETRYING if job.attempt > 0 else Status.QUEUED


def _since(job: Job, run: Attempt) -> Status:
    """Return the status of a run after which no caller retried the job. Had the run ended the job, nothing would have
    followed it; a job that a caller cancelled while it waited has an error of its own."""
    return job.status if job.status.ended and job.token == run.token and job.error == run.error else Status.RETRYING


def _before_retry(job: Job, nth: int, first: int, outcome: Outcome) -> Status:
    """Return the status of a run before a caller retried the job, by deciding anew on the repeated outcome."""
    last = nth == first - 1
    once = job.generation == 2  # then all runs before the retry are of one series
    attempt = nth + 1 if once else job.max_retries + 1 if last else 1
    verdict = decide(outcome, RetryState(attempt, job.max_retries), 0.0)
    if verdict.error == job.attempts[nth].error:
        return verdict.status
    return Status.FAILED if last else Status.RETRYING

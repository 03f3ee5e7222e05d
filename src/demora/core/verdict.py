"""Outcomes and verdicts: how a run ended, and what becomes of the job.

This module alone chooses the next state after a run, an expiry or a caller's verb, and the wait before it; `states.MOVES`
lists all moves. `recorded_status` tells a worker that settles a run again what the first settlement made of the job.
"""

from datetime import timedelta

import msgspec

from .job import DEFAULT_RETRIES, DEFAULT_RETRY_DELAY, Attempt, Job, Lane
from .spans import ZERO
from .states import Status

CAP = timedelta(days=1)  # the longest wait between two attempts, unless the type has its own
NO_HANDLER_DELAY = timedelta(milliseconds=10)  # short, since another worker that is free may have the handler
NO_HANDLER_CAP = timedelta(minutes=1)
NO_HANDLER_GRACE = timedelta(hours=1)
MOST_ERROR = 2000  # characters of the error of a run; the rest is cut
_MOST_DOUBLINGS = 40


class Succeeded(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The handler returned. `result` is JSON."""

    result: bytes


class Raised(msgspec.Struct, frozen=True, tag=True):
    """The handler raised, timed out or could not be given its payload. `after` is the wait that it asked for."""

    error: str
    traceback: str | None = None
    permanent: bool = False
    after: timedelta | None = None


class Snoozed(msgspec.Struct, frozen=True, tag=True):
    """The handler asked to be called later. The run does not count as an attempt."""

    delay: timedelta


class Cancelled(msgspec.Struct, frozen=True, tag=True):
    """The run ended the job as cancelled: the handler raised `Cancel`, or a caller had asked for a cancel."""

    reason: str


class HandedBack(msgspec.Struct, frozen=True, tag=True):
    """The worker stopped before the run ended. The run does not count as an attempt."""


class NoHandler(msgspec.Struct, frozen=True, tag=True):
    """The worker has no handler for the type. The run does not count as an attempt."""


class Lapsed(msgspec.Struct, frozen=True, tag=True):
    """The lease ran out: the worker died, or could not reach the database for longer than its lease."""

    worker_id: str | None


Outcome = Succeeded | Raised | Snoozed | Cancelled | HandedBack | NoHandler | Lapsed


def waiting_after(attempts: int) -> Status:
    """Return the state in which a job waits that had this many attempts since it was added, or since a caller retried it."""
    return Status.RETRYING if attempts > 0 else Status.QUEUED


class RetryState(msgspec.Struct, frozen=True, gc=False):
    """The facts about a job that a decision needs: its attempts, and how its failures are retried.

    `no_handler_claims` counts the last claims in a row by workers that had no handler for the job.
    """

    attempt: int
    max_retries: int = DEFAULT_RETRIES
    retry_delay: timedelta = DEFAULT_RETRY_DELAY
    no_handler_claims: int = 0
    retry_cap: timedelta = CAP
    jitter: float = 0.0

    @property
    def spent(self) -> bool:
        return self.attempt > self.max_retries

    @property
    def waiting(self) -> Status:
        """The waiting state to which the job returns when a run does not count."""
        return waiting_after(self.attempt - 1)


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The next state of a job. The delay counts from the moment when the verdict is recorded; None keeps the due time.

    `counts` says whether the run was an attempt, `no_handler` that the worker returned the job because it has no handler.
    """

    status: Status
    delay: timedelta | None = None
    lane: Lane | None = None
    result: bytes | None = None
    error: str | None = None
    traceback: str | None = None
    counts: bool = True
    no_handler: bool = False

    @property
    def stands(self) -> bool:
        """Whether the verdict is recorded even if a caller asked for a cancel meanwhile."""
        return self.status is Status.COMPLETED or self.status is Status.CANCELLED

    @property
    def credit(self) -> int:
        """How many runs of the job that do not count as attempts this verdict adds: one or none."""
        return 0 if self.counts else 1

    @property
    def retry(self) -> int:
        """How many retries of the job this verdict adds: one or none."""
        return 1 if self.counts and self.status is Status.RETRYING else 0

    def after_cancel_request(self) -> "Verdict":
        """The verdict if a caller asked for a cancel while the job ran: only a success is kept, all else is a cancel."""
        if self.stands:
            return self
        error = self.error or WHILE_RUNNING
        return Verdict(Status.CANCELLED, error=error, traceback=self.traceback, counts=self.counts)


# The verdict on a waiting job that was not started by its expiry.
EXPIRED = Verdict(Status.CANCELLED, error="Expired: it was not started by its expiry", counts=False)

# The verdict on a waiting job that no live worker could run for `NO_HANDLER_GRACE`.
UNKNOWN_TYPE = Verdict(Status.FAILED, error="UnknownType: no live worker knew its type for an hour", counts=False)

# The verdict on a waiting job that a caller cancelled. A worker gives the same reason for a job that it claimed and did not
# start.
BEFORE_START = "cancelled before it started"
WHILE_RUNNING = "cancelled while running"  # the reason if the run had begun, and gives no other
CANCELLED_WAITING = Verdict(Status.CANCELLED, error=BEFORE_START, counts=False)

# The next state of an ended job that a caller retries. The caller also says when it is due.
RETRIED, RETRIED_LANE = Status.QUEUED, Lane.RETRY

# The lane of a waiting job that a caller gave a new time, also if that time is now.
RESCHEDULED_LANE = Lane.SCHEDULED


def decide(outcome: Outcome, job: RetryState, drawn: float) -> Verdict:
    """Return the verdict on one run. `drawn` is a random number from [0, 1) for the jitter."""
    if isinstance(outcome, Succeeded):  # before the patterns, which take longer: most runs succeed
        return Verdict(Status.COMPLETED, result=outcome.result)
    match outcome:
        case Raised():
            return _after_failure(outcome, job, drawn)
        case Snoozed(delay):
            return Verdict(job.waiting, delay=delay, lane=Lane.RETRY, counts=False)
        case Cancelled(reason):
            return Verdict(Status.CANCELLED, error=reason)
        case HandedBack():
            return Verdict(job.waiting, counts=False)
        case NoHandler():
            return _without_handler(job)
        case Lapsed(worker_id):
            return _after_failure(Raised(lost_error(worker_id)), job, drawn)


def lost_error(worker_id: str | None) -> str:
    """Return the error of a run whose worker stopped renewing its lease."""
    return f"WorkerLost: worker {worker_id or 'unknown'} stopped renewing its lease"


def backoff(base: timedelta, failures: int, *, cap: timedelta = CAP, jitter: float = 0.0, drawn: float = 0.0) -> timedelta:
    """Return the wait after the `failures`-th failure: the base, doubled with each further failure, at most `cap` but never
    less than the base. A jitter of j shortens the wait by the part `j * drawn`; `drawn` is a random number from [0, 1)."""
    ceiling = max(cap, base)
    doublings: int = min(failures - 1, _MOST_DOUBLINGS)
    try:
        wait = min(base * (1 << doublings), ceiling)
    except OverflowError:
        wait = ceiling
    return wait * (1 - jitter * drawn)


def time_without_handler(claims: int) -> timedelta:
    """Return how long a job has waited in all after this many claims by workers without a handler for it."""
    return sum((_no_handler_delay(n) for n in range(1, claims + 1)), ZERO)


def _after_failure(failure: Raised, job: RetryState, drawn: float) -> Verdict:
    if failure.permanent or job.spent:
        return Verdict(Status.FAILED, error=failure.error, traceback=failure.traceback)
    wait = failure.after
    if wait is None:
        wait = backoff(job.retry_delay, job.attempt, cap=job.retry_cap, jitter=job.jitter, drawn=drawn)
    return Verdict(Status.RETRYING, delay=wait, lane=Lane.RETRY, error=failure.error, traceback=failure.traceback)


def _without_handler(job: RetryState) -> Verdict:
    if time_without_handler(job.no_handler_claims) >= NO_HANDLER_GRACE:
        error = "UnknownType: no worker that claimed this job has a handler for its type"
        return Verdict(Status.FAILED, error=error, counts=False)
    return Verdict(job.waiting, delay=_no_handler_delay(job.no_handler_claims + 1), counts=False, no_handler=True)


def _no_handler_delay(nth: int) -> timedelta:
    return backoff(NO_HANDLER_DELAY, nth, cap=NO_HANDLER_CAP)


# If the answer to a settlement is lost, the worker settles again. This part finds what the first one made of the job. A job
# keeps its failed runs, each with its token, its worker and its error, but not the status that each gave to the job. That
# follows from the runs after it, from the job as it is now, and from the outcome that the worker repeats.


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
    return waiting_after(job.attempt)


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

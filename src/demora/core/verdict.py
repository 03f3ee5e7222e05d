"""What a run of a job came to, before anything is decided about it."""

from datetime import timedelta

import msgspec

from .job import DEFAULT_RETRIES, DEFAULT_RETRY_DELAY, Lane
from .spans import ZERO
from .states import Status


class Succeeded(msgspec.Struct, frozen=True, tag=True):
    """The handler returned; `result` is JSON."""

    result: bytes


class Raised(msgspec.Struct, frozen=True, tag=True):
    """The handler raised, timed out or could not be given its payload. `after` is the wait that it asked for."""

    error: str
    traceback: str | None = None
    permanent: bool = False
    after: timedelta | None = None


class Snoozed(msgspec.Struct, frozen=True, tag=True):
    """The handler asked to be called later; this run does not count."""

    delay: timedelta


class GaveUp(msgspec.Struct, frozen=True, tag=True):
    """The handler ended the job as cancelled, by its own request or obeying a recorded one."""

    reason: str


class HandedBack(msgspec.Struct, frozen=True, tag=True):
    """The worker stopped before the run ended; this run does not count."""


class NoHandler(msgspec.Struct, frozen=True, tag=True):
    """The worker has no handler for the type; this run does not count."""


class Lapsed(msgspec.Struct, frozen=True, tag=True):
    """The lease ran out: the worker died, or was cut off for longer than its lease."""

    worker_id: str | None


Outcome = Succeeded | Raised | Snoozed | GaveUp | HandedBack | NoHandler | Lapsed


# How long a failed job waits before its next attempt.


CAP = timedelta(days=1)
_MOST_DOUBLINGS = 40


def backoff(base: timedelta, failures: int, *, cap: timedelta = CAP, jitter: float = 0.0, drawn: float = 0.0) -> timedelta:
    """The wait after the `failures`-th failure: base, twice, four times as long, up to `cap` but never below base.

    With a jitter of j the wait is shortened by up to that part of itself, by a number drawn from [0, 1).
    """
    ceiling = max(cap, base)
    doublings: int = min(failures - 1, _MOST_DOUBLINGS)
    try:
        wait = min(base * (1 << doublings), ceiling)
    except OverflowError:
        wait = ceiling
    return wait * (1 - jitter * drawn)


# What becomes of a job after a run: the one place that decides the next state and the wait before it.


STRAY_DELAY = timedelta(milliseconds=10)  # short: another worker that is free may know it
STRAY_CAP = timedelta(minutes=1)
STRAY_GRACE = timedelta(hours=1)


class RetryState(msgspec.Struct, frozen=True):
    """What a decision needs to know of a job: how often it ran and what it was promised.

    `strays` counts the claims in a row by workers that had no handler for it.
    """

    attempt: int
    max_retries: int = DEFAULT_RETRIES
    retry_delay: timedelta = DEFAULT_RETRY_DELAY
    strays: int = 0
    retry_cap: timedelta = CAP
    jitter: float = 0.0

    @property
    def spent(self) -> bool:
        return self.attempt > self.max_retries

    @property
    def waiting(self) -> Status:
        """The waiting state to go back to when a run does not count."""
        return Status.RETRYING if self.attempt > 1 else Status.QUEUED


class Verdict(msgspec.Struct, frozen=True):
    """The next state of a job. A delay counts from the moment it is recorded; None keeps the ready time.

    `counts` says whether the run was an attempt; `stray` that it was handed back for want of a handler.
    """

    status: Status
    delay: timedelta | None = None
    lane: Lane | None = None
    result: bytes | None = None
    error: str | None = None
    traceback: str | None = None
    counts: bool = True
    stray: bool = False

    @property
    def stands(self) -> bool:
        """Whether it is recorded even if a cancel was asked for meanwhile."""
        return self.status is Status.COMPLETED or self.status is Status.CANCELLED

    def after_cancel_request(self) -> "Verdict":
        """The verdict instead of this one if a cancel was asked for while the job ran: only a success stands."""
        if self.stands:
            return self
        error = self.error or "cancelled while running"
        return Verdict(Status.CANCELLED, error=error, traceback=self.traceback, counts=self.counts)


# On a waiting job whose time to be started has passed.
EXPIRED = Verdict(Status.CANCELLED, error="Expired: it was not started by its expiry", counts=False)


def decide(outcome: Outcome, job: RetryState, drawn: float) -> Verdict:
    """The verdict on one run; `drawn` is a random number from [0, 1) for jitter."""
    match outcome:
        case Succeeded(result):
            return Verdict(Status.COMPLETED, result=result)
        case Raised():
            return _after_failure(outcome, job, drawn)
        case Snoozed(delay):
            return Verdict(job.waiting, delay=delay, lane=Lane.RETRY, counts=False)
        case GaveUp(reason):
            return Verdict(Status.CANCELLED, error=reason)
        case HandedBack():
            return Verdict(job.waiting, counts=False)
        case NoHandler():
            return _after_stray(job)
        case Lapsed(worker_id):
            error = f"WorkerLost: worker {worker_id or 'unknown'} stopped renewing its lease"
            return _after_failure(Raised(error), job, drawn)


def stray_time(strays: int) -> timedelta:
    """How long a job has waited in all after so many hand-backs for want of a handler."""
    return sum((_stray_delay(n) for n in range(1, strays + 1)), ZERO)


def _after_failure(failure: Raised, job: RetryState, drawn: float) -> Verdict:
    if failure.permanent or job.spent:
        return Verdict(Status.FAILED, error=failure.error, traceback=failure.traceback)
    wait = failure.after
    if wait is None:
        wait = backoff(job.retry_delay, job.attempt, cap=job.retry_cap, jitter=job.jitter, drawn=drawn)
    return Verdict(Status.RETRYING, delay=wait, lane=Lane.RETRY, error=failure.error, traceback=failure.traceback)


def _after_stray(job: RetryState) -> Verdict:
    if stray_time(job.strays) >= STRAY_GRACE:
        error = "UnknownType: no worker that drew this job has a handler for its type"
        return Verdict(Status.FAILED, error=error, counts=False)
    return Verdict(job.waiting, delay=_stray_delay(job.strays + 1), counts=False, stray=True)


def _stray_delay(nth: int) -> timedelta:
    return backoff(STRAY_DELAY, nth, cap=STRAY_CAP)

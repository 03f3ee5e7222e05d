"""The bodies and answers of the worker protocol. This module checks only types and sizes; spans are milliseconds."""

from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec

from ..client.workers.remote_workers import MOST_QUEUES, MOST_SLOTS, MOST_TYPES, HandedJob, Reported
from ..core.job import Priority
from ..core.payload import check_text, pack
from ..core.request import MOST_KEY, MOST_NAME
from ..core.spans import ZERO, span, span_ms, timestamp
from ..core.states import Status
from ..core.verdict import (
    MOST_ERROR,
    NO_HANDLER_DELAY,
    WHILE_RUNNING,
    Cancelled,
    HandedBack,
    Lapsed,
    NoHandler,
    Outcome,
    Raised,
    RetryState,
    Snoozed,
    Succeeded,
    lost_error,
)
from ..errors import Invalid
from ..store.jobs import MOST_LINE, MOST_LINES, ClaimedJob, Lease, LeaseStatus, Settlement
from .requests import as_span, doc

MOST_CLAIMED = 100  # jobs in one claim
MOST_RENEWED = MOST_SETTLED = 1000  # jobs in one request
LONGEST_POLL = timedelta(seconds=30)
MOST_TRACEBACK = 20_000  # characters
_MOST_TOKEN = 2**31 - 1


_Token = Annotated[int, doc("The token of the lease, as the claim gave it.", minimum=1)]


class WorkerRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A worker to register."""

    name: Annotated[str, doc("A name for people.", minLength=1, maxLength=MOST_NAME)]
    types: Annotated[list[str], doc("The types of jobs that it runs.", minItems=1, maxItems=MOST_TYPES)]
    slots: Annotated[int, doc("How many jobs it runs at the same time.", minimum=1, maximum=MOST_SLOTS)]
    queues: Annotated[list[str], doc("The queues that it serves. Default: all.", maxItems=MOST_QUEUES)] | None = None


class RegisteredView(msgspec.Struct, frozen=True, rename="camel"):
    """A registered worker. `lease` is how long a job is leased, in milliseconds."""

    worker_id: str
    lease: int


class ClaimBody(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How many jobs to claim, and how long to wait for the first."""

    limit: Annotated[int, doc("The most jobs.", minimum=1, maximum=MOST_CLAIMED)] = 1
    wait: Annotated[
        int, doc("How long to wait for a ready job, in milliseconds.", minimum=0, maximum=span_ms(LONGEST_POLL))
    ] = 0
    claim_id: (
        Annotated[str, doc("Repeat a claim with it if its answer was lost.", minLength=1, maxLength=MOST_KEY)] | None
    ) = None

    def checked(self) -> tuple[int, timedelta, str | None]:
        """Return the limit, the wait and the claim id."""
        if not 1 <= self.limit <= MOST_CLAIMED:
            raise Invalid("limit", f"must be from 1 to {MOST_CLAIMED}")
        if not 0 <= self.wait <= span_ms(LONGEST_POLL):
            raise Invalid("wait", f"must be from 0 to {span_ms(LONGEST_POLL)} milliseconds")
        if self.claim_id is not None:
            _check(self.claim_id, "claim_id", MOST_KEY)
        return self.limit, timedelta(milliseconds=self.wait), self.claim_id


class HandedJobView(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A job to run. `leaseMs` counts from when the request was sent."""

    id: str
    token: int
    type: str
    name: str
    queue: str
    payload: msgspec.Raw
    attempt: int
    max_retries: int
    timeout: int
    lease_ms: int
    scheduled_at: str
    tags: list[str]
    schedule_name: str | None = None
    slot_at: str | None = None
    traceparent: str | None = None


class ClaimedView(msgspec.Struct, frozen=True):
    jobs: list[HandedJobView]


class ReportBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job that still runs."""

    id: str
    token: _Token
    progress: Annotated[float, doc("From 0 to 1.", minimum=0, maximum=1)] | None = None
    message: Annotated[str, doc("What it does now.", maxLength=MOST_LINE)] | None = None
    log: Annotated[list[str], doc("New lines for the log of the job.", maxItems=MOST_LINES)] | None = None

    def reported(self, place: str) -> Reported:
        if self.progress is not None and not 0 <= self.progress <= 1:
            raise Invalid(f"{place}.progress", "must be a number from 0 to 1")
        lines = self.log or []
        if len(lines) > MOST_LINES:
            raise Invalid(f"{place}.log", f"at most {MOST_LINES} lines are allowed")
        for text, field in [(self.message or "", "message"), *((line, "log") for line in lines)]:
            _check(text, f"{place}.{field}", MOST_LINE)
        return Reported(_lease(self.id, self.token, place), self.progress, self.message, tuple(lines))


class RenewRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The jobs that still run. An idle worker sends none, as a sign of life."""

    jobs: Annotated[list[ReportBody], doc("The jobs.", maxItems=MOST_RENEWED)]

    def reports(self) -> list[Reported]:
        if len(self.jobs) > MOST_RENEWED:
            raise Invalid("jobs", f"at most {MOST_RENEWED} jobs are allowed")
        return [one.reported(f"jobs[{n}]") for n, one in enumerate(self.jobs)]


class LeaseView(msgspec.Struct, frozen=True):
    id: str
    token: int


class RenewedView(msgspec.Struct, frozen=True, rename="camel"):
    """`leaseMs` counts from when the request was sent. Stop `lost` jobs without settling them; stop `cancelled` ones too,
    and settle them."""

    lease_ms: int
    lost: list[LeaseView]
    cancelled: list[LeaseView]


class ErrorBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a run failed."""

    type: Annotated[str, doc("The class of the error.", minLength=1, maxLength=MOST_NAME)]
    message: Annotated[str, doc("Its text; cut after 2000 characters.")] = ""
    traceback: Annotated[str, doc("Where it happened; the last 20,000 characters are kept.")] | None = None
    permanent: Annotated[bool, doc("Whether trying again is useless.")] = False

    def raised(self, after: timedelta | None, place: str) -> Raised:
        _check(self.type, f"{place}.error.type", MOST_NAME)
        check_text(self.message, f"{place}.error.message")
        trace = None if self.traceback is None else self.traceback[-MOST_TRACEBACK:]
        if trace is not None:
            check_text(trace, f"{place}.error.traceback")
        said = f"{self.type}: {self.message}" if self.message else self.type
        return Raised(said[:MOST_ERROR], trace, permanent=self.permanent, after=after)


_OUTCOMES = ("completed", "failed", "retry", "snooze", "cancelled", "handedBack")


class OutcomeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What became of a job."""

    id: str
    token: _Token
    outcome: Annotated[str, doc("How the run ended.", enum=list(_OUTCOMES))]
    result: Annotated[Any, doc("What the handler returned, with `completed`.")] = None
    error: Annotated[ErrorBody, doc("Why, with `failed`, `retry` and `cancelled`.")] | None = None
    reason: Annotated[str, doc("Why, with `cancelled` in place of `error`; cut after 2000 characters.")] | None = None
    after: Annotated[int, doc("When to run it again, with `retry` and `snooze`, in milliseconds.", minimum=0)] | None = None

    def settled(self, place: str) -> tuple[Lease, Outcome]:
        return _lease(self.id, self.token, place), self._outcome(place)

    def _outcome(self, place: str) -> Outcome:
        after = None if self.after is None else span(as_span(self.after), f"{place}.after")
        error = self.error or ErrorBody("Failed" if self.outcome == "failed" else "Retry")
        match self.outcome:
            case "completed":
                return Succeeded(pack(self.result, f"{place}.result"))
            case "failed":
                return error.raised(None, place)
            case "retry":
                return error.raised(after, place)
            case "snooze":
                if after is None:
                    raise Invalid(f"{place}.after", "is required with snooze")
                return Snoozed(after)
            case "cancelled":
                return self._cancelled(place)
            case "handedBack":
                return HandedBack()
        raise Invalid(f"{place}.outcome", f"must be one of {', '.join(_OUTCOMES)}")

    def _cancelled(self, place: str) -> Cancelled:
        if self.reason is not None:
            check_text(self.reason, f"{place}.reason")
            return Cancelled(self.reason[:MOST_ERROR])
        return Cancelled(WHILE_RUNNING if self.error is None else self.error.raised(None, place).error)


class SettleRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The jobs whose runs have ended."""

    jobs: Annotated[list[OutcomeBody], doc("The jobs.", minItems=1, maxItems=MOST_SETTLED)]

    def outcomes(self) -> list[tuple[Lease, Outcome]]:
        if not 1 <= len(self.jobs) <= MOST_SETTLED:
            raise Invalid("jobs", f"must be 1 to {MOST_SETTLED} jobs")
        return [one.settled(f"jobs[{n}]") for n, one in enumerate(self.jobs)]


class SettledJobView(msgspec.Struct, frozen=True):
    """A job and its new status; null if its lease went elsewhere, and nothing was recorded."""

    id: str
    status: str | None


class SettledView(msgspec.Struct, frozen=True):
    jobs: list[SettledJobView]


def handed_job_view(handed: HandedJob) -> HandedJobView:
    job = handed.job
    return HandedJobView(
        id=job.lease.id,
        token=job.lease.token,
        type=job.type,
        name=job.name,
        queue=job.queue,
        payload=msgspec.Raw(job.payload),
        attempt=job.retry_state.attempt,
        max_retries=job.retry_state.max_retries,
        timeout=span_ms(handed.timeout),
        lease_ms=handed.lease // timedelta(milliseconds=1),
        scheduled_at=timestamp(job.scheduled_at),
        tags=list(job.tags),
        schedule_name=job.schedule,
        slot_at=None if job.slot_at is None else timestamp(job.slot_at),
        traceparent=job.traceparent,
    )


def read_handed_job(view: HandedJobView) -> ClaimedJob:
    """Return the job of a view, as a worker of demora runs it. Its retry delay is 0: the service computes the real one."""
    return ClaimedJob(
        lease=Lease(view.id, view.token),
        type=view.type,
        name=view.name,
        queue=view.queue,
        priority=Priority.NORMAL,
        payload=bytes(view.payload),
        retry_state=RetryState(view.attempt, view.max_retries, ZERO),
        timeout=timedelta(milliseconds=view.timeout),
        scheduled_at=datetime.fromisoformat(view.scheduled_at),
        tags=tuple(view.tags),
        schedule=view.schedule_name,
        slot_at=None if view.slot_at is None else datetime.fromisoformat(view.slot_at),
        traceparent=view.traceparent,
    )


def renewed_view(status: LeaseStatus, lease: timedelta) -> RenewedView:
    return RenewedView(span_ms(lease), _leases(status.lost), _leases(status.cancel_requested))


def outcome_body(settlement: Settlement) -> OutcomeBody:
    """Return how a run of a worker of demora ended. The service reads it with `OutcomeBody.settled`."""
    id, token = settlement.report.lease.id, settlement.report.lease.token
    match settlement.outcome:
        case Succeeded(result):
            return OutcomeBody(id, token, "completed", result=msgspec.Raw(result))
        case Raised(after=after) as failure:
            how, wait = ("failed", None) if after is None else ("retry", span_ms(after))
            return OutcomeBody(id, token, how, error=_error_body(failure), after=wait)
        case Snoozed(delay):
            return OutcomeBody(id, token, "snooze", after=span_ms(delay))
        case Cancelled(reason):
            return OutcomeBody(id, token, "cancelled", reason=reason)
        case HandedBack():
            return OutcomeBody(id, token, "handedBack")
        case NoHandler():
            return OutcomeBody(id, token, "snooze", after=span_ms(NO_HANDLER_DELAY))
        case Lapsed(worker_id):
            return OutcomeBody(id, token, "failed", error=_error_body(Raised(lost_error(worker_id))))


def _error_body(failure: Raised) -> ErrorBody:
    type, _, message = failure.error.partition(": ")
    return ErrorBody(type[:MOST_NAME] or "Failed", message, failure.traceback, failure.permanent)


def settled_view(outcomes: list[tuple[Lease, Outcome]], statuses: list[Status | None]) -> SettledView:
    pairs = zip(outcomes, statuses, strict=True)
    return SettledView([SettledJobView(lease.id, None if status is None else status.name) for (lease, _), status in pairs])


def _leases(leases: frozenset[Lease]) -> list[LeaseView]:
    return [LeaseView(lease.id, lease.token) for lease in sorted(leases, key=lambda lease: (lease.id, lease.token))]


def _lease(id: str, token: int, place: str) -> Lease:
    if not 1 <= token <= _MOST_TOKEN:
        raise Invalid(f"{place}.token", "must be the token of a claim")
    return Lease(id, token)


def _check(text: str, field: str, most: int) -> None:
    if len(text) > most:
        raise Invalid(field, f"must be text of at most {most} characters")
    check_text(text, field)

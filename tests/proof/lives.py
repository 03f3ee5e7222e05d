"""Histories made by hand: lives that go as they should, but for what a test makes go wrong."""

import itertools
from typing import Any

from demora.proof import ClientEvent, Findings, HandlerEvent, HistoryEvent, SqlEvent, check
from demora.store.audit import Evidence, JobFacts

START = 1_800_000_000_000
LEASE = 30_000
JOB = "01900000-0000-7000-8000-000000000001"
OTHER = "01900000-0000-7000-8000-000000000002"
_calls = itertools.count(1)


class Life:
    """A job that is led from event to event. Each step may be told fields that it would not have by itself."""

    def __init__(self, job: str = JOB, *, seq: int = 0) -> None:
        self.job, self.seq = job, seq
        self.at, self.boot = START, 1_000_000
        self.events: list[SqlEvent] = []
        self.stands: dict[str, Any] = {"max_retries": 1, "due_at": START, "queue": "default", "lane": 0, "rank": 2}
        self.status: str | None = None
        self.token: int | None = None
        self.lease: int | None = None

    def wait(self, ms: int) -> "Life":
        self.at += ms
        self.boot += ms
        return self

    def added(self, **odd: Any) -> "Life":
        return self._step("added", status="QUEUED", token=0, **odd)

    def claimed(self, worker: str = "ann", **odd: Any) -> "Life":
        lease = {"lease_until": self.boot + LEASE, "worker": worker}
        return self._step("claimed", status="PROCESSING", **{"token": (self.token or 0) + 1, **lease, **odd})

    def renewed(self, **odd: Any) -> "Life":
        return self._step("renewed", lease_until=self.boot + LEASE, **odd)

    def cancel_requested(self) -> "Life":
        return self._step("cancel_requested", cancel_requested=True, lease_until=self.lease)

    def settled(self, status: str = "COMPLETED", **odd: Any) -> "Life":
        return self._step("settled", status=status, lease_until=None, **odd)

    def failed_once(self, **odd: Any) -> "Life":
        """Settled as a failure that is tried again, at once."""
        retries = self.stands.get("retries", 0) + 1
        return self.settled("RETRYING", **{"retries": retries, "error": "ValueError: no", "due_at": self.at, **odd})

    def handed_back(self, **odd: Any) -> "Life":
        return self.settled("QUEUED", **{"credits": self.stands.get("credits", 0) + 1, **odd})

    def buried(self, **odd: Any) -> "Life":
        return self.settled("FAILED", **{"error": "ValueError: no", **odd})

    def lapsed(self, status: str = "RETRYING", **odd: Any) -> "Life":
        """Settled by another because the lease ran out."""
        retries = self.stands.get("retries", 0) + (status == "RETRYING")
        return self.settled(status, **{"retries": retries, "error": "WorkerLost: worker ann stopped renewing", **odd})

    def cancelled(self, **odd: Any) -> "Life":
        return self._step("cancelled", status="CANCELLED", **odd)

    def retried(self, **odd: Any) -> "Life":
        anew = {
            "generation": self.stands.get("generation", 1) + 1,
            "credits": self.token,
            "retries": 0,
            "cancel_requested": False,
        }
        return self._step("retried", status="QUEUED", **{**anew, "due_at": self.at, **odd})

    def changed(self, **odd: Any) -> "Life":
        return self._step("changed", **odd)

    def removed(self) -> "Life":
        return self._step("removed", status=None)

    def stale(self, wrote: str, token: int) -> "Life":
        return self._trace("stale", wrote, token)

    def accepted(self, wrote: str = "settle", token: int | None = None) -> "Life":
        return self._trace("accepted", wrote, self.token or 0 if token is None else token)

    def _trace(self, kind: Any, wrote: str, token: int) -> "Life":
        self.seq += 1
        stood = {"old_status": self.status, "old_token": self.token, "old_lease_until": self.lease}
        self.events.append(SqlEvent(self.seq, self.at, self.boot, self.job, kind, wrote, token=token, **stood))
        return self

    def _step(self, kind: Any, **facts: Any) -> "Life":
        self.seq += 1
        old = {"old_status": self.status, "old_token": self.token, "old_lease_until": self.lease}
        kept = {"status": self.status, "token": self.token or 0, **self.stands}
        event = SqlEvent(self.seq, self.at, self.boot, self.job, kind, **{**old, **kept, **facts})
        self.events.append(event)
        self.status, self.token, self.lease = event.status, event.token, event.lease_until
        for name in ("due_at", "credits", "retries", "generation", "cancel_requested", "expires_at", "unique"):
            self.stands[name] = getattr(event, name)
        return self


def failed_twice(life: Life) -> Life:
    """A life up to its dead letter: two attempts of two."""
    return life.added().claimed().failed_once().claimed().buried()


def call(
    op: Any, kind: Any, *jobs: str, at: int = START, asked: dict[str, Any] | None = None, **answer: Any
) -> list[HistoryEvent]:
    """A client's call about jobs and its outcome."""
    number = str(next(_calls))
    invoke = ClientEvent("invoke", op, number, at, jobs, **(asked or {}))
    return [invoke, ClientEvent(kind, op, number, at + 1, jobs, **answer)]


def start(token: int = 1, **facts: Any) -> HandlerEvent:
    return HandlerEvent("start", JOB, token, START, **facts)


def end(token: int = 1, outcome: str = "ok", **facts: Any) -> HandlerEvent:
    return HandlerEvent("end", JOB, token, START, outcome=outcome, **facts)


def facts(job: str = JOB, status: str = "COMPLETED", **changes: Any) -> JobFacts:
    """A row that agrees with itself."""
    usual = {"token": 1, "attempt": 1, "max_retries": 1, "created_at": START, "due_at": START}
    whole = {"PROCESSING": {"lease_until": 1_000_000}, "QUEUED": {"token": 0, "attempt": 0}}
    ended = {"completed_at": START}
    return JobFacts(job, status, **{**usual, **whole.get(status, ended), **changes})


def evidence(*jobs: JobFacts, **changes: Any) -> Evidence:
    return Evidence(**{"now": START + 60_000, "jobs": list(jobs), **changes})


def broken(findings: Findings) -> list[str]:
    """The rules that were broken, each once."""
    return sorted({violation.rule for violation in findings.violations})


def rules_broken(life: Life, *more: HistoryEvent) -> list[str]:
    return broken(check([*life.events, *more]))

"""Judges the rows of jobs: each must agree with itself, with its attempts and events, and with the counts that are shown."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ..store.audit import Evidence, JobFacts, QueueFacts
from .findings import Fault
from .history import SqlEvent
from .lives import ENDED, TRACES, WAITING
from .paces import kept_to


def judge_row(job: JobFacts) -> Iterator[Fault]:
    """Yield the faults of one row by itself."""
    if (job.lease_until is not None) != (job.status == "PROCESSING"):
        yield "I17", f"is {job.status} and has {'a' if job.lease_until is not None else 'no'} lease"
    if (job.completed_at is not None) != (job.status in ENDED):
        yield "I17", f"is {job.status} and has {'an' if job.completed_at is not None else 'no'} end time"
    yield from _attempts(job)
    if job.status == "FAILED" and not job.error:
        yield "I12", "is a dead letter without an error"


def judge_drained(job: JobFacts, now: int, paused: frozenset[str]) -> Iterator[Fault]:
    """Once the queues had time to empty, a job has ended, or is due later, or its queue is paused."""
    if job.status in ENDED or (job.status in WAITING and (job.due_at > now or job.queue in paused)):
        return
    yield "I1", f"is still {job.status} after the queues were drained, {now - job.due_at} ms after it was due"


def judge_last(job: JobFacts, events: Sequence[SqlEvent]) -> Iterator[Fault]:
    """The row agrees with the last event."""
    last = next((event for event in reversed(events) if event.kind not in TRACES), None)
    if last is None or (last.status, last.token, last.generation) == (job.status, job.token, job.generation):
        return
    rule = "I2" if last.status in ENDED and last.generation == job.generation else "I17"
    was = f"{last.status} with token {last.token} in generation {last.generation}"
    yield rule, f"was {was} by its last event and is {job.status} with token {job.token} in generation {job.generation}"


def judge_counts(evidence: Evidence) -> Iterator[Fault]:
    """The counts that demora shows are those of the rows."""
    kept = {queue: list(kept_to(queue, evidence.paces)) for queue in {job.queue for job in evidence.jobs}}
    held = {queue: paces[-1].lanes for queue, paces in kept.items() if paces}
    counted = Counter((job.queue, _where(job, evidence.now, held.get(job.queue, ()))) for job in evidence.jobs)
    named = {queue.name for queue in evidence.queues}
    for queue in evidence.queues:
        for where in ("ready", "delayed", "processing", "dead"):
            shown, true = _shown(queue, where), counted[queue.name, where]
            if shown != true:
                yield "I15", f"queue {queue.name} shows {shown} {where} and has {true}"
    for name in sorted({job.queue for job in evidence.jobs} - named):
        yield "I15", f"queue {name} has jobs and is not shown"


def judge_keys(evidence: Evidence, lives: Mapping[str, Sequence[SqlEvent]]) -> Iterator[tuple[str, Fault]]:
    """A key from after the beginning of the audit leads to a job that was added. The job may be gone: keys outlive jobs."""
    since = min((life[0].at for life in lives.values()), default=evidence.now)
    known = {job.id for job in evidence.jobs}
    for key in evidence.keys:
        if key.created_at > since and key.job not in known and key.job not in lives:
            yield key.job, ("I10", f"is the job of the key {key.key!r}, and was never added")


def judge_webhooks(evidence: Evidence, lives: Mapping[str, Sequence[SqlEvent]]) -> Iterator[tuple[str, Fault]]:
    """Each end of a job with a webhook has one delivery, recorded in the same transaction. The id of a delivery begins with
    the time of the end, so that a removed delivery can be recognised."""
    deliveries = Counter(job.cause for job in evidence.jobs if job.cause is not None)
    removed = {_time(id) for id, life in lives.items() if any(event.kind == "removed" for event in life)}
    ends = {job.id: job.completed_at for job in evidence.jobs if _has_delivery(job)}
    since = min((life[0].at for life in lives.values()), default=evidence.now)
    for id, at in ends.items():
        if at is not None and at >= since and not deliveries[id] and at not in removed:
            yield id, ("I13", "has ended and has a webhook, but there is no delivery")
    for job in evidence.jobs:
        if deliveries[job.id] > job.generation:
            yield job.id, ("I13", f"has {deliveries[job.id]} deliveries about {job.generation} ends")
        if job.cause is not None and job.webhook:
            yield job.id, ("I13", "is a delivery and has a webhook itself")
        if job.cause in ends and job.generation == 1 and job.created_at < _time(job.id):
            yield job.id, ("I13", "is a delivery about an end that came after it")


def _has_delivery(job: JobFacts) -> bool:
    return job.webhook and (job.status in ("COMPLETED", "FAILED") or (job.status == "CANCELLED" and job.on_cancel))


def _time(id: str) -> int:
    """Return the milliseconds at the beginning of an id."""
    return int(id[:8] + id[9:13], 16)


def _attempts(job: JobFacts) -> Iterator[Fault]:
    most, running = job.max_retries + 1, job.status in ("PROCESSING", "COMPLETED")
    if not 0 <= job.attempt <= min(most, job.token):
        yield "I5", f"counts {job.attempt} attempts of {most} with token {job.token}"
    elif job.retry_count > job.max_retries:
        yield "I5", f"counts {job.retry_count} retries of {job.max_retries}"
    elif any(not 0 < token <= job.token for token in job.recorded):
        yield "I5", f"has an attempt on record under a token beyond its own, {job.token}"
    elif len(job.recorded) < job.attempt - running or (job.generation == 1 and len(job.recorded) > job.attempt - running):
        yield "I5", f"has {len(job.recorded)} attempts on record and counts {job.attempt}, being {job.status}"


def _where(job: JobFacts, now: int, held: Sequence[int]) -> str:
    if job.status in WAITING:
        return "ready" if job.due_at <= now and job.lane not in held else "delayed"
    return {"PROCESSING": "processing", "FAILED": "dead"}.get(job.status, "ended")


def _shown(queue: QueueFacts, where: str) -> int:
    shown: int = getattr(queue, where)
    return shown

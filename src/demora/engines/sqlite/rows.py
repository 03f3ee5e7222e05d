"""The mapping between SQLite rows and the values of the core."""

import json
from datetime import timedelta
from functools import lru_cache
from typing import Any

import msgspec

from ...core.job import Attempt, Job, Lane, LogLine, NewJob, Priority, QueueOrder
from ...core.retention import Retention
from ...core.spans import from_ms, span_ms, to_ms
from ...core.states import Status
from ...core.verdict import RetryState
from ...store.jobs import ClaimedJob, LapsedJob, Lease, Pause, Queue

Row = tuple[Any, ...]


def id_bytes(id: str) -> bytes | None:
    """The stored form of an id, or None if the text is not an id."""
    if len(id) == 36 and id.isascii() and id[8] == id[13] == id[18] == id[23] == "-":
        try:
            return bytes.fromhex(id[:8] + id[9:13] + id[14:18] + id[19:23] + id[24:])
        except ValueError:
            return None
    return None


def id_text(id: bytes) -> str:
    text = id.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def due_ms(job: NewJob, wall: int) -> int:
    """When a new job is due; a time that has passed means now."""
    if job.at is not None:
        return max(to_ms(job.at), wall)
    return wall if job.delay is None else wall + span_ms(job.delay)


def expiry_ms(job: NewJob, wall: int) -> int | None:
    if job.expires_at is not None:
        return to_ms(job.expires_at)
    return None if job.expires_in is None else wall + span_ms(job.expires_in)


def new_row(job: NewJob, id: bytes, wall: int, move: int | None) -> Row:
    due_at = due_ms(job, wall)
    later = due_at > wall
    return (
        id,
        job.type,
        None if job.name == job.type else job.name,
        job.queue,
        Status.QUEUED.value,
        Lane.SCHEDULED.value if later else Lane.REALTIME.value,
        job.priority.value,
        due_at,
        wall,
        due_at if later else None,
        job.max_retries,
        span_ms(job.retry_delay),
        None if job.timeout is None else span_ms(job.timeout),
        job.payload.decode(),
        json.dumps(job.tags) if job.tags else None,
        job.webhook_url,
        expiry_ms(job, wall),
        None if job.unique is None else job.unique.key,
        int(job.webhook_on_cancel),
        None if job.cause is None else id_bytes(job.cause),
        move,
        job.namespace,
        job.submitter,
    )


def claimed_job(row: Row) -> ClaimedJob:
    (
        _,
        id,
        token,
        type,
        name,
        queue,
        rank,
        payload,
        credits,
        strays,
        max_retries,
        retry_delay,
        timeout,
        scheduled,
        tags,
    ) = row
    return ClaimedJob(
        lease=Lease(id_text(id), token),
        type=type,
        name=name or type,
        queue=queue,
        priority=_PRIORITIES[rank],
        payload=payload.encode(),
        standing=RetryState(token - credits, max_retries, _span(retry_delay), strays),
        timeout=None if timeout is None else _span(timeout),
        scheduled_at=from_ms(scheduled),
        tags=_tags(tags),
    )


def lapsed_job(row: Row) -> LapsedJob:
    id, token, credits, strays, max_retries, retry_delay, worker_id, type = row
    standing = RetryState(token - credits, max_retries, _span(retry_delay), strays)
    return LapsedJob(Lease(id_text(id), token), type, worker_id, standing)


def whole_job(row: Row, attempts: list[Attempt], log: list[LogLine], to_wall: int) -> Job:
    """A job from its row; `to_wall` turns milliseconds of this boot into wall time."""
    (id, type, name, queue, status, lane, rank, due_at, created_at, scheduled_at, max_retries, retry_delay, timeout, token,
     credits, retries, generation, payload, tags, webhook_url, worker_id, lease_until, started_at, completed_at,
     cancel_requested_at, progress, progress_message, result, error, expires_at, unique_key, on_cancel,
     cause) = row  # fmt: skip
    if status == Status.COMPLETED:
        attempts = [*attempts, Attempt(token, _time(started_at), _time(completed_at), worker_id)]
    return Job(
        id=id_text(id),
        name=name or type,
        type=type,
        queue=queue,
        payload_json=b"" if payload is None else payload.encode(),
        priority=Priority(rank),
        status=Status(status),
        lane=Lane(lane),
        created_at=from_ms(created_at),
        scheduled_at=from_ms(created_at if scheduled_at is None else scheduled_at),
        due_at=from_ms(due_at),
        max_retries=max_retries,
        retry_delay=_span(retry_delay),
        timeout=None if timeout is None else _span(timeout),
        tags=_tags(tags),
        webhook_url=webhook_url,
        token=token,
        attempt=token - credits,
        retry_count=retries,
        generation=generation,
        started_at=_time(started_at),
        completed_at=_time(completed_at),
        lease_until=None if lease_until is None else from_ms(lease_until + to_wall),
        worker_id=worker_id,
        cancel_requested_at=_time(cancel_requested_at),
        progress=progress,
        progress_message=progress_message,
        result_json=None if result is None else result.encode(),
        error=error,
        expires_at=_time(expires_at),
        unique_key=unique_key,
        webhook_on_cancel=bool(on_cancel),
        cause=None if cause is None else id_text(cause),
        attempts=tuple(attempts),
        log=tuple(log),
    )


def attempt(row: Row) -> Attempt:
    _, token, started_at, ended_at, worker_id, error, traceback = row
    return Attempt(token, _time(started_at), _time(ended_at), worker_id, error, traceback)


def queue_order(step: int | None, strict: int | None, head_start: int | None) -> QueueOrder:
    usual = QueueOrder()
    return QueueOrder(
        step=usual.step if step is None else _span(step),
        strict=bool(strict),
        head_start=usual.head_start if head_start is None else _span(head_start),
    )


def queue(row: Row, ready: int = 0, delayed: int = 0, processing: int = 0, dead: int = 0) -> Queue:
    name, step, strict, head_start, paused_at, reason, by, own, url = row
    pause = None if paused_at is None else Pause(reason, from_ms(paused_at), by)
    return Queue(name, queue_order(step, strict, head_start), pause, retention(own), ready, delayed, processing, dead, url)


def retention(own: str | None) -> Retention:
    return Retention() if own is None else msgspec.json.decode(own, type=Retention)


_PRIORITIES = tuple(Priority)


@lru_cache(maxsize=1024)
def _span(ms: int) -> timedelta:
    return timedelta(milliseconds=ms)


def _time(ms: int | None) -> Any:
    return None if ms is None else from_ms(ms)


def _tags(tags: str | None) -> tuple[str, ...]:
    return tuple(json.loads(tags)) if tags else ()

"""The mapping between SQLite rows and the values of the core, and reading jobs."""

import json
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from uuid_utils import UUID

from ...core.job import Attempt, Job, Lane, LogLine, NewJob, Priority, due_ms, lane_for, lane_of
from ...core.spans import from_ms, span_ms, to_ms
from ...core.states import Status
from ...core.verdict import RetryState
from ...store.jobs import ClaimedJob, LapsedJob, Lease, LeasedJob, Pause, Queue
from ..sql.columns import queue_order, retention
from ..sql.columns import span as _span
from ..sql.columns import tags as _tags
from ..sql.columns import time as _time
from .connection.connections import SQL
from .connection.transactions import Transaction

Row = tuple[Any, ...]
_PRIORITIES = tuple(Priority)
ID, DUE_AT, TAGS, EXPIRES_AT = 0, 7, 14, 16  # their places in the row of a new job
OF_A_SCHEDULE = 24  # the place from which on only a job of a schedule has values
_TOKEN = 13  # its place in the row of a whole job
_QUEUED = Status.QUEUED.value
_span_ms = lru_cache(maxsize=1024)(span_ms)  # most jobs have one of a few spans


def id_bytes(id: str) -> bytes | None:
    """The stored form of an id, or None if the text is not an id."""
    if len(id) != 36:  # the length of an id with its dashes; other forms of a UUID are no ids
        return None
    try:
        return UUID(id).bytes
    except ValueError:
        return None


def id_text(id: bytes) -> str:
    text = id.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def expiry_ms(job: NewJob, wall: int) -> int | None:
    if job.expires_at is not None:
        return to_ms(job.expires_at)
    return None if job.expires_in is None else wall + span_ms(job.expires_in)


def new_row(
    job: NewJob, id: bytes, wall: int, move: int | None, schedule: str | None = None, slot_at: int | None = None
) -> Row:
    """The parameters of `add`."""
    due_at = due_ms(job.at, job.delay, wall)
    lane = lane_for(due_at, wall, of_schedule=schedule is not None)
    return (
        id,
        job.type,
        None if job.name == job.type else job.name,
        job.queue,
        _QUEUED,
        lane,
        job.priority,
        due_at,
        wall,
        due_at if lane is Lane.SCHEDULED else None,
        job.max_retries,
        _span_ms(job.retry_delay),
        None if job.timeout is None else _span_ms(job.timeout),
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
        job.traceparent,
        schedule,
        slot_at,
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
        schedule,
        slot_at,
        traceparent,
    ) = row
    return ClaimedJob(  # in the order of its fields: names would take longer than all the rest
        Lease(id_text(id), token),
        type,
        name or type,
        queue,
        _PRIORITIES[rank],
        payload.encode(),
        RetryState(token - credits, max_retries, _span(retry_delay), strays),
        None if timeout is None else _span(timeout),
        from_ms(scheduled),
        _tags(tags),
        schedule,
        _time(slot_at),
        traceparent,
    )


def lapsed_job(row: Row) -> LapsedJob:
    id, token, credits, strays, max_retries, retry_delay, worker_id, type = row
    retry_state = RetryState(token - credits, max_retries, _span(retry_delay), strays)
    return LapsedJob(Lease(id_text(id), token), type, worker_id, retry_state)


def leased_job(row: Row, wall: int) -> LeasedJob:
    id, token, type, credits, strays, max_retries, retry_delay, timeout, claimed_at = row
    return LeasedJob(
        lease=Lease(id_text(id), token),
        type=type,
        retry_state=RetryState(token - credits, max_retries, _span(retry_delay), strays),
        timeout=None if timeout is None else _span(timeout),
        leased_for=_span(max(wall - claimed_at, 0)),
    )


def whole_job(row: Row, attempts: list[Attempt], log: list[LogLine], to_wall: int) -> Job:
    """A job from its row; `to_wall` turns milliseconds of this boot into wall time."""
    (id, type, name, queue, status, lane, rank, due_at, created_at, scheduled_at, max_retries, retry_delay, timeout, token,
     credits, retries, generation, payload, tags, webhook_url, worker_id, lease_until, started_at, completed_at,
     cancel_requested_at, progress, progress_message, result, error, expires_at, unique_key, on_cancel,
     cause, schedule, slot_at) = row  # fmt: skip
    if status == Status.COMPLETED:
        attempts = [*attempts, Attempt(token, _time(started_at), _time(completed_at), worker_id)]
    return Job(  # in the order of its fields: names would take longer than all the rest
        id_text(id),
        name or type,
        type,
        queue,
        b"" if payload is None else payload.encode(),
        _PRIORITIES[rank],
        Status(status),
        lane_of(lane),
        from_ms(created_at),
        from_ms(created_at if scheduled_at is None else scheduled_at),
        from_ms(due_at),
        max_retries,
        _span(retry_delay),
        None if timeout is None else _span(timeout),
        _tags(tags),
        webhook_url,
        token,
        token - credits,  # its attempt
        retries,
        generation,
        _time(started_at),
        _time(completed_at),
        None if lease_until is None else from_ms(lease_until + to_wall),
        worker_id,
        _time(cancel_requested_at),
        progress,
        progress_message,
        None if result is None else result.encode(),
        error,
        _time(expires_at),
        unique_key,
        bool(on_cancel),
        None if cause is None else id_text(cause),
        schedule,
        _time(slot_at),
        tuple(attempts),
        tuple(log),
    )


def attempt(row: Row) -> Attempt:
    _, token, started_at, ended_at, worker_id, error, traceback = row
    return Attempt(token, _time(started_at), _time(ended_at), worker_id, error, traceback)


def queue(row: Row, ready: int = 0, delayed: int = 0, processing: int = 0, dead: int = 0) -> Queue:
    name, step, strict, head_start, paused_at, reason, by, own, url = row
    pause = None if paused_at is None else Pause(reason, from_ms(paused_at), by)
    return Queue(name, queue_order(step, strict, head_start), pause, retention(own), ready, delayed, processing, dead, url)


# Reading jobs


def get(tx: Transaction, id: str) -> Job | None:
    key = id_bytes(id)
    row = tx.db.execute(SQL["job"], (key,)).fetchone()
    if row is None or key is None:
        return None
    if not row[_TOKEN]:  # it was never claimed, so that it has no attempts and no log
        return whole_job(row, [], [], tx.wall - tx.boot)
    log = [LogLine(from_ms(at), line) for at, line in tx.db.execute(SQL["logs"], (key,))]
    return whole_job(row, attempts_of(tx, [key])[key], log, tx.wall - tx.boot)


def listed(tx: Transaction, ids: Iterable[str]) -> list[Job]:
    """The jobs with these ids, in their order, without payload, result and log."""
    keys = list(filter(None, map(id_bytes, ids)))
    found = {row[0]: row for row in tx.db.execute(SQL["listed"], (json.dumps([key.hex() for key in keys]),))}
    attempts = attempts_of(tx, found)
    return [whole_job(found[key], attempts[key], [], tx.wall - tx.boot) for key in keys if key in found]


def attempts_of(tx: Transaction, keys: Iterable[bytes]) -> dict[bytes, list[Attempt]]:
    attempts: dict[bytes, list[Attempt]] = defaultdict(list)
    for row in tx.db.execute(SQL["attempts"], (json.dumps([key.hex() for key in keys]),)):
        attempts[row[0]].append(attempt(row))
    return attempts

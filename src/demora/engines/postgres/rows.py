"""The mapping between PostgreSQL rows and the values of the core, and reading jobs."""

import json
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from ...core.job import Attempt, Job, Lane, LogLine, NewJob, Priority, QueueOrder, lane_of
from ...core.spans import from_ms, span_ms, to_ms
from ...core.states import Status
from ...core.verdict import RetryState
from ...store.jobs import ClaimedJob, LapsedJob, Lease, LeasedJob, Pause, Queue
from ..sql.columns import queue_order, retention
from ..sql.columns import span as _span
from ..sql.columns import tags as _tags
from ..sql.columns import time as _time
from .connection.connections import Session

Row = Any  # a record of the driver, which is a tuple whose fields have names
_ID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def id_key(id: str) -> str | None:
    """The id as the database accepts it, or None if the text is not an id."""
    return id.lower() if _ID.fullmatch(id) else None


def text(words: str | None) -> str | None:
    """A text that the database can store: PostgreSQL does not accept the character zero."""
    return words.replace("\0", "\ufffd") if words and "\0" in words else words


def new_jobs(jobs: Sequence[NewJob]) -> dict[str, Any]:
    """The parameters of `add`: those of `add_due`, and when the jobs are due. An empty array stands for no value in any."""
    return {
        **due_jobs(jobs),
        "ats": _if_any([_ms_or_none(job.at) for job in jobs]),
        "delays": _if_any([_span_or_none(job.delay) for job in jobs]),
    }


def due_jobs(jobs: Sequence[NewJob]) -> dict[str, Any]:
    """The parameters of `add_due`. What the jobs have in common is written once, as JSON; what differs is in arrays, which
    the driver writes value by value."""
    numbers: dict[tuple[Any, ...], int] = {}
    firsts: list[NewJob] = []
    kinds_of: list[int] = []
    for job in jobs:
        number = numbers.setdefault(_common(job), len(numbers) + 1)
        if number > len(firsts):
            firsts.append(job)
        kinds_of.append(number)
    return {
        "ids": [job.id for job in jobs],
        "payloads": [job.payload.decode() for job in jobs],
        "kinds_of": kinds_of if len(firsts) > 1 else [],
        "kinds": _encode([_kind(job) for job in firsts]).decode(),
    }


def new_job(job: NewJob) -> dict[str, Any]:
    """The parameters of a statement about one new job, by name."""
    own = {"id": job.id, "at": _ms_or_none(job.at), "delay": _span_or_none(job.delay), "payload": job.payload.decode()}
    return {**own, **dict(zip(_KIND, _kind(job), strict=True))}


def _if_any(values: list[int | None]) -> list[int | None]:
    return values if any(value is not None for value in values) else []


# The names of the fields of `_kind`, in the order in which `add` reads them.
_KIND = (
    "type",
    "name",
    "queue",
    "rank",
    "max_retries",
    "retry_delay",
    "timeout",
    "tags",
    "webhook_url",
    "expiry",
    "expires_in",
    "unique_key",
    "webhook_on_cancel",
    "cause",
    "namespace",
    "submitter",
    "traceparent",
)
_encode = msgspec.json.Encoder().encode
# The fields of a job that make its kind, unconverted: equal ones make equal kinds.
_common = attrgetter(*(name for name in NewJob.__struct_fields__ if name not in ("id", "payload", "at", "delay", "key")))


def _kind(job: NewJob) -> tuple[Any, ...]:
    """What this job may have in common with other jobs of the same call."""
    return (
        job.type,
        None if job.name == job.type else text(job.name),
        job.queue,
        job.priority.value,
        job.max_retries,
        _span_ms(job.retry_delay),
        _span_or_none(job.timeout),
        json.dumps(job.tags) if job.tags else None,
        job.webhook_url,
        _ms_or_none(job.expires_at),
        _span_or_none(job.expires_in),
        None if job.unique is None else job.unique.key,
        job.webhook_on_cancel,
        job.cause,
        job.namespace,
        job.submitter,
        job.traceparent,
    )


def claimed_job(row: Row) -> ClaimedJob:
    type, token = row["type"], row["token"]
    return ClaimedJob(  # in the order of its fields: names would take longer than all the rest
        Lease(str(row["id"]), token),
        type,
        row["name"] or type,
        row["queue"],
        _PRIORITIES[row["rank"]],
        row["payload"].encode(),
        RetryState(token - row["credits"], row["max_retries"], _span(row["retry_delay"]), row["strays"]),
        None if row["timeout"] is None else _span(row["timeout"]),
        from_ms(row["scheduled_at"]),
        _tags(row["tags"]),
        row["schedule"],
        _time(row["slot_at"]),
        row["traceparent"],
    )


def lapsed_jobs(rows: str | None) -> list[LapsedJob]:
    """The jobs whose lease has lapsed, from the JSON of `claim`."""
    return [
        LapsedJob(Lease(id, token), type, worker_id, RetryState(token - credits, max_retries, _span(retry_delay), strays))
        for id, token, credits, strays, max_retries, retry_delay, worker_id, type in json.loads(rows or "[]")
    ]


def leased_job(row: Row) -> LeasedJob:
    return LeasedJob(
        lease=Lease(str(row["id"]), row["token"]),
        type=row["type"],
        retry_state=RetryState(row["token"] - row["credits"], row["max_retries"], _span(row["retry_delay"]), row["strays"]),
        timeout=None if row["timeout"] is None else _span(row["timeout"]),
        leased_for=_span(max(row["leased_for"], 0)),
    )


def whole_job(row: Row) -> Job:
    attempts = [_attempt(one) for one in json.loads(row["attempts"] or "[]")]
    if row["status"] == Status.COMPLETED:
        own = Attempt(row["token"], _time(row["started_at"]), _time(row["completed_at"]), row["worker_id"])
        attempts.append(own)
    return Job(  # in the order of its fields: names would take longer than all the rest
        str(row["id"]),
        row["name"] or row["type"],
        row["type"],
        row["queue"],
        b"" if row["payload"] is None else row["payload"].encode(),
        _PRIORITIES[row["rank"]],
        Status(row["status"]),
        lane_of(row["lane"]),
        from_ms(row["created_at"]),
        from_ms(row["scheduled_at"]),
        from_ms(row["due_at"]),
        row["max_retries"],
        _span(row["retry_delay"]),
        None if row["timeout"] is None else _span(row["timeout"]),
        _tags(row["tags"]),
        row["webhook_url"],
        row["token"],
        row["token"] - row["credits"],  # its attempt
        row["retries"],
        row["generation"],
        _time(row["started_at"]),
        _time(row["completed_at"]),
        _time(row["lease_until"]),
        row["worker_id"],
        _time(row["cancel_requested_at"]),
        row["progress"],
        row["progress_message"],
        None if row["result"] is None else row["result"].encode(),
        row["error"],
        _time(row["expires_at"]),
        row["unique_key"],
        row["webhook_on_cancel"],
        None if row["cause"] is None else str(row["cause"]),
        row["schedule"],
        _time(row["slot_at"]),
        tuple(attempts),
        tuple(LogLine(from_ms(at), line) for at, line in json.loads(row["log"] or "[]")),
    )


def offsets(order: QueueOrder) -> list[int]:
    """What an order adds to the due time of a job, for each lane and rank, and again for the lanes of parked jobs."""
    return [order.offset(lane, rank) for lane in (*Lane, *Lane) for rank in Priority]


def queue(row: Row) -> Queue:
    """A queue, with the counts of its jobs if the row has them: ready, delayed, processing, dead."""
    name, step, strict, head_start, paused_at, reason, by, own, url, *counts = row
    pause = None if paused_at is None else Pause(reason, from_ms(paused_at), by)
    found = Queue(name, queue_order(step, strict, head_start), pause, retention(own), *counts)
    return found if url is None else msgspec.structs.replace(found, webhook_url=url)


_PRIORITIES = tuple(Priority)
_span_ms = lru_cache(maxsize=1024)(span_ms)


def _ms_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else to_ms(moment)


def _span_or_none(span: timedelta | None) -> int | None:
    return None if span is None else _span_ms(span)


def _attempt(row: Sequence[Any]) -> Attempt:
    token, started_at, ended_at, worker_id, error, traceback = row
    return Attempt(token, _time(started_at), _time(ended_at), worker_id, error, traceback)


# Reading jobs


async def get(session: Session, id: str) -> Job | None:
    key = id_key(id)
    return None if key is None else (await get_many(session, [key])).get(key)


async def get_many(session: Session, keys: Sequence[str]) -> dict[str, Job]:
    """The jobs with these keys, by key."""
    return {job.id: job for job in map(whole_job, await session.rows("jobs", ids=keys))}


async def listed(session: Session, ids: Sequence[str]) -> list[Job]:
    """The jobs with these ids, in their order, without payload, result and log."""
    keys = list(filter(None, map(id_key, ids)))
    found = {job.id: job for job in map(whole_job, await session.rows("listed", ids=keys))}
    return [found[key] for key in keys if key in found]

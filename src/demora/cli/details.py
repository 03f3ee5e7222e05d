"""Everything about one job, for people."""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from ..core.job import Attempt, Job
from ..core.spans import MILLISECOND, say, timestamp
from .text import due, from_now, plain, rough


def about(job: Job, now: datetime) -> Iterator[str]:
    """The job line by line: its facts, its payload and result, its attempts, its log."""
    for name, value in _facts(job, now):
        if value:
            yield f"{name:<12} {plain(value)}"
    yield from _json("payload", job.payload_json)
    yield from _json("result", job.result_json)
    for number, attempt in enumerate(job.attempts, 1):
        yield from _attempt(number, attempt)
    if job.log:
        yield from ("", "log")
    for line in job.log:
        yield f"  {timestamp(line.at)}  {plain(line.line)}"


def _facts(job: Job, now: datetime) -> Iterator[tuple[str, str]]:
    yield "id", job.id
    yield "name", job.name
    yield "type", job.type
    yield "queue", job.queue
    yield "priority", job.priority.name
    yield "status", job.status.name + (f", due {due(job, now)}" if job.status.waiting else "")
    yield "cancel", _at("asked for", job.cancel_requested_at, now)
    yield "tags", ", ".join(job.tags)
    yield "created", _at("", job.created_at, now)
    yield "scheduled", _at("", job.scheduled_at, now)
    yield "started", _at("", job.started_at, now)
    yield "completed", _at("", job.completed_at, now)
    yield "expires", _at("", job.expires_at, now)
    yield "unique", job.unique_key or ""
    yield "retries", f"{job.retry_count} of {job.max_retries}, the first after {say(job.retry_delay)}"
    yield "timeout", "" if job.timeout is None else say(job.timeout)
    yield "progress", _progress(job)
    yield "worker", job.worker_id or ""
    yield "webhook", job.webhook_url or ""
    yield "error", job.error or ""


def _at(words: str, at: datetime | None, now: datetime) -> str:
    return "" if at is None else f"{words} {timestamp(at)} ({from_now(at, now)})".strip()


def _progress(job: Job) -> str:
    return "" if job.progress is None else f"{job.progress:.0%} {job.progress_message or ''}".strip()


def _json(name: str, packed: bytes | None) -> Iterator[str]:
    if packed is not None:
        yield from ("", name)
        yield from _indented(msgspec.json.format(packed, indent=2).decode())


def _attempt(number: int, attempt: Attempt) -> Iterator[str]:
    yield from ("", f"attempt {number}")
    if attempt.started_at is not None:
        took = "" if attempt.ended_at is None else f", took {_span(attempt.started_at, attempt.ended_at)}"
        yield f"  started {timestamp(attempt.started_at)}{took}"
    if attempt.worker_id is not None:
        yield f"  worker {plain(attempt.worker_id)}"
    if attempt.error is not None:
        yield f"  error {plain(attempt.error)}"
    yield from _indented(attempt.traceback or "")


def _span(began: datetime, ended: datetime) -> str:
    """How long it was; times are kept in milliseconds, so that many a run seems to take none."""
    return rough(ended - began) if ended - began >= MILLISECOND else "less than 1ms"


def _indented(text: str) -> Iterator[str]:
    for line in text.split("\n") if text else ():
        yield f"  {plain(line)}"

"""Columns that both engines store alike, as values of the core: times in milliseconds, settings and lists as JSON."""

import json
from collections.abc import Iterable
from datetime import timedelta
from functools import lru_cache
from typing import Any

import msgspec

from ...core.access import ApiKey, KeyLimits, Scope
from ...core.job import QueueOrder
from ...core.outbound.webhook import EndedJob
from ...core.retention import Retention
from ...core.spans import from_ms
from ...core.states import Status
from ...core.workers import WorkerRecord
from ...store.audit import QueueFacts
from ...store.diagnostics import Waiting
from ...store.jobs import Queue
from ...store.webhooks import Disabled

STATUS_NAMES = {status.value: status.name for status in Status} | {None: None}


@lru_cache(maxsize=1024)
def span(ms: int) -> timedelta:
    return timedelta(milliseconds=ms)


def time(ms: int | None) -> Any:
    """The time, or None. Its type is Any, so that a column that is never null needs no check."""
    return None if ms is None else from_ms(ms)


def tags(text: str | None) -> tuple[str, ...]:
    return tuple(json.loads(text)) if text else ()


def queue_order(step: int | None, strict: int | None, head_start: int | None) -> QueueOrder:
    usual = QueueOrder()
    return QueueOrder(
        step=usual.step if step is None else span(step),
        strict=bool(strict),
        head_start=usual.head_start if head_start is None else span(head_start),
    )


def retention(text: str | None) -> Retention:
    return Retention() if text is None else msgspec.json.decode(text, type=Retention)


def worker(row: Iterable[Any], heartbeat_ago: int) -> WorkerRecord:
    id, host, pid, slots, queues, types, started_at, _, paces = row
    return WorkerRecord(
        id=id,
        host=host,
        pid=pid,
        slots=slots,
        queues=tuple(json.loads(queues)),
        types=tuple(json.loads(types)),
        started_at=from_ms(started_at),
        heartbeat_ago=timedelta(milliseconds=heartbeat_ago),
        paces=paces,
    )


def api_key(row: Iterable[Any], scopes: Iterable[str]) -> ApiKey:
    id, digest, name, _, created_at, *times, namespace, limits, former_digest, former_until = row
    expires_at, revoked_at, last_used_at = map(time, times)
    return ApiKey(
        id,
        digest,
        name,
        tuple(map(Scope, scopes)),
        from_ms(created_at),
        expires_at,
        revoked_at,
        last_used_at,
        namespace,
        KeyLimits() if limits is None else msgspec.json.decode(limits, type=KeyLimits),
        former_digest,
        time(former_until),
    )


def key_limits_text(limits: KeyLimits) -> str | None:
    return None if limits == KeyLimits() else msgspec.json.encode(limits).decode()


def disabled_webhook(row: Iterable[Any]) -> Disabled:
    url, reason, disabled_at = row
    return Disabled(url, reason, from_ms(disabled_at))


def waiting(row: Iterable[Any]) -> Waiting:
    queue, type, ready, delayed, oldest = row
    return Waiting(queue, type, ready, delayed, from_ms(oldest))


def queue_facts(queue: Queue) -> QueueFacts:
    counts = (queue.ready, queue.delayed, queue.processing, queue.dead)
    return QueueFacts(queue.name, *counts, paused=queue.pause is not None)


def ended_job(row: Iterable[Any], id: str) -> EndedJob:
    """Return what a delivery says of a job that ended."""
    _, type, generation, status, completed_at, attempts, url, on_cancel, result, error, schedule, slot_at = row
    return EndedJob(
        id=id,
        type=type,
        generation=generation,
        status=Status(status),
        completed_at=from_ms(completed_at),
        attempts=attempts,
        url=url,
        on_cancel=bool(on_cancel),
        result=None if result is None else result.encode(),
        error=error,
        schedule=schedule,
        slot_at=time(slot_at),
    )

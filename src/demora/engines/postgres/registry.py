"""Queues with their counts and settings, and workers with their heartbeats."""

import json
from collections.abc import Iterable

import msgspec

from ...core.job import QueueOrder
from ...core.spans import span_ms
from ...core.workers import WorkerRecord
from ...store.jobs import ALL_QUEUES, Queue, QueueChange, QueueQuery, Topic
from ..sql import columns
from . import rows
from .connection.connections import Session


async def name_queues(session: Session, names: Iterable[str]) -> None:
    """Record queues that are new."""
    for name in names:
        await session.rows("name_queue", name=name)


async def queues(session: Session, which: QueueQuery = ALL_QUEUES) -> list[Queue]:
    if which.reads_all:
        return [rows.queue(row) for row in await session.rows("all_queues")]
    what = {"first": which.first, "last": which.last, "after": which.after, "limit": which.limit}
    return [rows.queue(row) for row in await session.rows("queues", **what)]


async def set_queue(session: Session, name: str, change: QueueChange) -> Queue:
    async with session.transaction():
        await session.rows("name_queue", name=name)
        before = rows.queue(row := await session.row("queue", name=name))
        step = row["step"] if change.step is None else span_ms(change.step)
        strict = row["strict"] if change.strict is None else change.strict
        head_start = row["head_start"] if change.head_start is None else span_ms(change.head_start)
        order = columns.queue_order(step, strict, head_start)
        own = change.retention and change.retention.over(before.retention)
        after = await session.row(
            "set_queue",
            name=name,
            step=step,
            strict=strict,
            head_start=head_start,
            offsets=None if order == QueueOrder() else rows.offsets(order),
            paused=change.paused,
            reason=rows.text(change.reason),
            by=rows.text(change.by),
            retention=own and msgspec.json.encode(own).decode(),
            webhook_url=change.webhook_url,
        )
    session.wake(Topic.READY)
    return rows.queue(after)


async def heartbeat(session: Session, worker: WorkerRecord) -> None:
    await session.rows(
        "heartbeat",
        id=worker.id,
        host=worker.host,
        pid=worker.pid,
        slots=worker.slots,
        queues=json.dumps(worker.queues),
        types=json.dumps(worker.types),
        paces=worker.paces,
    )


async def retire(session: Session, worker_id: str) -> None:
    await session.rows("retire", id=worker_id)


async def workers(session: Session) -> list[WorkerRecord]:
    return [columns.worker(row, row["silent"]) for row in await session.rows("workers")]

"""Queues and their settings, workers and their heartbeats."""

import json
from collections.abc import Iterable
from datetime import timedelta

import msgspec

from ...core.order import QueueOrder
from ...core.spans import from_ms, span_ms
from ...store import Queue, QueueChange, Topic, Worker
from . import rows
from .connections import Session


async def name_queues(session: Session, names: Iterable[str]) -> None:
    """Put queues on record that are not yet."""
    for name in names:
        await session.rows("name_queue", name=name)


async def set_queue(session: Session, name: str, change: QueueChange, topics: set[Topic]) -> Queue:
    async with session.transaction():
        await session.rows("name_queue", name=name)
        before = rows.queue(row := await session.row("queue", name=name))
        step = row["step"] if change.step is None else span_ms(change.step)
        strict = row["strict"] if change.strict is None else change.strict
        head_start = row["head_start"] if change.head_start is None else span_ms(change.head_start)
        order = rows.queue_order(step, strict, head_start)
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
    topics.add(Topic.READY)
    return rows.queue(after)


async def heartbeat(session: Session, worker: Worker) -> None:
    await session.rows(
        "heartbeat",
        id=worker.id,
        host=worker.host,
        pid=worker.pid,
        slots=worker.slots,
        queues=json.dumps(worker.queues),
        types=json.dumps(worker.types),
    )


async def retire(session: Session, worker_id: str) -> None:
    await session.rows("retire", id=worker_id)


async def workers(session: Session) -> list[Worker]:
    return [_worker(row) for row in await session.rows("workers")]


def _worker(row: rows.Row) -> Worker:
    id, host, pid, slots, queues, types, started_at, silent = row
    return Worker(
        id=id,
        host=host,
        pid=pid,
        slots=slots,
        queues=tuple(json.loads(queues)),
        types=tuple(json.loads(types)),
        started_at=from_ms(started_at),
        heartbeat_ago=timedelta(milliseconds=silent),
    )

"""Letting go what the paces of queues allow, on PostgreSQL: a short transaction for each, under its lock."""

from collections.abc import Sequence
from datetime import timedelta

from ...core.job import Lane, Priority
from ...core.order import QueueOrder
from ...core.pace import Rate, Release, look_at, plan
from ...core.spans import from_ms
from ...pacing import Released
from ...store import Topic
from . import paces, rows
from .connections import Session
from .tidying import expire

MARGIN = 50  # more rows to look at than there are slots, since others may be changing the first ones
_USUAL = rows.offsets(QueueOrder())


async def release(session: Session, queues: Sequence[str] | None, topics: set[Topic]) -> Released:
    """Let go what the paces of these queues allow."""
    asked = None if queues is None else list(queues)
    jobs: list[Release] = []
    for (queue,) in await session.rows("paced_queues", queues=asked):
        jobs += await let_go(session, queue, topics)
    if jobs:
        topics.add(Topic.READY)
    us = (await session.row("now"))["us"]
    coming = await session.rows("next_held", queues=asked, ranks=len(Priority))
    waits = [look_at(paces.state_of(row["state"]), us // 1000, row["first"]) * 1000 - us for row in coming]
    return Released(jobs, timedelta(microseconds=max(min(waits), 0)) if waits else None)


async def let_go(session: Session, queue: str, topics: set[Topic]) -> list[Release]:
    """Let go what the pace of a queue allows now; nothing if another is at it."""
    async with session.transaction():
        row = await session.row("take_pace", queue=queue)
        if row is None:
            return []
        now = await session.row("is_quiet", protects=row["protects"], realtime=Lane.REALTIME.value)
        rate = paces.pace_of(row["pace"]).rate(quiet=now["quiet"])
        await expire(session, rate.reach, topics)
        return await _let_go(session, queue, row, rate, now["wall"])


async def _let_go(session: Session, queue: str, row: rows.Row, rate: Rate, wall: int) -> list[Release]:
    held = {"queue": queue, "lanes": row["lanes"], "ranks": len(Priority), "wall": wall}
    dues = [due_at for (due_at,) in await session.rows("held_dues", window=rate.reach, **held)]
    planned = plan(rate, paces.state_of(row["state"]), wall, dues)
    await session.rows("keep_pace", queue=queue, state=paces.text(planned.state))
    if not planned.slots:
        return []
    gone = await session.rows(
        "let_go",
        window=len(planned.slots) + MARGIN,
        offsets=row["offsets"] or _USUAL,
        slots=list(planned.slots),
        released=Lane.RELEASED.value,
        **held,
    )
    return [Release(str(id), queue, Priority(rank), from_ms(slot)) for id, rank, slot in gone]

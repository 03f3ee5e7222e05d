"""Letting go what the paces of queues allow, on PostgreSQL: two statements for each.

The second moves jobs and state under the lock of the pace, and only if the state is still that of the first.
"""

from collections.abc import Sequence
from datetime import timedelta

from ...core.job import Lane, Priority
from ...core.order import QueueOrder
from ...core.pace import Release, look_at, plan
from ...core.spans import from_ms
from ...pacing import Released
from ...store import Topic
from ..paces import pace_of, state_of, text
from . import rows
from .connections import Session
from .tidying import expire

EXPIRED_AT_ONCE = 200
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
    waits = [look_at(state_of(row["state"]), us // 1000, row["first"]) * 1000 - us for row in coming]
    return Released(jobs, timedelta(microseconds=max(min(waits), 0)) if waits else None)


async def let_go(session: Session, queue: str, topics: set[Topic]) -> list[Release]:
    """Let go what the pace of a queue allows now; nothing if another was faster."""
    row = await session.row("held", queue=queue, realtime=Lane.REALTIME.value, ranks=len(Priority))
    if row is None:
        return []
    if not row["dues"]:  # what is first in line has expired
        await expire(session, EXPIRED_AT_ONCE, topics)
        return []
    rate = pace_of(row["pace"]).rate(quiet=row["quiet"])
    planned = plan(rate, state_of(row["state"]), row["wall"], row["dues"][: rate.reach])
    gone = await session.rows(
        "let_go",
        queue=queue,
        pace=row["pace"],
        before=row["state"],
        after=text(planned.state),
        wall=row["wall"],
        lanes=row["lanes"],
        ranks=len(Priority),
        offsets=row["offsets"] or _USUAL,
        slots=list(planned.slots),
        window=len(planned.slots) + MARGIN if planned.slots else 0,
        released=Lane.RELEASED.value,
    )
    return [Release(str(id), queue, Priority(rank), from_ms(slot)) for id, rank, slot in gone]

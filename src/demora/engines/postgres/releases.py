"""Letting go what the paces of queues allow, on PostgreSQL: a look at all of them, and a statement for each that may.

That one moves jobs and state under the lock of the pace, and only if the state is still that of the look.
"""

from collections.abc import Sequence
from datetime import timedelta

from ...core.job import Lane, Priority
from ...core.order import QueueOrder
from ...core.pace import Plan, Release, look_at, plan
from ...core.spans import from_ms
from ...pacing import Released
from ...store import Topic
from ..paces import A_FEW, pace_of, state_of, text
from . import rows
from .connections import Session
from .tidying import expire

EXPIRED_AT_ONCE = 200
MARGIN = 50  # more rows to look at than there are slots, since others may be changing the first ones
_USUAL = rows.offsets(QueueOrder())


async def release(session: Session, queues: Sequence[str] | None, topics: set[Topic], *, wake: bool) -> Released:
    """Let go what the paces of these queues allow, or what is left of it if others try too."""
    jobs: list[Release] = []
    waits: list[int] = []
    found = await _look(session, queues, A_FEW)
    for row in found:
        gone, next_at = await _let_go(session, row, topics)
        jobs += gone
        if next_at is not None:
            waits.append(max(next_at * 1000 - row["us"], 0))
    if jobs and wake:
        topics.add(Topic.READY)
    return Released(jobs, timedelta(microseconds=min(waits)) if waits else None, paced=bool(found))


async def _look(session: Session, queues: Sequence[str] | None, width: int | None) -> list[rows.Row]:
    """What a plan needs to know of each queue that has a pace and is not paused; with a width, of its first jobs alone."""
    asked = None if queues is None else list(queues)
    return await session.rows("held", queues=asked, realtime=Lane.REALTIME.value, ranks=len(Priority), width=width)


async def _let_go(session: Session, row: rows.Row, topics: set[Topic]) -> tuple[list[Release], int | None]:
    """What the pace of a queue lets go now, and when to look again; nothing if it is not time or another was faster."""
    wall, state = row["wall"], state_of(row["state"])
    first = min([*row["dues"][:1], *_some(row["coming"])], default=None)
    if row["expired"]:  # they are first in line
        await expire(session, EXPIRED_AT_ONCE, topics)
    if first is None or look_at(state, wall, first) > wall:
        return [], None if first is None else look_at(state, wall, first)
    row, planned = await _plan(session, row)
    moved = await _move(session, row, planned)
    left = [*row["dues"][len(planned.slots) :][:1], *_some(row["coming"])]
    if len(moved) < len(planned.slots):
        return moved, wall
    return moved, look_at(planned.state, wall, min(left)) if left else None


async def _plan(session: Session, row: rows.Row) -> tuple[rows.Row, Plan]:
    """What a pace allows now, and the look that this was decided by: a wider one if all that was seen may go."""
    planned = _planned(row)
    if len(planned.slots) < A_FEW:
        return row, planned
    for wider in await _look(session, [row["queue"]], None):
        return wider, _planned(wider)
    return row, planned


def _planned(row: rows.Row) -> Plan:
    rate = pace_of(row["pace"]).rate(quiet=row["quiet"])
    return plan(rate, state_of(row["state"]), row["wall"], row["dues"][: rate.reach])


async def _move(session: Session, row: rows.Row, planned: Plan) -> list[Release]:
    moved = await session.rows(
        "let_go",
        queue=row["queue"],
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
    return [Release(str(id), row["queue"], Priority(rank), from_ms(slot)) for id, rank, slot in moved]


def _some(moment: int | None) -> list[int]:
    return [] if moment is None else [moment]

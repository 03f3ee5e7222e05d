"""Releases on PostgreSQL: one statement reads all paces, and another one releases the jobs of each pace that allows some.

The second moves the jobs and the state of the pace under the lock of the pace, and only if the state is unchanged.
"""

from collections.abc import Sequence
from datetime import timedelta

from ...core.job import Job, Lane, Priority, QueueOrder
from ...core.pace import Plan, Release, look_at, plan
from ...core.spans import from_ms, span_ms, to_ms
from ...core.states import Status
from ...store.jobs import Queue, Topic
from ...store.paces import RECENT, Outlook, Pacing, Released
from ..stored_paces import A_FEW, pace_of, state_of, text
from . import diagnostics, paces, registry, rows, views
from .changes import expire
from .connections import Session

EXPIRED_AT_ONCE = 200
MARGIN = 50  # rows to read beyond those to release, since other calls may be changing the first ones
_USUAL = rows.offsets(QueueOrder())


async def release(session: Session, queues: Sequence[str] | None, *, wake: bool) -> Released:
    """Release what the paces of these queues allow, or the rest of it if other processes release too."""
    jobs: list[Release] = []
    waits: list[int] = []
    found = await _look(session, queues, A_FEW)
    for row in found:
        released, next_at = await _release(session, row)
        jobs += released
        if next_at is not None:
            waits.append(max(next_at * 1000 - row["us"], 0))
    if jobs and wake:
        session.wake(Topic.READY)
    return Released(jobs, timedelta(microseconds=min(waits)) if waits else None, paced=bool(found))


async def _look(session: Session, queues: Sequence[str] | None, width: int | None) -> list[rows.Row]:
    """Read each queue that has a pace and is not paused, with its first `width` held jobs, or with all it reaches."""
    asked = None if queues is None else list(queues)
    return await session.rows("held", queues=asked, realtime=Lane.REALTIME.value, ranks=len(Priority), width=width)


async def _release(session: Session, row: rows.Row) -> tuple[list[Release], int | None]:
    """Release what one pace allows now. Returns the jobs, none if another process was faster, and when to look again."""
    wall, state = row["wall"], state_of(row["state"])
    first = min([*row["dues"][:1], *_some(row["coming"])], default=None)
    if row["expired"]:  # expired jobs come first, and must not be released
        await expire(session, EXPIRED_AT_ONCE)
    if first is None or look_at(state, wall, first) > wall:
        return [], None if first is None else look_at(state, wall, first)
    row, planned = await _plan(session, row)
    moved = await _move(session, row, planned)
    left = [*row["dues"][len(planned.slots) :][:1], *_some(row["coming"])]
    if len(moved) < len(planned.slots):
        return moved, wall
    return moved, look_at(planned.state, wall, min(left)) if left else None


async def _plan(session: Session, row: rows.Row) -> tuple[rows.Row, Plan]:
    """Plan what a pace allows now. If it allows all jobs that were read, read more and plan again."""
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
        "release_held",
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


async def outlook(session: Session, id: str) -> Outlook | None:
    """What decides when a job runs, as of one moment."""
    async with session.transaction(isolation="repeatable_read", readonly=True):
        job = await views.get(session, id)
        if job is None:
            return None
        wall = (await session.row("now"))["us"] // 1000
        row = await session.row("queue_as_it_is", name=job.queue)
        queue = Queue(job.queue) if row is None else rows.queue(row)
        pacing = await paces.pacing(session, job.queue)
        since = wall - span_ms(RECENT)
        recent = await session.row("count_recent", queue=job.queue, completed=Status.COMPLETED.value, since=since)
        waits = job.status.waiting and to_ms(job.due_at) <= wall
        ahead = await _ahead(session, job, queue, pacing, wall) if waits else 0
        running = await diagnostics.running(session, wall) if waits else []
        workers = await registry.workers(session)
    return Outlook(job, from_ms(wall), ahead, recent["recent"], queue.pause, pacing, workers, running)


async def _ahead(session: Session, job: Job, queue: Queue, pacing: Pacing | None, wall: int) -> int:
    """How many jobs go before this one among those in the same situation: ready, or held by the pace."""
    governed = () if pacing is None else pacing.pace.governs.lanes
    place = to_ms(job.due_at) + queue.order.offset(job.lane, job.priority)
    lanes = [lane for lane in Lane if (lane in governed) == (job.lane in governed)]
    lines = [(lane, rank, place - queue.order.offset(lane, rank)) for lane in lanes for rank in Priority]
    row = await session.row(
        "count_before",
        id=rows.id_key(job.id),
        queue=job.queue,
        wall=wall,
        lanes=[lane.value for lane, _, _ in lines],
        ranks=[rank.value for _, rank, _ in lines],
        dues=[due for _, _, due in lines],
    )
    return int(row["ahead"])

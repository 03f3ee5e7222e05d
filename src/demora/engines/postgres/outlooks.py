"""Why a job waits, as far as PostgreSQL knows: what decides when it runs, read in one transaction."""

from ...core.job import Job, Lane, Priority
from ...core.spans import from_ms, span_ms, to_ms
from ...core.states import Status
from ...pacing import RECENT, Outlook, Pacing
from ...store import Queue
from . import paces, registry, rows, surveys, views
from .connections import Session


async def outlook(session: Session, id: str) -> Outlook | None:
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
        running = await surveys.running(session, wall) if waits else []
        workers = await registry.workers(session)
    return Outlook(job, from_ms(wall), ahead, recent["recent"], queue.pause, pacing, workers, running)


async def _ahead(session: Session, job: Job, queue: Queue, pacing: Pacing | None, wall: int) -> int:
    """How many jobs go before this one among those that stand as it does: ready, or held by the pace."""
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

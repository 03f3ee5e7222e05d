"""Why a job waits, as far as SQLite knows: what decides when it runs, read in one transaction."""

from ...core.job import Job, Lane, Priority
from ...core.spans import from_ms, span_ms, to_ms
from ...core.states import Status
from ...pacing import RECENT, Outlook, Pacing
from ...store import Queue
from . import paces, registry, rows, surveys, views
from .batches import Transaction
from .statements import SQL


def outlook(tx: Transaction, id: str) -> Outlook | None:
    job = views.get(tx, id)
    if job is None:
        return None
    queue = next((rows.queue(row) for row in tx.db.execute(SQL["queue"], (job.queue,))), Queue(job.queue))
    pacing = paces.pacing(tx, job.queue)
    since = tx.wall - span_ms(RECENT)
    [(recent,)] = tx.db.execute(SQL["count_recent"], (job.queue, Status.COMPLETED, since))
    waits = job.status.waiting and to_ms(job.due_at) <= tx.wall
    ahead = _ahead(tx, job, queue, pacing) if waits else 0
    running = surveys.running(tx) if waits else []
    return Outlook(job, from_ms(tx.wall), ahead, recent, queue.pause, pacing, registry.workers(tx), running)


def _ahead(tx: Transaction, job: Job, queue: Queue, pacing: Pacing | None) -> int:
    """How many jobs go before this one among those that stand as it does: ready, or held by the pace."""
    governed = () if pacing is None else pacing.pace.governs.lanes
    place = to_ms(job.due_at) + queue.order.offset(job.lane, job.priority)
    [(number,)] = tx.db.execute(SQL["number"], (rows.id_bytes(job.id),))
    ahead = 0
    for lane, rank in list(tx.db.execute(SQL["lines"], (job.queue,))):
        if (lane in governed) == (job.lane in governed):
            due = place - queue.order.offset(Lane(lane), Priority(rank))
            before = (job.queue, lane, rank, tx.wall, due, number)
            ahead += sum(count for (count,) in tx.db.execute(SQL["count_before"], before))
    return ahead

"""Why a job that somebody waits for may not run soon, for people."""

from collections.abc import Iterable, Iterator, Sequence

from ..client import Client
from ..core.job import Job
from ..store import Queue, Worker
from .text import plain


async def hints(client: Client, job: Job) -> list[str]:
    """What keeps the job waiting: no worker that would run it, or a paused queue. Empty once it has ended."""
    if (await client.get(job.id)).status.ended:
        return []
    health = await client.health()
    workers = await client.workers()
    lack = [health.reason] if health.reason is not None else _lack(job, workers)
    return [*lack, *_paused(job, await client.queues())]


def _lack(job: Job, workers: Sequence[Worker]) -> Iterator[str]:
    serving = [worker for worker in workers if not worker.queues or job.queue in worker.queues]
    if not serving:
        yield f"no live worker serves queue {job.queue}: its jobs wait until one does (demora worker --queues {job.queue})"
    elif not any(job.type in worker.types for worker in serving):
        yield f"no live worker knows type {job.type}: its jobs wait until one does (demora worker --app MODULE:APP)"


def _paused(job: Job, queues: Iterable[Queue]) -> Iterator[str]:
    for queue in queues:
        if queue.name == job.queue and queue.pause is not None:
            why = "" if queue.pause.reason is None else f" ({plain(queue.pause.reason)})"
            yield f"queue {queue.name} is paused{why}: its jobs wait until it is resumed (demora resume {queue.name})"

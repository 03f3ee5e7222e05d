"""The operations on queues and workers, and what the service says of itself."""

import asyncio

import msgspec

from .. import __version__
from ..client.client import Client
from ..client.diagnostics import Health
from ..client.views import QueueView, WorkerView, queue_view, worker_view
from ..core.request import check_queue
from ..errors import Invalid, StoreBusy, StoreDamaged, StoreError, StoreGone
from ..store.jobs import Queue
from ..system import notices
from .operations import SEARCH_LIMIT, Ask, Listing, Reply
from .requests import PaceBody, PauseRequest, QueueRequest, QueuesQuery, of_pace

HEALTH_LIMIT = 5.0  # seconds that the store has to answer


class QueuesView(msgspec.Struct, frozen=True, rename="camel"):
    queues: list[QueueView]
    next_cursor: str | None


class WorkersView(msgspec.Struct, frozen=True):
    workers: list[WorkerView]


class AliveView(msgspec.Struct, frozen=True):
    status: str


class Welcome(msgspec.Struct, frozen=True):
    """What this is and where to look."""

    name: str
    version: str
    jobs: str
    openapi: str
    health: str


async def list_queues(ask: Ask) -> Reply:
    """List the queues ever named, by name, with their counts and their order, page by page."""
    query: QueuesQuery = ask.query
    client = await ask.client()
    page = await client.queues_page(after=query.cursor, limit=query.limit, within=SEARCH_LIMIT)
    paces = {pacing.queue: pacing for pacing in await client.pacings()}
    shown = (queue_view(queue, paces.get(queue.name)) for queue in page.queues)
    return Reply(200, Listing("queues", shown, {"nextCursor": page.next}))


async def get_queue(ask: Ask) -> Reply:
    """Show a queue with its counts, its order and its pace; 404 if nothing was ever enqueued there."""
    client = await ask.client()
    return await _shown(client, await client.queue(ask.path["name"]))


async def change_queue(ask: Ask) -> Reply:
    """Change the order, the retention or the pace of a queue, naming the queue if need be; the next claim follows it."""
    request: QueueRequest = ask.body
    name, options = check_queue(ask.path["name"]), request.options()
    client = await ask.client()
    if isinstance(request.pace, PaceBody):
        pace = request.pace.pace()
        try:
            await client.set_pace(name, pace, by=ask.by)
        except Invalid as problem:  # with what the queue has already it holds nothing
            raise of_pace(problem) from None
    elif request.pace is None:
        await client.take_pace_off(name, by=ask.by)
    return await _shown(client, await client.set_queue(name, **options))


async def pause_queue(ask: Ask) -> Reply:
    """Hand out nothing from a queue until it is resumed; what runs goes on."""
    request: PauseRequest = ask.body
    client = await ask.client()
    return await _shown(client, await client.pause(ask.path["name"], request.reason, by=ask.by))


async def resume_queue(ask: Ask) -> Reply:
    """Hand out jobs of a queue again; 404 if there is none of this name."""
    client = await ask.client()
    return await _shown(client, await client.resume(ask.path["name"]))


async def _shown(client: Client, queue: Queue) -> Reply:
    return Reply(200, queue_view(queue, await client.pacing(queue.name)))


async def list_workers(ask: Ask) -> Reply:
    """List the workers that are alive."""
    return Reply(200, WorkersView([worker_view(worker) for worker in await (await ask.client()).workers()]))


async def welcome(ask: Ask) -> Reply:
    """Say what this is and where to look."""
    return Reply(200, Welcome("demora", __version__, "/api/v1/jobs", "/api/v1/openapi.json", "/health/ready"))


async def live(ask: Ask) -> Reply:
    """Say that the process answers."""
    return Reply(200, AliveView("alive"))


async def ready(ask: Ask) -> Reply:
    """Say whether jobs are taken and run: 200 when healthy or degraded, 503 when the store does not answer or takes no
    writes."""
    try:
        async with asyncio.timeout(HEALTH_LIMIT):
            return Reply(200, await (await ask.client()).health())
    except (StoreError, TimeoutError) as problem:
        notices.request_failed("GET", "/health/ready", problem)
        return Reply(503, Health("unhealthy", _unhealthy(problem), 0))


def _unhealthy(problem: Exception) -> str:
    """Why, in fixed words: a file name or the name of a process is for the log."""
    if isinstance(problem, StoreBusy):
        return "the database is locked and takes no writes"
    if isinstance(problem, StoreGone | StoreDamaged):
        return "the files of the database were changed by another program; it takes no writes"
    return "the store does not answer or refuses writes"

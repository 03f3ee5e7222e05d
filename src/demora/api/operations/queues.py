"""The operations on queues and workers, and the health and the start page of the service."""

import asyncio

import msgspec

from ... import __version__
from ...client.client import Client
from ...client.diagnostics import Health
from ...core.pace import EVERY_QUEUE, check_paced
from ...errors import Invalid, StoreBusy, StoreDamaged, StoreError, StoreGone
from ...store.jobs import Queue
from ...system import notices
from ...wire.queues import RecoveryView, WorkersView, queue_view, recovered_view, stats_view, worker_view
from ...wire.requests import DEFAULT_PACE, PaceBody, PauseRequest, QueueRequest, QueuesQuery, StatsQuery, of_pace
from .operation import SEARCH_LIMIT, ApiCall, Listing, Reply

HEALTH_LIMIT = 5.0  # seconds that the store has to answer


class AliveView(msgspec.Struct, frozen=True):
    status: str


class Welcome(msgspec.Struct, frozen=True):
    """The start page: the version of demora and the main routes."""

    name: str
    version: str
    jobs: str
    openapi: str
    health: str


async def list_queues(call: ApiCall) -> Reply:
    """List all queues by name, with their counts and their order, page by page."""
    query: QueuesQuery = call.query
    client = await call.client()
    page = await client.queues_page(after=query.cursor, limit=query.limit, within=SEARCH_LIMIT)
    paces = {pacing.queue: pacing for pacing in await client.pacings()}
    history = await client.pace_history(paces.values())
    shown = (queue_view(queue, paces.get(queue.name), history.get(queue.name)) for queue in page.queues)
    return Reply(200, Listing("queues", shown, {"nextCursor": page.next}), compressible=True)


async def get_queue(call: ApiCall) -> Reply:
    """Show a queue with its counts, its order and its pace; 404 if it does not exist."""
    client, name = await call.client(), call.path["name"]
    return await _shown(client, Queue(name) if name == EVERY_QUEUE else await client.queue(name))


async def change_queue(call: ApiCall) -> Reply:
    """Change the order, the retention or the pace of a queue; creates the queue if necessary. `*` has only a pace."""
    request: QueueRequest = call.body
    name, options = check_paced(call.path["name"]), request.options()
    if name == EVERY_QUEUE and any(value not in (None, msgspec.UNSET) for value in options.values()):
        raise Invalid("name", "all queues together have only a pace; name a queue to change anything else")
    client = await call.client()
    if isinstance(request.pace, PaceBody):
        pace = request.pace.pace()
        try:
            await client.set_pace(name, pace, by=call.by)
        except Invalid as problem:  # together with the queue's current pace it is invalid
            raise of_pace(problem) from None
    elif request.pace == DEFAULT_PACE:
        await client.use_default_pace(name, by=call.by)
    elif request.pace is None:
        await client.take_pace_off(name, by=call.by)
    return await _shown(client, Queue(name) if name == EVERY_QUEUE else await client.set_queue(name, **options))


async def pause_queue(call: ApiCall) -> Reply:
    """Pause a queue: workers claim none of its jobs until it is resumed. Running jobs continue."""
    request: PauseRequest = call.body
    client = await call.client()
    return await _shown(client, await client.pause(call.path["name"], request.reason, by=call.by))


async def resume_queue(call: ApiCall) -> Reply:
    """Resume a queue; 404 if it does not exist."""
    client = await call.client()
    return await _shown(client, await client.resume(call.path["name"]))


async def _shown(client: Client, queue: Queue) -> Reply:
    pacing = await client.pacing(queue.name)
    history = await client.pace_history([] if pacing is None else [pacing])
    return Reply(200, queue_view(queue, pacing, history.get(queue.name)))


async def list_workers(call: ApiCall) -> Reply:
    """List the live workers."""
    return Reply(200, WorkersView([worker_view(worker) for worker in await (await call.client()).workers()]))


async def show_stats(call: ApiCall) -> Reply:
    """Count the jobs: ready (priority), delayed, processing and dead (dlq), in all and by queue."""
    query: StatsQuery = call.query
    return Reply(200, stats_view(await (await call.client()).stats(fresh=query.fresh)))


async def recover(call: ApiCall) -> Reply:
    """Settle all lapsed leases without running a job, as the next claim of a worker would."""
    recovered = await (await call.client()).recover()
    return Reply(200, RecoveryView([recovered_view(job) for job in recovered]))


_PLACES = ("/api/v1/jobs", "/api/v1/openapi.json", "/health/ready")


async def welcome(call: ApiCall) -> Reply:
    """Show the version of demora and its main routes."""
    return Reply(200, Welcome("demora", __version__, *(call.base + path for path in _PLACES)))


async def live(call: ApiCall) -> Reply:
    """Answer that the process is alive."""
    return Reply(200, AliveView("alive"))


async def ready(call: ApiCall) -> Reply:
    """Check whether jobs are accepted and run: 200 if healthy or degraded, 503 if the database cannot be written to."""
    try:
        async with asyncio.timeout(HEALTH_LIMIT):
            return Reply(200, await (await call.client()).health())
    except (StoreError, TimeoutError) as problem:
        notices.request_failed("GET", "/health/ready", problem, call.id)
        return Reply(503, Health("unhealthy", _unhealthy(problem), 0))


def _unhealthy(problem: Exception) -> str:
    """Return the reason as a fixed text: file and process names belong in the log only."""
    if isinstance(problem, StoreBusy):
        return "the database is locked and accepts no writes"
    if isinstance(problem, StoreGone | StoreDamaged):
        return "another program changed or replaced the database; it accepts no writes"
    return "the database does not answer or refuses writes"

"""The worker protocol: remote workers register, claim jobs, renew their leases and settle them."""

import asyncio
import contextlib

from ...client.workers.remote_workers import HandedJob, RemoteWorker, RemoteWorkers
from ...core.spans import span_ms
from ...wire.problems import Overloaded
from ...wire.worker_protocol import (
    ClaimBody,
    RegisteredView,
    RenewRequest,
    SettleRequest,
    WorkerRequest,
    handed_job_view,
    renewed_view,
    settled_view,
)
from ..reading import ClientGone, disconnected
from .operation import ApiCall, Listing, Reply

BESIDE_PAYLOAD = 16 * 1024  # bytes that a job may have in an answer besides its payload


async def register_worker(call: ApiCall) -> Reply:
    """Register a remote worker. Its id works only with the key that registered it."""
    request: WorkerRequest = call.body
    workers = await _workers(call)
    worker = await workers.register(request.name, request.types, slots=request.slots, queues=request.queues, key=call.key)
    return Reply(201, RegisteredView(worker.id, span_ms(workers.lease)))


async def claim_jobs(call: ApiCall) -> Reply:
    """Claim jobs; wait for the first if none is ready. The same `claimId` returns the same jobs while their leases hold."""
    request: ClaimBody = call.body
    limit, wait, claim_id = request.checked()
    workers, worker = await _worker(call)
    workers.check_allowed(worker, call.key)
    ended = asyncio.Event()
    with call.waits.take(call.key) if wait else contextlib.nullcontext(), call.stopping.calling(ended.set):
        gone = asyncio.ensure_future(disconnected(call.receive))
        gone.add_done_callback(lambda _: ended.set())
        try:
            # Not cancelled when the caller is gone: a claim under way may lease jobs, which must be handed back.
            handed = await workers.claim(worker, limit, wait=wait, ended=ended, claim_id=claim_id)
            if gone.done():
                await _take_back(workers, handed)
                raise ClientGone
        finally:
            gone.cancel()
    try:
        call.share.answer(sum(len(one.job.payload) + BESIDE_PAYLOAD for one in handed))
    except Overloaded:
        await _take_back(workers, handed)
        raise
    listing = Listing("jobs", (handed_job_view(one) for one in handed))
    return Reply(200, listing, unsent=lambda: _take_back(workers, handed))


async def renew_leases(call: ApiCall) -> Reply:
    """Renew the leases of running jobs, with their progress and log. Returns which are lost, and which to cancel."""
    request: RenewRequest = call.body
    reports = request.reports()
    workers, worker = await _worker(call)
    return Reply(200, renewed_view(await workers.renew(worker, reports), workers.lease))


async def settle_jobs(call: ApiCall) -> Reply:
    """Record what became of jobs. A repeated request returns what the first one recorded."""
    request: SettleRequest = call.body
    outcomes = await asyncio.to_thread(request.outcomes)  # up to 16 MiB must not block the event loop
    workers, worker = await _worker(call)
    return Reply(200, settled_view(outcomes, await workers.settle(worker, outcomes)))


async def remove_worker(call: ApiCall) -> Reply:
    """Deregister a worker, and hand back the jobs that it still holds."""
    workers, worker = await _worker(call)
    await workers.remove(worker)
    return Reply(204)


async def _take_back(workers: RemoteWorkers, handed: list[HandedJob]) -> None:
    await workers.take_back(handed)


async def _workers(call: ApiCall) -> RemoteWorkers:
    return (await call.client()).remote_workers


async def _worker(call: ApiCall) -> tuple[RemoteWorkers, RemoteWorker]:
    workers = await _workers(call)
    return workers, await workers.worker(call.path["workerId"], call.key)

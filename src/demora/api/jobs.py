"""The operations on jobs."""

import asyncio
import functools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from ..client.bulk import BulkResult
from ..client.client import Client
from ..client.views import JobView, ReceiptView, bulk_result_view, deliveries_view, job_view, receipt_view
from ..core.access import Scope
from ..core.job import Job, NewJob
from ..core.spans import ZERO, timestamp
from ..core.states import Status
from ..errors import Invalid
from .operations import LARGE_JOB, PAGE_BYTES, PLAIN_JOB, SEARCH_LIMIT, Ask, Listing, Reply
from .reading import ClientGone, disconnected, read_key
from .requests import BatchRequest, DeadLettersQuery, DeadLettersRequest, FindQuery, JobChange, JobRequest, WaitQuery


class BatchView(msgspec.Struct, frozen=True):
    """The jobs of a batch, in the order they were sent."""

    jobs: list[JobView]


class ReceiptsView(msgspec.Struct, frozen=True):
    """The same for a key that may only submit."""

    jobs: list[ReceiptView]


class PreviewView(msgspec.Struct, frozen=True, rename="camel"):
    """When each job of a batch would be due, if it were stored now."""

    due_at: list[str]


async def add_job(ask: Ask) -> Reply:
    """Add a job. A repeated idempotency key answers the same, with `Idempotency-Replayed: true`, and adds nothing."""
    request: JobRequest = ask.body
    key = read_key(ask.headers, request.idempotency_key)
    client = await ask.client()
    [job], headers = await _add(ask, client, [client.make(**request.options() | {"key": key})])
    told = job_view(job) if _may_read(ask) else receipt_view(job)
    return Reply(201, told, {**headers, "location": f"/api/v1/jobs/{job.id}"})


async def add_batch(ask: Ask) -> Reply:
    """Add 1 to 1000 jobs, all or none, and answer in order."""
    request: BatchRequest = ask.body
    if "idempotency-key" in ask.headers:
        raise Invalid("Idempotency-Key", "give each job of a batch its own idempotencyKey instead")
    client = await ask.client()
    make = functools.partial(client.make_many, request.options(), spread=request.over())
    checked = await asyncio.to_thread(make)  # up to 16 MiB must not hold up the loop
    if request.preview:
        return Reply(200, _preview(checked))
    jobs, headers = await _add(ask, client, checked)
    if not _may_read(ask):
        return Reply(201, ReceiptsView([receipt_view(job) for job in jobs]), headers)
    return Reply(201, Listing("jobs", (job_view(job, listed=True) for job in jobs)), headers)


def _preview(jobs: Sequence[NewJob]) -> PreviewView:
    now = datetime.now(UTC)
    return PreviewView([timestamp(max(now, job.at or now) + (job.delay or ZERO)) for job in jobs])


async def find_jobs(ask: Ask) -> Reply:
    """List jobs, newest first, page by page."""
    query: FindQuery = ask.query
    return await list_page(ask, query.options())


async def list_page(ask: Ask, options: Mapping[str, Any]) -> Reply:
    """A page of jobs: as many bytes are counted before it is read as it may hold."""
    most = min(PAGE_BYTES, options["limit"] * (LARGE_JOB if options["fields"] else PLAIN_JOB))
    ask.share.answer(most)
    page = await (await ask.client()).find(**options, most_bytes=most, within=SEARCH_LIMIT)
    return Reply(200, Listing("jobs", (job_view(job, listed=True) for job in page.jobs), {"nextCursor": page.next}))


async def get_job(ask: Ask) -> Reply:
    """Show a job with its attempts and its log."""
    return _shown(await (await ask.client()).get(ask.path["id"]))


async def why_job(ask: Ask) -> Reply:
    """Say why a job is where it is: a reason, one sentence, and the data behind it."""
    return Reply(200, await (await ask.client()).why(ask.path["id"]))


async def change_job(ask: Ask) -> Reply:
    """Change the priority, the time or the tags of a waiting job; 409 if it no longer waits."""
    change: JobChange = ask.body
    return _shown(await (await ask.client()).reschedule(ask.path["id"], **change.options()))


async def delete_job(ask: Ask) -> Reply:
    """Delete an ended job with its history; 409 if it has not ended."""
    await (await ask.client()).delete(ask.path["id"])
    return Reply(204)


async def cancel_job(ask: Ask) -> Reply:
    """Cancel a job: 200 if it was waiting, 202 if it runs and its worker was told, 409 if it had ended."""
    client, id = await ask.client(), ask.path["id"]
    status = await client.cancel(id)
    return _shown(await client.get(id), 200 if status is Status.CANCELLED else 202)


async def retry_job(ask: Ask) -> Reply:
    """Run a failed or cancelled job again; 409 in any other state."""
    return _shown(await (await ask.client()).retry(ask.path["id"]))


async def wait_for_job(ask: Ask) -> Reply:
    """Answer when the job ends, or as it is when the time is up or the service stops."""
    query: WaitQuery = ask.query
    span = query.span()
    client, id = await ask.client(), ask.path["id"]
    ended = asyncio.ensure_future(client.wait(id, span))
    gone = asyncio.ensure_future(disconnected(ask.receive))
    stopping = asyncio.ensure_future(ask.stopping.wait())
    try:
        await asyncio.wait({ended, gone, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            return _shown(ended.result())
        if gone.done():
            raise ClientGone
        return _shown(await client.get(id))
    finally:
        for task in (ended, gone, stopping):
            task.cancel()


async def _add(ask: Ask, client: Client, jobs: Sequence[NewJob]) -> tuple[list[Job], Mapping[str, str]]:
    """The jobs as they were when made, and a header if all of them had been made before."""
    added = await ask.submissions.add(client, ask.key, jobs)
    replayed = all(again for _, again in added)
    return [job for job, _ in added], {"idempotency-replayed": "true"} if replayed else {}


def _may_read(ask: Ask) -> bool:
    return ask.key is None or ask.key.allows(Scope.READ)


def _shown(job: Job, status: int = 200) -> Reply:
    return Reply(status, job_view(job))


# The operations on dead letters: the jobs that failed for good.


async def list_dead_letters(ask: Ask) -> Reply:
    """List the jobs that failed for good, newest first, page by page."""
    query: DeadLettersQuery = ask.query
    return await list_page(ask, query.options())


async def retry_dead_letters(ask: Ask) -> Reply:
    """Run again the dead letters that match, with all their retries; with `dryRun` only count them."""
    request: DeadLettersRequest = ask.body
    return _told(await (await ask.client()).retry_many(**request.options(), within=SEARCH_LIMIT), request)


async def delete_dead_letters(ask: Ask) -> Reply:
    """Remove the dead letters that match, with their history; with `dryRun` only count them."""
    request: DeadLettersRequest = ask.body
    return _told(await (await ask.client()).delete_many(**request.options(), within=SEARCH_LIMIT), request)


def _told(tally: BulkResult, request: DeadLettersRequest) -> Reply:
    return Reply(200, bulk_result_view(tally, dry_run=bool(request.dry_run)))


# The operations on what tells of a job's end.


async def list_deliveries(ask: Ask) -> Reply:
    """Show what was told of a job's end: each delivery with its tries, and what the server answered."""
    return Reply(200, deliveries_view(await (await ask.client()).webhooks.of(ask.path["id"])))


async def retry_deliveries(ask: Ask) -> Reply:
    """Deliver again what was given up about a job, under the same ids."""
    return Reply(200, deliveries_view(await (await ask.client()).webhooks.redeliver(ask.path["id"])))

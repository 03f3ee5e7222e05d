"""The operations on jobs, dead letters and webhook deliveries."""

import asyncio
import functools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from ...client.bulk import BulkResult
from ...client.client import Client
from ...core.job import Job, NewJob, due_at, revision
from ...core.spans import timestamp
from ...core.states import Status
from ...errors import Invalid, JobNotFound, StoreError
from ...wire.jobs import JobView, ReceiptView, action_view, bulk_result_view, dead_letter_stats_view, job_view, receipt_view
from ...wire.problems import TooManyWaits
from ...wire.requests import (
    ActionRequest,
    BatchRequest,
    DeadLettersQuery,
    DeadLettersRequest,
    FindQuery,
    JobChange,
    JobRequest,
    WaitQuery,
)
from ...wire.webhooks import deliveries_view
from ..reading import read_if_match, read_key, read_traceparent
from ..waiting import unless_ended
from .operation import LARGE_JOB, PAGE_BYTES, PLAIN_JOB, SEARCH_LIMIT, ApiCall, Listing, Reply
from .prefer import NO_PREFERENCE, read_prefer

RETRY_AFTER = 1  # seconds after which to ask for the end of a job that was accepted


class BatchView(msgspec.Struct, frozen=True):
    """The jobs of a batch, in the order they were sent."""

    jobs: list[JobView]


class ReceiptsView(msgspec.Struct, frozen=True):
    """The jobs of a batch as a submit-only key sees them."""

    jobs: list[ReceiptView]


class PreviewView(msgspec.Struct, frozen=True, rename="camel"):
    """When each job of a batch would be due if it were added now."""

    due_at: list[str]


async def add_job(call: ApiCall) -> Reply:
    """Add a job. A repeated idempotency key adds nothing and returns the same job, with `Idempotency-Replayed: true`."""
    request: JobRequest = call.body
    key, prefer = read_key(call.headers, request.idempotency_key), read_prefer(call.headers)
    client = await call.client()
    options = request.options()
    options["key"] = key
    [job], headers = await _add(call, client, [client.make(**options)])
    headers["location"] = f"{call.base}/api/v1/jobs/{job.id}"
    if prefer is not NO_PREFERENCE and prefer.applied:
        headers["preference-applied"] = prefer.applied
    if prefer.wait is not None:
        receipt = receipt_view(job)
        del request, job  # a waiting request holds no payload
        call.forget_body()
        return await _added_and_ended(call, receipt, prefer.wait, headers)
    view = _seen(call, job)
    return _accepted(view, headers) if prefer.respond_async else Reply(201, view, headers)


async def _added_and_ended(call: ApiCall, receipt: ReceiptView, span: timedelta, headers: Mapping[str, str]) -> Reply:
    """Answer 200 with the job if it ends in time, and otherwise 202, at once if too many requests wait already. The job is
    stored, so no failure to read it is an error of this request."""
    try:
        with call.waits.take(call.key):
            job = await _until_end(call, receipt.id, span)
    except (JobNotFound, StoreError, TooManyWaits):
        return _accepted(receipt, headers)
    view = _seen(call, job)
    return Reply(200, view, headers) if job.status.ended else _accepted(view, headers)


def _accepted(view: JobView | ReceiptView, headers: Mapping[str, str]) -> Reply:
    return Reply(202, view, {**headers, "retry-after": str(RETRY_AFTER)})


async def add_batch(call: ApiCall) -> Reply:
    """Add 1 to 1000 jobs, all or none, and return them in order."""
    request: BatchRequest = call.body
    if "idempotency-key" in call.headers:
        raise Invalid("Idempotency-Key", "is not allowed for a batch; give each job its own idempotencyKey")
    client = await call.client()
    make = functools.partial(client.make_many, request.options(), spread=request.over())
    checked = make() if call.share.is_small else await asyncio.to_thread(make)  # 16 MiB must not block the event loop
    if request.preview:
        return Reply(200, _preview(checked))
    jobs, headers = await _add(call, client, checked)
    if not call.may_read:
        return Reply(201, ReceiptsView([receipt_view(job) for job in jobs]), headers)
    return Reply(201, Listing("jobs", (job_view(job, listed=True) for job in jobs)), headers)


def _preview(jobs: Sequence[NewJob]) -> PreviewView:
    now = datetime.now(UTC)
    return PreviewView([timestamp(due_at(job.at, job.delay, now)) for job in jobs])


async def find_jobs(call: ApiCall) -> Reply:
    """List the jobs that match, page by page, in the order that their statuses suggest or that the query asks for.

    A page that is not complete ended early, after 100,000 jobs or 200 ms; its cursor continues the search there.
    """
    query: FindQuery = call.query
    options = query.options()
    counted: dict[str, Any] = {}
    if query.count is not None:
        count = await (await call.client()).count(options["filter"], within=SEARCH_LIMIT)
        counted = {"count": count.jobs, "countComplete": count.complete}
    return await list_page(call, options, counted)


async def list_page(call: ApiCall, options: Mapping[str, Any], beside: Mapping[str, Any] | None = None) -> Reply:
    """Answer with a page of jobs. Its largest possible size is counted in the budget before it is read."""
    most = min(PAGE_BYTES, options["limit"] * (LARGE_JOB if options["fields"] else PLAIN_JOB))
    call.share.answer(most)
    page = await (await call.client()).find(**options, most_bytes=most, within=SEARCH_LIMIT)
    facts = {"nextCursor": page.next, "complete": page.complete, **(beside or {})}
    listing = Listing("jobs", (job_view(job, listed=True) for job in page.jobs), facts)
    return Reply(200, listing, compressible=not options["fields"])


async def get_job(call: ApiCall) -> Reply:
    """Show a job with its attempts and its log."""
    return _tagged(await (await call.client()).get(call.path["id"]))


async def why_job(call: ApiCall) -> Reply:
    """Explain why a job is in its current state: a reason, one sentence, and the data behind it."""
    return Reply(200, await (await call.client()).why(call.path["id"]))


async def change_job(call: ApiCall) -> Reply:
    """Change the priority, the time or the tags of a waiting job; 409 if it is not waiting, 412 if If-Match fails."""
    change: JobChange = call.body
    revisions = read_if_match(call.headers)
    return _tagged(await (await call.client()).reschedule(call.path["id"], **change.options(), revisions=revisions))


async def delete_job(call: ApiCall) -> Reply:
    """Delete an ended job with its history; 409 if it has not ended."""
    await (await call.client()).delete(call.path["id"])
    return Reply(204)


async def cancel_job(call: ApiCall) -> Reply:
    """Cancel a job: 200 if it was waiting, 202 if it is running and its worker is asked to stop it, 409 if it had ended."""
    client, id = await call.client(), call.path["id"]
    status = await client.cancel(id)
    return _shown(await client.get(id), 200 if status is Status.CANCELLED else 202)


async def undo_cancel(call: ApiCall) -> Reply:
    """Undo the cancel of a waiting job within 30 s, with its due time and expiry; 409 if that is too late."""
    return _shown(await (await call.client()).undo_cancel(call.path["id"]))


async def retry_job(call: ApiCall) -> Reply:
    """Run a failed or cancelled job again; 409 in any other state."""
    return _shown(await (await call.client()).retry(call.path["id"]))


async def wait_for_job(call: ApiCall) -> Reply:
    """Wait for the end of a job and return it; after the timeout, or when the service stops, return it as it is."""
    query: WaitQuery = call.query
    with call.waits.take(call.key):
        return _shown(await _until_end(call, call.path["id"], query.span()))


async def _until_end(call: ApiCall, id: str, span: timedelta) -> Job:
    """Return the job when it has ended, or as it is after the span or when the service stops. Raises `ClientGone`."""
    client = await call.client()
    ended = await unless_ended(client.wait(id, span), call.receive, call.stopping)
    return await client.get(id) if ended is None else ended


async def _add(call: ApiCall, client: Client, jobs: Sequence[NewJob]) -> tuple[list[Job], dict[str, str]]:
    """Add jobs, and return them as they were when added, with a header if all of them existed before."""
    if (traceparent := read_traceparent(call.headers)) is not None:
        jobs = [msgspec.structs.replace(job, traceparent=traceparent) for job in jobs]
    added = await call.submissions.add(client, call.key, jobs)
    replayed = all(again for _, again in added)
    return [job for job, _ in added], {"idempotency-replayed": "true"} if replayed else {}


def _seen(call: ApiCall, job: Job) -> JobView | ReceiptView:
    return job_view(job) if call.may_read else receipt_view(job)


def _shown(job: Job, status: int = 200) -> Reply:
    return Reply(status, job_view(job))


def _tagged(job: Job) -> Reply:
    return Reply(200, job_view(job), {"etag": f'"{revision(job)}"'})


# Dead letters.


async def list_dead_letters(call: ApiCall) -> Reply:
    """List the FAILED jobs, the latest failure first, page by page."""
    query: DeadLettersQuery = call.query
    return await list_page(call, query.options())


async def count_dead_letters(call: ApiCall) -> Reply:
    """Count the dead letters by type, error class, queue and age."""
    return Reply(200, dead_letter_stats_view(await (await call.client()).dead_letter_stats(within=SEARCH_LIMIT)))


async def retry_dead_letters(call: ApiCall) -> Reply:
    """Run the matching dead letters again, with all their retries; with `dryRun`, only count them."""
    request: DeadLettersRequest = call.body
    return _counted(await (await call.client()).retry_many(**request.options(), within=SEARCH_LIMIT), request)


async def delete_dead_letters(call: ApiCall) -> Reply:
    """Delete the matching dead letters with their history; with `dryRun`, only count them."""
    request: DeadLettersRequest = call.body
    return _counted(await (await call.client()).delete_many(**request.options(), within=SEARCH_LIMIT), request)


def _counted(tally: BulkResult, request: DeadLettersRequest) -> Reply:
    return Reply(200, bulk_result_view(tally, dry_run=bool(request.dry_run)))


# Actions on many jobs.


async def start_action(call: ApiCall) -> Reply:
    """Have a worker act on all jobs that match; with `dryRun`, only count them. `Location` shows its progress."""
    request: ActionRequest = call.body
    state = await (await call.client()).actions.start(**request.options(), by=call.by)
    headers = {"location": f"{call.base}/api/v1/jobs/actions/{state.job.id}", "retry-after": str(RETRY_AFTER)}
    return Reply(202, action_view(state), headers)


async def get_action(call: ApiCall) -> Reply:
    """Show an action on many jobs and its progress."""
    return Reply(200, action_view(await (await call.client()).actions.get(call.path["id"])))


# Webhook deliveries.


async def list_deliveries(call: ApiCall) -> Reply:
    """List the webhook deliveries of a job with their attempts and the responses of the server."""
    return Reply(200, deliveries_view(await (await call.client()).webhooks.of(call.path["id"])))


async def retry_deliveries(call: ApiCall) -> Reply:
    """Repeat the failed webhook deliveries of a job, with the same message ids."""
    return Reply(200, deliveries_view(await (await call.client()).webhooks.redeliver(call.path["id"])))

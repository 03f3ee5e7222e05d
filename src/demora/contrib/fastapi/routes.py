"""The routes of endpoints that run later: a job's status, its changes as events, its result, and its cancellation."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from fastapi import APIRouter, FastAPI, HTTPException, Request, Response, params
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from ...api.stopping import Stopping
from ...app import Demora
from ...client.events import EventStream
from ...core.job import Job
from ...core.states import Status
from ...errors import DemoraError, Invalid, JobNotFound, WrongState
from ...wire.problems import as_sent, headers_of, problem_of
from .site import STATUS, Site, site_of

RETRY_AFTER = 1  # seconds
STILL_HERE = 15.0  # seconds after which a silent stream of events says that it is alive
_RESULT, _CANCEL, _EVENTS = "demora_result", "demora_cancel", "demora_events"
_HAS_ROUTES = "demora_has_job_routes"  # in the state of a web application
_EVENT_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class JobStatus(BaseModel):
    """A job as its caller sees it, without its request and result."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    id: str
    status: str
    progress: float | None
    progress_message: str | None
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    status_url: str
    result_url: str
    events_url: str


def add_job_routes(
    web: FastAPI, jobs: Demora, *, prefix: str = "/later", dependencies: Sequence[params.Depends] = ()
) -> None:
    """Add the routes for jobs of endpoints that run later: GET and DELETE of the job, GET of its result and its events.

    Other jobs are not shown. Anyone who knows the id of a job may use its routes, unless `dependencies` refuse the request.
    Workers of `jobs` replay requests into `web`, inside its lifespan. Without this call, `lifespan(jobs)` adds the routes
    below `/later` if there are such endpoints.
    """
    site_of(jobs).name(web)
    web.include_router(_job_routes(jobs, prefix, dependencies))


def come_with(jobs: Demora, web: FastAPI) -> None:
    """Add the routes to a web application that has endpoints of these jobs, unless the program has added them. They come
    first, so that a route for all paths does not hide them. `BadHandler` if no worker could run one of the endpoints."""
    site = site_of(jobs)
    endpoints = [endpoint for endpoint in site.endpoints.values() if endpoint.is_in(web)]
    if site.is_named or not endpoints:
        return
    site.learn(web)
    if not getattr(web.state, _HAS_ROUTES, False):
        setattr(web.state, _HAS_ROUTES, True)
        before = len(web.router.routes)
        web.include_router(_job_routes(jobs, "/later", ()))
        added = web.router.routes[before:]
        del web.router.routes[before:]
        web.router.routes[:0] = added


def _job_routes(jobs: Demora, prefix: str, dependencies: Sequence[params.Depends]) -> APIRouter:
    site = site_of(jobs)
    router = APIRouter(prefix=prefix, tags=["jobs"], dependencies=list(dependencies))

    async def find(job_id: str) -> Job:
        try:
            job = await jobs.get(job_id)
        except JobNotFound:
            raise HTTPException(404, "There is no such job.") from None
        if job.type not in site.endpoints:
            raise HTTPException(404, "There is no such job.")
        return job

    @router.get("/{job_id}", name=STATUS)
    async def status(job_id: str, request: Request) -> JobStatus:
        """Return the status of a job."""
        return status_of(request, site, await find(job_id))

    @router.get("/{job_id}/result", name=_RESULT, response_model=None)
    async def result(job_id: str, request: Request) -> Response:
        """Return what the endpoint answered. 202 if it has not run to its end yet."""
        job = await find(job_id)
        return ended(job) if job.status.ended else accepted(request, site, job)

    @router.get("/{job_id}/events", name=_EVENTS, response_model=None)
    async def events(job_id: str, request: Request) -> Response:
        """Return the status of a job now and after each change, as server-sent events, until it has ended."""
        await find(job_id)
        stream = (await jobs.open()).events(job=job_id)
        texts = _statuses(stream, site.stopping, lambda: find(job_id), lambda job: status_of(request, site, job))
        return StreamingResponse(texts, media_type="text/event-stream", headers=_EVENT_HEADERS)

    @router.delete("/{job_id}", name=_CANCEL)
    async def cancel(job_id: str, request: Request) -> JobStatus:
        """Cancel a job. One that runs is interrupted. 409 if it has ended."""
        await find(job_id)
        try:
            await jobs.cancel(job_id)
        except WrongState:
            raise HTTPException(409, "The job has ended.") from None
        return status_of(request, site, await find(job_id))

    return router


def status_of(request: Request, site: Site, job: Job) -> JobStatus:
    """Return what the caller of a request sees of a job."""
    return JobStatus(
        id=job.id,
        status=job.status.name,
        progress=job.progress,
        progress_message=job.progress_message,
        created_at=job.created_at,
        started_at=job.started_at,
        completed_at=job.completed_at,
        status_url=site.status_path(request, job.id),
        result_url=site.path(request, _RESULT, job.id),
        events_url=site.path(request, _EVENTS, job.id),
    )


async def _statuses(
    stream: EventStream, stopping: Stopping, find: Callable[[], Awaitable[Job]], view: Callable[[Job], JobStatus]
) -> AsyncIterator[str]:
    """Yield an event for each status of a job that differs from the last one, until the job has ended or is deleted, or the
    server stops."""
    last = ""
    async with stream:
        with stopping.calling(stream.close):
            while not stream.ended:
                try:
                    job = await find()
                except HTTPException:
                    return
                text = view(job).model_dump_json(by_alias=True)
                if text != last:
                    yield f"data: {text}\n\n"
                if job.status.ended:
                    return
                last = text
                while (batch := await stream.wait(STILL_HERE)) is not None and not batch.matching(stream.filter):
                    pass
                if batch is None:
                    yield ": still here\n\n"


def accepted(request: Request, site: Site, job: Job, shaped: Any = None) -> Response:
    """Answer 202 with a job that has not ended. `shaped` takes the place of its status."""
    status = status_of(request, site, job)
    content = status.model_dump(mode="json", by_alias=True) if shaped is None else shaped
    return JSONResponse(content, 202, {"location": status.status_url, "retry-after": str(RETRY_AFTER)})


def ended(job: Job) -> Response:
    """Answer as the endpoint did in the worker: with its result, or with the error that it answered."""
    if job.status is Status.COMPLETED:
        return Response(job.result_json, media_type="application/json")
    if job.status is Status.CANCELLED:
        return JSONResponse({"detail": "The job was cancelled.", "job": job.id}, 410)
    status, body = _error_answer(job) or (500, {"detail": "The job failed.", "job": job.id})
    return JSONResponse(body, status)


def refused(problem: DemoraError) -> Response:
    """Answer a request that could not be stored. Raises an error that is neither the caller's fault nor temporary."""
    said = problem_of(as_sent(problem) if isinstance(problem, Invalid) else problem)
    if said.status == 500:
        raise problem
    return JSONResponse({"detail": said.detail}, said.status, headers_of(problem))


def _error_answer(job: Job) -> tuple[int, Any] | None:
    """Return the error that the endpoint answered in the last attempt; None if it raised something else."""
    detail = job.attempts[-1].traceback if job.attempts else None
    try:
        answer = msgspec.json.decode(detail or "", type=_ErrorAnswer)
    except msgspec.DecodeError:
        return None
    return answer.status, answer.body


class _ErrorAnswer(msgspec.Struct, forbid_unknown_fields=True):
    status: int
    body: Any

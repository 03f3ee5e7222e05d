"""`later`: an endpoint whose request is checked and stored at once, and which runs in a worker."""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import timedelta
from typing import Any, Unpack

from fastapi import FastAPI, Request, Response
from fastapi.encoders import jsonable_encoder
from starlette.datastructures import UploadFile

from ...api.operations.prefer import read_prefer
from ...api.reading import read_key
from ...api.stopping import Stopping
from ...app import Demora
from ...core.job import Job
from ...errors import BadHandler, DemoraError, JobNotFound, StoreError
from ...handlers.context import current_run
from ...handlers.registry import HandlerOptions
from .declaration import AT_REQUEST, REQUEST, AnyFunction, Declaration
from .replay import Replay
from .routes import JobStatus, accepted, come_with, ended, refused
from .site import site_of
from .stored_request import StoredRequest, store_request
from .uploads import ORPHANED, SOON, Deletions, Uploads, UploadStore

FrontFunction = Callable[..., Coroutine[Any, Any, Response]]


def later(
    jobs: Demora,
    type: str,
    *,
    check: AnyFunction | None = None,
    headers: Iterable[str] = (),
    files: UploadStore | None = None,
    answer: Callable[[Job], Any] | None = None,
    **options: Unpack[HandlerOptions],
) -> Callable[[AnyFunction], FrontFunction]:
    """Run an endpoint of FastAPI in a worker, as a job of this type. It stands below `@web.post(…)`.

    The request is checked as usual and stored, and the caller gets 202 with the job. `check` is a dependency that may refuse
    the request before it is stored. `headers` names headers to store besides those that the endpoint declares; Authorization
    and cookies are never stored. `files` keeps uploaded files until the job is completed; without it, an endpoint with a
    form is refused. `answer` makes the body of the 202 from the job. `options` are those of `Demora.job`.

    `BadHandler` if the endpoint needs what a worker does not have, such as a Response or a cookie.
    """
    if options.get("process"):
        raise BadHandler(type, "an endpoint cannot run in a process of its own: leave process out")

    def declare(endpoint: AnyFunction) -> FrontFunction:
        declaration, site = Declaration(type, endpoint, check, uploads=files is not None), site_of(jobs)
        adding = _Adding(jobs, type) if files is None else _AddingFiles(jobs, type, files, options.get("queue"))
        front = _front(jobs, type, declaration, adding, {*headers}, answer)
        replay = Replay(site, type, declaration, front)

        async def run(request: StoredRequest) -> Any:
            return await adding.run(request, replay)

        run.__name__, run.__qualname__ = endpoint.__name__, endpoint.__qualname__
        jobs.job(type, **options)(run)
        site.endpoints[type] = replay
        site.when_opened = functools.partial(come_with, jobs)
        return front

    return declare


def _front(
    jobs: Demora,
    type: str,
    declaration: Declaration,
    adding: "_Adding",
    headers: set[str],
    answer: Callable[[Job], Any] | None,
) -> FrontFunction:
    """Return what answers the request in place of the endpoint. FastAPI checks its parameters, and it stores the request."""
    site, kept = site_of(jobs), declaration.headers | headers

    async def front(**checked: Any) -> Response:
        request: Request = checked[REQUEST]
        values = {value.key: jsonable_encoder(checked[AT_REQUEST + value.key]) for value in declaration.stored}
        prefer = read_prefer(request.headers)
        if not site.is_known and isinstance(request.app, FastAPI):
            come_with(jobs, request.app)
        site.endpoints[type].public()  # or else no worker could replay the request
        try:
            stored = await store_request(request, declaration, headers=kept, values=values, keeps_files=adding.keeps_files)
            job = await adding.add(*stored, _key(request, type))
        except DemoraError as problem:
            return refused(problem)
        if prefer.wait is not None:
            job = await _ended_or_not(jobs, job, prefer.wait, site.stopping)
        response = ended(job) if job.status.ended else accepted(request, site, job, answer and answer(job))
        response.headers["location"] = site.status_path(request, job.id)
        if prefer.applied:
            response.headers["preference-applied"] = prefer.applied
        return response

    endpoint = declaration.endpoint
    front.__name__, front.__qualname__ = endpoint.__name__, endpoint.__qualname__
    front.__doc__, front.__module__ = endpoint.__doc__, endpoint.__module__
    front.__signature__ = declaration.signature.replace(return_annotation=JobStatus)  # type: ignore[attr-defined]
    return front


class _Adding:
    """Adds the jobs of an endpoint without files, and runs them."""

    keeps_files = False

    def __init__(self, jobs: Demora, type: str) -> None:
        self._jobs, self._type = jobs, type

    async def add(self, stored: StoredRequest, files: Sequence[UploadFile], key: str | None) -> Job:
        return await self._jobs.enqueue(self._type, {"request": stored}, key=key)

    async def run(self, stored: StoredRequest, replay: Replay) -> Any:
        return await replay(stored, None)


class _AddingFiles(_Adding):
    """The same for an endpoint with a form, whose files are kept in a store of the application."""

    keeps_files = True

    def __init__(self, jobs: Demora, type: str, store: UploadStore, queue: str | None) -> None:
        super().__init__(jobs, type)
        self._store, self._deletions = store, Deletions(jobs, type, store, queue)

    async def add(self, stored: StoredRequest, files: Sequence[UploadFile], key: str | None) -> Job:
        """Save the files under the id of the job, and then add it. If the job was not added, or if the request is a repeated
        one, the files are deleted. If that is not known, they stay: the job may exist, and the planned deletion looks."""
        if not files:
            return await super().add(stored, files, key)
        client = await self._jobs.open()
        job = client.make(self._type, {"request": stored}, key=key)
        uploads = Uploads(self._store, job.id)
        await self._deletions.plan(job.id, len(files), after=ORPHANED)
        try:
            await uploads.save(files)
            [(added, repeated)] = await client.add([job])
        except StoreError:
            raise
        except (DemoraError, OSError):
            await uploads.delete(len(files))
            raise
        if repeated:
            await uploads.delete(len(files))
        return added

    async def run(self, stored: StoredRequest, replay: Replay) -> Any:
        run, files = current_run(), sum(part.is_file for part in stored.form or ())
        if run is None or not files:
            return await replay(stored, None)
        result = await replay(stored, Uploads(self._store, run.id))
        with contextlib.suppress(DemoraError):  # the files are then deleted later
            await self._deletions.plan(run.id, files, after=SOON)
        return result


def _key(request: Request, type: str) -> str | None:
    """Return the idempotency key of a request. The same key on another endpoint means another job."""
    key = read_key(request.headers, None)
    return None if key is None else f"{type}:{key}"


async def _ended_or_not(jobs: Demora, job: Job, span: timedelta, stopping: Stopping) -> Job:
    """Wait for the end of a job, until the span is over or the server stops, and return the job as it is then. The job is
    stored, so trouble with reading it is no error."""
    ended = asyncio.ensure_future(jobs.wait(job, span))
    try:
        with stopping.calling(ended.cancel):
            await asyncio.wait({ended})
        return job if ended.cancelled() else ended.result()
    except (JobNotFound, StoreError):
        return job
    finally:
        ended.cancel()

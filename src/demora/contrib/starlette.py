"""demora in Starlette and FastAPI: opens the store with the web application, and gives endpoints the client."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary, WeakMethod

from starlette.applications import Starlette
from starlette.requests import HTTPConnection

from ..app import Demora
from ..client.client import Client

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
Opening = Callable[[Any, Mapping[str, Any] | None], AbstractContextManager[None]]  # of a web application with this state

# Set while a worker elsewhere holds a web application open. That worker has opened the store, and is the only one.
held_by_worker: ContextVar[bool] = ContextVar("demora_held_by_worker", default=False)

_openings: "WeakKeyDictionary[Demora, WeakMethod[Opening]]" = WeakKeyDictionary()


def watch_opening(jobs: Demora, opening: Opening) -> None:
    """Enter `opening`, a method, while a web application with `lifespan(jobs)` is open."""
    _openings[jobs] = WeakMethod(opening)


def lifespan(jobs: Demora, *, worker: bool = False, inner: Lifespan | None = None, **options: Any) -> Lifespan:
    """Return a lifespan for `FastAPI(lifespan=…)` or `Starlette(lifespan=…)` that keeps the store open.

    With `worker` it also runs a worker in the same process, which is meant for development; `options` are those of
    `Demora.worker`. `inner` is a lifespan of your own: it starts before the worker and ends after it.
    """

    @asynccontextmanager
    async def hold(web: Starlette) -> AsyncIterator[Mapping[str, Any] | None]:
        web.state.demora = jobs
        async with AsyncExitStack() as stack:
            if not held_by_worker.get():
                await stack.enter_async_context(jobs)
            state = None if inner is None else await stack.enter_async_context(inner(web))
            watcher = _openings.get(jobs)
            if watcher is not None and (opening := watcher()) is not None:
                stack.enter_context(opening(web, state))
            if worker and not held_by_worker.get():
                await stack.enter_async_context(jobs.worker(**options))
            yield state

    return hold


async def demora_client(connection: HTTPConnection) -> Client:
    """Return the client of the application's jobs: `Annotated[Client, Depends(demora_client)]` in FastAPI, and
    `await demora_client(request)` in Starlette."""
    jobs = getattr(connection.app.state, "demora", None)
    if not isinstance(jobs, Demora):
        raise LookupError("this web application has no jobs: create it with lifespan=lifespan(jobs)")
    return await jobs.open()

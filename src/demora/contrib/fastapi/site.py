"""The web application whose endpoints run later, and its lifespan."""

import sys
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import Token
from typing import Any, Protocol

from fastapi import FastAPI, Request

from ...api.stopping import Stopping
from ...app import Demora
from ...errors import DemoraError
from ..starlette import held_by_worker, watch_opening

STATUS = "demora_status"  # the name of the route


class Routed(Protocol):
    """An endpoint that runs later, as its routes show it."""

    def is_in(self, web: FastAPI) -> bool:
        """Return whether the web application has a route of this endpoint. `BadHandler` if no worker could replay it."""

    def public(self) -> object:
        """Return its route in the web application of the site. `BadHandler` if there is none."""


class NoWebApplication(DemoraError):
    """A worker or an endpoint needs the web application, and it is not known."""

    def __init__(self, found: int = 0) -> None:
        where = (
            f"{found} applications of the loaded modules have them" if found else "no loaded module has it as a global name"
        )
        super().__init__(
            f"endpoints run later, but their web application is not known: {where}; call add_job_routes(web, jobs)"
        )


class Site:
    """The web application whose endpoints run later, and its lifespan. Each `Demora` has at most one at a time.

    `add_job_routes` names it. Otherwise it is the one that opens with `lifespan(jobs)` or, in a worker elsewhere, the one
    that the loaded modules have.
    """

    def __init__(self, jobs: Demora) -> None:
        self._web: FastAPI | None = None
        self.is_named = False  # by the program, which is final
        self.endpoints: dict[str, Routed] = {}  # by the type of their jobs
        self.when_opened: Callable[[FastAPI], None] = lambda web: None
        self.stopping = Stopping(by_signals=True)
        self._open, self.state = 0, dict[str, Any]()
        self._held: tuple[AbstractAsyncContextManager[Any], Token[bool]] | None = None
        jobs.on_startup(self._hold)
        jobs.on_shutdown(self._release)
        watch_opening(jobs, self._opening)

    @property
    def web(self) -> FastAPI:
        if self._web is None:
            raise NoWebApplication
        return self._web

    @property
    def is_known(self) -> bool:
        return self._web is not None

    def name(self, web: FastAPI) -> None:
        """Name the web application. Workers that run elsewhere open its lifespan when they start."""
        if self.is_named:
            raise ValueError("these jobs have a web application already")
        self._web, self.is_named = web, True
        inner = web.router.lifespan_context
        watched: Any = lambda app: self._watched(inner(app))  # noqa: E731
        web.router.lifespan_context = watched

    def learn(self, web: FastAPI) -> None:
        """Use this web application, unless the program has named one."""
        if not self.is_named:
            self._web = web

    def status_path(self, request: Request, job_id: str) -> str:
        """Return the path of the status of a job, as the caller of this request reaches it."""
        return self.path(request, STATUS, job_id)

    def path(self, request: Request, route: str, job_id: str) -> str:
        """Return the path of a route of a job, as the caller of this request reaches it."""
        root: str = request.scope.get("app_root_path", request.scope.get("root_path", ""))
        return root.rstrip("/") + str(self.web.url_path_for(route, job_id=job_id))

    @contextmanager
    def _opening(self, web: Any, state: Mapping[str, Any] | None) -> Iterator[None]:
        """Called by `lifespan(jobs)` while a web application is open."""
        if isinstance(web, FastAPI):
            self.when_opened(web)
        with self._being_open(state):
            yield

    @asynccontextmanager
    async def _watched(self, inner: AbstractAsyncContextManager[Any]) -> AsyncIterator[Mapping[str, Any] | None]:
        async with inner as state:
            with self._being_open(state):
                yield state

    @contextmanager
    def _being_open(self, state: Mapping[str, Any] | None) -> Iterator[None]:
        self._open += 1
        self.state = dict(state or {})
        try:
            yield
        finally:
            self._open -= 1

    async def _hold(self) -> None:
        """Open the lifespan, unless it is open in this process: then the worker runs beside the endpoints."""
        if self._open or not (self.is_named or self.endpoints):
            return
        if self._web is None:
            self.learn(self._found())
        opened = self.web.router.lifespan_context(self.web)
        token = held_by_worker.set(True)
        try:
            await opened.__aenter__()
        except BaseException:
            held_by_worker.reset(token)
            raise
        self._held = opened, token

    async def _release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            opened, token = held
            await opened.__aexit__(None, None, None)
            held_by_worker.reset(token)

    def _found(self) -> FastAPI:
        """Return the web application with our endpoints that a loaded module has as a global name."""
        names = [name for module in list(sys.modules.values()) for name in list(getattr(module, "__dict__", {}).values())]
        webs: dict[int, FastAPI] = {id(web): web for web in names if issubclass(type(web), FastAPI)}  # no proxies
        ours = [web for web in webs.values() if any(endpoint.is_in(web) for endpoint in self.endpoints.values())]
        if len(ours) != 1:
            raise NoWebApplication(len(ours))
        return ours[0]


# A site lives as long as its jobs: they have its hooks.
_sites: "weakref.WeakKeyDictionary[Demora, weakref.ref[Site]]" = weakref.WeakKeyDictionary()


def site_of(jobs: Demora) -> Site:
    """Return the site of an application's jobs."""
    known = _sites.get(jobs)
    site = Site(jobs) if known is None else known()
    assert site is not None
    _sites[jobs] = weakref.ref(site)
    return site

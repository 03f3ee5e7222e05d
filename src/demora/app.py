"""`Demora`: an application. It holds the handlers, the settings and the stores, and has the verbs that programs use most."""

import functools
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast, overload

from . import settings as settings_
from .client.actions import ActionHandler, Actions
from .client.bulk import FindOptions
from .client.client import Client
from .client.paces import CODE
from .client.schedules import check_definition, make_schedule_request
from .client.stores_per_loop import StoresPerLoop
from .client.webhooks import Webhooks
from .core.dsn import without_secrets
from .core.filters import JobFilter
from .core.job import Job
from .core.pace import PaceRequest, check_paced, make_pace_request
from .core.request import EnqueueOptions
from .core.schedules.schedule_request import ScheduleRequest
from .core.states import Status
from .engines import examine, is_in_memory, make_store, same_database, schema_version
from .errors import BadHandler, BadSetting, Invalid, no_verb_of_an_app
from .handlers.builtin import BUILT_IN, unwanted
from .handlers.job_function import AnyJobFunction, JobFunction, Register
from .handlers.registry import Handler, HandlerOptions, Hook, Middleware, Registry, defaults
from .outbound import http_request
from .outbound.sender import Sender
from .outbound.webhook_delivery import WebhookHandler
from .store.diagnostics import Examination
from .store.jobs import Page
from .store.store import Store
from .system import notices
from .system.ids import new_id

if TYPE_CHECKING:
    from .blocking import Blocking
    from .testing import Sandbox

T = TypeVar("T")
F = TypeVar("F")


class Demora:
    """An application: it registers handlers and enqueues jobs.

    `async with app:` opens the store; without a block the first call opens it. Blocks may overlap: the last one to end on an
    event loop closes the store there. Each event loop has a store of its own, with its own connections. `blocking` has the
    same verbs for code without an event loop. The schedules in the code belong to the `name` of the application; without one
    it is the module that creates the application.

    With the `https://…` address of a service instead of a database, the same verbs call that service with the `api_key`.
    Verbs that it does not offer raise `NotOverHttp`.
    """

    blocking: "Blocking"

    def __init__(
        self,
        database_url: str | None = None,
        redis_url: str | None = None,
        *,
        api_key: str | None = None,
        known_types_only: bool | None = None,
        store: Store | None = None,
        new_id: Callable[[], str] = new_id,
        name: str | None = None,
    ) -> None:
        self.name = _calling_module() if name is None else name
        self._given: dict[str, Any] = {
            "database_url": database_url,
            "redis_url": redis_url,
            "api_key": api_key,
            "known_types_only": known_types_only,
        }
        self._url_in_code, self._said_other = database_url, False
        self._new_id = new_id
        self._settings: settings_.Settings | None = None
        self.stores = StoresPerLoop(store, self._make_store, self._begin)
        self.sandbox: Sandbox | None = None  # the one that keeps the jobs during a test
        self.registry = Registry()
        self.middlewares: list[Middleware] = []
        self.startup_hooks: list[Hook] = []
        self.shutdown_hooks: list[Hook] = []
        self._paces: dict[str, PaceRequest] = {}
        self._schedules: dict[str, ScheduleRequest] = {}
        self.deliveries = WebhookHandler(self._webhooks, lambda: self.sender, lambda: self.settings.webhook_secrets)
        for handler in (
            *BUILT_IN,
            http_request.HttpRequestHandler(lambda: self.sender).handler(),
            self.deliveries.handler(),
            ActionHandler(self._actions).handler(),
        ):
            self.registry.register(handler)
        self.blocking = _blocking_face(self)

    # Handlers

    def job(self, type: str, **options: Unpack[HandlerOptions]) -> Register:
        """Register a function, async or plain, as the handler of a type.

        Options give the defaults of its jobs (queue, priority, max_retries, retry_delay, timeout, webhook_url,
        webhook_on_cancel), how failures are retried (retry_cap, jitter, permanent), and whether each job runs in a separate
        process (process, memory).
        """

        if callable(type):
            raise BadHandler(name := getattr(type, "__name__", "?"), f'give the type of its jobs: write @app.job("{name}")')

        usual = defaults(type, **options)

        def register(function: Callable[..., Any]) -> AnyJobFunction:
            handler = Handler(type, function, usual)
            self.registry.register(handler)
            return JobFunction(self, handler)

        return cast(Register, register)

    def middleware(self, function: Middleware) -> Middleware:
        """Wrap every run in `async def around(ctx, call_next)`. The first one registered is the outermost."""
        self.middlewares.append(function)
        return function

    def on_startup(self, hook: Hook) -> Hook:
        """Call this function when a worker starts, before it claims a job."""
        self.startup_hooks.append(hook)
        return hook

    def on_shutdown(self, hook: Hook) -> Hook:
        """Call this function when a worker stops, after its last job."""
        self.shutdown_hooks.append(hook)
        return hook

    def pace(self, queue: str, **values: Any) -> None:
        """Give a queue a pace when a worker, service or scheduler starts: `app.pace("mail", gap="2m", burst=3)`.

        The queue `*` stands for all queues without a pace of their own, also for those named later. Values are those of
        `Paces.set_pace`. A pace that was changed at run time stands until the values here change.
        """
        self._paces[check_paced(queue)] = make_pace_request(**values)

    async def apply_paces(self) -> None:
        """Set the paces of the code and of the settings. Where both name a queue, the settings win.

        Workers, services and schedulers call this when they start.
        """
        if self._is_remote():
            return  # the service has its own
        client, in_settings = await self.open(), self.settings.pace
        in_code = {queue: request for queue, request in self._paces.items() if queue not in in_settings}
        await client.apply_paces(in_code, by=CODE)
        await client.apply_paces(in_settings)

    def every(
        self, when: str | timedelta, *, tz: str | None = None, name: str | None = None, payload: Any = None, **values: Any
    ) -> Callable[[F], F]:
        """Enqueue a job of the handler below again and again: `@app.every("0 3 * * *", tz="Europe/Madrid")` or
        `@app.every("90s")`.

        It stands above `@app.job(…)`. The schedule is named after the type; give a handler's second one a `name`. Other
        values are those of `Client.add_schedule`.
        """

        def schedule(function: F) -> F:
            if not isinstance(function, JobFunction):
                raise BadHandler(getattr(function, "__name__", "?"), '@app.every stands above @app.job("…")')
            timing = {"every": when} if _is_interval(when) else {"cron": when}
            self.schedule(name or function.type, function.type, payload=payload, tz=tz, **timing, **values)
            return function

        return schedule

    def schedule(self, name: str, type: str, *, payload: Any = None, tz: str | None = None, **values: Any) -> None:
        """Define a schedule: `app.schedule("nightly", "report.build", cron="0 3 * * *", payload={"day": "yesterday"})`.

        It is brought into the database when a worker, service or scheduler of this application starts. Values are those of
        `Client.add_schedule`, with `tz` for `timezone`. What a person changes at run time is kept.
        """
        if name in self._schedules:
            raise Invalid("name", f"the code has a schedule named {name!r} already; give this one another name")
        zone = {} if tz is None else {"timezone": tz}
        request = make_schedule_request({"type": type, "payload": {} if payload is None else payload, **zone, **values})
        check_definition(name, request)
        self._schedules[name] = request

    async def define_schedules(self, process_id: str) -> bool:
        """Bring the schedules of the code into the database. Returns whether that must be done again later.

        Workers, services and schedulers call this when they start.
        """
        if self._is_remote():
            return False  # the service has its own
        client, app_version = await self.open(), self.settings.release
        return await client.define_schedules(self.name, process_id, self._schedules, app_version=app_version)

    async def switch_builtins(self) -> None:
        """Switch off the built-in handlers that the setting `builtin_handlers` leaves out. Workers call this repeatedly.

        Without that setting, the `demo.…` handlers are switched off once an API key exists.
        """
        if self.settings.builtin_handlers is not None:
            self._keep_named_builtins(self.settings.builtin_handlers)
        elif self.registry.get(BUILT_IN[0].type) is not None and (await (await self.open()).keys.find("")).any:
            self._switch_off(
                unwanted((http_request.TYPE,)), "there are API keys; DEMORA_BUILTIN_HANDLERS=all switches it on"
            )

    def _keep_named_builtins(self, names: Sequence[str]) -> None:
        self._switch_off(unwanted(names), "DEMORA_BUILTIN_HANDLERS names what is on")

    def _switch_off(self, types: list[str], reason: str) -> None:
        if gone := self.registry.switch_off(types, reason):
            notices.builtins_off(gone, reason)

    # The store

    @property
    def settings(self) -> settings_.Settings:
        """The settings of this application. They are read at the first access, and again after `configure`."""
        if self._settings is None:
            self._settings = settings_.load(**self._given)
        return self._settings

    def settings_with(self, **given: Any) -> settings_.Settings:
        """Return the settings with these arguments of a caller in their place. `Invalid` names an argument that is wrong."""
        arguments = {name: value for name, value in given.items() if value is not None}
        try:
            return settings_.load(**self._given | arguments)
        except BadSetting as problem:
            if problem.name not in arguments:
                raise
            raise Invalid(problem.name, problem.reason) from None

    def configure(self, **given: Any) -> None:
        """Override settings before the store is opened. None changes nothing."""
        self._given |= {name: value for name, value in given.items() if value is not None}
        self._settings = None

    @functools.cached_property
    def sender(self) -> Sender:
        """The sender of outbound HTTP requests, limited as the settings say."""
        settings = self.settings
        return Sender(settings.outbound, timeout=settings.outbound_timeout, per_host=settings.outbound_per_host)

    async def schema_version(self) -> int | None:
        """Return the version of the schema in the database, None if it has none yet. Creates and changes nothing."""
        settings = self.settings
        return await schema_version(settings.database_url, postgres=settings.postgres)

    def examine(self, *, integrity: bool = True) -> Examination:
        """Examine the database without opening the store. With `integrity` all of it is read. Changes nothing."""
        return examine(self.settings.database_url, integrity=integrity, postgres=self.settings.postgres)

    def other_database(self) -> tuple[str, str] | None:
        """Return the database that the environment or the settings file names, and which of them, if the code of this
        application names another one. The application uses the one in the code; commands without it use the other one.

        Returns None if a caller named the database, for instance with `--database-url`, and for a database in memory.
        """
        own = self._url_in_code
        if own is None or own != self._given["database_url"] or self.in_memory():
            return None
        named = settings_.named_database(os.environ)
        return None if named is None or same_database(own, named[0]) else named

    def in_memory(self) -> bool:
        """Whether jobs are kept in the memory of this process, and are lost when it ends. Opens nothing."""
        if self.stores.given is not None:
            return self.stores.given.sibling() is None
        return not self._is_remote() and is_in_memory(self.settings.database_url)

    async def open(self) -> Client:
        """Open the store on this event loop, unless it is open there, and return the client.

        Concurrent calls share one opening. Cancelling one of them does not stop it.
        """
        return await self.stores.open()

    async def close(self) -> None:
        """Close the store on this event loop at once, even if blocks still hold it open."""
        await self.stores.close()

    def _make_store(self) -> Store:
        self._warn_of_other_database()
        settings = self.settings
        if self._is_remote():
            return _remote_store(settings)
        return make_store(
            settings.database_url,
            redis_url=settings.redis_url,
            line_horizon=settings.line_horizon,
            audit=settings.audit,
            postgres=settings.postgres,
        )

    def _is_remote(self) -> bool:
        """Whether the application uses a service over HTTP instead of a database."""
        return self.stores.given is None and self.settings.database_url.startswith(("http://", "https://"))

    async def catch_up(self) -> None:
        """Enqueue the jobs that an integration holds back until a commit. A sandbox calls this before it looks for jobs,
        because the transaction of a test never commits."""

    def _begin(self, store: Store) -> Client:
        """Apply the settings to the handlers, now that the store is open, and return its client."""
        settings = self.settings
        self.registry.known_types_only = settings.known_types_only
        client = self._make_client(store)
        if settings.builtin_handlers is not None:
            self._keep_named_builtins(settings.builtin_handlers)
        return client

    def _make_client(self, store: Store) -> Client:
        settings = self.settings
        if self._is_remote():
            return _remote_client(store, self.registry, self._new_id)
        return Client(
            store,
            self.registry,
            new_id=self._new_id,
            outbound=settings.outbound,
            usual_pace=settings.usual_pace,
            longest_timeout=settings.max_timeout,
            lease=settings.lease,
        )

    def _warn_of_other_database(self) -> None:
        """Log once that the settings name another database than the code."""
        if not self._said_other and (other := self.other_database()) is not None:
            named, source = other
            notices.other_database(without_secrets(self.settings.database_url), without_secrets(named), source)
        self._said_other = True

    async def _webhooks(self) -> Webhooks:
        return (await self.open()).webhooks

    async def _actions(self) -> Actions:
        return (await self.open()).actions

    async def __aenter__(self) -> Self:
        await self.stores.hold()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stores.let_go(closes=True)

    # Jobs

    async def enqueue(self, type: str, payload: Any = None, **options: Unpack[EnqueueOptions]) -> Job:
        """Store one job. It is durable when this returns or, `within` a transaction of the caller, when that commits.

        `Invalid` names the argument that is wrong; then nothing is stored.
        """
        return await (await self.open()).enqueue(type, payload, **options)

    async def enqueue_many(
        self, requests: Iterable[Any], *, within: Any = None, spread: timedelta | str | None = None
    ) -> list[Job]:
        """Store many jobs, all or none, also `within` a transaction of the caller.

        A request is `(type, payload)`, `(type, payload, options)`, a dict with the arguments of `enqueue`, or the result of
        `.make(…)` on a handler. With a `spread` the jobs are due evenly over that span, the first one at once.
        """
        return await (await self.open()).enqueue_many(requests, within=within, spread=spread)

    async def get(self, id: str) -> Job:
        """Return the job with its attempts and its log; `JobNotFound` if no job has this id."""
        return await (await self.open()).get(id)

    async def find(self, filter: JobFilter | str | None = None, /, **options: Unpack[FindOptions]) -> Page:
        """Return a page of the jobs that match a filter or a search; see `Client.find`."""
        return await (await self.open()).find(filter, **options)

    @overload
    async def wait(self, job: Job[T], timeout: timedelta | str | None = None) -> Job[T]: ...
    @overload
    async def wait(self, job: str, timeout: timedelta | str | None = None) -> Job: ...
    async def wait(self, job: Job | str, timeout: timedelta | str | None = None) -> Job:
        """Wait until the job, given itself or by its id, has ended, and return it. After the `timeout` return it as it is
        then."""
        return await (await self.open()).wait(job, timeout)

    @overload
    async def result(self, job: Job[T], timeout: timedelta | str | None = None) -> T: ...
    @overload
    async def result(self, job: str, timeout: timedelta | str | None = None) -> Any: ...
    async def result(self, job: Job[T] | str, timeout: timedelta | str | None = None) -> T | Any:
        """Wait until the job, given itself or by its id, has ended, and return what its handler returned.

        `JobFailed` if the job ended without a result, `StillRunning` if it has not ended within the `timeout`.
        """
        return await (await self.open()).result(job, timeout)

    async def cancel(self, id: str) -> Status:
        """Cancel a job, and return its status: CANCELLED if it was waiting; PROCESSING if it runs, whose worker sees the
        request within a second."""
        return await (await self.open()).cancel(id)

    async def retry(self, id: str) -> Job:
        """Run a failed or cancelled job again, as a new generation of the same job; `WrongState` for any other job."""
        return await (await self.open()).retry(id)

    async def reschedule(self, id: str, **change: Any) -> Job:
        """Change the time (`at` or `delay`), the `priority` or the `tags` of a waiting job. The job keeps its id."""
        return await (await self.open()).reschedule(id, **change)

    @asynccontextmanager
    async def worker(self, **options: Any) -> AsyncIterator[Any]:
        """Run a worker in this process for the duration of the block.

        The block begins once the worker has started. If the worker dies, the block is cancelled and raises the reason.
        Options are queues, strict, concurrency, lease and grace; see `Worker`.
        """
        from .worker import Worker
        from .worker.block import working

        await self.stores.hold()
        try:
            async with working(Worker(self, **options)) as worker:
                yield worker
        finally:
            await self.stores.let_go(closes=False)

    if not TYPE_CHECKING:  # a type checker would take it for a class that has any attribute

        def __getattr__(self, name: str) -> Any:
            raise no_verb_of_an_app(self, name)


def _is_interval(when: str | timedelta) -> bool:
    """Whether this is a span, as `90s`; anything else is cron."""
    return isinstance(when, timedelta) or (isinstance(when, str) and " " not in when.strip() and not when.startswith("@"))


def _calling_module() -> str:
    """Return the name of the module that creates an application, the same whether it is imported or run."""
    frame = sys._getframe(2)
    module: str = frame.f_globals.get("__name__", "app")
    if module != "__main__":
        return module
    spec = frame.f_globals.get("__spec__")
    return spec.name if spec is not None else Path(frame.f_globals.get("__file__", "app")).stem


def _blocking_face(app: Demora) -> "Blocking":
    from .blocking import Blocking

    return Blocking(app)


# Imported only where they are needed, so that a program with a database of its own does not load them.


def _remote_store(settings: settings_.Settings) -> Store:
    from .remote import RemoteStore, ServiceConnection

    return cast(Store, RemoteStore(ServiceConnection(settings.database_url, settings.api_key)))


def _remote_client(store: Store, registry: Registry, new_id: Callable[[], str]) -> Client:
    from .remote import RemoteStore, remote_client

    return remote_client(cast(RemoteStore, store), registry, new_id=new_id)

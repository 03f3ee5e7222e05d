"""`Demora`: an application's handlers, and its door to everything else."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from . import settings as settings_
from .client.client import Client, new_id
from .client.paces import CODE
from .client.stores_per_loop import Holds, LoopStore
from .client.webhooks import Webhooks
from .core.job import Job, Priority
from .core.pace_request import PaceRequest, make_pace_request
from .core.request import check_queue
from .core.states import Status
from .engines import examine, make_store, schema_version
from .errors import BadHandler, BadSetting, Invalid, OneLoopOnly, StoreError
from .handlers.builtin import BUILT_IN, unwanted
from .handlers.job_function import JobFunction
from .handlers.registry import Handler, Middleware, Registry, defaults
from .outbound import http_request
from .outbound.sender import Sender
from .outbound.webhook_delivery import WebhookHandler
from .store.diagnostics import Examination
from .store.jobs import Page, Store
from .system import notices

if TYPE_CHECKING:
    from .blocking import Blocking

Hook = Callable[[], Awaitable[None] | None]


class Demora:
    """Registers handlers and enqueues jobs. `async with app:` opens the store; without it the first call does. Such blocks
    may overlap: the last one to end on an event loop closes the store there.

    Each event loop that asks has the store for itself, with its own connection. `blocking` asks without a loop.
    """

    blocking: "Blocking"

    def __init__(
        self,
        database_url: str | None = None,
        redis_url: str | None = None,
        *,
        known_types_only: bool | None = None,
        store: Store | None = None,
        new_id: Callable[[], str] = new_id,
    ) -> None:
        self._given: dict[str, Any] = {
            "database_url": database_url,
            "redis_url": redis_url,
            "known_types_only": known_types_only,
        }
        self._store, self._new_id = store, new_id
        self._homes: dict[asyncio.AbstractEventLoop, LoopStore] = {}
        self._holds = Holds()
        self.moving = threading.Lock()  # held while the store moves in with one more loop
        self._kept_closed: str | None = None
        self.registry = Registry()
        self.middlewares: list[Middleware] = []
        self.startup_hooks: list[Hook] = []
        self.shutdown_hooks: list[Hook] = []
        self._paces: dict[str, PaceRequest] = {}
        self.deliveries = WebhookHandler(self._webhooks, lambda: self.sender, lambda: self.settings.webhook_secrets)
        for handler in (
            *BUILT_IN,
            http_request.HttpRequestHandler(lambda: self.sender).handler(),
            self.deliveries.handler(),
        ):
            self.registry.register(handler)
        self.blocking = _blocking_face(self)

    # Handlers

    def job(self, type: str, **options: Any) -> Callable[[Callable[..., Any]], JobFunction]:
        """Register a function, async or plain, as the handler for a type. Options are the defaults of its jobs: queue,
        priority, max_retries, retry_delay, timeout, webhook_url, webhook_on_cancel; how failures are retried: retry_cap,
        jitter, permanent; and whether it is called in a process of its own: process, memory."""

        if callable(type):
            raise BadHandler(name := getattr(type, "__name__", "?"), f'give the type of its jobs: write @app.job("{name}")')

        def register(function: Callable[..., Any]) -> JobFunction:
            handler = Handler(type, function, defaults(type, **options))
            self.registry.register(handler)
            return JobFunction(self, handler)

        return register

    def middleware(self, function: Middleware) -> Middleware:
        """Wrap every run: `async def around(ctx, call_next)`; the first registered is the outermost."""
        self.middlewares.append(function)
        return function

    def on_startup(self, hook: Hook) -> Hook:
        """Call this when a worker starts, before it claims anything."""
        self.startup_hooks.append(hook)
        return hook

    def on_shutdown(self, hook: Hook) -> Hook:
        """Call this when a worker stops, after its last job."""
        self.shutdown_hooks.append(hook)
        return hook

    def pace(self, queue: str, **values: Any) -> None:
        """Give a queue a pace when a worker, service or scheduler starts: `app.pace("mail", gap="2m", burst=3)`. What was
        changed at run time stands until these values change; see `Client.set_pace` for them."""
        self._paces[check_queue(queue)] = make_pace_request(**values)

    async def apply_paces(self) -> None:
        """Set the paces of the code and of the settings, which go before; for those who run jobs."""
        client, asked = await self.open(), self.settings.pace
        await client.apply_paces({queue: request for queue, request in self._paces.items() if queue not in asked}, by=CODE)
        await client.apply_paces(asked)

    async def switch_builtins(self) -> None:
        """Switch off the built-in handlers that are not wanted; for those who run jobs, now and then. If the setting
        `builtin_handlers` is not given, those to try demora with are not wanted once there is an API key."""
        names = self.settings.builtin_handlers
        if names is not None:
            self._switch_off(unwanted(names), "DEMORA_BUILTIN_HANDLERS names what is on")
        elif self.registry.get(BUILT_IN[0].type) is not None and (await (await self.open()).keys.find("")).any:
            self._switch_off(
                unwanted((http_request.TYPE,)), "there are API keys; DEMORA_BUILTIN_HANDLERS=all switches it on"
            )

    def _switch_off(self, types: list[str], reason: str) -> None:
        if gone := self.registry.switch_off(types, reason):
            notices.builtins_off(gone, reason)

    # The store

    @property
    def settings(self) -> settings_.Settings:
        return settings_.load(**self._given)

    def settings_with(self, **given: Any) -> settings_.Settings:
        """The settings with these instead, which are somebody's arguments: `Invalid` names the one that cannot be used."""
        asked = {name: value for name, value in given.items() if value is not None}
        try:
            return settings_.load(**self._given | asked)
        except BadSetting as problem:
            if problem.name not in asked:
                raise
            raise Invalid(problem.name, problem.reason) from None

    def configure(self, **given: Any) -> None:
        """Override settings before the store is opened; None leaves as it is."""
        self._given |= {name: value for name, value in given.items() if value is not None}

    @functools.cached_property
    def sender(self) -> Sender:
        """What calls other people's servers, as the settings allow."""
        settings = self.settings
        return Sender(settings.outbound, timeout=settings.outbound_timeout, per_host=settings.outbound_per_host)

    def keep_closed(self, reason: str) -> None:
        """Refuse to open the store in this process from now on."""
        self._kept_closed = reason

    async def schema_version(self) -> int | None:
        """The version of the schema in the database, None if there is none yet. Makes and changes nothing."""
        settings = self.settings
        return await schema_version(settings.database_url, postgres=settings.postgres)

    def examine(self, *, integrity: bool = True) -> Examination:
        """What can be said of the database without opening it; with `integrity` all of it is read. Changes nothing."""
        return examine(self.settings.database_url, integrity=integrity, postgres=self.settings.postgres)

    def in_memory(self) -> bool:
        """Whether jobs live in the memory of this process, and end with it. Opens nothing."""
        return (self._store or make_store(self.settings.database_url)).sibling() is None

    async def open(self) -> Client:
        """Open the store on this loop if it is not open here, and answer with the client. Whoever is cancelled meanwhile
        leaves the opening to the others, and to `close`."""
        if self._kept_closed is not None:
            raise StoreError(self._kept_closed)
        loop = asyncio.get_running_loop()
        home = self._homes.get(loop) or self.move_in(loop)
        if home.client is not None:
            return home.client
        if home.opening is None:
            home.opening = asyncio.ensure_future(self._opened(loop, home))
        return await asyncio.shield(home.opening)

    async def close(self) -> None:
        """Close the store on this loop, at once, whatever blocks still hold it open."""
        home = self._homes.pop(asyncio.get_running_loop(), None)
        if home is not None and home.opening is not None:
            await asyncio.wait([home.opening])
        if home is not None and home.client is not None:
            await home.client.store.close()

    def move_in(self, loop: asyncio.AbstractEventLoop) -> LoopStore:
        """A store for one more loop, not yet open; `OneLoopOnly` if it is in memory and lives on another that runs."""
        with self.moving:
            self._homes = {other: home for other, home in self._homes.items() if home.is_here() and not other.is_closed()}
            settings = self.settings
            store = self._store or make_store(
                settings.database_url, redis_url=settings.redis_url, audit=settings.audit, postgres=settings.postgres
            )
            if any(other.is_running() and other is not loop for other in self._homes):
                sibling = store.sibling()
                if sibling is None:
                    raise OneLoopOnly
                store = sibling
            return self._homes.setdefault(loop, LoopStore(store))

    def only_loop(self) -> asyncio.AbstractEventLoop | None:
        """The running loop that alone can reach the store, since that is in memory; None if there is no such loop."""
        for loop, home in list(self._homes.items()):
            if home.in_memory and home.is_here() and loop.is_running():
                return loop
        return None

    @contextmanager
    def using(self, store: Store) -> Iterator[None]:
        """Ask this store and no other for as long as the block lasts: for tests."""
        before = self._store, self._homes
        self._store, self._homes = store, {}
        try:
            yield
        finally:
            self._store, self._homes = before

    async def _opened(self, loop: asyncio.AbstractEventLoop, home: LoopStore) -> Client:
        try:
            await home.store.open()
        except BaseException:
            self._homes.pop(loop, None)  # the next call tries anew, perhaps with other settings
            raise
        settings = self.settings
        self.registry.known_types_only = settings.known_types_only
        home.client = Client(home.store, self.registry, new_id=self._new_id, outbound=settings.outbound)
        home.client.usual_pace, home.client.longest_timeout = settings.usual_pace, settings.max_timeout
        if settings.builtin_handlers is not None:
            self._switch_off(unwanted(settings.builtin_handlers), "DEMORA_BUILTIN_HANDLERS names what is on")
        return home.client

    async def _webhooks(self) -> Webhooks:
        return (await self.open()).webhooks

    async def __aenter__(self) -> Self:
        await self._hold()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._holds.end(closes=True):
            await self.close()

    async def _hold(self) -> None:
        """Open the store for a block, which holds it from now on: others may end while it is being opened."""
        self._holds.begin()
        try:
            await self.open()
        except BaseException:
            if self._holds.end(closes=False):
                await self.close()
            raise

    # What an application may ask

    async def enqueue(
        self,
        type: str,
        payload: Any = None,
        *,
        at: datetime | None = None,
        delay: timedelta | str | None = None,
        queue: str | None = None,
        priority: Priority | str | None = None,
        max_retries: int | None = None,
        retry_delay: timedelta | str | None = None,
        timeout: timedelta | str | None = None,
        key: str | None = None,
        tags: Iterable[str] | None = None,
        name: str | None = None,
        webhook_url: str | None = None,
        expires_at: datetime | None = None,
        expires_in: timedelta | str | None = None,
        unique: str | None = None,
        if_waiting: str | None = None,
        webhook_on_cancel: bool | None = None,
        within: Any = None,
    ) -> Job:
        """Store one job: durable when this returns, or `within` a transaction of the caller's when that commits. `Invalid`
        names what is wrong with it, and then nothing is stored."""
        client = await self.open()
        job = client.make(
            type,
            payload,
            at=at,
            delay=delay,
            queue=queue,
            priority=priority,
            max_retries=max_retries,
            retry_delay=retry_delay,
            timeout=timeout,
            key=key,
            tags=tags,
            name=name,
            webhook_url=webhook_url,
            expires_at=expires_at,
            expires_in=expires_in,
            unique=unique,
            if_waiting=if_waiting,
            webhook_on_cancel=webhook_on_cancel,
        )
        [(stored, _)] = await client.add([job], within=within)
        return stored

    async def enqueue_many(
        self, requests: Iterable[Any], *, within: Any = None, spread: timedelta | str | None = None
    ) -> list[Job]:
        """Store many jobs, all or none, also `within` a transaction. A request is `(type, payload)`,
        `(type, payload, options)`, a dict with the arguments of `enqueue`, or what `.make(…)` of a handler gives. With a
        `spread` they are due evenly over that span, the first at once."""
        return await (await self.open()).enqueue_many(requests, within=within, spread=spread)

    async def get(self, id: str) -> Job:
        return await (await self.open()).get(id)

    async def find(self, **filters: Any) -> Page:
        """Jobs, newest first; see `Client.find`."""
        return await (await self.open()).find(**filters)

    async def wait(self, id: str, timeout: timedelta | str | None = None) -> Job:
        """The job once it has ended, or as it is when the time is up."""
        return await (await self.open()).wait(id, timeout)

    async def result(self, id: str, timeout: timedelta | str | None = None) -> Any:
        """What the handler returned, once it has; `JobFailed` if the job ended otherwise, `StillRunning` if time is up."""
        return await (await self.open()).result(id, timeout)

    async def cancel(self, id: str) -> Status:
        """CANCELLED if the job was waiting; PROCESSING if it runs, whose worker hears of it within a second."""
        return await (await self.open()).cancel(id)

    async def retry(self, id: str) -> Job:
        """Run a failed or cancelled job again, as a new generation of the same job."""
        return await (await self.open()).retry(id)

    async def reschedule(self, id: str, **change: Any) -> Job:
        """Change when a waiting job runs (`at` or `delay`), its `priority` or its `tags`; it keeps its id."""
        return await (await self.open()).reschedule(id, **change)

    @asynccontextmanager
    async def worker(self, **options: Any) -> AsyncIterator[Any]:
        """A worker inside this process, for as long as the block lasts: it has started when the block begins, and if it dies
        the block is cancelled and raises why. Options are queues, strict, concurrency, lease and grace; see `Worker`."""
        from .worker import Worker
        from .worker.block import working

        await self._hold()
        try:
            async with working(Worker(self, **options)) as worker:
                yield worker
        finally:
            if self._holds.end(closes=False):
                await self.close()


def _blocking_face(app: Demora) -> "Blocking":
    from .blocking import Blocking

    return Blocking(app)

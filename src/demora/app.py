"""`Demora`: an application's handlers, and its door to everything else."""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Self

from . import settings as settings_
from .builtin import BUILT_IN
from .client import Client, new_id
from .core.job import Job, Priority
from .core.states import Status
from .engines import make_store, schema_version
from .handlers import Handler, Middleware, Registry, defaults
from .store import Page, Store

Hook = Callable[[], Awaitable[None] | None]


class Demora:
    """Registers handlers and enqueues jobs. `async with app:` opens the store; without it the first call does."""

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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._client: Client | None = None
        self.registry = Registry()
        self.middlewares: list[Middleware] = []
        self.startup_hooks: list[Hook] = []
        self.shutdown_hooks: list[Hook] = []
        for handler in BUILT_IN:
            self.registry.register(handler)

    # Handlers

    def job(self, type: str, **options: Any) -> Callable[[Callable[..., Any]], "JobFunction"]:
        """Register a function, async or plain, as the handler for a type. Options are the defaults of its jobs: queue,
        priority, max_retries, retry_delay, timeout, and how failures are retried: retry_cap, jitter, permanent."""

        def register(function: Callable[..., Any]) -> JobFunction:
            handler = Handler(type, function, defaults(**options))
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

    # The store

    @property
    def settings(self) -> settings_.Settings:
        return settings_.load(**self._given)

    def configure(self, **given: Any) -> None:
        """Override settings before the store is opened; None leaves as it is."""
        self._given |= {name: value for name, value in given.items() if value is not None}

    async def schema_version(self) -> int | None:
        """The version of the schema in the database, None if there is none yet. Makes and changes nothing."""
        settings = self.settings
        return await schema_version(settings.database_url, postgres=settings.postgres)

    def in_memory(self) -> bool:
        """Whether jobs live in the memory of this process, and end with it. Opens nothing."""
        return (self._store or make_store(self.settings.database_url)).sibling() is None

    async def open(self) -> Client:
        """Open the store if it is not open, and answer with the client."""
        loop = asyncio.get_running_loop()
        if self._client is not None and self._loop is loop:
            return self._client
        if self._loop is not loop:  # an earlier loop has ended, and with it what was opened on it
            self._loop, self._client, self._opening = loop, None, asyncio.Lock()
        async with self._opening:
            if self._client is None:
                settings = self.settings
                store = self._store or make_store(settings.database_url, audit=settings.audit, postgres=settings.postgres)
                await store.open()
                self.registry.known_types_only = settings.known_types_only
                self._client = Client(store, self.registry, new_id=self._new_id)
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            client, self._client, self._loop = self._client, None, None
            await client.store.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

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
    ) -> Job:
        """Store one job: durable when this returns. `Invalid` names what is wrong with it, and then nothing is stored."""
        client = await self.open()
        return await client.enqueue(
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
        )

    async def enqueue_many(self, wishes: Iterable[Any]) -> list[Job]:
        """Store many jobs, all or none. A wish is `(type, payload)`, `(type, payload, options)`, a dict with the arguments
        of `enqueue`, or what `.make(…)` of a handler gives."""
        return await (await self.open()).enqueue_many(wishes)

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
        """A worker inside this process, for as long as the block lasts."""
        from .worker import Worker

        await self.open()
        worker = Worker(self, **options)
        running = asyncio.ensure_future(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await running


class JobFunction:
    """A registered function: call it as before, or enqueue it."""

    def __init__(self, app: Demora, handler: Handler, options: dict[str, Any] | None = None) -> None:
        self._app, self.handler, self._options = app, handler, options or {}
        functools.update_wrapper(self, handler.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.handler.function(*args, **kwargs)

    @property
    def type(self) -> str:
        return self.handler.type

    def options(self, **options: Any) -> "JobFunction":
        """The same function with options for `enqueue`: `send.options(delay="1h", priority="HIGH").enqueue(to=…)`."""
        return JobFunction(self._app, self.handler, self._options | options)

    async def enqueue(self, **payload: Any) -> Job:
        """Store a job that calls this function with these arguments."""
        return await self._app.enqueue(self.type, payload, **self._options)

    def make(self, **payload: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """A wish for `enqueue_many`."""
        return self.type, payload, self._options

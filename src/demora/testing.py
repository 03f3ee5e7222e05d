"""Tools to test an application: its jobs in memory, a clock that tests move forward, and a worker that runs the due jobs.

with Sandbox(app) as sandbox:
    await my_code()
    assert await sandbox.enqueued("email.send", to="a@b.c")
    assert not (await sandbox.advance("1h")).failures
"""

import asyncio
import contextlib
import contextvars
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, Future
from datetime import datetime, timedelta
from typing import Any, Protocol, Self, TypeVar

import msgspec

from .app import Demora
from .blocking import BlockingVerb, check_no_loop
from .core.job import Job
from .core.spans import from_ms, moment, span, to_ms
from .core.states import Status
from .engines.sqlite import SqliteStore
from .errors import DemoraError
from .handlers.job_function import AnyJobFunction, JobFunction
from .store.jobs import Settlement, Subscription
from .system.clock import Clock
from .system.seams import Seams
from .worker import Worker

T = TypeVar("T")

MOST_RUNS = 10_000  # in one drain
_LOOK = 1.0  # seconds between claims while a handler runs
_SEAMS = Seams(chance=lambda: 0.0, name=lambda: "sandbox")  # without chance, jitter shortens no wait


class NeverIdle(DemoraError):
    """A drain did not end: after `MOST_RUNS` runs there were still due jobs."""

    def __init__(self, runs: int) -> None:
        super().__init__(f"{runs} runs, and jobs are still due: does a handler enqueue itself without a delay?")


class Drained(msgspec.Struct, frozen=True):
    """The jobs that were run, each in its current state, in the order in which their last runs ended."""

    jobs: list[Job]

    @property
    def ended(self) -> list[Job]:
        """The jobs that have ended."""
        return [job for job in self.jobs if job.status.ended]

    @property
    def failures(self) -> list[Job]:
        """The jobs whose last run failed, also those that will be retried."""
        return [job for job in self.jobs if job.status in (Status.RETRYING, Status.FAILED)]


class SandboxClock(Clock):
    """A clock that runs as usual, or stands still at `now`. Tests can move either forward."""

    def __init__(self, now: datetime | None = None) -> None:
        self._stands_at = None if now is None else to_ms(moment(now, "now")) * 1000
        self._turned = timedelta(0)

    def turn(self, by: timedelta) -> None:
        """Move the clock forward."""
        self._turned += by

    def now(self) -> datetime:
        return from_ms(self.wall_us() // 1000)

    def wall_us(self) -> int:
        base = time.time_ns() // 1000 if self._stands_at is None else self._stands_at
        return base + self._turned // timedelta(microseconds=1)

    def boot(self) -> int:
        base = time.monotonic_ns() // 1_000_000 if self._stands_at is None else 0
        return base + self._turned // timedelta(milliseconds=1)

    def boot_id(self) -> str:
        return "sandbox"


class Extension(Protocol):
    """The demora of a framework, such as `FlaskDemora`: it has the application that is current there."""

    def of(self) -> Demora: ...


class CallerThread(Executor):
    """Runs functions on the thread of a plain test, while that thread waits for the sandbox.

    A framework whose database connections belong to threads runs its jobs there, so that they see what the test sees.
    """

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.waits = False  # whether a test waits, and runs what is submitted

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Run a function on the thread of the test, in the context of the caller."""
        context, future = contextvars.copy_context(), Future[T]()
        self._given.put(lambda: _run_for(future, lambda: context.run(function, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing: the thread belongs to the test."""

    def wait_for(self, work: Callable[[], T]) -> T:
        """Do the work on another thread, and run on this one what is submitted until the work is done."""
        done, context = Future[T](), contextvars.copy_context()
        done.add_done_callback(lambda _: self._given.put(None))
        self.waits = True
        try:
            threading.Thread(
                target=_run_for, args=(done, lambda: context.run(work)), name="demora-sandbox", daemon=True
            ).start()
            while (run := self._given.get()) is not None:
                run()
            return done.result()
        finally:
            self.waits = False


class Sandbox:
    """Keeps an application's jobs in memory for the duration of a `with` block, and runs them only in `drain` and `advance`.

    All jobs that the application enqueues, async or blocking, go here and not to its database. Each sandbox begins empty.
    Tests without an event loop use `sandbox.blocking`. The application may be given as the `Extension` of a framework.
    """

    def __init__(self, app: Demora | Extension, *, now: datetime | None = None) -> None:
        self.app = app if isinstance(app, Demora) else app.of()
        self.clock, self.blocking, self.caller = SandboxClock(now), BlockingSandbox(self), CallerThread()
        self.loop: asyncio.AbstractEventLoop | None = None  # the one that runs jobs
        self._using = self.app.stores.using(SqliteStore(clock=self.clock))

    def __enter__(self) -> Self:
        self._using.__enter__()
        self.app.sandbox = self
        self.app.deliveries.muted = True
        with contextlib.suppress(RuntimeError):  # no loop runs: the first one to make a call gets the store
            self.app.stores.make_here()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.app.deliveries.muted = False
        self.app.sandbox = None
        self._using.__exit__(None, None, None)

    async def enqueued(self, type: str | AnyJobFunction | None = None, /, **payload: Any) -> list[Job]:
        """Return all jobs ever enqueued here, oldest first; only those of this type and with these fields, if given."""
        return await self._where_the_store_is(lambda: self._enqueued(type, payload))

    async def drain(self) -> Drained:
        """Run all due jobs, and the due jobs that they enqueue, until none is due; `NeverIdle` if that does not end."""
        return await self._where_the_store_is(self._drain)

    async def advance(self, by: timedelta | str) -> Drained:
        """Move the clock forward, and run each job on the way when it becomes due."""
        return await self._where_the_store_is(lambda: self._advance(span(by, "by")))

    async def _where_the_store_is(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Ask on this loop, or on the one that opened the store for the first call, if that was a blocking one."""
        loop = self.app.stores.only_loop()
        if loop is None or loop is asyncio.get_running_loop():
            return await ask()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(ask(), loop))

    async def _enqueued(self, type: str | AnyJobFunction | None, payload: dict[str, Any]) -> list[Job]:
        name = type.type if isinstance(type, JobFunction) else type
        await self.app.catch_up()
        client, found, after = await self.app.open(), list[Job](), None
        while True:
            page = await client.find(type=name, after=after, limit=200)
            found += page.jobs
            after = page.next
            if after is None:
                return [job for job in reversed(found) if _has(job, payload)]

    async def _drain(self) -> Drained:
        return await self._drained((await self._run_due()).settled)

    async def _advance(self, left: timedelta) -> Drained:
        worker = await self._run_due()
        settled = worker.settled
        while worker.next_in is not None and worker.next_in <= left:
            self.clock.turn(worker.next_in)
            left -= worker.next_in
            worker = await self._run_due()
            settled += worker.settled
        self.clock.turn(left)
        return await self._drained(settled + (await self._run_due()).settled)

    async def _run_due(self) -> "_UntilIdle":
        self.loop = asyncio.get_running_loop()
        await self.app.catch_up()
        worker = _UntilIdle(self.app)
        await worker.run()
        return worker

    async def _drained(self, ids: Sequence[str]) -> Drained:
        store = (await self.app.open()).store
        last = reversed(dict.fromkeys(reversed(ids)))
        return Drained([job for id in last if (job := await store.get(id)) is not None])


class BlockingSandbox:
    """The methods of a sandbox for tests without an event loop."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    enqueued = BlockingVerb(Sandbox.enqueued)
    drain = BlockingVerb(Sandbox.drain)
    advance = BlockingVerb(Sandbox.advance)

    def run(self, name: str, ask: Callable[[Sandbox], Coroutine[Any, Any, T]]) -> T:
        check_no_loop(name)
        sandbox = self._sandbox
        return sandbox.caller.wait_for(lambda: sandbox.app.blocking.run(name, lambda _: ask(sandbox)))


class _UntilIdle(Worker):
    """A worker that stops once no job runs and none is due. Then `next_in` is the time until one is due."""

    def __init__(self, app: Demora) -> None:
        super().__init__(app, seams=_SEAMS)
        self.settled: list[str] = []
        self.next_in: timedelta | None = None

    async def _work(self, subscription: Subscription) -> None:
        while not self._stopping:
            subscription.clear()
            was_busy = self._busy()
            wait = await self._claim()
            if self._busy():
                await subscription.wait(_LOOK if wait is None else min(wait, _LOOK))
                await self._settler.drain()
            elif wait != 0 and not was_busy:  # else what ended meanwhile may have enqueued more
                self.next_in = None if wait is None else timedelta(seconds=wait)
                return
            if len(self.settled) > MOST_RUNS:
                raise NeverIdle(len(self.settled))

    def _busy(self) -> bool:
        return bool(self._runs or self._backlog)

    def _conclude(self, *args: Any) -> None:
        super()._conclude(*args)
        self._wake()

    def _on_settled(self, settlement: Settlement, status: Status | None) -> None:
        super()._on_settled(settlement, status)
        self.settled.append(settlement.report.lease.id)


def _run_for(future: "Future[T]", work: Callable[[], T]) -> None:
    """Do the work of a future, and give it the result or the error."""
    try:
        future.set_result(work())
    except BaseException as problem:
        future.set_exception(problem)


def _has(job: Job, fields: dict[str, Any]) -> bool:
    payload = job.payload
    return not fields or (isinstance(payload, dict) and fields.items() <= payload.items())

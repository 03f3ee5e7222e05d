"""`app.blocking`: the verbs of the client for code without an event loop, such as Django, Flask, scripts and plain handlers.

The calls of all threads run on one event loop in a background thread, so that concurrent calls share a commit. The thread
starts with the first call. It ends with `close` and with the process. It also ends before a fork, so that no process
inherits a connection; the next call starts it again.
"""

import asyncio
import atexit
import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from .app import Demora
from .client.bulk import Bulk
from .client.client import Client
from .client.counts import Counts
from .client.diagnostics import Diagnostics
from .client.events import EventStream
from .client.paces import Paces
from .client.queues import Queues
from .client.schedules import Schedules
from .client.statistics import Statistics
from .client.workers.recovery import Recovery
from .core.events import Event
from .core.job import Job
from .core.spans import span
from .errors import StoreClosed, WouldBlock

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
_Loop = asyncio.AbstractEventLoop

LOOK = 1.0  # seconds between checks that a loop of the application still runs


class Face(Protocol[S_co]):
    """An object that can run async verbs of a subject and wait for their results."""

    def run(self, name: str, ask: Callable[[S_co], Coroutine[Any, Any, T]]) -> T: ...


class BlockingVerb(Generic[S, P, T]):
    """An async verb of a subject, as a method of its face that blocks until the verb has returned."""

    def __init__(self, ask: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> None:
        self._ask = ask

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self.__doc__ = name, self._ask.__doc__

    @overload
    def __get__(self, face: None, owner: type) -> Self: ...
    @overload
    def __get__(self, face: Face[S], owner: type) -> Callable[P, T]: ...
    def __get__(self, face: Face[S] | None, owner: type) -> Self | Callable[P, T]:
        if face is None:
            return self

        @functools.wraps(self._ask)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return self.run(face, *args, **kwargs)

        return call

    def run(self, face: Face[S], *args: P.args, **kwargs: P.kwargs) -> T:
        return face.run(self._name, lambda subject: self._ask(subject, *args, **kwargs))


def of_client(verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> BlockingVerb[Demora, P, T]:
    """Return the blocking form of a client's verb: a method of `Client`, or of a part of it, with the same name there."""

    @functools.wraps(verb)
    async def ask(app: Demora, /, *args: P.args, **kwargs: P.kwargs) -> T:
        bound: Callable[P, Coroutine[Any, Any, T]] = getattr(await app.open(), verb.__name__)
        return await bound(*args, **kwargs)

    return BlockingVerb(ask)


class Adding(BlockingVerb[Demora, P, T]):
    """A verb that may run `within` a transaction of the caller. Then it runs on the caller's thread.

    On the shared event loop it would delay the calls of all other threads while it waits for a lock.
    """

    def __init__(
        self,
        ask: Callable[Concatenate[Demora, P], Coroutine[Any, Any, T]],
        here: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
    ) -> None:
        super().__init__(ask)
        self._here = here

    def run(self, face: Face[Demora], *args: P.args, **kwargs: P.kwargs) -> T:
        if kwargs.get("within") is None:
            return super().run(face, *args, **kwargs)
        client = face.run(self._name, Demora.open)
        return _run_without_loop(self._here(client, *args, **kwargs))


class Blocking:
    """The verbs of `Demora` and `Client`, for any thread that runs no event loop. A call blocks until the verb has returned.

    An interrupted call, for instance by Ctrl-C, is abandoned. Its write may still happen.
    """

    def __init__(self, app: Demora) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._background: _Background | None = None
        _faces.add(self)

    enqueue = Adding(Demora.enqueue, Client.enqueue)
    enqueue_many = Adding(Demora.enqueue_many, Client.enqueue_many)
    get = of_client(Client.get)
    find = of_client(Client.find)
    count = of_client(Client.count)
    cancel = of_client(Client.cancel)
    undo_cancel = of_client(Client.undo_cancel)
    retry = of_client(Client.retry)
    reschedule = of_client(Client.reschedule)
    delete = of_client(Client.delete)
    queues = of_client(Queues.queues)
    queues_page = of_client(Queues.queues_page)
    queue = of_client(Queues.queue)
    pause = of_client(Queues.pause)
    resume = of_client(Queues.resume)
    set_queue = of_client(Queues.set_queue)
    set_pace = of_client(Paces.set_pace)
    take_pace_off = of_client(Paces.take_pace_off)
    use_default_pace = of_client(Paces.use_default_pace)
    pacings = of_client(Paces.pacings)
    delayed_stats = of_client(Paces.delayed_stats)
    pacing = of_client(Paces.pacing)
    pace_changes = of_client(Paces.pace_changes)
    why = of_client(Paces.why)
    why_many = of_client(Paces.why_many)
    preview_pace = of_client(Paces.preview_pace)
    add_schedule = of_client(Schedules.add_schedule)
    change_schedule = of_client(Schedules.change_schedule)
    pause_schedule = of_client(Schedules.pause_schedule)
    resume_schedule = of_client(Schedules.resume_schedule)
    trigger_schedule = of_client(Schedules.trigger_schedule)
    remove_schedule = of_client(Schedules.remove_schedule)
    schedule = of_client(Schedules.schedule)
    schedules = of_client(Schedules.schedules)
    next_runs = of_client(Schedules.next_runs)
    schedule_jobs = of_client(Schedules.schedule_jobs)
    fire_records = of_client(Schedules.fire_records)
    backfill_schedule = of_client(Schedules.backfill_schedule)
    workers = of_client(Diagnostics.workers)
    health = of_client(Diagnostics.health)
    stats = of_client(Counts.stats)
    dead_letter_stats = of_client(Counts.dead_letter_stats)
    failure_groups = of_client(Counts.failure_groups)
    coming = of_client(Diagnostics.coming)
    sizes = of_client(Diagnostics.sizes)
    flow = of_client(Statistics.flow)
    flow_of_queue = of_client(Statistics.flow_of_queue)
    flow_of_queues = of_client(Statistics.flow_of_queues)
    metrics_overview = of_client(Statistics.metrics_overview)
    metrics_queues = of_client(Statistics.metrics_queues)
    metrics_types = of_client(Statistics.metrics_types)
    metrics_workers = of_client(Statistics.metrics_workers)
    pace_history = of_client(Statistics.pace_history)
    retry_many = of_client(Bulk.retry_many)
    delete_many = of_client(Bulk.delete_many)
    cancel_many = of_client(Bulk.cancel_many)
    purge = of_client(Bulk.purge)
    recover = of_client(Recovery.recover)
    give_up = of_client(Recovery.give_up)
    registered_workers = of_client(Diagnostics.registered_workers)
    registered_schedulers = of_client(Diagnostics.registered_schedulers)
    overview = of_client(Diagnostics.overview)
    activity = of_client(Diagnostics.activity)

    @overload
    def wait(self, job: Job[T], timeout: timedelta | str | None = None) -> Job[T]: ...
    @overload
    def wait(self, job: str, timeout: timedelta | str | None = None) -> Job: ...
    def wait(self, job: Job | str, timeout: timedelta | str | None = None) -> Job:
        """Wait until the job, given itself or by its id, has ended, and return it. After the `timeout` return it as it is
        then."""
        waited: Job = self._wait("wait", job, timeout)
        return waited

    @overload
    def result(self, job: Job[T], timeout: timedelta | str | None = None) -> T: ...
    @overload
    def result(self, job: str, timeout: timedelta | str | None = None) -> Any: ...
    def result(self, job: Job[T] | str, timeout: timedelta | str | None = None) -> T | Any:
        """Wait until the job, given itself or by its id, has ended, and return what its handler returned.

        `JobFailed` if the job ended without a result, `StillRunning` if it has not ended within the `timeout`.
        """
        return self._wait("result", job, timeout)

    def events(
        self,
        *,
        queue: str | None = None,
        type: str | None = None,
        tag: str | None = None,
        job: str | None = None,
        after: str | None = None,
    ) -> "BlockingEvents":
        """Listen to events of jobs and queues, as `Client.events` does: an iterator whose every step blocks until there is
        an event. As a context manager it listens from the beginning of its block; otherwise from its first step."""
        return BlockingEvents(self, {"queue": queue, "type": type, "tag": tag, "job": job}, after)

    def close(self) -> None:
        """Finish the calls in progress, disconnect and end the thread. The next call opens the store again.

        A `wait`, a `result` or a step of `events` in progress raises `StoreClosed`.
        """
        with self._lock:
            self._stop(StoreClosed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def run(self, name: str, ask: Callable[[Demora], Coroutine[Any, Any, T]], *, waits: bool = False) -> T:
        """Run `ask` on the event loop that has the store, and return its result.

        `close` cancels a call that `waits` for a job, and lets other calls finish.
        """
        check_no_loop(name)
        with self._lock:
            loop, future = self._submit(ask, waits)
        try:
            return _answer(future, loop)
        except BaseException:
            future.cancel()
            raise

    def _submit(self, ask: Callable[[Demora], Coroutine[Any, Any, T]], waits: bool) -> "tuple[_Loop, Future[T]]":
        """Start the call on our own loop, or on the loop that has opened a database in memory."""
        if self._background is not None and not self._background.is_here():
            self._background = None  # the process was forked without Python's fork hooks
        background, elsewhere = self._background, self._app.stores.only_loop()
        if elsewhere is not None and (background is None or background.loop is not elsewhere):
            return elsewhere, asyncio.run_coroutine_threadsafe(ask(self._app), elsewhere)
        if background is None:
            background = self._background = _Background(self._app)
        return background.loop, background.submit(ask, waits)

    def _wait(self, name: str, job: Job | str, timeout: Any) -> Any:
        until = None if timeout is None else time.monotonic() + span(timeout, "timeout").total_seconds()
        while True:
            left = None if until is None else timedelta(seconds=max(until - time.monotonic(), 0))
            try:
                return self.run(name, functools.partial(_ask_client, name, job, left), waits=True)
            except _Forked:
                continue

    def _stop(self, why: type[StoreClosed]) -> None:
        background, self._background = self._background, None
        if background is not None and background.is_here():
            background.stop(why)

    # A fork blocks new calls and closes the connections. Afterwards parent and child start again.

    def before_fork(self) -> None:
        self._lock.acquire()
        try:
            if self._background is not None and self._app.stores.only_loop() is not self._background.loop:
                self._stop(_Forked)
        finally:
            self._app.stores.lock.acquire()

    def after_fork(self) -> None:
        self._app.stores.lock.release()
        self._lock.release()

    def after_fork_in_child(self) -> None:
        self._background = None  # a database in memory stays with the parent
        self.after_fork()


class BlockingEvents:
    """The events of one listener, for one thread. `position` is where to resume later.

    After a fork, and after `close` of the face, it goes on from its position, so the ends of jobs may come again.
    """

    def __init__(self, face: Blocking, which: dict[str, Any], after: str | None) -> None:
        self._face, self._which, self.position = face, which, after
        self._stream: EventStream | None = None
        self._loop: _Loop | None = None  # of the stream

    def close(self) -> None:
        """Stop listening. The iterator ends."""
        stream, self._stream = self._stream, None
        if stream is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(stream.close)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        while True:
            try:
                event = self._face.run("events", self._next, waits=True)
            except _Forked:
                continue
            if event is None:
                raise StopIteration
            return event

    def __enter__(self) -> Self:
        self._face.run("events", self._begun)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def _next(self, app: Demora) -> Event | None:
        stream = await self._begun(app)
        event = await anext(stream, None)
        self.position = stream.position
        return event

    async def _begun(self, app: Demora) -> EventStream:
        """Return the stream of the running loop."""
        loop = asyncio.get_running_loop()
        if self._stream is None or self._loop is not loop:
            self._stream, self._loop = (await app.open()).events(**self._which, after=self.position or None), loop
            await self._stream.begin()
            self.position = self._stream.position
        return self._stream


class _Forked(StoreClosed):
    """The store was closed for a fork."""


class _Background:
    """An event loop on a thread of its own, and the calls in progress on it."""

    def __init__(self, app: Demora) -> None:
        self._app, self.loop, self._pid = app, asyncio.new_event_loop(), os.getpid()
        self._calls: dict[asyncio.Task[Any], bool] = {}
        self._closed: type[StoreClosed] | None = None
        self._thread = threading.Thread(target=self._main, name="demora-blocking", daemon=True)
        self._thread.start()

    def is_here(self) -> bool:
        """Whether the thread was started in this process, not in its parent before a fork."""
        return self._pid == os.getpid()

    def submit(self, ask: Callable[[Demora], Coroutine[Any, Any, T]], waits: bool) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(self._call(ask, waits), self.loop)

    def stop(self, why: type[StoreClosed]) -> None:
        """Let the calls in progress finish, close the store, and end the thread. Calls that wait for a job raise `why`."""
        try:
            asyncio.run_coroutine_threadsafe(self._finish(why), self.loop).result()
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()

    async def _call(self, ask: Callable[[Demora], Coroutine[Any, Any, T]], waits: bool) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._calls[task] = waits
        try:
            return await ask(self._app)
        except asyncio.CancelledError:
            if self._closed is not None:
                raise self._closed() from None
            raise
        finally:
            del self._calls[task]

    async def _finish(self, why: type[StoreClosed]) -> None:
        self._closed = why
        for task, waits in self._calls.items():
            if waits:
                task.cancel()
        if self._calls:
            await asyncio.wait(list(self._calls))
        await self._app.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}  # readers of events
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=LOOK)

    def _main(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()


async def _ask_client(verb: str, job: Job | str, left: Any, app: Demora) -> Any:
    return await getattr(await app.open(), verb)(job, left)


def _run_without_loop(call: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends, as those on a blocking connection of the caller do not."""
    try:
        call.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    call.close()
    raise AssertionError("a call on a blocking connection must not suspend")


def check_no_loop(name: str) -> None:
    """Raise `WouldBlock` for the call of this name if an event loop runs in the calling thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise WouldBlock(name)


def _answer(future: "Future[T]", loop: _Loop) -> T:
    """Return the result of the call. `StoreClosed` if its loop has stopped, since the call then never ends."""
    while True:
        try:
            return future.result(LOOK)
        except TimeoutError:
            if future.done():
                raise
            if not loop.is_running():
                raise StoreClosed from None


_faces: "weakref.WeakSet[Blocking]" = weakref.WeakSet()
_held: list[Blocking] = []  # whose locks the fork in progress holds


def _before_fork() -> None:
    for face in list(_faces):
        _held.append(face)
        face.before_fork()


def _after_fork() -> None:
    while _held:
        _held.pop().after_fork()


def _after_fork_in_child() -> None:
    while _held:
        _held.pop().after_fork_in_child()


@atexit.register
def _close_all() -> None:
    for face in list(_faces):
        face.close()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)

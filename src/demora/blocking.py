"""The blocking face: what an application may ask, for Django, Flask, scripts and plain handlers, without an event loop.

The calls of all threads run on one loop, on a thread of its own, so that those made together share a commit. It starts with
the first call and ends with `close`, with the process, or for the moment of a fork: no process inherits a connection.
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
from .client.client import Client
from .core.job import Job
from .core.spans import span
from .errors import StoreClosed, WouldBlock

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
_Loop = asyncio.AbstractEventLoop

LOOK = 1.0  # seconds between looks whether a loop that is not ours still runs


class Face(Protocol[S_co]):
    """Something that can run async verbs of a subject and wait for their answers."""

    def run(self, name: str, ask: Callable[[S_co], Coroutine[Any, Any, T]]) -> T: ...


class BlockingVerb(Generic[S, P, T]):
    """An async verb of a subject, as a method of its face that blocks until it has answered."""

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


def of_client(verb: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]]) -> BlockingVerb[Demora, P, T]:
    """The verb of the client that the application has."""

    @functools.wraps(verb)
    async def ask(app: Demora, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await verb(await app.open(), *args, **kwargs)

    return BlockingVerb(ask)


class Adding(BlockingVerb[Demora, P, T]):
    """A verb that may be asked to do its work `within` a transaction of the caller's: then it runs on the caller's own
    thread, since on the loop it would hold up all others for as long as it waits for a lock."""

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
        return _at_once(self._here(client, *args, **kwargs))


class Blocking:
    """Asks as `Demora` and `Client` do, from any thread that runs no event loop, and returns when there is an answer.

    A call that is interrupted, by Ctrl-C for instance, is given up; what it was about to write may be written.
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
    cancel = of_client(Client.cancel)
    retry = of_client(Client.retry)
    reschedule = of_client(Client.reschedule)
    delete = of_client(Client.delete)
    queues = of_client(Client.queues)
    queues_page = of_client(Client.queues_page)
    queue = of_client(Client.queue)
    pause = of_client(Client.pause)
    resume = of_client(Client.resume)
    set_queue = of_client(Client.set_queue)
    set_pace = of_client(Client.set_pace)
    take_pace_off = of_client(Client.take_pace_off)
    pacings = of_client(Client.pacings)
    pacing = of_client(Client.pacing)
    pace_changes = of_client(Client.pace_changes)
    why = of_client(Client.why)
    workers = of_client(Client.workers)
    health = of_client(Client.health)
    retry_many = of_client(Client.retry_many)
    delete_many = of_client(Client.delete_many)
    cancel_many = of_client(Client.cancel_many)
    purge = of_client(Client.purge)
    recover = of_client(Client.recover)
    give_up = of_client(Client.give_up)
    registered_workers = of_client(Client.registered_workers)
    overview = of_client(Client.overview)
    activity = of_client(Client.activity)

    def wait(self, id: str, timeout: timedelta | str | None = None) -> Job:
        """The job once it has ended, or as it is when the time is up."""
        return self._wait("wait", Client.wait, id, timeout)

    def result(self, id: str, timeout: timedelta | str | None = None) -> Any:
        """What the handler returned, once it has; `JobFailed` if the job ended otherwise, `StillRunning` if time is up."""
        return self._wait("result", Client.result, id, timeout)

    def close(self) -> None:
        """Finish the writes under way, disconnect and end the thread. A `wait` under way ends with `StoreClosed`; the next
        call opens anew."""
        with self._lock:
            self._stop(StoreClosed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def run(self, name: str, ask: Callable[[Demora], Coroutine[Any, Any, T]], *, patient: bool = False) -> T:
        """What `ask` answers, on the loop where the store lives. A patient call does not hold up a close."""
        if _runs_a_loop():
            raise WouldBlock(name)
        with self._lock:
            loop, future = self._submit(ask, patient)
        try:
            return _answer(future, loop)
        except BaseException:
            future.cancel()
            raise

    def _submit(self, ask: Callable[[Demora], Coroutine[Any, Any, T]], patient: bool) -> "tuple[_Loop, Future[T]]":
        """Start the call on our own loop, or where a database in memory lives already."""
        if self._background is not None and not self._background.is_here():
            self._background = None  # forked by a program that called no hooks
        background, elsewhere = self._background, self._app.only_loop()
        if elsewhere is not None and (background is None or background.loop is not elsewhere):
            return elsewhere, asyncio.run_coroutine_threadsafe(ask(self._app), elsewhere)
        if background is None:
            background = self._background = _Background(self._app)
        return background.loop, background.submit(ask, patient)

    def _wait(self, name: str, verb: Callable[[Client, str, Any], Coroutine[Any, Any, T]], id: str, timeout: Any) -> T:
        until = None if timeout is None else time.monotonic() + span(timeout, "timeout").total_seconds()
        while True:
            left = None if until is None else timedelta(seconds=max(until - time.monotonic(), 0))
            try:
                return self.run(name, functools.partial(_ask_client, verb, id, left), patient=True)
            except _Forked:
                continue

    def _stop(self, why: type[StoreClosed]) -> None:
        background, self._background = self._background, None
        if background is not None and background.is_here():
            background.stop(why)

    # Forks: hold new calls, be disconnected while it happens, then begin anew, in the child as in the parent

    def before_fork(self) -> None:
        self._lock.acquire()
        try:
            if self._background is not None and self._app.only_loop() is not self._background.loop:
                self._stop(_Forked)
        finally:
            self._app.moving.acquire()

    def after_fork(self) -> None:
        self._app.moving.release()
        self._lock.release()

    def after_fork_in_child(self) -> None:
        self._background = None  # a database in memory stays with the parent
        self.after_fork()


class _Forked(StoreClosed):
    """The store was closed for a fork."""


class _Background:
    """An event loop on a thread of its own, and the calls under way on it."""

    def __init__(self, app: Demora) -> None:
        self._app, self.loop, self._pid = app, asyncio.new_event_loop(), os.getpid()
        self._calls: dict[asyncio.Task[Any], bool] = {}
        self._closed: type[StoreClosed] | None = None
        self._thread = threading.Thread(target=self._main, name="demora-blocking", daemon=True)
        self._thread.start()

    def is_here(self) -> bool:
        """Whether its thread was started in this process."""
        return self._pid == os.getpid()

    def submit(self, ask: Callable[[Demora], Coroutine[Any, Any, T]], patient: bool) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(self._call(ask, patient), self.loop)

    def stop(self, why: type[StoreClosed]) -> None:
        """Let the calls under way end, but patient ones with `why`; close the store, then end the thread."""
        try:
            asyncio.run_coroutine_threadsafe(self._finish(why), self.loop).result()
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()

    async def _call(self, ask: Callable[[Demora], Coroutine[Any, Any, T]], patient: bool) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._calls[task] = patient
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
        for task, patient in self._calls.items():
            if patient:
                task.cancel()
        if self._calls:
            await asyncio.wait(list(self._calls))
        await self._app.close()

    def _main(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()


async def _ask_client(verb: Callable[[Client, str, Any], Coroutine[Any, Any, T]], id: str, left: Any, app: Demora) -> T:
    return await verb(await app.open(), id, left)


def _at_once(answer: Coroutine[Any, Any, T]) -> T:
    """What a coroutine comes to that awaits nothing."""
    try:
        answer.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    answer.close()
    raise AssertionError("a connection that blocks awaits nothing")


def _runs_a_loop() -> bool:
    """Whether an event loop runs in the calling thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _answer(future: "Future[T]", loop: _Loop) -> T:
    """What the call came to; a loop that has stopped answers no more."""
    while True:
        try:
            return future.result(LOOK)
        except TimeoutError:
            if future.done():
                raise
            if not loop.is_running():
                raise StoreClosed from None


_faces: "weakref.WeakSet[Blocking]" = weakref.WeakSet()
_held: list[Blocking] = []  # by the fork under way


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

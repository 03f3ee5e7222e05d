"""The processes of a worker that call process handlers: one for each job that runs, each with a pipe of its own.

They are started when needed, kept for the next job, and killed one by one: what happens to one is seen by its run alone.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..core.outcome import GaveUp, Raised, Snoozed, Succeeded
from ..core.payload import unpack
from ..errors import ProcessDied, RaisedInProcess
from ..handlers import Handler
from ..seams import Seams
from ..signals import Cancel, Fail, Retry, Snooze
from .ending import grace, stands
from .home import Home, home_of, place_of
from .process import Process
from .wire import End, Ended, Hello, Work

if TYPE_CHECKING:
    from ..app import Demora
    from .run import Run

START_UP = 60.0  # seconds that a process has to import the application
LAST_CALL = 5.0  # seconds that killed processes have to be gone


class Processes:
    """Calls handlers in processes. `began` is called when a handler is: until then its process was starting."""

    def __init__(self, app: "Demora", seams: Seams, *, began: Callable[["Run"], None]) -> None:
        self._app, self._spawn, self._began = app, seams.spawn, began
        self._alive: dict[Process, None] = {}  # in the order of their start
        self._idle: list[Process] = []
        self._home: Home | None = None
        self._closed = False

    def check(self) -> None:
        """`BadHandler` if the application has process handlers and could not be imported by their processes."""
        handler = next((one for one in self._app.registry if one.defaults.process), None)
        if handler is not None:
            self._home = home_of(self._app, handler)

    async def call(self, run: "Run", handler: Handler) -> Any:
        """What the handler returns or raises; signals are raised as themselves, all else as `RaisedInProcess`.

        If the calling task is cancelled the handler is told, and killed unless it ends within the grace that belongs to
        the reason; a success within it stands.
        """
        process = await self._begin(run, handler)
        try:
            self._began(run)
            answer = await _answer(process, run)
        finally:
            self._release(process)
        return _repeat(answer)

    async def close(self) -> None:
        """Kill all, start no more, and return when they are gone."""
        self._closed = True
        for process in self._alive:
            process.kill()
        if gone := [process.gone for process in self._alive]:
            await asyncio.wait(gone, timeout=LAST_CALL)

    async def _begin(self, run: "Run", handler: Handler) -> Process:
        """A process that is calling the handler. One that died while it was idle is replaced: it has called nothing."""
        while True:
            fresh = not self._idle
            process = await self._start(handler) if fresh else self._idle.pop()
            work = Work(run.ctx.job, run.ctx.worker_id, run.ctx.ran(), place_of(handler), handler.defaults.memory)
            try:
                if await process.begin(run.ctx, work, START_UP):
                    return process
            except BaseException:
                self._release(process)
                raise
            process.kill()
            if fresh:
                raise ProcessDied(process.fate or f"did not start within {START_UP:g} s")

    async def _start(self, handler: Handler) -> Process:
        if self._closed:
            raise ProcessDied("was not started: its worker has stopped")
        home = self._home = self._home or home_of(self._app, handler)
        settings = self._app.settings
        level = logging.getLogger().getEffectiveLevel()
        hello = Hello(home, settings.database_url, settings.redis_url, shared=not self._app.in_memory(), level=level)
        process = Process(await self._spawn())
        self._alive[process] = None
        process.gone.add_done_callback(lambda _: self._forget(process))
        process.tell(hello)
        return process

    def _release(self, process: Process) -> None:
        """Keep a process that has ended its run for the next; one that has not is of no use any more."""
        if isinstance(process.answer, Ended) and process in self._alive:
            self._idle.append(process)
        else:
            process.kill()

    def _forget(self, process: Process) -> None:
        self._alive.pop(process, None)
        if process in self._idle:
            self._idle.remove(process)


async def _answer(process: Process, run: "Run") -> Ended:
    try:
        await process.answered()
    except asyncio.CancelledError:
        process.tell(End())
        await process.answered(grace(run.ending))
        answer = process.answer
        if answer is None or not stands(run.ending, succeeded=isinstance(answer.outcome, Succeeded)):
            raise
    if process.answer is None:
        raise ProcessDied(process.fate or "is gone")
    return process.answer


def _repeat(answer: Ended) -> Any:
    """Do here what the handler did there, so that middleware sees it."""
    match answer.outcome:
        case Succeeded(result):
            return unpack(result)
        case Snoozed(delay):
            raise Snooze(delay)
        case GaveUp(reason):
            raise Cancel(reason)
        case Raised() as raised:
            raise (
                _signal(raised)
                if answer.signal
                else RaisedInProcess(raised.error, raised.traceback, permanent=raised.permanent)
            )
        case None:
            raise asyncio.CancelledError


def _signal(raised: Raised) -> Retry | Fail:
    reason = raised.error.partition(": ")[2]
    if raised.permanent:
        return Fail(reason, detail=raised.traceback)
    return Retry(reason, after=raised.after, detail=raised.traceback)

"""The child processes in which a worker calls process handlers: one for each job that runs, reused from job to job."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ...core.payload import unpack
from ...core.verdict import Cancelled, Raised, Snoozed, Succeeded
from ...errors import ProcessDied, RaisedInProcess
from ...handlers.context import Context
from ...handlers.control import Cancel, Fail, Retry, Snooze
from ...handlers.registry import Handler
from ...system.child_process import ChildProcess
from ...system.seams import Seams
from ..application import Application
from .location import AppLocation, import_path_of, location_of
from .messages import HEAD, MOST_BYTES, Began, End, Hello, Logged, RunEnded, Said, ToProcess, Work, frame, from_process

if TYPE_CHECKING:
    from ..run import Run


START_UP = 60.0  # seconds that a process has to import the application
EXIT_WAIT = 1.0  # seconds between the end of a pipe and the exit of its process, in either order
GONE_WITHIN = 5.0  # seconds that `close` waits for killed processes


class Processes:
    """Calls handlers in child processes. It calls `began` when a process has started up and calls the handler."""

    def __init__(self, app: Application, seams: Seams, *, began: Callable[["Run"], None]) -> None:
        self._app, self._spawn, self._began = app, seams.spawn, began
        self._alive: dict[Process, None] = {}  # in the order of their start
        self._idle: list[Process] = []
        self._location: AppLocation | None = None
        self._closed = False

    def check(self) -> None:
        """Raise `BadHandler` if the application has process handlers and a child process could not import it."""
        handler = next((one for one in self._app.registry if one.defaults.process), None)
        if handler is not None:
            self._location = location_of(self._app, handler)

    async def call(self, run: "Run", handler: Handler) -> Any:
        """Call the handler in a process, and return or raise what it does. `Retry` and its like are raised as themselves,
        other errors as `RaisedInProcess`.

        If the calling task is cancelled, the process is asked to end the handler, and killed unless it does so within the
        grace for this ending. A success within the grace counts.
        """
        process = await self._begin(run, handler)
        try:
            self._began(run)
            ended = await _until_ended(process, run)
        finally:
            self._put_back(process)
        return _replay(ended)

    async def close(self) -> None:
        """Kill all processes, start no more, and return when they are gone."""
        self._closed = True
        for process in self._alive:
            process.kill()
        if gone := [process.gone for process in self._alive]:
            await asyncio.wait(gone, timeout=GONE_WITHIN)

    async def _begin(self, run: "Run", handler: Handler) -> "Process":
        """Return a process that is calling the handler. An idle process that has died is replaced: it called nothing."""
        while True:
            fresh = not self._idle
            process = await self._start(handler) if fresh else self._idle.pop()
            work = Work(run.ctx.job, run.ctx.worker_id, run.ctx.ran(), import_path_of(handler), handler.defaults.memory)
            try:
                if await process.begin(run.ctx, work, START_UP):
                    return process
            except BaseException:
                self._put_back(process)
                raise
            process.kill()
            if fresh:
                raise ProcessDied(process.fate or f"did not start within {START_UP:g} s")

    async def _start(self, handler: Handler) -> "Process":
        if self._closed:
            raise ProcessDied("was not started: its worker has stopped")
        location = self._location = self._location or location_of(self._app, handler)
        settings = self._app.settings
        level = logging.getLogger().getEffectiveLevel()
        hello = Hello(location, settings.database_url, settings.redis_url, shared=not self._app.in_memory(), level=level)
        process = Process(await self._spawn())
        self._alive[process] = None
        process.gone.add_done_callback(lambda _: self._forget(process))
        process.send(hello)
        return process

    def _put_back(self, process: "Process") -> None:
        """Keep a process that has ended its run for the next job; kill one that has not."""
        if isinstance(process.answer, RunEnded) and process in self._alive:
            self._idle.append(process)
        else:
            process.kill()

    def _forget(self, process: "Process") -> None:
        self._alive.pop(process, None)
        if process in self._idle:
            self._idle.remove(process)


async def _until_ended(process: "Process", run: "Run") -> RunEnded:
    try:
        await process.answered()
    except asyncio.CancelledError:
        process.send(End())
        await process.answered(run.grace)
        answer = process.answer
        if answer is None or not run.counts(succeeded=isinstance(answer.outcome, Succeeded)):
            raise
    if process.answer is None:
        raise ProcessDied(process.fate or "is gone")
    return process.answer


def _replay(ended: RunEnded) -> Any:
    """Return or raise here what the handler did in its process, so that middleware sees it."""
    match ended.outcome:
        case Succeeded(result):
            return unpack(result)
        case Snoozed(delay):
            raise Snooze(delay)
        case Cancelled(reason):
            raise Cancel(reason)
        case Raised() as raised:
            raise _signal(raised) if ended.signal else _error(raised)
        case None:
            raise asyncio.CancelledError


def _signal(raised: Raised) -> Retry | Fail:
    reason = raised.error.partition(": ")[2]
    if raised.permanent:
        return Fail(reason, detail=raised.traceback)
    return Retry(reason, after=raised.after, detail=raised.traceback)


def _error(raised: Raised) -> RaisedInProcess:
    error = RaisedInProcess(raised.error, raised.traceback, permanent=raised.permanent)
    if raised.traceback is not None:
        error.add_note(raised.traceback)  # so that a log shows where the handler failed
    return error


class Process:
    """One child process as its worker sees it. `gone` is done when it is dead and reaped; `fate` then says how it ended."""

    def __init__(self, spawned: ChildProcess) -> None:
        self._spawned, self._loop = spawned, asyncio.get_running_loop()
        self._ctx: Context | None = None
        self._began: asyncio.Future[bool] = self._loop.create_future()
        self._ended: asyncio.Future[RunEnded | None] = self._loop.create_future()
        self.fate: str | None = None
        self.gone = asyncio.ensure_future(self._watch())

    async def begin(self, ctx: Context, work: Work, seconds: float) -> bool:
        """Send it a job. Returns whether it called the handler within this time."""
        self._ctx = ctx
        self._began, self._ended = self._loop.create_future(), self._loop.create_future()
        if self.fate is not None:
            return False
        self.send(work)
        await asyncio.wait({self._began}, timeout=seconds)
        return self._began.done() and self._began.result()

    async def answered(self, seconds: float | None = None) -> None:
        """Wait until it has sent the outcome of its run, or has died, or the time is up."""
        await asyncio.wait({self._ended}, timeout=seconds)

    @property
    def answer(self) -> RunEnded | None:
        """The outcome of its run; None if it has sent none."""
        return self._ended.result() if self._ended.done() else None

    def send(self, message: ToProcess) -> None:
        """Send a message, unless the process is gone; returns at once."""
        if self.fate is None:
            self._spawned.write(frame(message))

    def kill(self) -> None:
        """Kill the process and every process that it started; returns at once."""
        self._spawned.kill()

    async def _watch(self) -> None:
        """Wait until the process is dead and its pipe is read to the end; either may come first."""
        listening = asyncio.ensure_future(self._listen())
        both: set[asyncio.Future[Any]] = {listening, self._spawned.exited}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(both, timeout=EXIT_WAIT)
        closed = not self._spawned.exited.done()
        self.kill()
        code = await self._spawned.exited
        listening.cancel()
        self._spawned.close()
        self.fate = self.fate or ("closed its pipe" if closed else _fate(code))
        if not self._began.done():
            self._began.set_result(False)
        if not self._ended.done():
            self._ended.set_result(None)

    async def _listen(self) -> None:
        try:
            while True:
                size = int.from_bytes(await self._spawned.reader.readexactly(HEAD))
                if size > MOST_BYTES:
                    raise ValueError(size)
                self._receive(await self._spawned.reader.readexactly(size))
                await asyncio.sleep(0)  # so that a flood of messages does not block the loop
        except (asyncio.IncompleteReadError, OSError):
            return
        except ValueError:  # also what msgspec raises
            self.fate = "sent an invalid message: a handler wrote into its pipe"
            self.kill()

    def _receive(self, body: bytes) -> None:
        match from_process(body):
            case Began(lease) if self._is_current(lease):
                self._note_began()
            case Said(report) if self._is_current(report.lease) and self._ctx is not None:
                self._ctx.merge(report)
            case RunEnded(report=report) as ended if self._is_current(report.lease) and self._ctx is not None:
                self._ctx.merge(report)
                self._note_began()
                self._ended.set_result(ended)
            case Logged() as logged:
                _log(logged)

    def _is_current(self, lease: object) -> bool:
        return self._ctx is not None and self._ctx.job.lease == lease and not self._ended.done()

    def _note_began(self) -> None:
        if not self._began.done():
            self._began.set_result(True)


def _fate(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"ended with signal {-code} ({signal.Signals(-code).name})"
    return f"ended with signal {-code}"


def _log(logged: Logged) -> None:
    """Handle a log record of the process as if the worker had written it."""
    logger = logging.getLogger(logged.name)
    if logger.isEnabledFor(logged.levelno):
        logger.handle(logging.makeLogRecord(msgspec.structs.asdict(logged)))

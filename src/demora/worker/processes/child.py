"""The main program of a child process: calls process handlers, one after another, until its worker closes the pipe.

The main thread calls the handlers; one thread reads the worker's messages, and one sends what handlers report. The
process shares no store with its worker. A handler may do anything to this process: the worker sees how it ends.
"""

import asyncio
import contextlib
import contextvars
import faulthandler
import logging
import os
import queue
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from ...core.payload import pack
from ...core.verdict import Cancelled, Raised, Snoozed, Succeeded
from ...handlers import context
from ...handlers.context import Context, stamp_records
from ...handlers.control import Fail, Retry
from ...handlers.registry import Handler
from ...store.jobs import Report
from ...system import error_texts
from ..run import CANCELLED_WITHIN, failed
from . import location
from .messages import Began, Closed, End, Hello, Pipe, Relay, RunEnded, Said, Work

PAUSE = 0.1  # seconds between reports at least
_OOM_SCORE_ADJ = "300"  # Linux kills processes with a high score first when memory runs out
_PR_SET_PDEATHSIG = 1

ProcessOutcome = Succeeded | Raised | Snoozed | Cancelled


def main(fd: int) -> None:
    """Serve the worker at the other end of the socket `fd`."""
    del sys.argv[1:]
    location.keep_workers_out()
    _end_with_parent()
    _die_before_worker()
    _ignore_stop_signals()
    stamp_records()
    pipe = Pipe(fd)
    hello = pipe.receive()
    if isinstance(hello, Hello):
        HandlerLoop(pipe, hello).serve()


class HandlerLoop:
    """Runs the jobs that the worker sends, one at a time."""

    def __init__(self, pipe: Pipe, hello: Hello) -> None:
        self._pipe, self._hello = pipe, hello
        self._waiting: queue.SimpleQueue[tuple[Work, ProcessContext]] = queue.SimpleQueue()
        self._news = threading.Event()
        self._app: Any = None
        self._ctx: ProcessContext | None = None
        self._task: asyncio.Task[Any] | None = None

    def serve(self) -> None:
        """Run jobs until the process ends."""
        threading.Thread(target=self._listen, name="demora-listen", daemon=True).start()
        threading.Thread(target=self._report, name="demora-report", daemon=True).start()
        while True:
            work, ctx = self._waiting.get()
            ended = contextvars.copy_context().run(self._run, work, ctx)
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            with ctx.lock, _or_exit():  # wait for a report that is being sent: it must not follow the end
                self._pipe.send(RunEnded(ctx.report(), *ended))

    def _listen(self) -> None:
        try:
            while (message := self._pipe.receive()) is not None:
                if isinstance(message, Work):
                    self._ctx = ProcessContext(message, self._news)
                    self._waiting.put((message, self._ctx))
                elif isinstance(message, End):
                    self._end()
        finally:
            _end_group()

    def _end(self) -> None:
        if self._ctx is not None:
            self._ctx.request_cancel()
        if (task := self._task) is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed: the handler has ended by itself
                task.get_loop().call_soon_threadsafe(task.cancel)

    def _report(self) -> None:
        while self._news.wait():
            self._news.clear()
            ctx = self._ctx
            if ctx is not None:
                with ctx.lock, _or_exit():
                    if ctx.has_news:
                        self._pipe.send(Said(ctx.report()))
            time.sleep(PAUSE)

    def _run(self, work: Work, ctx: "ProcessContext") -> tuple[ProcessOutcome | None, bool]:
        """Return the outcome, and whether the handler raised `Retry` or `Fail`."""
        context.enter(ctx)
        permanent: tuple[type[BaseException], ...] = ()
        try:
            handler = self._find(work)
            permanent = handler.defaults.permanent
            arguments = handler.arguments(work.job.payload, ctx)
            with _or_exit():
                self._pipe.send(Began(work.job.lease))
            with _memory(work.memory):
                called = self._call(handler, arguments, ctx)
                return Succeeded(pack(called, "result")), False
        except asyncio.CancelledError:
            return (None if ctx.cancel_requested else Raised(CANCELLED_WITHIN)), False
        except BaseException as problem:
            return failed(problem, permanent), isinstance(problem, Retry | Fail)

    def _call(self, handler: Handler, arguments: dict[str, Any], ctx: "ProcessContext") -> Any:
        if handler.is_async:
            return asyncio.run(self._await(handler, arguments, ctx))
        return handler.function(**arguments)

    async def _await(self, handler: Handler, arguments: dict[str, Any], ctx: "ProcessContext") -> Any:
        self._task = asyncio.current_task()
        try:
            if ctx.cancel_requested:
                raise asyncio.CancelledError
            return await handler.function(**arguments)
        finally:
            self._task = None
            await self._app.close()  # enqueuing opens a store on this loop, which ends now

    def _find(self, work: Work) -> Handler:
        where = self._hello.home
        if self._app is None:
            app = getattr(location.load(where.path), where.name)
            app.configure(database_url=self._hello.database_url, redis_url=self._hello.redis_url)
            if not self._hello.shared:
                app.stores.keep_closed("the worker's database is in its memory: a process handler cannot reach it")
            self._app = app
            error_texts.configure(app.settings.log_errors)
            self._log_to_worker()
        return location.find(self._app, where, work.defined_in, work.job.type)

    def _log_to_worker(self) -> None:
        """Send log records to the worker, unless importing the application has set up logging."""
        root = logging.getLogger()
        if not root.handlers:
            root.addHandler(Relay(self._pipe))
            root.setLevel(self._hello.level)


class ProcessContext(Context):
    """The context of a run in a child process. Its reports go to the worker, at most once per `PAUSE`."""

    __slots__ = ("_news_event", "lock")

    def __init__(self, work: Work, news: threading.Event) -> None:
        super().__init__(work.job, work.worker_id)
        self.began -= work.ran.total_seconds()
        self.lock, self._news_event = threading.RLock(), news

    def progress(self, fraction: float, message: str | None = None) -> None:
        with self.lock:
            super().progress(fraction, message)
        self._news_event.set()

    def report(self) -> Report:
        with self.lock:
            return super().report()

    def _write(self, at: timedelta, line: str) -> None:
        with self.lock:
            super()._write(at, line)
        self._news_event.set()


@contextlib.contextmanager
def _or_exit() -> Iterator[None]:
    """Exit if the pipe cannot be used: a handler has closed it, or this is a fork."""
    try:
        yield
    except Closed:
        os._exit(1)


@contextlib.contextmanager
def _memory(most: int | None) -> Iterator[None]:
    """Limit the address space of this process; allocating more raises MemoryError."""
    if most is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _end_with_parent() -> None:
    """On Linux, make this process end soon after its worker, even if a handler holds the interpreter lock.

    The kernel sends SIGHUP when the worker dies. Its number is 1, so libc calls alarm(1), and the alarm ends the process a
    second later. Within that second the listening thread normally ends the process and every process that it started.
    """
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            libc = ctypes.CDLL(None)
            libc.signal(signal.SIGHUP, ctypes.cast(libc.alarm, ctypes.c_void_p))
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGHUP)


def _die_before_worker() -> None:
    """Let the system kill this process before its worker when memory runs out, and print a traceback in a crash."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE_ADJ)
    with contextlib.suppress(Exception):  # stderr may have no descriptor
        faulthandler.enable(all_threads=False)


def _ignore_stop_signals() -> None:
    """Ignore stop signals, which a service manager may send to every process: the worker decides when this one ends.
    Programs that a handler starts, and forks of this process, handle signals as usual.

    Python forgets the signals that reach a fork before it has begun, so they are held back until it handles them."""
    numbers, held = (signal.SIGINT, signal.SIGTERM), threading.local()

    def ignore(number: int, frame: FrameType | None) -> None:
        """Do nothing. A function, because programs that a handler starts would inherit SIG_IGN."""

    def before() -> None:
        held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def in_parent() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, held.mask)

    def in_child() -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        in_parent()

    for number in numbers:
        signal.signal(number, ignore)
    os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)


def _end_group() -> None:
    """End this process and every process that handlers started, because the worker is gone."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)

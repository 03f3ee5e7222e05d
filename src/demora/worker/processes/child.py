"""The process of one slot: calls handlers, one after another, and ends when its pipe does. It is given no store.

The main thread calls the handlers; one thread listens to the worker, one reports what handlers say. A handler may do
anything to this process: the worker sees how it ends.
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
from ...core.verdict import GaveUp, Raised, Snoozed, Succeeded
from ...handlers import context
from ...handlers.context import Context, stamp_records
from ...handlers.control import Fail, Retry
from ...handlers.registry import Handler
from ...store.jobs import Report
from ...system import error_texts
from ..outcomes import CANCELLED_WITHIN, failed
from . import location
from .wire import Began, Closed, End, Hello, Pipe, Relay, RunEnded, Said, Work

PAUSE = 0.1  # seconds between reports at least
_TAKEN_FIRST = "300"  # added to the score by which Linux chooses whom to kill when memory runs out

Outcome = Succeeded | Raised | Snoozed | GaveUp


def main(fd: int) -> None:
    """Serve the worker at the other end of the socket `fd`."""
    del sys.argv[1:]
    location.keep_workers_out()
    _end_with_parent()
    _expect_the_worst()
    _shrug_off_signals()
    stamp_records()
    line = Pipe(fd)
    hello = line.receive()
    if isinstance(hello, Hello):
        Slot(line, hello).serve()


class Slot:
    """Runs what it is told to, one job at a time."""

    def __init__(self, line: Pipe, hello: Hello) -> None:
        self._line, self._hello = line, hello
        self._waiting: queue.SimpleQueue[tuple[Work, ProcessContext]] = queue.SimpleQueue()
        self._news = threading.Event()
        self._app: Any = None
        self._ctx: ProcessContext | None = None
        self._task: asyncio.Task[Any] | None = None

    def serve(self) -> None:
        threading.Thread(target=self._listen, name="demora-listen", daemon=True).start()
        threading.Thread(target=self._report, name="demora-report", daemon=True).start()
        while True:
            work, ctx = self._waiting.get()
            ended = contextvars.copy_context().run(self._run, work, ctx)
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            with ctx.lock, _or_exit():  # a report under way would come too late
                self._line.send(RunEnded(ctx.report(), *ended))

    def _listen(self) -> None:
        try:
            while (message := self._line.receive()) is not None:
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
            with contextlib.suppress(RuntimeError):  # its loop has closed: it ended by itself
                task.get_loop().call_soon_threadsafe(task.cancel)

    def _report(self) -> None:
        while self._news.wait():
            self._news.clear()
            ctx = self._ctx
            if ctx is not None:
                with ctx.lock, _or_exit():
                    if ctx.has_news:
                        self._line.send(Said(ctx.report()))
            time.sleep(PAUSE)

    def _run(self, work: Work, ctx: "ProcessContext") -> tuple[Outcome | None, bool]:
        """What the run came to, and whether the handler asked for a retry or a failure by a signal."""
        context.enter(ctx)
        permanent: tuple[type[BaseException], ...] = ()
        try:
            handler = self._find(work)
            permanent = handler.defaults.permanent
            arguments = handler.arguments(work.job.payload, ctx)
            with _or_exit():
                self._line.send(Began(work.job.lease))
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
            await self._app.close()  # if the handler enqueued something, this opened a store on a loop that ends now

    def _find(self, work: Work) -> Handler:
        where = self._hello.home
        if self._app is None:
            app = getattr(location.load(where.place), where.name)
            app.configure(database_url=self._hello.database_url, redis_url=self._hello.redis_url)
            if not self._hello.shared:
                app.keep_closed("the worker's database is in its memory: a process handler cannot reach it")
            self._app = app
            error_texts.configure(app.settings.log_errors)
            self._log_to_worker()
        return location.find(self._app, where, work.place, work.job.type)

    def _log_to_worker(self) -> None:
        """Send records to the worker, unless the application has set up logging by being imported."""
        root = logging.getLogger()
        if not root.handlers:
            root.addHandler(Relay(self._line))
            root.setLevel(self._hello.level)


class ProcessContext(Context):
    """A run as seen in the process of a slot: what is said is sent to the worker, at most every `PAUSE`."""

    __slots__ = ("_said", "lock")

    def __init__(self, work: Work, said: threading.Event) -> None:
        super().__init__(work.job, work.worker_id)
        self.began -= work.ran.total_seconds()
        self.lock, self._said = threading.RLock(), said

    def progress(self, fraction: float, message: str | None = None) -> None:
        with self.lock:
            super().progress(fraction, message)
        self._said.set()

    def report(self) -> Report:
        with self.lock:
            return super().report()

    def _write(self, at: timedelta, line: str) -> None:
        with self.lock:
            super()._write(at, line)
        self._said.set()


@contextlib.contextmanager
def _or_exit() -> Iterator[None]:
    """Nothing is left to do for a process that cannot speak to its worker: a handler closed the pipe, or this is a fork."""
    try:
        yield
    except Closed:
        os._exit(1)


@contextlib.contextmanager
def _memory(most: int | None) -> Iterator[None]:
    """Hold this process to so many bytes of address space: what asks for more gets a MemoryError."""
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
    """See to it, where Linux offers it, that this process ends soon after its worker even if a handler holds the
    interpreter, so that no thread of ours can: the kernel sends SIGHUP, which is 1, libc then calls alarm(1), and the
    alarm ends the process. Until then the thread that listens ends it, and what it started too."""
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            libc = ctypes.CDLL(None)
            libc.signal(signal.SIGHUP, ctypes.cast(libc.alarm, ctypes.c_void_p))
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGHUP)


_PR_SET_PDEATHSIG = 1


def _expect_the_worst() -> None:
    """Let this process go before its worker when memory runs out, and let a crash say where it happened."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_TAKEN_FIRST)
    with contextlib.suppress(Exception):  # stderr may be no file
        faulthandler.enable(all_threads=False)


def _shrug_off_signals() -> None:
    """Leave it to the worker when to end, although a service manager tells every process of a group to stop. Programs that
    a handler starts, and its forks, hear signals as usual."""
    ours = os.getpid()

    def hear(number: int, frame: FrameType | None) -> None:
        if os.getpid() != ours:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, hear)


def _end_group() -> None:
    """The worker is gone: end, and take along what handlers started."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)

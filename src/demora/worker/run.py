"""One run of one job: calls the handler and says what it came to."""

import asyncio
import concurrent.futures.thread
import contextvars
import traceback
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from enum import Enum
from types import TracebackType
from typing import Any

from .. import context
from ..context import Context
from ..core.job import DEFAULT_TIMEOUT
from ..core.outcome import GaveUp, HandedBack, NoHandler, Outcome, Raised, Snoozed, Succeeded
from ..core.payload import pack
from ..errors import Invalid
from ..handlers import Handler, Middleware, Next
from ..signals import Cancel, Fail, Retry, Snooze

MOST_ERROR = 2000  # characters
MOST_TRACEBACK = 16_000


class Ending(Enum):
    """Why a run was ended from outside."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    STOP = "stop"
    LOST = "lost"


class Run:
    """A handler at work on a job. `ending` is why it was told to end, if it was."""

    __slots__ = ("began", "ctx", "ending", "handler", "middlewares", "occupied", "pool", "settled", "task", "timeout")

    def __init__(self, ctx: Context, handler: Handler | None, middlewares: Sequence[Middleware], pool: Executor) -> None:
        self.ctx, self.handler, self.middlewares, self.pool = ctx, handler, middlewares, pool
        usual = handler.defaults.timeout if handler is not None else DEFAULT_TIMEOUT
        self.timeout = (ctx.job.timeout or usual).total_seconds()
        self.ending: Ending | None = None
        self.began = self.settled = False
        self.task: asyncio.Task[None] | None = None
        self.occupied: asyncio.Future[Any] | None = None  # the thread at work, which cannot be cancelled

    async def perform(self) -> Outcome:
        """Call the handler, and answer with what it came to, whatever it raises."""
        if self.ending is not None:
            return self._ended()
        self.began = True
        context.enter(self.ctx)
        try:
            return Succeeded(pack(await self._call(), "result"))
        except asyncio.CancelledError:
            return self._ended()
        except BaseException as problem:  # signals do not come here: the process hears them elsewhere
            return self._raised(problem)

    def end(self, why: Ending) -> None:
        """Tell the handler to end: an async one is cancelled; a plain one can only look at its context."""
        if self.ending is None:
            self.ending = why
        self.ctx.request_cancel()
        if self.began and self.task is not None:  # a task cancelled before its first step would never say how it ended
            self.task.cancel()

    def _call(self) -> Awaitable[Any]:
        """What to await: the handler itself if nothing is around it, since each layer costs every run."""
        handler = self.handler
        if handler is None:
            raise _NoHandler
        arguments = handler.arguments(self.ctx.job.payload, self.ctx)
        if not self.middlewares:
            return self._invoke(handler, arguments)
        call: Next = lambda: self._invoke(handler, arguments)  # noqa: E731
        for middleware in reversed(self.middlewares):
            call = _around(middleware, self.ctx, call)
        return call()

    def _invoke(self, handler: Handler, arguments: dict[str, Any]) -> Awaitable[Any]:
        if handler.is_async:
            awaitable: Awaitable[Any] = handler.function(**arguments)
            return awaitable
        return self._on_thread(handler, arguments)

    async def _on_thread(self, handler: Handler, arguments: dict[str, Any]) -> Any:
        inherited = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        self.occupied = loop.run_in_executor(self.pool, inherited.run, _call_plain, handler.function, arguments)
        return await asyncio.shield(self.occupied)

    def _ended(self) -> Outcome:
        if self.ending is Ending.TIMEOUT:
            return self.timed_out()
        if self.ending is Ending.CANCEL:
            return GaveUp("cancelled while running")
        if self.ending is None:
            return Raised("CancelledError: the handler was cancelled from within")
        return HandedBack()

    def timed_out(self) -> Outcome:
        return Raised("TimedOut: the run took longer than its timeout")

    def _raised(self, problem: BaseException) -> Outcome:
        match problem:
            case _NoHandler():
                return NoHandler()
            case Snooze(delay=delay):
                return Snoozed(delay)
            case Cancel():
                return GaveUp(_storable(str(problem)[:MOST_ERROR]))
            case Retry(after=after):
                return Raised(_describe(problem), after=after)
            case Fail():
                return Raised(_describe(problem), permanent=True)
            case Invalid():
                return Raised(_describe(problem), _trace(problem), permanent=True)
            case _:
                permanent = self.handler is not None and isinstance(problem, self.handler.defaults.permanent)
                return Raised(_describe(problem), _trace(problem), permanent=permanent)


_OURS = {__file__, concurrent.futures.thread.__file__}


class _NoHandler(Exception):
    pass


def _around(middleware: Middleware, ctx: Context, call: Next) -> Next:
    return lambda: middleware(ctx, call)


def _call_plain(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a plain function; what a future cannot carry or a loop would not survive becomes an ordinary error."""
    try:
        return function(**arguments)
    except (StopIteration, KeyboardInterrupt) as problem:
        raise RuntimeError(f"the handler raised {type(problem).__name__}") from problem


def _describe(problem: BaseException) -> str:
    try:
        text = str(problem)
    except Exception:
        text = "(its text cannot be had)"
    return _storable(f"{type(problem).__name__}: {text}"[:MOST_ERROR])


def _trace(problem: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(type(problem), problem, _from_handler(problem.__traceback__)))
    except Exception:
        text = "(its traceback cannot be had)"
    return _storable(text[-MOST_TRACEBACK:])


def _from_handler(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins in the handler."""
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename in _OURS:
        trace = trace.tb_next
    return trace


def _storable(text: str) -> str:
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()

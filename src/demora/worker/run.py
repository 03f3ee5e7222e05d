"""One run of one job: calls the handler and says what it came to."""

import asyncio
import contextvars
import os
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from datetime import timedelta
from typing import Any

from ..core.job import DEFAULT_TIMEOUT
from ..core.payload import pack
from ..core.request import LONGEST_TIMEOUT
from ..core.verdict import GaveUp, HandedBack, NoHandler, Outcome, Raised, RetryState, Succeeded
from ..handlers import context
from ..handlers.context import Context
from ..handlers.registry import Handler, Middleware, Next
from ..system import forks
from .outcomes import CANCELLED_WITHIN, Ending, failed, grace, stands
from .processes.pool import START_UP, Processes


class Run:
    """A handler at work on a job. `ending` is why it was told to end, if it was."""

    __slots__ = (
        *("began", "ctx", "ending", "handler", "limit", "middlewares", "occupied", "pool", "processes", "settled", "task"),
        "timeout",
    )

    def __init__(
        self,
        ctx: Context,
        handler: Handler | None,
        *,
        middlewares: Sequence[Middleware],
        pool: Executor,
        processes: Processes,
        longest: timedelta = LONGEST_TIMEOUT,
    ) -> None:
        self.ctx, self.handler, self.middlewares, self.pool, self.processes = ctx, handler, middlewares, pool, processes
        usual = handler.defaults.timeout if handler is not None else DEFAULT_TIMEOUT
        asked = ctx.job.timeout or usual
        self.timeout = min(asked, max(usual, longest)).total_seconds()  # a job may be older than the limit
        own_process = handler is not None and handler.defaults.process
        self.limit = self.timeout + START_UP if own_process else self.timeout  # until the handler is called
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
        """Tell the handler to end: an async one is cancelled, a plain one can only look at its context, and one in a process
        of its own is killed if it does not end soon."""
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
        if handler.defaults.process:
            return self.processes.call(self, handler)
        if handler.is_async:
            awaitable: Awaitable[Any] = handler.function(**arguments)
            return awaitable
        return self._on_thread(handler, arguments)

    async def _on_thread(self, handler: Handler, arguments: dict[str, Any]) -> Any:
        inherited = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        self.occupied = thread = loop.run_in_executor(self.pool, inherited.run, _call_plain, handler.function, arguments)
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            await asyncio.wait([thread], timeout=grace(self.ending))
            if not thread.done() or not stands(self.ending, succeeded=thread.exception() is None):
                raise
            return thread.result()

    def _ended(self) -> Outcome:
        if self.ending is Ending.TIMEOUT:
            return self.timed_out()
        if self.ending is Ending.CANCEL:
            return GaveUp("cancelled while running")
        if self.ending is None:
            return Raised(CANCELLED_WITHIN)
        return HandedBack()

    def timed_out(self) -> Outcome:
        return Raised("TimedOut: the run took longer than its timeout")

    def standing(self) -> RetryState:
        """What a verdict on this run needs to know, the handler's own way of retrying included."""
        standing = self.ctx.job.standing
        return standing if self.handler is None else self.handler.standing(standing)

    def _raised(self, problem: BaseException) -> Outcome:
        if isinstance(problem, _NoHandler):
            return NoHandler()
        return failed(problem, () if self.handler is None else self.handler.defaults.permanent)


class _NoHandler(Exception):
    pass


def _around(middleware: Middleware, ctx: Context, call: Next) -> Next:
    return lambda: middleware(ctx, call)


def _call_plain(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a plain function; what a future cannot carry or a loop would not survive becomes an ordinary error."""
    pid = os.getpid()
    try:
        return function(**arguments)
    except (StopIteration, KeyboardInterrupt) as problem:
        raise RuntimeError(f"the handler raised {type(problem).__name__}") from problem
    finally:
        forks.exit_in_child(pid)

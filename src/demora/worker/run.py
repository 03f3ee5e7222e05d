"""One run of one job: calls the handler and returns the outcome."""

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
    """One call of a handler for a job. `ending` is why the worker ended the run, None if it did not."""

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
        self.timeout = min(asked, max(usual, longest)).total_seconds()  # a job may have been stored before the limit was set
        own_process = handler is not None and handler.defaults.process
        self.limit = (
            self.timeout + START_UP if own_process else self.timeout
        )  # a process may take START_UP to call the handler
        self.ending: Ending | None = None
        self.began = self.settled = False
        self.task: asyncio.Task[None] | None = None
        self.occupied: asyncio.Future[Any] | None = None  # the thread of a plain function, which cannot be cancelled

    async def perform(self) -> Outcome:
        """Call the handler and return the outcome, whatever the handler raises."""
        if self.ending is not None:
            return self._ended()
        self.began = True
        context.enter(self.ctx)
        try:
            return Succeeded(pack(await self._call(), "result"))
        except asyncio.CancelledError:
            return self._ended()
        except BaseException as problem:  # no KeyboardInterrupt: the process handles signals elsewhere
            return self._raised(problem)

    def end(self, why: Ending) -> None:
        """End the run. An async handler is cancelled. A plain one can only check its context. One in a process of its own is
        killed if it does not end soon."""
        if self.ending is None:
            self.ending = why
        self.ctx.request_cancel()
        if self.began and self.task is not None:  # a task cancelled before its first step would return no outcome
            self.task.cancel()

    def _call(self) -> Awaitable[Any]:
        """Return what to await: without middleware the handler itself, since each layer costs time in every run."""
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
        """Return the outcome of a run that exceeded its timeout."""
        return Raised("TimedOut: the run took longer than its timeout")

    def standing(self) -> RetryState:
        """Return the retry state of the job, with the cap and jitter of its handler."""
        standing = self.ctx.job.standing
        return standing if self.handler is None else self.handler.standing(standing)

    def _raised(self, problem: BaseException) -> Outcome:
        if isinstance(problem, _NoHandler):
            return NoHandler()
        return failed(problem, () if self.handler is None else self.handler.defaults.permanent)


class _NoHandler(Exception):
    """The worker has no handler for the type of the job."""


def _around(middleware: Middleware, ctx: Context, call: Next) -> Next:
    return lambda: middleware(ctx, call)


def _call_plain(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a plain function. Errors that a future cannot hold or that would end the loop become a RuntimeError."""
    pid = os.getpid()
    try:
        return function(**arguments)
    except (StopIteration, KeyboardInterrupt) as problem:
        raise RuntimeError(f"the handler raised {type(problem).__name__}") from problem
    finally:
        forks.exit_in_child(pid)

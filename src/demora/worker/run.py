"""One run of one job: calls the handler, ends it early if the worker must, and returns the outcome.

Below `Run` stand the deadlines of all runs (`Timeouts`), and how an error of a handler becomes an outcome (`failed`).
"""

import asyncio
import concurrent.futures.thread
import contextvars
import os
import traceback
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from datetime import timedelta
from enum import Enum
from math import inf
from types import TracebackType
from typing import Any, NamedTuple

from ..core.payload import pack
from ..core.request import LONGEST_TIMEOUT
from ..core.spans import span
from ..core.verdict import (
    MOST_ERROR,
    WHILE_RUNNING,
    Cancelled,
    HandedBack,
    NoHandler,
    Outcome,
    Raised,
    RetryState,
    Snoozed,
    Succeeded,
    Verdict,
    decide,
)
from ..errors import Invalid, ProcessDied, RaisedInProcess
from ..handlers import context
from ..handlers.context import Context
from ..handlers.control import Cancel, EndRequested, Fail, Retry, Snooze
from ..handlers.registry import Handler, Middleware, Next, allowed_time
from ..system import error_texts, forks
from . import processes
from .processes.pool import START_UP, Processes

CANCELLED_WITHIN = "CancelledError: the handler was cancelled from within"

# The folders of the code that calls handlers: the worker's, and that of the loop and the threads.
_CALLERS = {
    os.path.dirname(file) for file in (__file__, processes.__file__, asyncio.__file__, concurrent.futures.thread.__file__)
}


class Ending(Enum):
    """Why the worker ends a run before its handler returns."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    STOP = "stop"
    LOST = "lost"


GRACE = {Ending.CANCEL: 2.0, Ending.STOP: 0.25}  # seconds


class Resources(NamedTuple):
    """What the runs of a worker share: middleware, threads and child processes of handlers, and the longest timeout."""

    middlewares: Sequence[Middleware]
    pool: Executor
    processes: Processes
    longest: timedelta = LONGEST_TIMEOUT


class Run:
    """One call of a handler for a job. `ending` is why the worker ended the run, None if it did not."""

    __slots__ = (
        *("began", "ctx", "ending", "handler", "limit", "occupied", "problem"),
        *("resources", "settled", "task", "timeout"),
    )

    def __init__(self, ctx: Context, handler: Handler | None, resources: Resources) -> None:
        self.ctx, self.handler, self.resources = ctx, handler, resources
        self.timeout = allowed_time(handler, ctx.job.timeout, resources.longest).total_seconds()
        own_process = handler is not None and handler.defaults.process
        # A process may take START_UP to call the handler.
        self.limit = self.timeout + START_UP if own_process else self.timeout
        self.ending: Ending | None = None
        self.began = self.settled = False
        self.task: asyncio.Task[None] | None = None
        self.occupied: asyncio.Future[Any] | None = None  # the thread of a plain function, which cannot be cancelled
        self.problem: BaseException | None = None  # what the handler raised, if it can be read

    async def perform(self) -> Outcome:
        """Call the handler and return the outcome, whatever the handler raises."""
        if self.ending is not None:
            return self._ended()
        self.began = True
        context.enter(self.ctx)
        try:
            return Succeeded(pack(await self._call(), "result"))
        except (asyncio.CancelledError, EndRequested):
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

    @property
    def grace(self) -> float:
        """The seconds that a handler in a thread or a process of its own has to end by itself after `end`."""
        return 0.0 if self.ending is None else GRACE.get(self.ending, 0.0)

    def counts(self, *, succeeded: bool) -> bool:
        """Return whether the outcome of a handler that ended within that grace counts."""
        return self.ending is Ending.CANCEL or (self.ending is Ending.STOP and succeeded)

    def timed_out(self) -> Outcome:
        """Return the outcome of a run that exceeded its timeout."""
        return Raised("TimedOut: the run took longer than its timeout")

    def retry_state(self) -> RetryState:
        """Return the retry state of the job, with the cap and jitter of its handler."""
        retry_state = self.ctx.job.retry_state
        return retry_state if self.handler is None else self.handler.retry_state(retry_state)

    def _call(self) -> Awaitable[Any]:
        """Return what to await: without middleware the handler itself, since each layer costs time in every run."""
        handler = self.handler
        if handler is None:
            raise _NoHandler
        arguments = handler.arguments(self.ctx.job.payload, self.ctx)
        if not self.resources.middlewares:
            return self._invoke(handler, arguments)
        call: Next = lambda: self._invoke(handler, arguments)  # noqa: E731
        for middleware in reversed(self.resources.middlewares):
            call = _around(middleware, self.ctx, call)
        return call()

    def _invoke(self, handler: Handler, arguments: dict[str, Any]) -> Awaitable[Any]:
        if handler.defaults.process:
            return self.resources.processes.call(self, handler)
        if handler.is_async:
            awaitable: Awaitable[Any] = handler.function(**arguments)
            return awaitable
        return self._on_thread(handler, arguments)

    async def _on_thread(self, handler: Handler, arguments: dict[str, Any]) -> Any:
        inherited = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        pool, function = self.resources.pool, handler.function
        self.occupied = thread = loop.run_in_executor(pool, inherited.run, _call_plain, function, arguments)
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            await asyncio.wait([thread], timeout=self.grace)
            if not thread.done() or not self.counts(succeeded=thread.exception() is None):
                raise
            return thread.result()

    def _ended(self) -> Outcome:
        if self.ending is Ending.TIMEOUT:
            return self.timed_out()
        if self.ending is Ending.CANCEL:
            return Cancelled(WHILE_RUNNING)
        if self.ending is None:
            return Raised(CANCELLED_WITHIN)
        return HandedBack()

    def _raised(self, problem: BaseException) -> Outcome:
        if isinstance(problem, _NoHandler):
            return NoHandler()
        self.problem = problem if _is_readable(problem) else None
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


class Timeouts:
    """The deadlines of runs, watched with one timer. It calls `expired` once for each run that reaches its deadline.

    Most runs end long before theirs, so `watch` and `forget` are cheap: runs with the same timeout reach their deadlines in
    the order of their start, so each such group is a plain dict.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, expired: Callable[[Run], None]) -> None:
        self._loop, self._expired = loop, expired
        self._groups: dict[float, dict[Run, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._at = inf

    def watch(self, run: Run, seconds: float) -> None:
        """Call `expired` for the run after this many seconds, unless it is forgotten before."""
        deadline = self._loop.time() + seconds
        group = self._groups.get(seconds)
        if group is None:
            group = self._groups[seconds] = {}
        group[run] = deadline
        if deadline < self._at:
            self._set_timer(deadline)

    def forget(self, run: Run, seconds: float) -> None:
        """Stop watching the run; `seconds` is the value given to `watch`."""
        group = self._groups.get(seconds)
        if group is not None:
            group.pop(run, None)
            if not group:
                del self._groups[seconds]

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at = at
        self._timer = None if at == inf else self._loop.call_at(at, self._expire)

    def _expire(self) -> None:
        now = self._loop.time()
        late = [(group, run) for group in self._groups.values() for run, deadline in group.items() if deadline <= now]
        for group, run in late:
            del group[run]
        self._groups = {seconds: group for seconds, group in self._groups.items() if group}
        self._set_timer(min((next(iter(group.values())) for group in self._groups.values()), default=inf))
        for _, run in late:
            self._expired(run)


def failed(problem: BaseException, permanent: tuple[type[BaseException], ...]) -> Raised | Snoozed | Cancelled:
    """Return the outcome of a run whose handler raised. `Retry` and its like mean what they say; every other error is a
    failed attempt, without a retry if it is one of the `permanent` classes. If reading the error raises an error itself, the
    attempt failed with that one."""
    try:
        return _read(problem, permanent)
    except BaseException as trouble:  # even SystemExit: a method of the raised error may raise it
        return _unreadable(trouble)


def verdict_on(outcome: Outcome, retry_state: RetryState, drawn: float) -> Verdict:
    """Return the verdict of the core. If the core raises, the attempt failed with that error."""
    try:
        return decide(outcome, retry_state, drawn)
    except Exception as trouble:
        failure = _unreadable(trouble)
        return decide(Raised(failure.error, failure.traceback, after=retry_state.retry_delay), retry_state, drawn)


def _read(problem: BaseException, permanent: tuple[type[BaseException], ...]) -> Raised | Snoozed | Cancelled:
    match problem:
        case Snooze(delay=delay):
            return Snoozed(span(delay, "delay"))
        case Cancel():
            return Cancelled(_storable(_text(problem)[:MOST_ERROR]))
        case Retry(after=after, detail=detail):
            return Raised(_describe(problem), _detail(detail), after=None if after is None else span(after, "after"))
        case Fail(detail=detail):
            return Raised(_describe(problem), _detail(detail), permanent=True)
        case Invalid():
            return Raised(_describe(problem), _trace(problem), permanent=True)
        case RaisedInProcess(error=error, traceback=trace, permanent=useless):
            return Raised(error, trace, permanent=useless)
        case ProcessDied():
            return Raised(_describe(problem))
        case _:
            return Raised(_describe(problem), _trace(problem), permanent=isinstance(problem, permanent))


def _is_readable(problem: BaseException) -> bool:
    """Return whether logging may read this error. Also removes the frames of the code that called the handler."""
    try:
        problem.__traceback__ = _from_handler(problem.__traceback__)
        return bool(type(problem).__name__ and traceback.format_exception(problem))
    except BaseException:  # even SystemExit: a method of the raised error may raise it
        return False


def _unreadable(trouble: BaseException) -> Raised:
    try:
        return Raised(_describe(trouble), _trace(trouble))
    except BaseException:
        return Raised("Unjudged: the error that the handler raised cannot be read")


def _text(value: object) -> str:
    try:
        return str(value)
    except BaseException:
        return "(its text cannot be read)"


def _describe(problem: BaseException) -> str:
    text = _text(problem)
    name = type(problem).__name__
    return _storable(f"{name}: {text}"[:MOST_ERROR] if text else name)


def _trace(problem: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(type(problem), problem, _from_handler(problem.__traceback__)))
    except BaseException:
        text = error_texts.UNREADABLE
    return _storable(text[-error_texts.MOST_TRACEBACK :])


def _from_handler(trace: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins in the handler."""
    within = trace
    while within is not None:  # tools that wrap the threads of a process, such as Sentry, add frames before this one
        if within.tb_frame.f_code is _call_plain.__code__ and within.tb_next is not None:
            return within.tb_next
        within = within.tb_next
    while trace is not None and trace.tb_next is not None and _is_caller(trace):
        trace = trace.tb_next
    return trace


def _is_caller(trace: TracebackType) -> bool:
    return os.path.dirname(trace.tb_frame.f_code.co_filename) in _CALLERS


def _detail(detail: object) -> str | None:
    return None if detail is None else _storable(_text(detail)[: error_texts.MOST_TRACEBACK])


def _storable(text: str) -> str:
    """Escape characters that not every engine can store."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()

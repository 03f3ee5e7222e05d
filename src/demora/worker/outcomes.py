"""How runs end: why the worker ends one, and the outcome and verdict that follow from what its handler raised."""

import asyncio
import concurrent.futures.thread
import os
import traceback
from enum import Enum
from types import TracebackType

from ..core.spans import span
from ..core.verdict import GaveUp, Outcome, Raised, RetryState, Snoozed, Verdict, decide
from ..errors import Invalid, ProcessDied, RaisedInProcess
from ..handlers.control import Cancel, Fail, Retry, Snooze
from . import processes


class Ending(Enum):
    """Why the worker ends a run before its handler returns."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    STOP = "stop"
    LOST = "lost"


GRACE = {Ending.CANCEL: 2.0, Ending.STOP: 0.25}  # seconds
MOST_ERROR = 2000  # characters
MOST_TRACEBACK = 16_000

CANCELLED_WITHIN = "CancelledError: the handler was cancelled from within"

# The folders of the code that calls handlers: the worker's, and that of the loop and the threads.
_CALLERS = {
    os.path.dirname(file) for file in (__file__, processes.__file__, asyncio.__file__, concurrent.futures.thread.__file__)
}


def grace(ending: Ending | None) -> float:
    """Return the seconds that a run in a thread or a process of its own has to end by itself after `Run.end`."""
    return 0.0 if ending is None else GRACE.get(ending, 0.0)


def stands(ending: Ending | None, *, succeeded: bool) -> bool:
    """Return whether the outcome of a run that ended within that grace counts."""
    return ending is Ending.CANCEL or (ending is Ending.STOP and succeeded)


def failed(problem: BaseException, permanent: tuple[type[BaseException], ...]) -> Raised | Snoozed | GaveUp:
    """Return the outcome of a run whose handler raised. Signals such as `Retry` mean what they say; every other error is a
    failed attempt, without a retry if it is one of the `permanent` classes. If reading the error raises an error itself, the
    attempt failed with that one."""
    try:
        return _read(problem, permanent)
    except BaseException as trouble:  # even SystemExit: a method of the raised error may raise it
        return _unreadable(trouble)


def verdict_on(outcome: Outcome, standing: RetryState, drawn: float) -> Verdict:
    """Return the verdict of the core. If the core raises, the attempt failed with that error."""
    try:
        return decide(outcome, standing, drawn)
    except Exception as trouble:
        failure = _unreadable(trouble)
        return decide(Raised(failure.error, failure.traceback, after=standing.retry_delay), standing, drawn)


def _read(problem: BaseException, permanent: tuple[type[BaseException], ...]) -> Raised | Snoozed | GaveUp:
    match problem:
        case Snooze(delay=delay):
            return Snoozed(span(delay, "delay"))
        case Cancel():
            return GaveUp(_storable(_text(problem)[:MOST_ERROR]))
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
        text = "(its traceback cannot be read)"
    return _storable(text[-MOST_TRACEBACK:])


def _from_handler(trace: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins in the handler."""
    while trace is not None and trace.tb_next is not None and _is_caller(trace):
        trace = trace.tb_next
    return trace


def _is_caller(trace: TracebackType) -> bool:
    return os.path.dirname(trace.tb_frame.f_code.co_filename) in _CALLERS


def _detail(detail: object) -> str | None:
    return None if detail is None else _storable(_text(detail)[:MOST_TRACEBACK])


def _storable(text: str) -> str:
    """Escape characters that not every engine can store."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()

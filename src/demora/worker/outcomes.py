"""What a run came to whose handler raised: signals mean what they say, everything else is a failed attempt."""

import asyncio
import concurrent.futures.thread
import os
import traceback
from types import TracebackType

from ..core.outcome import GaveUp, Raised, Snoozed
from ..errors import Invalid, ProcessDied, RaisedInProcess
from ..signals import Cancel, Fail, Retry, Snooze

MOST_ERROR = 2000  # characters
MOST_TRACEBACK = 16_000

CANCELLED_WITHIN = "CancelledError: the handler was cancelled from within"

_AROUND = {os.path.dirname(file) for file in (__file__, asyncio.__file__, concurrent.futures.thread.__file__)}


def failed(problem: BaseException, permanent: tuple[type[Exception], ...]) -> Raised | Snoozed | GaveUp:
    """The outcome that a handler asked for by raising; `permanent` are errors after which trying again is useless."""
    match problem:
        case Snooze(delay=delay):
            return Snoozed(delay)
        case Cancel():
            return GaveUp(_storable(str(problem)[:MOST_ERROR]))
        case Retry(after=after, detail=detail):
            return Raised(_describe(problem), _detail(detail), after=after)
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


def _describe(problem: BaseException) -> str:
    try:
        text = str(problem)
    except Exception:
        text = "(its text cannot be had)"
    name = type(problem).__name__
    return _storable(f"{name}: {text}"[:MOST_ERROR] if text else name)


def _trace(problem: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(type(problem), problem, _from_handler(problem.__traceback__)))
    except Exception:
        text = "(its traceback cannot be had)"
    return _storable(text[-MOST_TRACEBACK:])


def _from_handler(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins in the handler."""
    while trace is not None and trace.tb_next is not None and _is_around(trace):
        trace = trace.tb_next
    return trace


def _is_around(trace: TracebackType) -> bool:
    """Whether this is code that calls handlers: ours, or that of the loop and the threads they run on."""
    return os.path.dirname(trace.tb_frame.f_code.co_filename) in _AROUND


def _detail(detail: str | None) -> str | None:
    return None if detail is None else _storable(detail[:MOST_TRACEBACK])


def _storable(text: str) -> str:
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()

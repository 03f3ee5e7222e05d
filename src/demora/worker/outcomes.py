"""Why a run is ended from outside, and what it may still do then."""

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
    TIMEOUT = "timeout"
    CANCEL = "cancel"
    STOP = "stop"
    LOST = "lost"


GRACE = {Ending.CANCEL: 2.0, Ending.STOP: 0.25}  # seconds


def grace(ending: Ending | None) -> float:
    """The seconds that a run in a thread or a process of its own has to end by itself after it was told to."""
    return 0.0 if ending is None else GRACE.get(ending, 0.0)


def stands(ending: Ending | None, *, succeeded: bool) -> bool:
    """Whether what a run came to within that time counts."""
    return ending is Ending.CANCEL or (ending is Ending.STOP and succeeded)


# What a run came to whose handler raised: signals mean what they say, everything else is a failed attempt.


MOST_ERROR = 2000  # characters
MOST_TRACEBACK = 16_000

CANCELLED_WITHIN = "CancelledError: the handler was cancelled from within"

_AROUND = {
    os.path.dirname(file) for file in (__file__, processes.__file__, asyncio.__file__, concurrent.futures.thread.__file__)
}


def failed(problem: BaseException, permanent: tuple[type[BaseException], ...]) -> Raised | Snoozed | GaveUp:
    """The outcome that a handler asked for by raising; `permanent` are errors after which trying again is useless. What
    cannot be judged is an attempt that failed with the error of who tried."""
    try:
        return _judged(problem, permanent)
    except BaseException as trouble:  # even a SystemExit: it comes from what was raised, not from outside
        return _unjudged(trouble)


def verdict_on(outcome: Outcome, standing: RetryState, drawn: float) -> Verdict:
    """What the core decides; if it cannot, the attempt failed with its error."""
    try:
        return decide(outcome, standing, drawn)
    except Exception as trouble:
        failure = _unjudged(trouble)
        return decide(Raised(failure.error, failure.traceback, after=standing.retry_delay), standing, drawn)


def _judged(problem: BaseException, permanent: tuple[type[BaseException], ...]) -> Raised | Snoozed | GaveUp:
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


def _unjudged(trouble: BaseException) -> Raised:
    try:
        return Raised(_describe(trouble), _trace(trouble))
    except BaseException:
        return Raised("Unjudged: what the handler raised cannot be told")


def _text(value: object) -> str:
    try:
        return str(value)
    except BaseException:
        return "(its text cannot be had)"


def _describe(problem: BaseException) -> str:
    text = _text(problem)
    name = type(problem).__name__
    return _storable(f"{name}: {text}"[:MOST_ERROR] if text else name)


def _trace(problem: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(type(problem), problem, _from_handler(problem.__traceback__)))
    except BaseException:
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


def _detail(detail: object) -> str | None:
    return None if detail is None else _storable(_text(detail)[:MOST_TRACEBACK])


def _storable(text: str) -> str:
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()

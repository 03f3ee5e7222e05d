"""How errors are written to the log: with their text, or by their class alone.

The text of an error may repeat data of a caller: `KeyError: 'the value of a payload'`. With the setting `log_errors=class`
the log contains no such texts. They are still stored with the attempt of the job, for callers who may read jobs. A traceback
never contains the values of variables.
"""

import re
import traceback
from types import TracebackType

_CLASS = re.compile(r"[A-Za-z_][\w.]*(?=:|$)")
UNREADABLE = "(its traceback cannot be read)"
MOST_TRACEBACK = 16_000  # characters, the last ones
NOT_SHOWN = "(its text is not logged)"
_shown = True

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def configure(style: str) -> None:
    """Apply the setting `log_errors` to this process from now on."""
    global _shown
    _shown = style != "class"


def shown() -> bool:
    """Return whether the log may contain the texts of errors."""
    return _shown


def of_error(problem: BaseException, *, quoted: bool = False) -> str:
    """Return an error for the log: its text (its `repr` if `quoted`), or its class and the class of its cause."""
    if _shown:
        return repr(problem) if quoted else str(problem)
    cause = problem.__cause__
    return type(problem).__name__ if cause is None else f"{type(problem).__name__} ({type(cause).__name__})"


def of_text(error: str) -> str:
    """Return the stored error of an attempt, which begins with its class, for the log."""
    found = None if _shown else _CLASS.match(error)
    return error if _shown else NOT_SHOWN if found is None else found[0]


def of_reason(reason: str) -> str:
    """Return a reason that a handler gave, for the log."""
    return reason if _shown else NOT_SHOWN


def of_traceback(info: ExcInfo) -> str:
    """Return a traceback for the log: with the texts of the errors, or the lines of code with the classes of the errors."""
    try:
        if _shown or info[1] is None:
            text = "".join(traceback.format_exception(*info)).rstrip("\n")
        else:
            text = "\n".join(_by_class(info[1], info[2], set()))
        return text[-MOST_TRACEBACK:]
    except BaseException:  # even SystemExit: a method of the error may raise it
        return UNREADABLE


def _by_class(problem: BaseException, trace: TracebackType | None, seen: set[int]) -> list[str]:
    seen.add(id(problem))
    before = problem.__cause__ or (None if problem.__suppress_context__ else problem.__context__)
    lines = [] if before is None or id(before) in seen else [*_by_class(before, before.__traceback__, seen), "then:"]
    frames = "".join(traceback.format_tb(trace)).splitlines()
    return [*lines, "Traceback (most recent call last):", *frames, type(problem).__name__]

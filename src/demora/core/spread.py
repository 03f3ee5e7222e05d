"""Spreading jobs evenly over a span, so that a batch does not come due all at once."""

from datetime import timedelta

from ..errors import Invalid
from .spans import MILLISECOND, ZERO, span


def spread(count: int, over: timedelta | str) -> list[timedelta]:
    """How long after now each of so many jobs is due: the first at once, the others evenly within the span."""
    whole = span(over, "spread")
    if whole == ZERO:
        raise Invalid("spread", "must be longer than nothing")
    milliseconds = whole // MILLISECOND
    return [timedelta(milliseconds=milliseconds * n // count) for n in range(count)]

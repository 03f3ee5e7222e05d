"""Limits on the log: a line per subject, so many lines a second, and one line for each change of a pace."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakSet

MINUTE = 60.0
MOST_SUBJECTS = 100
MOST_A_SECOND = 20


class Limit:
    """Admits one line per subject, for at most `MOST_SUBJECTS` subjects: again each minute, or only once if `lasting`."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, *, lasting: bool = False) -> None:
        self._monotonic, self._lasting = monotonic, lasting
        self._began = monotonic()
        self._subjects: set[str] = set()

    def admits(self, subject: str) -> bool:
        """Return whether a line about this subject may be written now."""
        now = self._monotonic()
        if not self._lasting and now - self._began >= MINUTE:
            self._began = now
            self._subjects.clear()
        if subject in self._subjects or len(self._subjects) >= MOST_SUBJECTS:
            return False
        self._subjects.add(subject)
        return True

    @property
    def full(self) -> bool:
        """Whether no further subject is admitted now."""
        return len(self._subjects) >= MOST_SUBJECTS


class Burst:
    """Admits a line for each event up to `MOST_A_SECOND` events a second. While there are more, it admits none, and calls
    `summarize` once a second with the number of events that had no line."""

    def __init__(self, summarize: Callable[[int], None]) -> None:
        self._summarize = summarize
        self._events = self._lines = 0  # in the current second
        self._many = False  # in the last second
        self._timer: asyncio.TimerHandle | None = None

    def admits(self) -> bool:
        """Count an event, and return whether it gets a line of its own. Call this on a running loop."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(1.0, self._end_second)
        self._events += 1
        if self._many or self._events > MOST_A_SECOND:
            return False
        self._lines += 1
        return True

    def close(self) -> None:
        """Summarize the events of the current second that had no line."""
        if self._timer is not None:
            self._timer.cancel()
        self._begin_second()

    def _begin_second(self) -> None:
        left_out, self._many, self._timer = self._events - self._lines, self._events > MOST_A_SECOND, None
        self._events = self._lines = 0
        if left_out:
            self._summarize(left_out)

    def _end_second(self) -> None:
        self._begin_second()
        if self._many:  # a second without events ends the burst
            self._timer = asyncio.get_running_loop().call_later(1.0, self._end_second)


# While a scheduler of this process watches the paces of a store, it logs each change of them, and the caller that makes the
# change does not.

_watched: WeakSet[object] = WeakSet()


@contextmanager
def watching(paces: object) -> Iterator[None]:
    """Count the paces of a store as watched until the end of the block."""
    _watched.add(paces)
    try:
        yield
    finally:
        _watched.discard(paces)


def is_watched(paces: object) -> bool:
    """Return whether a scheduler on this store logs each change of its paces."""
    return paces in _watched

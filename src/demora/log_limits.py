"""A bound on what many callers can make the log say: one line for each subject and minute, and so many subjects."""

import time
from collections.abc import Callable

MINUTE = 60.0
MOST_SUBJECTS = 100


class Limit:
    """Remembers the subjects of the minute, at most `MOST_SUBJECTS` of them."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._began, self._unsaid = monotonic(), 0
        self._said: set[str] = set()

    def admits(self, subject: str) -> bool:
        """Whether a line about this subject may be written now."""
        if subject in self._said or len(self._said) >= MOST_SUBJECTS:
            self._unsaid += 1
            return False
        self._said.add(subject)
        return True

    def over(self) -> tuple[int, int] | None:
        """Once a minute has passed: how many subjects it had lines about, and how many lines were left out, if any were.
        Begins the next minute."""
        now = self._monotonic()
        if now - self._began < MINUTE:
            return None
        told = (len(self._said), self._unsaid)
        self._began, self._unsaid = now, 0
        self._said.clear()
        return told if told[1] else None

    @property
    def full(self) -> bool:
        return len(self._said) >= MOST_SUBJECTS

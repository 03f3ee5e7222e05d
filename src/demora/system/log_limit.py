"""A limit on the log lines that callers can cause: one line per subject and minute, for a limited number of subjects."""

import time
from collections.abc import Callable

MINUTE = 60.0
MOST_SUBJECTS = 100


class Limit:
    """Remembers the subjects of the current minute, at most `MOST_SUBJECTS` of them."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._began, self._left_out = monotonic(), 0
        self._subjects: set[str] = set()

    def admits(self, subject: str) -> bool:
        """Return whether a line about this subject may be written now."""
        if subject in self._subjects or len(self._subjects) >= MOST_SUBJECTS:
            self._left_out += 1
            return False
        self._subjects.add(subject)
        return True

    def over(self) -> tuple[int, int] | None:
        """Begin the next minute if this one is over. Returns how many subjects it had, and how many lines were left out;
        None if it is not over or no line was left out."""
        now = self._monotonic()
        if now - self._began < MINUTE:
            return None
        subjects, left_out = len(self._subjects), self._left_out
        self._began, self._left_out = now, 0
        self._subjects.clear()
        return (subjects, left_out) if left_out else None

    @property
    def full(self) -> bool:
        """Whether no further subject is admitted in this minute."""
        return len(self._subjects) >= MOST_SUBJECTS

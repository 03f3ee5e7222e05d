"""What paces let go, summed up for the log: a fast pace would write a line for every job, and wait for the disk."""

import asyncio
from collections import Counter
from collections.abc import Iterable

from . import notices
from .core.pace import Release

APART = 1.0  # seconds between two lines


class Tally:
    """Says at once what is let go after a rest, and what follows once a second: one line for each queue."""

    def __init__(self) -> None:
        self._untold: Counter[str] = Counter()
        self._resting: asyncio.TimerHandle | None = None

    def add(self, released: Iterable[Release]) -> None:
        self._untold.update(job.queue for job in released)
        if self._resting is None:
            self._tell()

    def close(self) -> None:
        """Say what is left to say."""
        if self._resting is not None:
            self._resting.cancel()
        self._say()

    def _tell(self) -> None:
        self._resting = None
        if self._untold:
            self._say()
            self._resting = asyncio.get_running_loop().call_later(APART, self._tell)

    def _say(self) -> None:
        for queue, jobs in self._untold.items():
            notices.let_go(queue, jobs)
        self._untold.clear()

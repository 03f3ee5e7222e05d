"""How many bytes of requests and answers are held in memory at once, and who is refused when there are too many.

A body counts as its bytes arrive, an answer from when it is made until it is sent. The first bytes of each request are not
counted, so that small requests are answered whatever others send or leave unread; the number of connections bounds those.
"""

import time
from types import TracebackType
from typing import Self

from ..system import notices
from .problems import Overloaded

UNCOUNTED = 64 * 1024  # bytes of each request
TOLD_EVERY = 10.0  # seconds between two lines in the log


class Budget:
    """The bytes that all requests together may hold."""

    def __init__(self, most: int) -> None:
        self._most, self._told_at = most, -TOLD_EVERY
        self.held = 0

    def share(self) -> "Share":
        """What one request holds; it is given back at the end of the block."""
        return Share(self)

    def move(self, by: int) -> None:
        """Count so many bytes more, or fewer. `Overloaded` if there are too many, and then nothing is counted."""
        if by > 0 and self.held + by > self._most:
            self._tell()
            raise Overloaded
        self.held += by

    def _tell(self) -> None:
        if time.monotonic() - self._told_at >= TOLD_EVERY:
            self._told_at = time.monotonic()
            notices.overloaded(self.held, self._most)


class Share:
    """The bytes that one request holds: of its body, and of its answer."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._body = self._answer = self._counted = 0

    def body(self, size: int) -> None:
        """Say how much of the body is here."""
        self._body = size
        self._count()

    def answer(self, size: int) -> None:
        """Say how large the answer is, or may become."""
        self._answer = size
        self._count()

    def _count(self) -> None:
        counted = max(0, self._body + self._answer - UNCOUNTED)
        if counted != self._counted:
            self._budget.move(counted - self._counted)
            self._counted = counted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self._budget.move(-self._counted)
        self._counted = 0

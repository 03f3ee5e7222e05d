"""Limits the bytes of requests and answers that the service holds in memory at once.

A body counts as its bytes arrive, and an answer from its encoding until it is sent. The first 64 KiB of each request are
not counted, so that small requests are answered whatever other callers do; the number of connections bounds those.
"""

import time
from types import TracebackType
from typing import Self

from ..system import notices
from ..wire.problems import Overloaded

UNCOUNTED = 64 * 1024  # bytes of each request
LOG_INTERVAL = 10.0  # seconds between two lines in the log


class Budget:
    """The bytes that all requests together hold, at most `most`."""

    def __init__(self, most: int) -> None:
        self._most, self._logged_at = most, -LOG_INTERVAL
        self.held = 0

    def share(self) -> "Share":
        """Return the share of one request, a context manager that gives its bytes back at the end."""
        return Share(self)

    def move(self, by: int) -> None:
        """Add `by` bytes to the count, or subtract them. Raises `Overloaded`, and counts nothing, if they are too many."""
        if by > 0 and self.held + by > self._most:
            self._log()
            raise Overloaded
        self.held += by

    def _log(self) -> None:
        if time.monotonic() - self._logged_at >= LOG_INTERVAL:
            self._logged_at = time.monotonic()
            notices.overloaded(self.held, self._most)


class Share:
    """The bytes of one request: of its body and of its answer."""

    __slots__ = ("_answer", "_body", "_budget", "_counted")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._body = self._answer = self._counted = 0

    @property
    def is_small(self) -> bool:
        """Whether the bytes so far are so few that they are not counted."""
        return self._body + self._answer <= UNCOUNTED

    def body(self, size: int) -> None:
        """Set the number of bytes of the body so far."""
        self._body = size
        self._count()

    def answer(self, size: int) -> None:
        """Set the size of the answer, or the most it may become."""
        self._answer = size
        self._count()

    def _count(self) -> None:
        over = self._body + self._answer - UNCOUNTED
        counted = over if over > 0 else 0
        if counted != self._counted:
            self._budget.move(counted - self._counted)
            self._counted = counted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self._budget.move(-self._counted)
        self._counted = 0

"""An estimate of the database's clock, and when to ask the line so that its answer arrives in time."""

import time

from ..store.line_feed import LineFeed
from ..system import timers
from ..system.clock import Distance

MARGIN = 700  # microseconds that an answer of the line may take longer than the quickest ones
SLOWER = 1.02  # factor by which the estimate of the quickest answer may grow with each answer


class DatabaseClock:
    """The database's time, and how long the line takes to answer.

    An engine whose clock this process can read needs no estimate. For any other, the line is asked shortly before the next
    job is due, and `wait_until` then delays the claim until the job is due.
    """

    def __init__(self, feed: LineFeed) -> None:
        self._feed = feed
        self._distance = Distance()
        self._quickest_us = 0.0  # the shortest answer of the line lately
        self._next_due: int | None = None  # from the line's last answer

    def now_us(self) -> int:
        known = self._feed.wall_us()
        return known if known is not None else self._distance.there_us(time.monotonic())

    def now(self) -> int:
        """Return the database's time in milliseconds since 1970, as the line takes it."""
        return self.now_us() // 1000

    def answer_us(self) -> int:
        """Return the time at which an answer of the line arrives if it is asked now."""
        return self.now_us() + (int(self._quickest_us) + MARGIN if self._feed.wall_us() is None else 0)

    def due_by(self) -> int:
        """Return the latest due time to ask the line for: now, or that of the next job if it is due before the answer
        arrives."""
        now = self.now()
        return self._next_due if self._next_due is not None and now < self._next_due <= self.answer_us() // 1000 else now

    def learn(self, wall_us: int, asked: float) -> None:
        """Learn from a reading of the database's clock that was taken between `asked`, a monotonic time, and now."""
        self._distance.learn(wall_us, asked, time.monotonic())

    def learn_answer(self, next_due: int | None, asked: float) -> None:
        """Learn from an answer of the line that was asked at a monotonic time and arrived just now."""
        self._quickest_us = min((time.monotonic() - asked) * 1e6, self._quickest_us * SLOWER + 10)
        self._next_due = next_due

    async def wait_until(self, due: int) -> None:
        """Sleep until the database's clock shows this time."""
        early = due * 1000 - self.now_us()
        if early > 0:
            await timers.sleep(early / 1e6)

"""What time it is in the database, as far as that is known here, and until when what the line hands out may be due."""

import time

from .. import alarms
from ..clock import Distance
from ..line_feed import Outbox

HEAD_START = 700  # microseconds that an answer may take longer than the quickest ones
SLOWER = 1.02  # by how much a line may be slower than when it was last asked, before that is believed


class Present:
    """The database's time, and how long the line takes to answer. Where the clock must be asked for, the line is asked
    before the next due time, and what it hands out is waited for."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._distance = Distance()
        self._quickest_us = 0.0  # the shortest time that the line took lately to say who is next
        self._next_due: int | None = None  # as the line said last

    def now_us(self) -> int:
        known = self._outbox.wall_us()
        return known if known is not None else self._distance.there_us(time.monotonic())

    def now(self) -> int:
        return self.now_us() // 1000

    def soon_us(self) -> int:
        """The time at which an answer of the line will be here."""
        return self.now_us() + (int(self._quickest_us) + HEAD_START if self._outbox.wall_us() is None else 0)

    def due_by(self) -> int:
        """Until when what the line hands out may be due: now, or when the next one is if that is before the answer."""
        now = self.now()
        return self._next_due if self._next_due is not None and now < self._next_due <= self.soon_us() // 1000 else now

    def learn(self, wall_us: int, asked: float) -> None:
        """Note what the database's clock said between `asked`, a monotonic time, and now."""
        self._distance.learn(wall_us, asked, time.monotonic())

    def answered(self, next_due: int | None, asked: float) -> None:
        """Note what the line, asked at a monotonic time, said just now."""
        self._quickest_us = min((time.monotonic() - asked) * 1e6, self._quickest_us * SLOWER + 10)
        self._next_due = next_due

    async def reach(self, due_by: int) -> None:
        """Wait until a time that is near."""
        early = due_by * 1000 - self.now_us()
        if early > 0:
            await alarms.sleep(early / 1e6)

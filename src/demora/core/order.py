"""Who goes first: ready time, plus a step for each rank of priority, plus the head start that real-time jobs have."""

from datetime import timedelta

import msgspec

from .job import Lane, Priority
from .spans import span_ms

_STRICT_STEP = 10**15  # milliseconds: longer than any two ready times can be apart


class QueueOrder(msgspec.Struct, frozen=True):
    """The settings of a queue that decide its order."""

    step: timedelta = timedelta(seconds=1000)
    strict: bool = False
    head_start: timedelta = timedelta(seconds=30)

    def offset(self, lane: Lane, rank: Priority) -> int:
        """The milliseconds to add to the ready time of a job; the smallest sum goes first."""
        step = _STRICT_STEP if self.strict else span_ms(self.step)
        return rank * step + (0 if lane == Lane.REALTIME else span_ms(self.head_start))

"""The port for statistics: the outcomes and durations of runs in the last week, in windows of time.

`Store.settle` counts each run that it settles, and a release counts each job that it releases, in the same transaction,
so each of them is counted exactly once. Adding a job counts nothing; the id of a job says when it was added.

Each store writes rows of its own, one for each queue, type and window of 10 s. No two processes share a row, since their
commits would then wait for each other. `merge` adds the rows of all processes up.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from ..core.statistics import Key, Stretch, Tally


class Taking(Protocol):
    """Takes the windows of a stretch of time, one by one: `core.statistics.Series` and `Ranking` do."""

    def begin(self, now: datetime) -> None:
        """All windows until `now` follow. It is called again if the reading has to begin again."""
        ...

    def take(self, key: Key, tally: Tally) -> bool:
        """Take a window, and return whether more are needed."""
        ...


class Merged(msgspec.Struct, frozen=True):
    """The result of a merge. With `more` there is more to do now. With `sample` the caller must count the waiting jobs of
    all queues and pass the counts to the verb `sample`. One call a minute, among those of all processes, is asked to do
    so."""

    more: bool
    sample: bool


class Depth(msgspec.Struct, frozen=True):
    """How many jobs of a queue are ready, and how many are delayed."""

    ready: int
    delayed: int


class Standing(msgspec.Struct, frozen=True):
    """The state at one moment: how many jobs each worker runs, and the due time of the oldest ready job of each queue."""

    now: datetime
    running: dict[str, int]
    due_since: dict[str, datetime]


class StatisticsStore(Protocol):
    """Counts of runs, of added jobs and of waiting jobs."""

    async def read(self, stretch: Stretch, taking: Taking) -> None:
        """Hand the counts of this stretch of time, until now, to `taking`: windows of any width, in any order, several of
        one queue and type. Windows of a queue without a type hold only how many jobs waited. Reads no jobs.

        No more than a piece of the windows is in memory at a time. `taking` may be called on another thread.
        """
        ...

    async def merge(self, *, limit: int) -> Merged:
        """Add up the counts of all processes in windows that are over, widen windows that are old, and delete those that are
        too old; about `limit` rows of each.

        Any number of processes may call it at the same time: one does the work, and the others return. A crash loses nothing
        and counts nothing twice. The next merge adds counts that a process records late, in a window that was merged. A
        window keeps `MOST_PAIRS` pairs of a queue and a type by name; the runs of others count as those of `other`.
        """
        ...

    async def sample(self, depths: Mapping[str, Depth]) -> None:
        """Record how many jobs of each queue wait, in the window of this minute. The largest counts of a window are kept."""
        ...

    async def added(self, starts: Sequence[datetime], width: timedelta) -> list[int]:
        """Return how many jobs were added in the time of this width after each start. The ids say so, of the jobs that still
        exist."""
        ...

    async def standing(self) -> Standing:
        """Return the state now. Limited as a search is: it may read every ready job."""
        ...

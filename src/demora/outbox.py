"""A small port beside the store: what an SQL engine says and does for the sake of a line.

The outbox is every waiting row. `lined_epoch` is null in a row that was written without a line in sight, 0 from each move
into waiting on, and the number of the line once the job's place there is confirmed. As in `Store`, verbs take no time; what
is read from the clock is told, in microseconds, so that whoever asks can estimate the database's time.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol, runtime_checkable

import msgspec

from .line import Arrangement, Entry, Place
from .store import Claimed


class LineRecord(msgspec.Struct, frozen=True):
    """What the database remembers of its line: the name it goes by there, the number, and which run of which servers was
    filled last under it."""

    database: str
    epoch: int
    run: str
    wall_us: int


class Drawn(msgspec.Struct, frozen=True):
    """A claim by ids. Its `next_in` is about lapses alone; `expired` jobs had expired, and others may be ready behind them.
    And the clock as it was read."""

    claimed: Claimed
    expired: int
    wall_us: int


class Standing(msgspec.Struct, frozen=True):
    """Where a job's row says that it stands; `waiting` is False for one that runs or has ended."""

    place: Place
    waiting: bool


Cursor = tuple[str, int, int, int, int]  # queue, lane, rank, due time and number of the last row of a page


class Walked(msgspec.Struct, frozen=True):
    """A page of waiting rows, and where the next one begins; None at the end."""

    places: list[Place]
    next: Cursor | None


@runtime_checkable
class Outbox(Protocol):
    """An engine whose jobs can be lined up elsewhere."""

    def wall_us(self) -> int | None:
        """The database's time, if it is known without asking."""
        ...

    def hear_of_deliveries(self, heard: Callable[[], None]) -> None:
        """Call `heard` on the loop whenever this store has recorded jobs that no caller is told of: before the verb that did
        it answers."""
        ...

    async def begin_lining(self) -> LineRecord:
        """From now on mark every row that this store moves into waiting, and say what is on record about the line."""
        ...

    async def bump(self, expected: int, *, above: int, run: str) -> LineRecord:
        """Begin a new number, greater than `above` too, if `expected` is still the one on record; answers with what is on
        record then. Of several that try at once, one does."""
        ...

    async def draw(self, worker_id: str, entries: Sequence[Entry], *, lease: timedelta) -> Drawn:
        """Lease these jobs as `Store.claim` does, in this order: those that wait in that queue, are due, not paused and not
        expired. Shows what lapsed."""
        ...

    async def standings(self, ids: Sequence[str]) -> list[Standing]:
        """Where the jobs with these ids stand; those that do not exist are left out."""
        ...

    async def unlined(self, within: timedelta, limit: int) -> list[Place]:
        """Waiting jobs due `within` so long from now whose place is not confirmed, the earliest first."""
        ...

    async def walk(self, within: timedelta, limit: int, after: Cursor | None = None) -> Walked:
        """All waiting jobs due `within` so long from now, page by page."""
        ...

    async def confirm(self, places: Sequence[Place], epoch: int) -> list[Place]:
        """Record that these jobs have these places; those that wait elsewhere by now are not confirmed but answered with,
        as they stand. Rows that no longer wait are left alone."""
        ...

    async def arrangements(self) -> list[Arrangement]:
        """How the queues are served that somebody has changed."""
        ...

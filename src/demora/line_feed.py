"""A small port beside the store: what an SQL engine says and does for the sake of a line.

The outbox is every waiting row: it tells when it moved into waiting, in the order of commits, and whoever looks after a line
remembers up to which position all of them were lined up. Nothing is written to confirm it. As in `Store`, verbs take no
time; what is read from the clock is told, in microseconds, so that whoever asks can estimate the database's time.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Protocol, runtime_checkable

import msgspec

from .core.job import Lane, Priority
from .core.order import QueueOrder
from .store import Claimed


class Place(msgspec.Struct, frozen=True):
    """Where a waiting job stands: its queue, lane and rank, and when it is due."""

    id: str
    queue: str
    lane: int
    rank: int
    due_at: int


class Entry(msgspec.Struct, frozen=True):
    """A job that the line handed out, and the queue in which it stood. It is a hint: the row decides."""

    id: str
    queue: str


class Arrangement(msgspec.Struct, frozen=True):
    """How a queue is served: what to add to a due time for each lane and rank, in the order lane × ranks + rank, None for
    what a pace holds; and whether it hands out nothing."""

    queue: str
    offsets: tuple[int | None, ...]
    paused: bool = False


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


Move = tuple[int, int, int]  # which move, the number of the last row of a page, and the last move that is to be told


class Moved(msgspec.Struct, frozen=True):
    """A page of jobs that moved into waiting, where the next one begins, None at the end; and the position that this is as
    of: what is committed later counts as moved since, and the pages that follow end there."""

    places: list[Place]
    position: str
    next: Move | None


@runtime_checkable
class Outbox(Protocol):
    """An engine whose jobs can be lined up elsewhere."""

    def wall_us(self) -> int | None:
        """The database's time, if it is known without asking."""
        ...

    def on_unplaced(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the event loop after a commit that records jobs that no caller puts into the line.

        For the webhook deliveries that this store records with the end of a job, the call precedes the answer of the verb.
        For jobs that a caller adds in a transaction of its own, the call precedes the wake-up of the waiters.
        """
        ...

    async def read_clock(self) -> int:
        """The database's time, asked for."""
        ...

    async def begin_lining(self) -> LineRecord:
        """From now on every row that this store moves into waiting tells so; say what is on record about the line."""
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

    async def position(self) -> str:
        """The position that we are at: whatever is committed later counts as moved since."""
        ...

    async def moved(self, since: str, within: timedelta, limit: int, after: Move | None = None) -> Moved | None:
        """Jobs due `within` so long from now that moved into waiting since a position and wait, page by page: each of them,
        in whatever order their transactions began and were committed. None if this database was never at that position."""
        ...

    async def walk(self, within: timedelta, limit: int, after: Cursor | None = None, *, since: int | None = None) -> Walked:
        """All waiting jobs due `within` so long from now, page by page; those due before `since` are left out."""
        ...

    async def arrangements(self) -> list[Arrangement]:
        """How the queues are served that somebody has changed."""
        ...


def arranged(queue: str, order: QueueOrder, held: Collection[int], *, paused: bool) -> Arrangement:
    """The arrangement of a queue; what its pace governs is in the lanes that are `held`."""
    offsets = tuple(None if lane in held else order.offset(lane, rank) for lane in Lane for rank in Priority)
    return Arrangement(queue, offsets, paused)

"""A small port beside the store: what an SQL engine offers so that a line can be kept in step with its rows.

The outbox is every waiting row. A row records in which transaction it moved into waiting, and the line records the position
up to which it holds all of them; nothing is written to confirm a single job. As in `Store`, verbs take no time. Where a verb
returns the database's clock, it does so in microseconds, so that the caller can estimate the database's time.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Protocol, runtime_checkable

import msgspec

from ..core.job import Lane, Priority, QueueOrder
from .jobs import Claimed


class Place(msgspec.Struct, frozen=True):
    """Where a waiting job stands: its queue, lane and rank, and when it is due, in milliseconds since 1970."""

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
    """How a queue is served: what to add to a due time for each lane and rank, in the order lane × ranks + rank, None for a
    lane that a pace holds; and whether the queue is paused."""

    queue: str
    offsets: tuple[int | None, ...]
    paused: bool = False


class LineRecord(msgspec.Struct, frozen=True):
    """What the database records about its line: the database's name in the line's keys, the epoch, and the run ids of the
    servers that were last filled under that epoch. `wall_us` is the database's clock."""

    database: str
    epoch: int
    run: str
    wall_us: int


class Drawn(msgspec.Struct, frozen=True):
    """The answer to a claim by ids. `claimed.next_in` counts lapses alone. `expired` is how many of the jobs had expired, so
    that others may be ready behind them. `wall_us` is the database's clock."""

    claimed: Claimed
    expired: int
    wall_us: int


class Standing(msgspec.Struct, frozen=True):
    """The place that a job's row gives it; `waiting` is False for a job that runs or has ended."""

    place: Place
    waiting: bool


Cursor = tuple[str, int, int, int, int]  # queue, lane, rank, due time and number of the last row of a page


class Walked(msgspec.Struct, frozen=True):
    """A page of waiting rows, and where the next page begins; None at the end."""

    places: list[Place]
    next: Cursor | None


Move = tuple[int, int, int]  # the last move of a page, the number of its row, and the move that the last page ends with


class Moved(msgspec.Struct, frozen=True):
    """A page of jobs that moved into waiting, and where the next page begins; None at the end. `position` is that of the
    database when it read this page: a later commit counts as moved since. The pages that follow end there too."""

    places: list[Place]
    position: str
    next: Move | None


@runtime_checkable
class LineFeed(Protocol):
    """An engine whose waiting jobs can be put into a line."""

    def wall_us(self) -> int | None:
        """Return the database's time if this process can read it without a query, else None."""
        ...

    def on_unplaced(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the event loop after a commit that records jobs that no caller puts into the line.

        For the webhook deliveries that this store records with the end of a job, the call precedes the answer of the verb.
        For jobs that a caller adds in a transaction of its own, the call precedes the wake-up of the waiters.
        """
        ...

    async def read_clock(self) -> int:
        """Query the database's time."""
        ...

    async def begin_lining(self) -> LineRecord:
        """Return what is on record about the line. From now on every row that this store moves into waiting records its
        transaction."""
        ...

    async def bump(self, expected: int, *, above: int, run: str) -> LineRecord:
        """Record a new epoch, greater than `above` too, if `expected` is still the one on record; return the record. Of
        several processes that try at once, one succeeds."""
        ...

    async def draw(self, worker_id: str, entries: Sequence[Entry], *, lease: timedelta) -> Drawn:
        """Lease these jobs as `Store.claim` does, in this order, and show lapsed leases. A job is leased only if it waits in
        the queue of its entry, is due, has not expired, and neither a pause nor a pace holds it."""
        ...

    async def standings(self, ids: Sequence[str]) -> list[Standing]:
        """Return the places of the jobs with these ids; jobs that do not exist are omitted."""
        ...

    async def position(self) -> str:
        """Return the current position: every later commit counts as moved since."""
        ...

    async def moved(self, since: str, within: timedelta, limit: int, after: Move | None = None) -> Moved | None:
        """Return, page by page, the jobs that moved into waiting since a position, still wait and are due `within` this
        span. No job is skipped, in whatever order their transactions began and committed. None if this database was never at
        that position."""
        ...

    async def walk(self, within: timedelta, limit: int, after: Cursor | None = None, *, since: int | None = None) -> Walked:
        """Return, page by page, all waiting jobs that are due `within` this span; with `since`, only those due from then on,
        in milliseconds since 1970."""
        ...

    async def arrangements(self) -> list[Arrangement]:
        """Return the arrangement of each queue whose settings were ever changed."""
        ...


def arranged(queue: str, order: QueueOrder, held: Collection[int], *, paused: bool) -> Arrangement:
    """Return the arrangement of a queue whose pace holds the lanes in `held`."""
    offsets = tuple(None if lane in held else order.offset(lane, rank) for lane in Lane for rank in Priority)
    return Arrangement(queue, offsets, paused)

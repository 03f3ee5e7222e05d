"""The port that an SQL engine offers so that a line can follow its rows.

All waiting rows together are the outbox. Each row records the transaction that moved it into waiting, and the line records
the position up to which it holds all rows. So no job needs a write that confirms it. As in `Store`, verbs take no current
time. Where a verb returns the database's clock, it is in microseconds, so that the caller can estimate the database's time.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Protocol

import msgspec

from ..core.job import Lane, Priority, QueueOrder
from .jobs import Claimed, ClaimRequest


class Place(msgspec.Struct, frozen=True):
    """The place of a waiting job: its queue, lane and rank, and its due time in milliseconds since 1970."""

    id: str
    queue: str
    lane: int
    rank: int
    due_at: int


class Entry(msgspec.Struct, frozen=True):
    """A job that the line handed out, and its queue in the line. It is only a hint: the row of the job decides."""

    id: str
    queue: str


class Arrangement(msgspec.Struct, frozen=True):
    """How a queue is served, and whether it is paused. The queue `*` stands for all that have no arrangement of their own.

    `offsets` are added to due times to order jobs, one for each lane and rank, at index lane × ranks + rank. None marks a
    lane that a pace holds.
    """

    queue: str
    offsets: tuple[int | None, ...]
    paused: bool = False


class LineRecord(msgspec.Struct, frozen=True):
    """The database's record about its line.

    `database` is the name of the database in the line's keys, `epoch` the current epoch, and `run` the run ids of the
    servers that were last filled under it. `wall_us` is the database's clock.
    """

    database: str
    epoch: int
    run: str
    wall_us: int


class ClaimedByIds(msgspec.Struct, frozen=True):
    """The result of a claim by ids.

    `claimed.next_in` takes only lapses into account. `expired` is the number of these jobs that had expired; other jobs may
    be ready behind them. `wall_us` is the database's clock. `parked_in` is the time until a parked job of the types and
    queues of the claim is due, zero if one may be ready, None if there is none. The line does not know parked jobs.
    """

    claimed: Claimed
    expired: int
    wall_us: int
    parked_in: timedelta | None = None


class RowPlace(msgspec.Struct, frozen=True):
    """The place of a job according to its row. `waiting` is False for a job that is parked, runs or has ended."""

    place: Place
    waiting: bool


Cursor = tuple[str, int, int, int, int]  # queue, lane, rank, due time and number of the last row of a page


class Walked(msgspec.Struct, frozen=True):
    """A page of waiting rows. `next` is the `after` of the following page, None on the last page."""

    places: list[Place]
    next: Cursor | None


Move = tuple[int, int, int]  # the last move of a page, the number of its row, and the move that the last page ends with


class Moved(msgspec.Struct, frozen=True):
    """A page of jobs that moved into waiting. `next` is the `after` of the following page, None on the last page.

    `position` is the position of the database when it read this page: later commits count as moved since then. The
    following pages end there too.
    """

    places: list[Place]
    position: str
    next: Move | None


class LineFeed(Protocol):
    """The waiting jobs of an engine, for a line that holds them too."""

    def wall_us(self) -> int | None:
        """Return the database's time if this process can read it without a query, else None."""
        ...

    def on_unplaced(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the event loop after a commit that records jobs that no caller puts into the line.

        For the webhook deliveries that this store records with the end of a job, the call precedes the answer of the verb.
        For jobs of schedules, and for those that a caller adds in a transaction of its own, the call precedes the wake-up of
        the waiters.
        """
        ...

    async def read_clock(self) -> int:
        """Query the database's time."""
        ...

    async def begin(self) -> LineRecord:
        """Return the record about the line. From now on each row that this store moves into waiting records its move, and
        this store parks no new job."""
        ...

    async def bump(self, expected: int, *, above: int, run: str) -> LineRecord:
        """Start a new epoch, greater than `above`, if `expected` is still the current one, and return the record.

        Of concurrent calls with the same `expected`, one succeeds.
        """
        ...

    async def claim_by_ids(self, request: ClaimRequest, entries: Sequence[Entry]) -> ClaimedByIds:
        """Lease these jobs as `Store.claim` does, in this order, and return lapsed leases as well.

        A job is leased only if it waits in the queue of its entry, is due, has not expired, is held by neither a pause nor a
        pace, and is of a type of the request. Jobs of other types are parked. The entries stand in place of the `limit` and
        the order of the request.
        """
        ...

    async def row_places(self, ids: Sequence[str]) -> list[RowPlace]:
        """Return the places of the jobs with these ids. Jobs that do not exist are omitted."""
        ...

    async def position(self) -> str:
        """Return the current position: every later commit counts as moved since."""
        ...

    async def moved(self, since: str, within: timedelta, limit: int, after: Move | None = None) -> Moved | None:
        """Return a page of the jobs that moved into waiting since a position, still wait, are not parked, and are due
        `within` this span.

        No job is skipped, in whatever order the transactions began and committed. None if this database was never at that
        position.
        """
        ...

    async def walk(self, within: timedelta, limit: int, after: Cursor | None = None, *, since: int | None = None) -> Walked:
        """Return a page of the waiting jobs that are not parked and are due `within` this span.

        With `since`, in milliseconds since 1970, only those that are due from then on.
        """
        ...

    async def arrangements(self) -> list[Arrangement]:
        """Return the arrangement of each queue whose settings were ever changed, and under `*` that of all others, if these
        ever had a pace."""
        ...


def arranged(queue: str, order: QueueOrder, held: Collection[int], *, paused: bool) -> Arrangement:
    """Return the arrangement of a queue whose pace holds the lanes in `held`."""
    offsets = tuple(None if lane in held else order.offset(lane, rank) for lane in Lane for rank in Priority)
    return Arrangement(queue, offsets, paused)

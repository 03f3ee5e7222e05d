"""The port for events: which jobs were settled since a position, which are new, which run, and which queues were paused or
paced.

Once there was a listener, a settlement records its transaction in the row of the job. Everything else follows
from columns that the rows have anyway, so events cost a database nothing before its first listener.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from ..core.events import Event, EventJob

SettledCursor = tuple[int, int, str]  # the last settlement of a page, the number of its row, and where the last page ends


class SettledJobs(msgspec.Struct, frozen=True):
    """A page of settled jobs. `next` is the `after` of the following page, None on the last page.

    `position` is the position of the database when it read the first page: later commits count as settled since then.
    """

    jobs: list[EventJob]
    position: str
    next: SettledCursor | None


class NewJobs(msgspec.Struct, frozen=True):
    """Jobs that were added since a mark, and the mark after them."""

    jobs: list[EventJob]
    mark: str


class RunningJobs(msgspec.Struct, frozen=True):
    """Running jobs, and the database's time when they were read."""

    jobs: list[EventJob]
    read_at: datetime


class QueueSigns(msgspec.Struct, frozen=True):
    """The signs of the queues at one moment, `read_at` on the database's clock. `paused` has the event of the pause of each
    paused queue, `paces` the changes of paces after the number that was asked for, and `last_change` is the number of the
    last one."""

    paused: Mapping[str, Event]
    paces: Sequence[Event]
    last_change: int
    read_at: datetime


class EventStore(Protocol):
    """The jobs and queues that events are about. A position is a commit position of the database, as text."""

    async def begin(self) -> None:
        """Have settlements of all processes record their transactions, from the next ones on, for as long as the database
        exists. Beginning again changes nothing."""
        ...

    async def position(self) -> str:
        """Return the current position: every later commit counts as settled since. Call `begin` before."""
        ...

    async def settled(self, since: str, limit: int, after: SettledCursor | None = None) -> SettledJobs | None:
        """Return a page of the jobs that ended or failed an attempt since a position, as they are now.

        A job that ended since the position is not skipped, in whatever order the transactions began and committed, unless
        it was deleted or runs again. A job that was claimed again, and not settled since, is omitted. A page may repeat a
        job of an earlier read. None if this database was never at that position.
        """
        ...

    async def added(self, since: str | None, limit: int) -> NewJobs:
        """Return up to `limit` jobs that were added since a mark, in order; without a mark none, but the mark of now.

        A job of a transaction that takes long is returned when that commits. A job may be returned by two calls in a row.
        """
        ...

    async def running(self, limit: int) -> RunningJobs:
        """Return up to `limit` running jobs."""
        ...

    async def queue_signs(self, since: int | None) -> QueueSigns:
        """Return which queues are paused, and the changes of paces after the change of this number; None: no changes."""
        ...

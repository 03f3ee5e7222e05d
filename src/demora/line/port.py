"""The port of the line: which job is next, and when.

A line holds ids, times and order, and nothing that the database does not have. If it is emptied, restarted or restored from
an old copy, the maintainer fills it again from the rows. Times are milliseconds since 1970 by the database's clock. A line
reads no clock: the caller passes an estimate of the database's time. Every verb can be repeated.

A verb raises `LineAway` within seconds if the line cannot be used, and `LineLost` if the server answers but no longer holds
what was put there. After either error the verb may or may not have taken effect; no caller depends on which.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Protocol

import msgspec

from ..core.pace import Governs
from ..errors import DemoraError
from ..store.line_feed import Arrangement, Entry, Place


class LineAway(DemoraError):
    """The line cannot be used at the moment."""


class LineLost(LineAway):
    """The server answers, but what the line held is gone, in whole or in part."""


class PutMode(Enum):
    """What the caller of `put` knows about the jobs."""

    MOVED = "moved"  # they may stand elsewhere in their queue, or be handed out: put removes them from there
    FRESH = "fresh"  # they are new: if another process has placed one in this lane meanwhile, that place stays
    MISSING = "missing"  # they may be there already: put skips those in their place and those that are handed out
    RETURNED = "returned"  # they were handed out and a transaction holds their rows: as MOVED, but put wakes no waiter


class LineState(msgspec.Struct, frozen=True):
    """What the line says about itself.

    `epoch` is None if the line was never begun. `filled` says whether it was filled in this epoch. It then holds every job
    that is due before `until`, of those that moved into waiting up to `position`. `paced` says whether any queue has a pace.
    """

    epoch: int | None = None
    filled: bool = False
    until: int = 0
    position: str = ""
    paced: bool = False


class HandedOut(msgspec.Struct, frozen=True):
    """The jobs that the line handed out, in order, and when the next job is due that it did not hand out yet."""

    entries: list[Entry]
    next_due: int | None
    state: LineState


class Placed(msgspec.Struct, frozen=True):
    """The result of a put: how many jobs were not in their place before, and whether waiters were woken."""

    moved: int = 0
    woken: bool = False


# Wakes the waiters of a process. The argument says whether delayed jobs, which a pace may hold, may have moved.
WakeWaiters = Callable[[bool], None]


class Line(Protocol):
    """The verbs. All of them work under `epoch`; only `begin` touches the keys of another epoch."""

    epoch: int

    async def connect(self, database: str) -> str:
        """Connect to the line of a database, and return the run ids of its servers. If the answer differs from the last one,
        the line may have lost what it held. `BadSetting` if this server can never be used."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...

    async def state(self) -> LineState:
        """Return what the line says about itself. `LineAway` if its notifications no longer arrive."""
        ...

    async def begin(self, epoch: int) -> None:
        """Work under this epoch from now on, and delete the keys of lower epochs. A new epoch begins with an empty line."""
        ...

    async def checkpoint(self, until: int, position: str, *, filled: bool = False) -> None:
        """Record that the line holds every job due before `until`, of those that moved into waiting up to `position`; with
        `filled`, that this completes filling it. `LineLost` if the line is in another epoch."""
        ...

    async def put(self, places: Sequence[Place], *, now: int, mode: PutMode = PutMode.MOVED) -> Placed:
        """Give jobs their places; except under `FRESH`, a job keeps no other place in its queue. Wakes waiters if a job that
        moved is ready or the new head of its lane, except under `RETURNED`."""
        ...

    async def take(
        self, queues: Sequence[str] | None, limit: int, *, now: int, stale: int, in_turn: bool = False
    ) -> HandedOut:
        """Hand out up to `limit` jobs that are due, in the order of a claim. Jobs that were handed out before `stale` and
        are not `done` come first: the process that took them has probably died."""
        ...

    async def done(self, entries: Sequence[Entry]) -> None:
        """Forget jobs that were handed out and whose rows have moved on. The line may delay this until its next verb; a call
        without entries completes what was delayed."""
        ...

    async def remove(self, entries: Sequence[Entry]) -> None:
        """Remove jobs from every place in their queue."""
        ...

    async def arrange(self, arrangements: Sequence[Arrangement]) -> None:
        """Serve these queues so from now on, and wake waiters if that is a change. The arrangements are those of all queues
        whose settings were ever changed, and under `*` that of all others. A client may serve those others in the old way
        until it next reads the state."""
        ...

    async def maintain(self, process: str, span: int) -> bool:
        """Return whether this process maintains the line for the next `span` milliseconds. It does if it does so already, or
        if no other process does. Two maintainers at once do no harm."""
        ...

    async def places(self) -> tuple[list[Place], list[Entry]]:
        """Return all jobs that stand in the line, and all that were handed out and are not `done`."""
        ...

    async def listen(self, wake: WakeWaiters) -> None:
        """Call `wake` whenever another client notifies waiters. Returns once the subscription is in place; it ends with
        `close`."""
        ...


_DELAYED = frozenset(Governs.BOTH.lanes)


def are_delayed(places: Iterable[Place]) -> bool:
    """Return whether a pace may hold any of these jobs."""
    return not _DELAYED.isdisjoint({place.lane for place in places})


def by_queue(entries: Sequence[Place] | Sequence[Entry]) -> Mapping[str, list[str]]:
    """Group ids by queue."""
    grouped: dict[str, list[str]] = {}
    for entry in entries:
        grouped.setdefault(entry.queue, []).append(entry.id)
    return grouped

"""The port of the line: who is next and when. It holds ids, times and order, and nothing that cannot be lost.

The rows of the database are the truth; a line that is emptied, restarted or restored from an old copy is filled again from
them. Times are milliseconds since 1970 by the database's clock, of which every verb is given an estimate: a line never reads
a clock of its own. Every verb can be repeated. A line that cannot be used raises `LineAway` within seconds, and `LineLost`
if it answers but is not the one that was filled; what a verb did until then, nobody knows and nobody need know.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Protocol

import msgspec

from ..core.pace import Governs
from ..errors import DemoraError
from ..line_feed import Arrangement, Entry, Place


class LineAway(DemoraError):
    """The line cannot be used at the moment."""


class LineLost(LineAway):
    """The line answers, but what it held is gone, in whole or in part."""


class Putting(Enum):
    """What is known of jobs that are put."""

    MOVED = "moved"  # they may stand elsewhere, or be handed out, and do so no longer
    FRESH = "fresh"  # they are new and stand nowhere
    MISSING = "missing"  # they are put if they are missing: what stands there, or is handed out, is left alone
    BACK = "back"  # they were handed out, are due and could not be had; nobody is woken, since whoever tried comes again


class LineState(msgspec.Struct, frozen=True):
    """What the line says of itself: the number under which it was begun, None if it never was; whether it was filled since;
    until when every job that is due was put into it, of all that moved into waiting up to a position of the database; and
    whether some queue has a pace."""

    epoch: int | None = None
    filled: bool = False
    until: int = 0
    position: str = ""
    paced: bool = False


class Taken(msgspec.Struct, frozen=True):
    """What was handed out, in order, and when the next job is due that was not yet."""

    entries: list[Entry]
    next_due: int | None
    state: LineState


Heard = Callable[[bool], None]  # told whether it may be about delayed jobs, which a pace may hold


class Line(Protocol):
    """The verbs. `epoch` is the number that all of them work under; a line of another number they do not touch."""

    epoch: int

    async def connect(self, database: str) -> str:
        """Connect to the line of a database, and say which run of which servers it is: another answer means that what
        was there may be gone. `BadSetting` if this server can never be used."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...

    async def state(self) -> LineState:
        """What the line says of itself."""
        ...

    async def begin(self, epoch: int) -> None:
        """Work under a new number from now on, with an empty line; what stood under lower numbers is forgotten."""
        ...

    async def note(self, until: int, position: str, *, filled: bool = False) -> None:
        """Record until when all that is due was put into the line, of what had moved up to a position, and that by this it
        was filled. `LineLost` if the line has another number."""
        ...

    async def put(self, places: Sequence[Place], *, now: int, how: Putting = Putting.MOVED) -> bool:
        """Give jobs their places, and take them from any other in their queue; say whether sleepers were woken, which they
        are for what is ready or the new head of its lane, unless it only comes back."""
        ...

    async def take(self, queues: Sequence[str] | None, limit: int, *, now: int, stale: int, in_turn: bool = False) -> Taken:
        """Hand out the first jobs that are due, in order, and before them those that were handed out before `stale` and of
        which nobody said that they are `done`: whoever took them has died. In `now`, `limit` and order it is as a claim."""
        ...

    async def done(self, entries: Sequence[Entry]) -> None:
        """Forget what was handed out: its row has moved on. May be done late, with the next verb; with no entries, all that
        is left to do is done."""
        ...

    async def remove(self, entries: Sequence[Entry]) -> None:
        """Take jobs out of wherever they stand in their queue."""
        ...

    async def arrange(self, arrangements: Sequence[Arrangement]) -> None:
        """Serve queues so from now on, and wake sleepers. They are all that somebody has changed."""
        ...

    async def tend(self, who: str, span: int) -> bool:
        """Whether `who` is the one that looks after the line for the next milliseconds. Two at once do no harm."""
        ...

    async def places(self) -> tuple[list[Place], list[Entry]]:
        """All that stands in the line, and all that was handed out and is not done."""
        ...

    async def listen(self, heard: Heard) -> None:
        """Call `heard` whenever somebody else wakes sleepers; returns once that is certain, and ends with `close`."""
        ...


_DELAYED = frozenset(Governs.BOTH.lanes)


def are_delayed(places: Iterable[Place]) -> bool:
    """Whether there are jobs among these that a pace may hold."""
    return not _DELAYED.isdisjoint({place.lane for place in places})


def by_queue(entries: Sequence[Place] | Sequence[Entry]) -> Mapping[str, list[str]]:
    """Ids by the queue they stand in."""
    grouped: dict[str, list[str]] = {}
    for entry in entries:
        grouped.setdefault(entry.queue, []).append(entry.id)
    return grouped

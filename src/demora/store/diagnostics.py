"""The third, small port: how a database is doing, for those who look after it, and the values that say so.

Running jobs needs none of it, so it stays out of `Store`. What is particular to an engine, a file or a server, it tells as
findings, so that nobody else needs to know which engine it is.
"""

from datetime import datetime, timedelta
from typing import Literal, Protocol, runtime_checkable

import msgspec

from .jobs import Queue
from .occupancy import Running

Level = Literal["ok", "warning", "problem"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at: how it is, in one line, and in another what to do about it if it is not well."""

    check: str
    level: Level
    fact: str
    advice: str | None = None


class Examination(msgspec.Struct, frozen=True):
    """What was found without opening the store. `usable` says that it can be opened and nothing is migrated by that."""

    findings: list[Finding]
    usable: bool


class Waiting(msgspec.Struct, frozen=True):
    """The waiting jobs of one queue and type; `oldest_due_at` is when the first of them is or was due."""

    queue: str
    type: str
    ready: int
    delayed: int
    oldest_due_at: datetime


class JobsOverview(msgspec.Struct, frozen=True):
    """How the jobs stand, all from one moment of the database's clock.

    `lapsed` leases nobody has settled yet, the first of them for `lapsed_for`. `ahead` jobs were added later than now, by up
    to `ahead_by`, which a clock that was set back explains; `ahead_waiting` of them wait. `running` are the jobs whose
    leases hold, by worker and type.
    """

    now: datetime
    waiting: list[Waiting] = []
    lapsed: int = 0
    lapsed_for: timedelta = timedelta(0)
    ahead: int = 0
    ahead_waiting: int = 0
    ahead_by: timedelta = timedelta(0)
    running: list[Running] = []


class Activity(msgspec.Struct, frozen=True):
    """What a watcher needs again and again: `added` counts by queue the jobs since the mark of an earlier activity,
    `running` by worker what it runs, and `due_since` says by queue when its oldest ready job was due."""

    now: datetime
    mark: int
    queues: list[Queue]
    added: dict[str, int] = {}
    running: dict[str, int] = {}
    due_since: dict[str, datetime] = {}


@runtime_checkable
class DiagnosticsStore(Protocol):
    """An engine that can say how it is doing. Writes nothing."""

    async def overview(self) -> JobsOverview:
        """How the jobs stand; reads all of them."""
        ...

    async def activity(self, mark: int | None = None) -> Activity:
        """How the queues and workers stand, cheap enough for every second; without a mark nothing counts as added."""
        ...

    def notes(self) -> tuple[str, ...]:
        """What works in another way than usual here, a sentence each: no fault, but good to know. Asks nobody."""
        ...


@runtime_checkable
class Probed(Protocol):
    """An engine that can say whether it takes writes now."""

    async def probe(self) -> None:
        """Write something that means nothing. `StoreError` if that is refused, `StoreBusy` also if it does not come back
        within seconds. Calls within a second share one write."""
        ...

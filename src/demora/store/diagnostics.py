"""The port for diagnostics: the state of the jobs and of the database, for operators.

It is separate from `Store` because running jobs does not need it. An engine reports what is specific to its file or server
as findings, so that the caller does not need to know which engine it is.
"""

from datetime import datetime, timedelta
from typing import Literal, Protocol, runtime_checkable

import msgspec

from ..core.workers import Running
from .jobs import Queue

Level = Literal["ok", "warning", "problem"]


class MissingWorker(msgspec.Struct, frozen=True):
    """A worker that would mend a finding: one that serves a queue and knows a type, where they are named."""

    queue: str | None = None
    type: str | None = None


class Finding(msgspec.Struct, frozen=True):
    """The result of one check: the fact in one line, and in another line what to do unless the level is `ok`.

    For programs it also names the worker that is missing, or the queue that is paused.
    """

    check: str
    level: Level
    fact: str
    advice: str | None = None
    missing: MissingWorker | None = None
    paused: str | None = None


class Examination(msgspec.Struct, frozen=True):
    """The findings about a database that is not open. `usable` is True if opening it needs no migration."""

    findings: list[Finding]
    usable: bool


class Waiting(msgspec.Struct, frozen=True):
    """The waiting jobs of one queue and type. `oldest_due_at` is the earliest of their due times."""

    queue: str
    type: str
    ready: int
    delayed: int
    oldest_due_at: datetime


class JobsOverview(msgspec.Struct, frozen=True):
    """The state of all jobs at one moment.

    `lapsed` is the number of lapsed leases that are not settled yet, and `lapsed_for` the age of the oldest of these lapses.
    `ahead` jobs have a creation time after `now`, by up to `ahead_by`, because the clock was set back; `ahead_waiting` of
    them wait. `running` are the jobs whose leases hold, by worker and type.
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
    """The state of queues and workers for a display that refreshes every second.

    `added` counts the jobs of each queue since the mark of an earlier activity, `running` the jobs of each worker, and
    `due_since` is the due time of the oldest ready job of each queue.
    """

    now: datetime
    mark: int
    queues: list[Queue]
    added: dict[str, int] = {}
    running: dict[str, int] = {}
    due_since: dict[str, datetime] = {}


class DeadLetterGroup(msgspec.Struct, frozen=True):
    """The dead letters of one queue, type, error class and band of ages: their number, the first and the last failure, and
    the id of the newest of them. The error class is that of `JobFilter.error`, and empty if the job has no error."""

    queue: str
    type: str
    error: str
    band: int  # the number of spans in `AGES` that have passed since the failure
    jobs: int
    first_at: datetime
    last_at: datetime
    sample_id: str


class Size(msgspec.Struct, frozen=True):
    """How many bytes a part of the database takes."""

    name: str
    bytes: int


AGES = (timedelta(hours=1), timedelta(days=1), timedelta(days=7))


class DiagnosticsStore(Protocol):
    """The state of the store. These verbs write nothing."""

    async def overview(self, *, ended: bool = True) -> JobsOverview:
        """Return the state of all jobs, read in one transaction. Reads every job; without `ended` only those that wait or
        run, so that `ahead` counts waiting jobs alone."""
        ...

    async def activity(self, mark: int | None = None) -> Activity:
        """Return the state of queues and workers. Cheap enough for every second. Without a mark no job counts as added."""
        ...

    async def dead_letters(self, limit: int, *, within: timedelta | None = None) -> list[DeadLetterGroup]:
        """Return the newest `limit` dead letters in groups. Limited as a search is."""
        ...

    async def coming(self, until: timedelta, steps: int, *, within: timedelta | None = None) -> list[int]:
        """Return how many waiting jobs come due in each of `steps` equal parts of the time from now until then. Limited as a
        search is, and to the first million of them."""
        ...

    async def sizes(self) -> list[Size]:
        """Return how many bytes the parts of the database take, the largest first. Reads no jobs."""
        ...

    def notes(self) -> tuple[str, ...]:
        """Return the deviations from the usual way of working that are no faults, a sentence each. Does no I/O."""
        ...


@runtime_checkable
class Probed(Protocol):
    """The diagnostics of an engine whose writes can block: they can test whether it accepts writes now."""

    async def probe(self) -> None:
        """Make a write without effect. Calls within a second share one write.

        `StoreError` if the database refuses it, `StoreBusy` if it does not return within seconds.
        """
        ...

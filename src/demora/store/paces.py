"""The port for the pace of queues, and for why a job waits.

A claim releases what a pace allows; the verb `release` is for times when no worker claims. A release moves jobs to
the lane of released jobs and writes the new state of the pace in one transaction, under the lock of that pace. So no release
time is used twice, whichever processes try at once and whenever one of them dies.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from ..core.job import Job
from ..core.pace import (
    USUAL_PACE,
    DelayedStats,
    Pace,
    PaceRequest,
    PaceState,
    Rate,
    Release,
    delayed_stats,
    next_release,
)
from ..core.spans import from_ms, to_ms
from ..core.workers import Running, WorkerRecord
from .jobs import Pause

BY_SETTINGS = "settings"
HOUR = timedelta(hours=1)
RECENT = timedelta(seconds=60)  # how far back an outlook counts completed jobs


class Released(msgspec.Struct, frozen=True):
    """The result of a release.

    `next_in` is the time until a pace may allow the next one, None if nothing is foreseeable. `paced` is whether any of the
    queues has a pace.
    """

    jobs: list[Release]
    next_in: timedelta | None
    paced: bool


class Pacing(msgspec.Struct, frozen=True):
    """The pace of a queue and its state at one moment.

    `held` jobs are due and not released, `coming` jobs are due later, and `soon` of all these are due within the hour. The
    first of them is due at `first_due_at`. `quiet` is True if no real-time job waits in the queues that the pace protects.
    `inherited` is True if the queue has no pace of its own and follows that of `*`.
    """

    queue: str
    pace: Pace
    state: PaceState
    set_at: datetime
    set_by: str
    now: datetime
    held: int = 0
    coming: int = 0
    soon: int = 0
    first_due_at: datetime | None = None
    quiet: bool = True
    inherited: bool = False

    @property
    def rate(self) -> Rate:
        """The rate in force."""
        return self.pace.rate(quiet=self.quiet)

    @property
    def next_release_at(self) -> datetime | None:
        """When the pace releases the next job; None if no job waits for it."""
        if self.first_due_at is None:
            return None
        return from_ms(next_release(self.rate, self.state, to_ms(self.now), to_ms(self.first_due_at)))

    @property
    def stats(self) -> DelayedStats:
        """The figures of its delayed jobs."""
        first_due = None if self.first_due_at is None else to_ms(self.first_due_at)
        return delayed_stats(
            self.rate, self.state, to_ms(self.now), first_due, held=self.held, coming=self.coming, soon=self.soon
        )


class PaceChange(msgspec.Struct, frozen=True):
    """A change of a queue's pace: who made it, when, and the new pace; None if it was removed, or if the queue `follows`
    that of `*` since then."""

    queue: str
    at: datetime
    by: str
    pace: Pace | None
    follows: bool = False

    @property
    def is_off(self) -> bool:
        """Whether the queue has no pace since then, and does not follow that of `*` either."""
        return self.pace is None and not self.follows


class Outlook(msgspec.Struct, frozen=True):
    """A job and everything that decides when it runs, at one moment.

    `ahead` counts the jobs of its queue that go before it: ready jobs if it is ready, held jobs if it is held. Counting
    stops at `most_ahead`, if that is set. `recent` is the number of jobs of its queue that were completed within the last
    `RECENT`. If the job is ready or held, `running` are the jobs that workers run, by worker and type.
    """

    job: Job
    now: datetime
    ahead: int = 0
    recent: int = 0
    pause: Pause | None = None
    pacing: Pacing | None = None
    workers: list[WorkerRecord] = []
    running: list[Running] = []
    most_ahead: int | None = None

    @property
    def more_ahead(self) -> bool:
        """Whether more jobs may go before it than `ahead` says."""
        return self.most_ahead is not None and self.ahead >= self.most_ahead

    @property
    def held(self) -> bool:
        """Whether the job is due and the pace of its queue has not released it."""
        waits = self.job.status.waiting and self.job.due_at <= self.now
        return waits and self.pacing is not None and self.job.lane in self.pacing.pace.governs.lanes


class PaceStore(Protocol):
    """The paces of queues, which release delayed jobs."""

    async def set(
        self, queue: str, request: PaceRequest | None, *, by: str, usual: Pace = USUAL_PACE, setting: str | None = None
    ) -> Pacing | None:
        """Change the pace of a queue, or create the queue, and return the new state; None as a request removes the pace.

        The queue `*` stands for all queues without a pace of their own, also for those that get their first job later. A
        queue whose pace was removed, even if it had none, is not among them, and neither are demora's own queues. Values
        that the request leaves out stay as they are in the pace that the queue keeps to; if it has none, they come from the
        `usual` one. The next claim of every process follows the change. It is recorded, and waiters on `PACE` are woken.
        `setting` is the text of a request from settings or code. If it equals the last such text, nothing happens, so a
        change that was made at run time since then stays.
        """
        ...

    async def follow(self, queue: str, *, by: str) -> bool:
        """Have a queue follow the pace of `*` again, and return whether it did not before.

        Its own pace is removed, or it is no longer left out. The time of its next release stays. The next claim of every
        process follows the change. It is recorded, and waiters on `PACE` are woken.
        """
        ...

    async def release(self, queues: Sequence[str] | None = None, *, wake: bool = True) -> Released:
        """Release the jobs that the paces of these queues (None: of all) allow now.

        One transaction per queue moves the jobs and writes the state of the pace. Of concurrent calls, one releases a job. A
        paused queue releases nothing. Wakes waiters on `READY`; pass `wake=False` if the caller claims the jobs itself.
        """
        ...

    async def all(self) -> list[Pacing]:
        """Return the state of `*`, if it has a pace, and of every queue that has a pace, by name. Of the queues that follow
        `*`, only those are returned that have delayed jobs or have released some."""
        ...

    async def of(self, queue: str) -> Pacing | None:
        """Return the state of the pace that a queue keeps to; None if it has none."""
        ...

    async def changes(self, queue: str, *, limit: int) -> list[PaceChange]:
        """Return the last changes of a queue's pace, newest first."""
        ...

    async def outlook(self, id: str) -> Outlook | None:
        """Return a job and what decides when it runs; None if no job has this id."""
        ...

    async def outlooks(self, ids: Sequence[str], *, most_ahead: int) -> list[Outlook]:
        """Return the outlooks of several jobs, in the order of the ids and as of one moment, for a list of jobs.

        Ids that no job has are left out. The jobs come without payload, result and log. `ahead` counts at most `most_ahead`
        jobs, so a long queue does not make a list slow.
        """
        ...

"""The fourth, small port: the pace of queues, and why a job waits.

A claim lets go what the pace of a queue allows, so that running jobs needs none of this; it stays out of `Store`, and an
engine is both. What is let go is moved to the lane of released jobs, together with the state of the pace, under the lock of
the queue's pace: in one transaction, so that no slot is used twice, whoever looks and whatever dies.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

import msgspec

from ..core.job import Job
from ..core.pace import USUAL_PACE, Pace, PaceState, Release
from ..core.pace_request import PaceRequest
from .jobs import Pause, WorkerRecord
from .occupancy import Running

BY_SETTINGS = "settings"
HOUR = timedelta(hours=1)
RECENT = timedelta(seconds=60)  # how far back an outlook counts what ended


class Released(msgspec.Struct, frozen=True):
    """What was let go. `next_in` is how long until there may be something to let go again, None if nothing is in sight;
    `paced` says whether there is a pace at all."""

    jobs: list[Release]
    next_in: timedelta | None
    paced: bool


class Pacing(msgspec.Struct, frozen=True):
    """A queue's pace and how it stands at one moment.

    `held` jobs are due and not let go, `coming` are due later, `soon` of all these within the hour; the first of them is due
    at `first_due_at`. `quiet` says that no real-time job waits in the queues that it protects.
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


class PaceChange(msgspec.Struct, frozen=True):
    """A change of a queue's pace: who made it, when, and what it was then; None if it was taken off."""

    queue: str
    at: datetime
    by: str
    pace: Pace | None


class Outlook(msgspec.Struct, frozen=True):
    """A job and all that decides when it runs, from one moment.

    `ahead` counts the jobs of its queue that go before it: ready ones if it is ready, held ones if it is held. `recent` is
    how many jobs of its queue ended well within the last `RECENT`. If it is ready or held, `running` are the jobs
    that workers run, by worker and type.
    """

    job: Job
    now: datetime
    ahead: int = 0
    recent: int = 0
    pause: Pause | None = None
    pacing: Pacing | None = None
    workers: list[WorkerRecord] = []
    running: list[Running] = []

    @property
    def held(self) -> bool:
        """Whether the job is due and its queue's pace has not let it go."""
        waits = self.job.status.waiting and self.job.due_at <= self.now
        return waits and self.pacing is not None and self.job.lane in self.pacing.pace.governs.lanes


@runtime_checkable
class PaceStore(Protocol):
    """An engine that lets delayed jobs go at a pace."""

    async def set_pace(
        self, queue: str, request: PaceRequest | None, *, by: str, usual: Pace = USUAL_PACE, setting: str | None = None
    ) -> Pacing | None:
        """Change the pace of a queue, naming the queue if need be; None takes it off. Answers with it as it is then.

        The request is laid over the pace that the queue has, or over the `usual` one. The next claim follows it,
        waiters are woken, and the change is recorded. `setting` is the text of what the settings ask for: if they asked for
        the same last time, nothing happens, so that a change made at run time stands.
        """
        ...

    async def release(self, queues: Sequence[str] | None = None, *, wake: bool = True) -> Released:
        """Let go what the paces of these queues (None: of all) allow now, and wake sleepers for it, unless whoever asks
        sees to it that it is claimed.

        One transaction for each queue moves the jobs and the state of the pace. Of several that try at once, one does it.
        A paused queue lets nothing go.
        """
        ...

    async def pacings(self) -> list[Pacing]:
        """Every queue that has a pace, by name, and how it stands."""
        ...

    async def pace_changes(self, queue: str, *, limit: int) -> list[PaceChange]:
        """The last changes of a queue's pace, newest first."""
        ...

    async def outlook(self, id: str) -> Outlook | None:
        """The job, and what decides when it runs; None if there is no such job."""
        ...

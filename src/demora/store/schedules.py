"""The port for schedules, `store.schedules`: definitions, the fire times that are due, and the records of earlier ones.

The core decides and an engine applies. A scheduler calls `due`, asks `core.schedules.firing.decide` about each schedule,
makes the jobs of the fire times that fire, and hands everything back to `fire`. No process is a leader: any number of them
may do this at once.

**One job for each fire time.** The *record* of a fire time has its outcome, and its job if it fired. `fire` writes the
records, adds the jobs and stores the progress in one transaction, and only if the schedule is still at the revision that
`due` returned. Every write to a schedule increases its revision, so of concurrent calls one applies. A fire time has at most
one record; where there is one already, no job is added. Records are kept apart from jobs, the newest `KEPT_RECORDS` of each
schedule. So neither a purge of jobs nor a clock that is set back makes a fire time fire again.

**Jobs of schedules.** The row of a job has the columns `schedule`, the name, and `slot_at`. The engine writes them in
`fire`, `trigger` and `backfill`; a `NewJob` does not have them, so no caller can claim to be a schedule. `slot_at` is null
in a triggered job. All these jobs enter the scheduled lane, so that paces govern them. The columns stay when the schedule is
removed. An index on the name, of unended jobs only, answers whether an earlier job of the schedule has not ended.

**A fire time that waits for the end of earlier jobs** stands in the row of its schedule. Ending a job does nothing for
schedules. While such a fire time exists (`DueSchedules.keeps`), schedulers also subscribe to `Topic.ENDED`, and `due`
returns the schedule as soon as it has no unended job. So the end of a job costs the same with schedules and without.

Times are those of the database. Waiters on `Topic.SCHEDULES` are woken by every verb that may move a next fire time forward.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

import msgspec

from ..core.job import NewJob
from ..core.schedules.definitions import Defined, Definition
from ..core.schedules.firing import Decision, FireOutcome, Previous, Progress
from ..core.schedules.schedule import Schedule
from ..core.schedules.schedule_request import ScheduleRequest
from ..core.states import Status
from .jobs import Added

KEPT_RECORDS = 10_000  # of each schedule at least; `fire` deletes older ones, some hundreds at a time

COMING = timedelta(milliseconds=250)  # after the next fire time, within which `due` returns the fire times that follow it
MOST_COMING = 64


class Origin(Enum):
    """Who created a schedule."""

    CODE = "code"
    API = "api"
    CLI = "cli"


class StoredSchedule(msgspec.Struct, frozen=True):
    """A schedule as the store keeps it.

    `defined` is what the code of its `application` says, in its `app_version`; it differs from `schedule` where a person
    changed it since. `changed_by` is who made the last such change. `run_count` counts the jobs of fire times; `last_job_id`
    is the newest of them, and `last_status` its status while it exists. Records up to `forgotten_to` are no longer kept.
    """

    schedule: Schedule
    revision: int
    progress: Progress
    origin: Origin
    changed_by: str | None = None
    defined: Schedule | None = None
    application: str | None = None
    app_version: str | None = None
    last_run_at: datetime | None = None
    last_job_id: str | None = None
    last_status: Status | None = None
    run_count: int = 0
    forgotten_to: datetime | None = None


class FireRecord(msgspec.Struct, frozen=True):
    """What became of a fire time. `job_id` stays after the job was deleted."""

    schedule: str
    slot_at: datetime
    outcome: FireOutcome
    decided_at: datetime
    job_id: str | None = None


class DueSchedule(msgspec.Struct, frozen=True):
    """A schedule with a fire time that is due, or with a kept fire time that no unended job holds up any more. `previous` is
    empty if the schedule allows overlap, since nothing depends on it then."""

    schedule: Schedule
    revision: int
    progress: Progress
    previous: Previous = Previous()


class DueSchedules(msgspec.Struct, frozen=True):
    """The result of a look.

    `next_in` is the time from this result until the next fire time of any schedule, zero if there were more than `limit`
    due, None if nothing is foreseeable. `coming` are that fire time and those within `COMING` after it, at most
    `MOST_COMING`. `keeps` says that a fire time waits for the end of a job.
    """

    schedules: list[DueSchedule]
    now: datetime
    next_in: timedelta | None
    coming: tuple[datetime, ...] = ()
    keeps: bool = False


class Firing(msgspec.Struct, frozen=True):
    """A decision about a schedule that `due` returned, with one job for each fire time that fires, in the same order."""

    due: DueSchedule
    decision: Decision
    jobs: tuple[NewJob, ...] = ()


class Fired(msgspec.Struct, frozen=True):
    """The result of one firing. `added` counts the jobs that are new. A lost race is not `applied`, and nothing is
    stored."""

    applied: bool
    added: int = 0


class Backfilled(msgspec.Struct, frozen=True):
    """The result of a backfill: the fire times that got a job, and those that had one already."""

    added: list[datetime]
    had: list[datetime]


def may_be_backfilled(found: StoredSchedule, fire_time: datetime) -> bool:
    """Whether a fire time is decided and its record would still be kept."""
    return fire_time <= found.progress.decided_to and (found.forgotten_to is None or fire_time > found.forgotten_to)


def is_early(firing: Firing, now: datetime) -> bool:
    """Whether a fire time that is to fire lies ahead, because the clock was set back since `due` read it."""
    return any(fire_time > now for fire_time in firing.decision.fired)


class ScheduleStore(Protocol):
    """The schedules, their fire times, and the records of these."""

    async def add(self, schedule: Schedule, *, origin: Origin, by: str) -> StoredSchedule | None:
        """Store a new schedule that was first recorded now, and return it; None if the name is taken. If jobs of an earlier
        schedule of this name exist, earlier fire times cannot be backfilled, since they may have had theirs."""
        ...

    async def define(self, definition: Definition) -> list[Defined]:
        """Bring the schedules of an application's code into the database, and return what became of each.

        `core.schedules.definitions.bring_in` decides, in the transaction that reads the schedules and writes the result. The
        process registers these names and its version: while it is live, others do not retire the names, and an older version
        does not define them. If a name is `pending` or `older`, the process defines again later. `known` of an added
        schedule is recorded now. A schedule that `same` describes is not written. A schedule of `Definition.over` stays with
        its records and its last fire time, but is not added.
        """
        ...

    async def get(self, name: str) -> StoredSchedule | None:
        """Return a schedule, None if there is none of this name."""
        ...

    async def all(self, *, after: str | None = None, limit: int | None = None) -> list[StoredSchedule]:
        """Return the schedules by name, at most `limit` of them after the name `after`."""
        ...

    async def change(self, name: str, request: ScheduleRequest, *, by: str) -> StoredSchedule | None:
        """Change a schedule, and return it; None if there is none of this name. `Invalid` if the result would not fit.

        Pausing and resuming are changes too. The next fire time is computed anew from now, so fire times that passed are not
        missed. Jobs that were added stay. A kept fire time is recorded as skipped.
        """
        ...

    async def remove(self, name: str) -> bool:
        """Delete a schedule and its records; False if there is none of this name. Its jobs stay."""
        ...

    async def due(self, *, limit: int) -> DueSchedules:
        """Return schedules that have something to decide now, the earliest fire time first, and when to look next. Writes
        nothing. A kept fire time that lies ahead, because the clock was set back, waits until the clock reaches it."""
        ...

    async def fire(self, firings: Sequence[Firing]) -> list[Fired]:
        """Apply decisions, each as a whole or not at all, and return the results in the same order.

        - Race: a firing is applied only if its schedule is still at the revision that `due` returned and, with an overlap
          policy, its unended jobs are still as they were. Otherwise the caller looks again.
        - Clock: a firing with a fire time that lies ahead, because the clock was set back since `due`, is not applied
          either.
        - Fire times: a fire time that has a record already gets no second one, and no job.
        - Jobs: they are added as `Store.add` does, in the scheduled lane.
        - Replacement: with `Decision.cancels` the waiting jobs of the schedule that were never claimed end CANCELLED, and
          their records become `replaced`.
        - Size: the call commits once, with a number of statements that does not depend on the number of firings.
        """
        ...

    async def trigger(self, name: str, job: NewJob) -> Added | None:
        """Add a job of a schedule that has no fire time, whatever the overlap policy; None if there is no such schedule. The
        progress of the schedule does not change. The same id is a replay, as in `Store.add`."""
        ...

    async def backfill(self, name: str, fire_times: Sequence[tuple[datetime, NewJob]]) -> Backfilled | None:
        """Add jobs for past fire times that have none; None if there is no such schedule.

        A fire time with a job keeps it, so a repeated call adds nothing. A fire time that was missed, skipped or replaced
        without a job becomes fired. Fire times after `Progress.decided_to` are left out, because they are still to come;
        fire times up to `StoredSchedule.forgotten_to` are left out, because their records are no longer kept.
        """
        ...

    async def records(self, name: str, *, before: datetime | None = None, limit: int) -> list[FireRecord]:
        """Return the records of a schedule, newest fire time first, those before a fire time if one is given."""
        ...

    async def foresee(self, zones: str) -> int:
        """Compute all next fire times anew if this version of the zone database is newer than the one that computed them,
        and return how many changed. Versions compare as text: `2026a` is newer than `2025c`. A schedule in a zone that this
        machine does not know keeps its next fire time."""
        ...

    async def attend(self, process_id: str, *, paces: str = "") -> None:
        """Record that a process without a worker fires schedules, and the `paces` that its settings ask for. It is live for
        `LIVE_WITHIN`, or until it leaves. A process with a worker is live by its worker's heartbeat."""
        ...

    async def leave(self, process_id: str) -> None:
        """Forget a process that attended."""
        ...

    async def live(self) -> list[str]:
        """Return the ids of the live processes that fire schedules: those with a worker, and those that attend."""
        ...

    async def attending(self) -> dict[str, str]:
        """Return the ids of the live processes that attend, each with the paces that its settings ask for."""
        ...

"""Judges schedules: whether a live worker knows their type, and whether their runs always overlap or keep failing."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from ..core.job import Job
from ..core.schedules.firing import FireOutcome
from ..core.schedules.schedule import why_unreadable
from ..core.spans import plural, timestamp
from ..core.states import Status
from ..core.workers import WorkerRecord
from ..store.diagnostics import Finding
from ..store.schedules import FireRecord, StoredSchedule

IN_A_ROW = 3  # failed jobs that are reported
AHEAD = timedelta(minutes=1)  # of now, up to which a schedule may be decided if clocks differ a little
OVERLAPS = 5  # jobs in a row that had not ended at the fire time after theirs, or fire times in a row without a job for that
LOOKED_AT = 10  # jobs of a schedule, newest first, of which the last ended ones count
RECORDS_LOOKED_AT = 3 * OVERLAPS  # records of fire times, newest first: enough for jobs that skip every other one

_HELD_UP = {FireOutcome.SKIPPED, FireOutcome.REPLACED}


class ScheduleHistory(msgspec.Struct, frozen=True):
    """A schedule with its last fire times and jobs, newest first."""

    stored: StoredSchedule
    records: Sequence[FireRecord] = ()
    jobs: Sequence[Job] = ()


def judge_schedules(
    histories: Sequence[ScheduleHistory], workers: Sequence[WorkerRecord], now: datetime
) -> Iterator[Finding]:
    """Yield one finding for each fault of a schedule that is not paused, or one that there is none."""
    live = [worker for worker in workers if worker.live]
    found = [fault for one in histories if one.stored.schedule.enabled for fault in _faults(one, live, now)]
    if histories and not found:
        yield Finding("schedules", "ok", f"{plural(len(histories), 'schedule')}, none in trouble")
    yield from found


def _faults(one: ScheduleHistory, live: Sequence[WorkerRecord], now: datetime) -> Iterator[Finding]:
    schedule = one.stored.schedule
    if (unreadable := why_unreadable(schedule)) is not None:
        fact = f"schedule {schedule.name} cannot fire on a machine such as this one: {unreadable}"
        yield Finding("schedules", "warning", fact, "install the time zones (tzdata), or correct it: demora schedule edit")
    if one.stored.progress.decided_to > now + AHEAD:
        fact = (
            f"schedule {schedule.name} fires nothing before {timestamp(one.stored.progress.decided_to)}: a clock was ahead"
        )
        yield Finding("schedules", "warning", fact, f"begin from now: demora schedule resume {schedule.name}")
    if live and not any(schedule.type in worker.types for worker in live):
        fact = f"schedule {schedule.name} adds jobs of type {schedule.type}, which no live worker knows"
        advice = "start a worker with the application that has the handler, or correct the type: demora schedule edit"
        yield Finding("schedules", "warning", fact, advice)
    if _overlaps_always(one):
        fact = f"the last {OVERLAPS} runs of schedule {schedule.name} overlapped: an earlier job had not ended"
        yield Finding("schedules", "warning", fact, "run it less often, or make its jobs shorter: demora schedule edit")
    ended = [job.status for job in one.jobs if job.status.ended][:IN_A_ROW]
    if len(ended) == IN_A_ROW and set(ended) == {Status.FAILED}:
        fact = f"the last {IN_A_ROW} jobs of schedule {schedule.name} have failed"
        yield Finding("schedules", "warning", fact, f"look at one: demora dead-letters --type {schedule.type}")


def _overlaps_always(one: ScheduleHistory) -> bool:
    """Whether an unended job held up each of the last fire times, or each of the last jobs met the one after its own."""
    last = [record.outcome for record in one.records[:OVERLAPS]]
    if len(last) == OVERLAPS and _HELD_UP.issuperset(last):
        return True
    met = [found for job in one.jobs if (found := _met_the_next(job, one.records)) is not None][:OVERLAPS]
    return len(met) == OVERLAPS and all(met)


def _met_the_next(job: Job, records: Sequence[FireRecord]) -> bool | None:
    """Whether a job had not ended at the fire time after its own. None if there was none since, or if the job was added
    later than that: by a backfill, or for a missed run."""
    if job.slot_at is None:
        return None
    following = min((record.slot_at for record in records if record.slot_at > job.slot_at), default=None)
    if following is None or job.created_at >= following:
        return None
    return job.completed_at is None or job.completed_at > following

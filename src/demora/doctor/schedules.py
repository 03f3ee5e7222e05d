"""Judges schedules: whether a live worker knows their type, and whether their runs overlap always or keep failing."""

from collections.abc import Iterator, Sequence

import msgspec

from ..client.why import LIVE_WITHIN
from ..core.firing import SlotOutcome
from ..core.job import Job
from ..core.states import Status
from ..store.diagnostics import Finding
from ..store.jobs import WorkerRecord
from ..store.schedules import SlotRecord, StoredSchedule

IN_A_ROW = 3  # failed jobs that are reported
OVERLAPS = 5  # slots in a row that got no job because an earlier one had not ended
LOOKED_AT = 10  # jobs of a schedule, newest first, of which the last ended ones count

_HELD_UP = {SlotOutcome.SKIPPED, SlotOutcome.REPLACED}


class ScheduleHistory(msgspec.Struct, frozen=True):
    """A schedule with its last slots and jobs, newest first."""

    stored: StoredSchedule
    slots: Sequence[SlotRecord] = ()
    jobs: Sequence[Job] = ()


def judge_schedules(histories: Sequence[ScheduleHistory], workers: Sequence[WorkerRecord]) -> Iterator[Finding]:
    """Yield one finding for each fault of a schedule that is not paused, or one that there is none."""
    live = [worker for worker in workers if worker.heartbeat_ago < LIVE_WITHIN]
    found = [fault for one in histories if one.stored.schedule.enabled for fault in _faults(one, live)]
    if histories and not found:
        yield Finding("schedules", "ok", f"{len(histories)} schedules, none of them in trouble")
    yield from found


def _faults(one: ScheduleHistory, live: Sequence[WorkerRecord]) -> Iterator[Finding]:
    schedule = one.stored.schedule
    if live and not any(schedule.type in worker.types for worker in live):
        fact = f"schedule {schedule.name} adds jobs of type {schedule.type}, which no live worker knows"
        advice = "start a worker with the application that has the handler, or correct the type: demora schedule edit"
        yield Finding("schedules", "warning", fact, advice)
    last = [slot.outcome for slot in one.slots[:OVERLAPS]]
    if len(last) == OVERLAPS and _HELD_UP.issuperset(last):
        fact = f"the last {OVERLAPS} runs of schedule {schedule.name} found an earlier one that had not ended"
        yield Finding("schedules", "warning", fact, "run it less often, or make its jobs shorter: demora schedule edit")
    ended = [job.status for job in one.jobs if job.status.ended][:IN_A_ROW]
    if len(ended) == IN_A_ROW and set(ended) == {Status.FAILED}:
        fact = f"the last {IN_A_ROW} jobs of schedule {schedule.name} have failed"
        yield Finding("schedules", "warning", fact, f"look at one: demora dead-letters --type {schedule.type}")

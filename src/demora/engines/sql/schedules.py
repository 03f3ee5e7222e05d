"""Schedules as engines store them: the schedule and its definition as JSON, everything that is searched for as columns."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ...core.job import NewJob
from ...core.schedules.definitions import Known, Registered
from ...core.schedules.firing import FireOutcome, Progress, foreseen
from ...core.schedules.schedule import Overlap, Schedule
from ...core.spans import from_ms, to_ms
from ...core.states import Status
from ...errors import Invalid
from ...store.schedules import FireRecord, Firing, Origin, StoredSchedule
from ...system import notices
from .columns import time

A_FEW_RECORDS = 500  # records beyond those that are kept, until the oldest are deleted together

_decode = msgspec.json.Decoder(Schedule).decode


class ScheduledJob(msgspec.Struct, frozen=True):
    """A job to be added, with the schedule that it belongs to, and its fire time if it has one."""

    job: NewJob
    schedule: str
    slot_at: int | None = None


def text(schedule: Schedule) -> str:
    """Return a schedule as it is stored."""
    return msgspec.json.encode(schedule).decode()


def schedule_of(text: str) -> Schedule:
    """Return a stored schedule."""
    return _decode(text)


def progress_of(decided_to: int, next_at: int | None, kept_at: int | None) -> Progress:
    return Progress(from_ms(decided_to), time(next_at), time(kept_at))


def ms(at: datetime | None) -> int | None:
    return None if at is None else to_ms(at)


def stored(row: Iterable[Any], last_job_id: str | None) -> StoredSchedule:
    """Return a schedule from the columns of `schedule_columns`."""
    (_, schedule, _, revision, decided_to, next_at, kept_at, origin, changed_by, defined, application, app_version,
     last_run_at, _, run_count, _, forgotten_to, last_status) = row  # fmt: skip
    return StoredSchedule(
        schedule=schedule_of(schedule),
        revision=revision,
        progress=progress_of(decided_to, next_at, kept_at),
        origin=Origin(origin),
        changed_by=changed_by,
        defined=None if defined is None else schedule_of(defined),
        application=application,
        app_version=app_version,
        last_run_at=time(last_run_at),
        last_job_id=last_job_id,
        last_status=None if last_status is None else Status(last_status),
        run_count=run_count,
        forgotten_to=time(forgotten_to),
    )


def fields(schedule: Schedule, progress: Progress) -> dict[str, object]:
    """Return the columns of a schedule that `add` and `change` write alike."""
    return {
        "name": schedule.name,
        "schedule": text(schedule),
        "exclusive": schedule.overlap is not Overlap.ALLOW,
        "decided_to": to_ms(progress.decided_to),
        "next_at": ms(progress.next_at),
    }


def moved_times(found: Iterable[StoredSchedule]) -> dict[str, int | None]:
    """Return the next fire times, by the names of their schedules, that the database of time zones moves. A schedule that
    cannot be read on this machine, such as one in a zone that it does not know, is logged and keeps its next fire time."""
    moved = dict[str, int | None]()
    for one in found:
        try:
            after = foreseen(one.schedule, one.progress)
        except Invalid as problem:
            notices.schedule_broken(one.schedule.name, problem)
            continue
        if after != one.progress:
            moved[one.schedule.name] = ms(after.next_at)
    return moved


def known_of(found: StoredSchedule) -> Known:
    return Known(found.schedule, found.defined, found.application, found.app_version)


def registered_of(names: str, app_version: str | None) -> Registered:
    """Return what a process registers, from its row."""
    return Registered(tuple(json.loads(names)), app_version)


def of_code(known: Known, now: datetime) -> dict[str, str | None]:
    """Return the columns of a schedule that its code adds now."""
    code = None if known.defined is None else text(msgspec.structs.replace(known.defined, recorded_at=now))
    origin = {"origin": Origin.CODE.value, "by": None}
    return {**origin, "defined": code, "application": known.application, "release": known.app_version}


def record_of(row: Iterable[Any], job_id: str | None) -> FireRecord:
    schedule, slot_at, outcome, decided_at, _ = row
    return FireRecord(schedule, from_ms(slot_at), FireOutcome(outcome), from_ms(decided_at), job_id)


def fire_times_of(firings: Sequence[Firing]) -> list[tuple[str, int]]:
    """Return each fire time that these firings decide, with the name of its schedule."""
    return [
        (firing.due.schedule.name, to_ms(fire_time.slot_at))
        for firing in firings
        for fire_time in firing.decision.fire_times
    ]


def jobs_of(firing: Firing) -> dict[int, NewJob]:
    """Return the jobs of a firing by their fire times."""
    return {to_ms(fire_time): job for fire_time, job in zip(firing.decision.fired, firing.jobs, strict=True)}

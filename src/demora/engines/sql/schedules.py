"""Schedules as engines store them: the schedule and its definition as JSON, everything that is searched for as columns."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ...core.definitions import Known
from ...core.firing import Progress, SlotOutcome
from ...core.job import NewJob
from ...core.schedule import Schedule
from ...core.spans import from_ms, to_ms
from ...core.states import Status
from ...store.schedules import Firing, Origin, SlotRecord, StoredSchedule
from .columns import time

A_FEW_RECORDS = 500  # records beyond those that are kept, until the oldest are deleted together

_decode = msgspec.json.Decoder(Schedule).decode


class SlotJob(msgspec.Struct, frozen=True):
    """A job to be added, with the schedule that it belongs to, and its slot if it has one."""

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
    (_, schedule, _, revision, decided_to, next_at, kept_at, origin, changed_by, defined, application, release,
     last_run_at, _, run_count, _, forgotten_to, last_status) = row  # fmt: skip
    return StoredSchedule(
        schedule=schedule_of(schedule),
        revision=revision,
        progress=progress_of(decided_to, next_at, kept_at),
        origin=Origin(origin),
        changed_by=changed_by,
        defined=None if defined is None else schedule_of(defined),
        application=application,
        release=release,
        last_run_at=time(last_run_at),
        last_job_id=last_job_id,
        last_status=None if last_status is None else Status(last_status),
        run_count=run_count,
        forgotten_to=time(forgotten_to),
    )


def known_of(found: StoredSchedule) -> Known:
    return Known(found.schedule, found.defined, found.application, found.release)


def of_code(known: Known, now: datetime) -> dict[str, str | None]:
    """Return the columns of a schedule that its code adds now."""
    code = None if known.defined is None else text(msgspec.structs.replace(known.defined, recorded_at=now))
    origin = {"origin": Origin.CODE.value, "by": None}
    return {**origin, "defined": code, "application": known.application, "release": known.release}


def record_of(row: Iterable[Any], job_id: str | None) -> SlotRecord:
    schedule, slot_at, outcome, decided_at, _ = row
    return SlotRecord(schedule, from_ms(slot_at), SlotOutcome(outcome), from_ms(decided_at), job_id)


def slots_of(firings: Sequence[Firing]) -> list[tuple[str, int]]:
    """Return each slot that these firings decide, with the name of its schedule."""
    return [(firing.due.schedule.name, to_ms(slot.slot_at)) for firing in firings for slot in firing.decision.slots]


def jobs_of(firing: Firing) -> dict[int, NewJob]:
    """Return the jobs of a firing by their slots."""
    return {to_ms(slot): job for slot, job in zip(firing.decision.fired, firing.jobs, strict=True)}

"""Schedules on PostgreSQL.

A verb that writes to a schedule locks its row first, several rows in the order of their names. With an overlap policy it
then locks the unended jobs of the schedule, so that no worker claims one of them meanwhile.
"""

import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from time import monotonic

import msgspec

from ...core.job import NewJob
from ...core.schedules.definitions import Defined, Definition, Result, bring_in
from ...core.schedules.firing import FireOutcome, Previous, begin
from ...core.schedules.schedule import Overlap, Schedule
from ...core.schedules.schedule_request import ScheduleRequest, change_schedule
from ...core.spans import from_ms, span_ms, to_ms
from ...core.workers import LIVE_WITHIN
from ...store import schedules as port
from ...store.jobs import Added, Topic
from ...store.schedules import (
    Backfilled,
    DueSchedule,
    DueSchedules,
    Fired,
    FireRecord,
    Firing,
    Origin,
    StoredSchedule,
)
from ...system import crash
from ..sql.schedules import (
    A_FEW_RECORDS,
    ScheduledJob,
    fields,
    jobs_of,
    known_of,
    moved_times,
    ms,
    of_code,
    progress_of,
    record_of,
    registered_of,
    schedule_of,
    stored,
    text,
)
from . import rows
from .connection.connections import Session
from .database import Database
from .jobs import adding, changes

FireTime = tuple[str, int, FireOutcome, str | None]  # the schedule, the fire time, its outcome and its job

_NAMES = "the names of schedules"  # the lock of those that add or define some


class PostgresSchedules:
    """The schedules, their fire times, and the records of these."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, schedule: Schedule, *, origin: Origin, by: str) -> StoredSchedule | None:
        return await self._database.write_once(lambda session: add(session, schedule, origin, by))

    async def define(self, definition: Definition) -> list[Defined]:
        return await self._database.write_once(lambda session: define(session, definition))

    async def get(self, name: str) -> StoredSchedule | None:
        return await self._database.read(lambda session: get(session, name))

    async def all(self, *, after: str | None = None, limit: int | None = None) -> list[StoredSchedule]:
        return await self._database.read(lambda session: everything(session, after, limit))

    async def change(self, name: str, request: ScheduleRequest, *, by: str) -> StoredSchedule | None:
        return await self._database.write_once(lambda session: change(session, name, request, by))

    async def remove(self, name: str) -> bool:
        return await self._database.write_once(lambda session: _remove(session, name))

    async def due(self, *, limit: int) -> DueSchedules:
        return await self._database.read(lambda session: due(session, limit))

    async def fire(self, firings: Sequence[Firing]) -> list[Fired]:
        return await self._database.write_once(lambda session: fire(session, firings))

    async def trigger(self, name: str, job: NewJob) -> Added | None:
        return await self._database.write_once(lambda session: trigger(session, name, job))

    async def backfill(self, name: str, fire_times: Sequence[tuple[datetime, NewJob]]) -> Backfilled | None:
        return await self._database.write_once(lambda session: backfill(session, name, fire_times))

    async def records(self, name: str, *, before: datetime | None = None, limit: int) -> list[FireRecord]:
        return await self._database.read(lambda session: records(session, name, before, limit))

    async def foresee(self, zones: str) -> int:
        return await self._database.write_once(lambda session: foresee(session, zones))

    async def attend(self, process_id: str, *, paces: str = "") -> None:
        await self._database.write(lambda session: attend(session, process_id, paces))

    async def leave(self, process_id: str) -> None:
        await self._database.write(lambda session: leave(session, process_id))

    async def live(self) -> list[str]:
        return await self._database.read(live)

    async def attending(self) -> dict[str, str]:
        return await self._database.read(attending)


async def add(session: Session, schedule: Schedule, origin: Origin, by: str) -> StoredSchedule | None:
    async with _transaction(session):
        await session.rows("only_one", what=_NAMES)
        of_row = {"origin": origin.value, "by": rows.text(by), "defined": None, "application": None, "release": None}
        added = await _add(session, schedule, of_row)
        found = await get(session, schedule.name)
    return found if added else None


async def _add(session: Session, schedule: Schedule, of_row: dict[str, str | None]) -> bool:
    """Store a new schedule as recorded now, unless its name is taken."""
    now = _now(session)
    new = msgspec.structs.replace(schedule, recorded_at=now)
    session.wake(Topic.SCHEDULES)
    return await session.row("add_schedule", **fields(new, begin(new, now)), **of_row) is not None


async def define(session: Session, definition: Definition) -> list[Defined]:
    who = {"application": definition.application, "process_id": definition.process_id}
    names = definition.names
    async with _transaction(session):
        await session.rows("only_one", what=_NAMES)
        what = {"names": json.dumps(names), "release": definition.app_version}
        await session.rows("register_names", **who, **what, within=span_ms(LIVE_WITHIN))
        of_application = await session.rows("schedules_of_application", names=names, application=definition.application)
        found = {one.schedule.name: one for one in map(_stored, of_application)}
        live = await session.rows("registered_elsewhere", **who, within=span_ms(LIVE_WITHIN))
        elsewhere = [registered_of(row["names"], row["release"]) for row in live]
        results = bring_in(definition, {name: known_of(one) for name, one in found.items()}, elsewhere)
        for result in results:
            await _bring_in(session, result, found.get(result.name))
    return results


async def _bring_in(session: Session, defined: Defined, before: StoredSchedule | None) -> None:
    known = defined.known
    if defined.result is Result.RETIRED:
        await _remove(session, defined.name)
    if known is None:
        return
    if before is None:
        await _add(session, known.schedule, of_code(known, _now(session)))
        return
    new = msgspec.structs.replace(before, schedule=known.schedule, defined=known.defined, app_version=known.app_version)
    await _write(session, new, restarts=defined.restarts)


async def get(session: Session, name: str) -> StoredSchedule | None:
    row = await session.row("schedule", name=name)
    return None if row is None else _stored(row)


async def everything(session: Session, after: str | None, limit: int | None) -> list[StoredSchedule]:
    return [_stored(row) for row in await session.rows("schedules", after=after or "", limit=limit)]


async def change(session: Session, name: str, request: ScheduleRequest, by: str) -> StoredSchedule | None:
    async with _transaction(session):
        row = await session.row("lock_schedule", name=name)
        if row is None:
            return None
        before = _stored(row)
        changed = change_schedule(before.schedule, request, now=_now(session))
        new = msgspec.structs.replace(before, schedule=changed, changed_by=rows.text(by))
        await _write(session, new, restarts=True)
        return await get(session, name)


async def _write(session: Session, new: StoredSchedule, *, restarts: bool) -> None:
    """Store a changed schedule. If its fire times begin anew, a fire time that waits is skipped."""
    progress = new.progress
    if restarts:
        if progress.kept_at is not None:
            await _record(session, [(new.schedule.name, to_ms(progress.kept_at), FireOutcome.SKIPPED, None)])
        progress = begin(new.schedule, _now(session))
    await session.rows(
        "write_schedule",
        **fields(new.schedule, progress),
        kept_at=ms(progress.kept_at),
        by=new.changed_by,
        defined=new.defined and text(new.defined),
        application=new.application,
        release=new.app_version,
    )
    session.wake(Topic.SCHEDULES)


async def _remove(session: Session, name: str) -> bool:
    removed = await session.row("remove_schedule", name=name) is not None
    await session.rows("remove_records", name=name)
    return removed


async def due(session: Session, limit: int) -> DueSchedules:
    asked = monotonic()
    found = await session.rows("schedules_due", limit=limit + 1, coming=span_ms(port.COMING), most_coming=port.MOST_COMING)
    us, wall, keeps, coming = found[0][:4]
    schedules = [
        DueSchedule(
            schedule_of(row["schedule"]),
            row["revision"],
            progress_of(row["decided_to"], row["next_at"], row["kept_at"]),
            Previous(bool(row["waiting"]), bool(row["claimed"])),
        )
        for row in found
        if row["name"] is not None
    ]
    left = max(coming[0] * 1000 - us - session.passed_since(us, asked), 0) if coming else None
    if len(schedules) > limit:
        left = 0
    next_in = None if left is None else timedelta(microseconds=left)
    return DueSchedules(schedules[:limit], from_ms(wall), next_in, tuple(map(from_ms, coming)), keeps=keeps)


async def fire(session: Session, firings: Sequence[Firing]) -> list[Fired]:
    async with _transaction(session):
        applied = await _applicable(session, firings)
        new = await _record(session, [fire_time for firing in applied.values() for fire_time in _fire_times(firing)])
        jobs = [
            ScheduledJob(job, firing.due.schedule.name, at)
            for firing in applied.values()
            for at, job in jobs_of(firing).items()
            if (firing.due.schedule.name, at) in new
        ]
        if jobs:
            await adding.store_of_schedules(session, jobs)
        await _advance(session, list(applied.values()), Counter(name for name, _ in new), jobs)
    added = Counter(one.schedule for one in jobs)
    return [
        Fired(applied=n in applied, added=added[firing.due.schedule.name] if n in applied else 0)
        for n, firing in enumerate(firings)
    ]


async def _applicable(session: Session, firings: Sequence[Firing]) -> dict[int, Firing]:
    """Lock the schedules, and return the firings whose schedules are as `due` returned them. Cancel what these replace."""
    locked = await session.rows("lock_schedules", names=[firing.due.schedule.name for firing in firings])
    revisions = {row["name"]: row["revision"] for row in locked}
    exclusive = [one.due.schedule.name for one in firings if one.due.schedule.overlap is not Overlap.ALLOW]
    unended = await session.rows("lock_unended", names=exclusive) if exclusive else []
    waiting = defaultdict[str, list[bool]](list)
    for row in unended:
        waiting[row["schedule"]].append(row["waiting"])
    applied = dict[int, Firing]()
    for n, firing in enumerate(firings):
        name = firing.due.schedule.name
        previous = Previous(any(waiting[name]), not all(waiting[name]))
        same = revisions.pop(name, None) == firing.due.revision and previous == firing.due.previous
        if same and not port.is_early(firing, _now(session)):
            applied[n] = firing
            if firing.decision.progress.kept_at is not None:
                session.wake(Topic.SCHEDULES)
    cancels = {one.due.schedule.name for one in applied.values() if one.decision.cancels}
    if replaced := [str(row["id"]) for row in unended if row["waiting"] and row["schedule"] in cancels]:
        await changes.cancel(session, replaced)
        await session.rows("replace_fire_times", ids=replaced)
    return applied


def _fire_times(firing: Firing) -> list[FireTime]:
    jobs = jobs_of(firing)
    return [
        (firing.due.schedule.name, at, fire_time.outcome, jobs[at].id if at in jobs else None)
        for fire_time in firing.decision.fire_times
        for at in (to_ms(fire_time.slot_at),)
    ]


async def _record(session: Session, fire_times: Sequence[FireTime], *, refill: bool = False) -> dict[tuple[str, int], bool]:
    """Record fire times. Returns, for each one whose record was written, whether the record is new."""
    if not fire_times:
        return {}
    written = await session.rows(
        "record_fire_times",
        schedules=[name for name, _, _, _ in fire_times],
        fire_times=[at for _, at, _, _ in fire_times],
        outcomes=[outcome.value for _, _, outcome, _ in fire_times],
        ids=[id for _, _, _, id in fire_times],
        refill=refill,
    )
    return {(name, at): new for name, at, new in written}


async def _advance(
    session: Session, firings: Sequence[Firing], recorded: Mapping[str, int], jobs: Sequence[ScheduledJob]
) -> None:
    """Store how far the schedules are decided now."""
    added, last = Counter(one.schedule for one in jobs), {one.schedule: one.job.id for one in jobs}
    names = [firing.due.schedule.name for firing in firings]
    progress = [firing.decision.progress for firing in firings]
    found = await session.rows(
        "fired",
        names=names,
        decided_tos=[to_ms(one.decided_to) for one in progress],
        next_ats=[ms(one.next_at) for one in progress],
        kept_ats=[ms(one.kept_at) for one in progress],
        added=[added[name] for name in names],
        recorded=[recorded[name] for name in names],
        job_ids=[last.get(name) for name in names],
        most=port.KEPT_RECORDS + A_FEW_RECORDS,
    )
    for (crowded,) in found:
        if crowded is not None:
            await session.rows("forget_records", name=crowded, kept=port.KEPT_RECORDS)


async def trigger(session: Session, name: str, job: NewJob) -> Added | None:
    async with _transaction(session):
        for _, created_at, scheduled_at in await session.rows("ids_taken", ids=[job.id]):
            return Added(job.id, from_ms(created_at), from_ms(scheduled_at), replayed=True)
        if await session.row("lock_schedule", name=name) is None:
            return None
        await adding.store_of_schedules(session, [ScheduledJob(job, name)])
        now = _now(session)
    return Added(job.id, now, now if job.delay is None else now + job.delay)


async def backfill(session: Session, name: str, fire_times: Sequence[tuple[datetime, NewJob]]) -> Backfilled | None:
    async with _transaction(session):
        row = await session.row("lock_schedule", name=name)
        if row is None:
            return None
        found = _stored(row)
        asked = {to_ms(fire_time): job for fire_time, job in fire_times if port.may_be_backfilled(found, fire_time)}
        new = await _record(session, [(name, at, FireOutcome.FIRED, job.id) for at, job in asked.items()], refill=True)
        added = [at for at in asked if (name, at) in new]
        if added:
            await adding.store_of_schedules(session, [ScheduledJob(asked[at], name, at) for at in added])
            await session.rows("backfilled", name=name, added=len(added), recorded=sum(new.values()))
    return Backfilled([from_ms(at) for at in added], [from_ms(at) for at in asked if at not in added])


async def records(session: Session, name: str, before: datetime | None, limit: int) -> list[FireRecord]:
    found = await session.rows("fire_records", name=name, before=ms(before), limit=limit)
    return [record_of(row, None if row["job_id"] is None else str(row["job_id"])) for row in found]


async def foresee(session: Session, zones: str) -> int:
    async with _transaction(session):
        await session.rows("only_one", what=_NAMES)
        before = await session.row("zones")
        if before is not None and before["value"] >= zones:
            return 0
        await session.rows("note_zones", zones=zones)
        moved = moved_times(map(_stored, await session.rows("lock_all_schedules")))
        await session.rows("foresee", names=list(moved), next_ats=list(moved.values()))
    if moved:
        session.wake(Topic.SCHEDULES)
    return len(moved)


async def attend(session: Session, process_id: str, paces: str) -> None:
    await session.rows("attend", id=process_id, paces=paces, within=span_ms(LIVE_WITHIN))


async def leave(session: Session, process_id: str) -> None:
    await session.rows("leave", id=process_id)


async def live(session: Session) -> list[str]:
    return [row["id"] for row in await session.rows("live_processes", within=span_ms(LIVE_WITHIN))]


async def attending(session: Session) -> dict[str, str]:
    return {row["id"]: row["paces"] for row in await session.rows("attending", within=span_ms(LIVE_WITHIN))}


@asynccontextmanager
async def _transaction(session: Session) -> AsyncIterator[None]:
    """The transaction of the caller, in which the clock of the database is read once."""
    if session.wall_us is None:
        session.wall_us = (await session.row("now"))["us"]
    yield
    crash.at("batch.applied")


def _now(session: Session) -> datetime:
    assert session.wall_us is not None
    return from_ms(session.wall_us // 1000)


def _stored(row: rows.Row) -> StoredSchedule:
    return stored(row, None if row["last_job_id"] is None else str(row["last_job_id"]))

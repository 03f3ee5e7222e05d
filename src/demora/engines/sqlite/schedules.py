"""Schedules on SQLite. Each verb is one transaction, and SQLite has one writer, so what a verb reads stays true until it
writes."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from ...core.job import NewJob, due_ms
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
from ..sql.schedules import (
    A_FEW_RECORDS,
    ScheduledJob,
    fields,
    fire_times_of,
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
from .connection.connections import SQL
from .connection.transactions import Transaction
from .database import Database
from .jobs import adding, changes


class SqliteSchedules:
    """The schedules, their fire times, and the records of these."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, schedule: Schedule, *, origin: Origin, by: str) -> StoredSchedule | None:
        return await self._database.write(lambda tx: add(tx, schedule, origin, by))

    async def define(self, definition: Definition) -> list[Defined]:
        return await self._database.write(lambda tx: define(tx, definition))

    async def get(self, name: str) -> StoredSchedule | None:
        return await self._database.read(lambda tx: get(tx, name), weight=1)

    async def all(self, *, after: str | None = None, limit: int | None = None) -> list[StoredSchedule]:
        return await self._database.read(lambda tx: everything(tx, after, limit))

    async def change(self, name: str, request: ScheduleRequest, *, by: str) -> StoredSchedule | None:
        return await self._database.write(lambda tx: change(tx, name, request, by))

    async def remove(self, name: str) -> bool:
        return await self._database.write(lambda tx: remove(tx, name))

    async def due(self, *, limit: int) -> DueSchedules:
        found, read_at = await self._database.read(lambda tx: (due(tx, limit), tx.wall_us), limit)
        return _as_of_now(found, self._database.clock.wall_us() - read_at)

    async def fire(self, firings: Sequence[Firing]) -> list[Fired]:
        return await self._database.write(lambda tx: fire(tx, firings), len(firings))

    async def trigger(self, name: str, job: NewJob) -> Added | None:
        return await self._database.write(lambda tx: trigger(tx, name, job))

    async def backfill(self, name: str, fire_times: Sequence[tuple[datetime, NewJob]]) -> Backfilled | None:
        return await self._database.write(lambda tx: backfill(tx, name, fire_times), len(fire_times))

    async def records(self, name: str, *, before: datetime | None = None, limit: int) -> list[FireRecord]:
        return await self._database.read(lambda tx: records(tx, name, before, limit))

    async def foresee(self, zones: str) -> int:
        return await self._database.write(lambda tx: foresee(tx, zones))

    async def attend(self, process_id: str, *, paces: str = "") -> None:
        await self._database.write(lambda tx: attend(tx, process_id, paces))

    async def leave(self, process_id: str) -> None:
        await self._database.write(lambda tx: leave(tx, process_id))

    async def live(self) -> list[str]:
        return await self._database.read(live)

    async def attending(self) -> dict[str, str]:
        return await self._database.read(attending)


def add(tx: Transaction, schedule: Schedule, origin: Origin, by: str) -> StoredSchedule | None:
    if not _add(tx, schedule, {"origin": origin.value, "by": by, "defined": None, "application": None, "release": None}):
        return None
    return get(tx, schedule.name)


def _add(tx: Transaction, schedule: Schedule, of_row: dict[str, str | None]) -> bool:
    """Store a new schedule as recorded now, unless its name is taken."""
    now = from_ms(tx.wall)
    new = msgspec.structs.replace(schedule, recorded_at=now)
    tx.db.execute(SQL["add_schedule"], {**fields(new, begin(new, now)), **of_row})
    tx.wake(Topic.SCHEDULES)
    return tx.db.changes() > 0


def define(tx: Transaction, definition: Definition) -> list[Defined]:
    application = definition.application
    names = json.dumps(definition.names)
    tx.db.execute(SQL["register_names"], (application, definition.process_id, names, tx.wall, definition.app_version))
    tx.db.execute(SQL["forget_processes"], (tx.wall - span_ms(LIVE_WITHIN),))
    found = {one.schedule.name: one for one in _found(tx, "schedules_of_application", (names, application))}
    live = (application, definition.process_id, tx.boot - span_ms(LIVE_WITHIN))
    elsewhere = [registered_of(*row) for row in tx.db.execute(SQL["registered_elsewhere"], live)]
    results = bring_in(definition, {name: known_of(one) for name, one in found.items()}, elsewhere)
    for result in results:
        _bring_in(tx, result, found.get(result.name))
    return results


def _bring_in(tx: Transaction, defined: Defined, before: StoredSchedule | None) -> None:
    known = defined.known
    if defined.result is Result.RETIRED:
        remove(tx, defined.name)
    if known is None:
        return
    if before is None:
        _add(tx, known.schedule, of_code(known, from_ms(tx.wall)))
        return
    new = msgspec.structs.replace(before, schedule=known.schedule, defined=known.defined, app_version=known.app_version)
    _write(tx, new, restarts=defined.restarts)


def get(tx: Transaction, name: str) -> StoredSchedule | None:
    return next(_found(tx, "schedule", (name,)), None)


def everything(tx: Transaction, after: str | None, limit: int | None) -> list[StoredSchedule]:
    return list(_found(tx, "schedules", (after or "", -1 if limit is None else limit)))


def change(tx: Transaction, name: str, request: ScheduleRequest, by: str) -> StoredSchedule | None:
    before = get(tx, name)
    if before is None:
        return None
    changed = change_schedule(before.schedule, request, now=from_ms(tx.wall))
    _write(tx, msgspec.structs.replace(before, schedule=changed, changed_by=by), restarts=True)
    return get(tx, name)


def _write(tx: Transaction, new: StoredSchedule, *, restarts: bool) -> None:
    """Store a changed schedule. If its fire times begin anew, a fire time that waits is skipped."""
    progress = new.progress
    if restarts:
        if progress.kept_at is not None:
            fire_time = (new.schedule.name, to_ms(progress.kept_at), FireOutcome.SKIPPED.value, tx.wall)
            tx.db.execute(SQL["skip_fire_time"], fire_time)
        progress = begin(new.schedule, from_ms(tx.wall))
    of_row = {"by": new.changed_by, "defined": new.defined and text(new.defined)}
    what = {**fields(new.schedule, progress), **of_row, "application": new.application, "release": new.app_version}
    tx.db.execute(SQL["write_schedule"], {**what, "kept_at": ms(progress.kept_at)})
    tx.wake(Topic.SCHEDULES)


def remove(tx: Transaction, name: str) -> bool:
    tx.db.execute(SQL["remove_schedule"], (name,))
    removed = tx.db.changes() > 0
    tx.db.execute(SQL["remove_records"], (name,))
    return removed


def due(tx: Transaction, limit: int) -> DueSchedules:
    found = list(tx.db.execute(SQL["schedules_due"], (tx.wall, limit + 1)))
    found += tx.db.execute(SQL["schedules_freed"], (tx.wall, limit + 1))
    schedules = [_due(tx, *row) for row in found[:limit]]
    coming = [at for (at,) in tx.db.execute(SQL["coming_times"], (tx.wall, span_ms(port.COMING), port.MOST_COMING))]
    [(keeps,)] = tx.db.execute(SQL["keeping"])
    left = timedelta(microseconds=coming[0] * 1000 - tx.wall_us) if coming else None
    next_in = timedelta(0) if len(found) > limit else left
    return DueSchedules(schedules, from_ms(tx.wall), next_in, tuple(map(from_ms, coming)), keeps=bool(keeps))


def _due(
    tx: Transaction, text: str, revision: int, decided_to: int, next_at: int | None, kept_at: int | None
) -> DueSchedule:
    schedule = schedule_of(text)
    return DueSchedule(schedule, revision, progress_of(decided_to, next_at, kept_at), _previous(tx, schedule))


def _as_of_now(found: DueSchedules, passed: int) -> DueSchedules:
    if found.next_in is None:
        return found
    left = max(found.next_in - timedelta(microseconds=max(passed, 0)), timedelta(0))
    return msgspec.structs.replace(found, next_in=left)


def fire(tx: Transaction, firings: Sequence[Firing]) -> list[Fired]:
    taken = _taken(tx, fire_times_of(firings))
    names = json.dumps([firing.due.schedule.name for firing in firings])
    revisions = dict(tx.db.execute(SQL["revisions"], (names,)))
    records: list[rows.Row] = []
    jobs: list[ScheduledJob] = []
    progress: list[dict[str, object]] = []
    results: list[Fired] = []
    now = from_ms(tx.wall)
    for firing in firings:
        schedule = firing.due.schedule
        same = revisions.pop(schedule.name, None) == firing.due.revision and _previous(tx, schedule) == firing.due.previous
        if not same or port.is_early(firing, now):
            results.append(Fired(applied=False))
            continue
        if firing.decision.cancels:
            _cancel_waiting(tx, schedule.name)
        of_times = jobs_of(firing)
        new = _new_records(firing, of_times, taken, tx.wall)
        added = [ScheduledJob(of_times[row[1]], schedule.name, row[1]) for row in new if row[4] is not None]
        records += new
        jobs += added
        progress.append(_progress(tx, firing, len(new), added))
        results.append(Fired(applied=True, added=len(added)))
        if firing.decision.progress.kept_at is not None:
            tx.wake(Topic.SCHEDULES)
    tx.db.executemany(SQL["record_fire_time"], records)
    if jobs:
        adding.store_of_schedules(tx, jobs)
    tx.db.executemany(SQL["fired"], progress)
    _forget_oldest(tx, names)
    return results


def _new_records(
    firing: Firing, of_times: Mapping[int, NewJob], taken: Collection[tuple[str, int]], wall: int
) -> list[rows.Row]:
    """The records of the fire times that have none yet."""
    name = firing.due.schedule.name
    return [
        (name, at, fire_time.outcome.value, wall, rows.id_bytes(of_times[at].id) if at in of_times else None)
        for fire_time in firing.decision.fire_times
        if (name, at := to_ms(fire_time.slot_at)) not in taken
    ]


def _progress(tx: Transaction, firing: Firing, recorded: int, added: Sequence[ScheduledJob]) -> dict[str, object]:
    after = firing.decision.progress
    return {
        "name": firing.due.schedule.name,
        "decided_to": to_ms(after.decided_to),
        "next_at": ms(after.next_at),
        "kept_at": ms(after.kept_at),
        "added": len(added),
        "recorded": recorded,
        "job_id": rows.id_bytes(added[-1].job.id) if added else None,
        "wall": tx.wall,
    }


def _cancel_waiting(tx: Transaction, name: str) -> None:
    """Cancel the jobs of a schedule that were never claimed; a later fire time replaces theirs."""
    for (id,) in list(tx.db.execute(SQL["waiting_of_schedule"], (name,))):
        changes.cancel(tx, rows.id_text(id))
        tx.db.execute(SQL["replace_fire_time"], (id,))


def _forget_oldest(tx: Transaction, names: str) -> None:
    kept = port.KEPT_RECORDS
    for (name,) in list(tx.db.execute(SQL["crowded"], (kept + A_FEW_RECORDS, names))):
        for (slot_at,) in list(tx.db.execute(SQL["record_beyond"], (name, kept))):
            tx.db.execute(SQL["forget_records"], (name, slot_at))
            tx.db.execute(SQL["forgotten"], (kept, slot_at, name))


def trigger(tx: Transaction, name: str, job: NewJob) -> Added | None:
    for created_at, scheduled_at, _ in tx.db.execute(SQL["id_taken"], (rows.id_bytes(job.id), 0)):
        return Added(job.id, from_ms(created_at), from_ms(scheduled_at), replayed=True)
    if get(tx, name) is None:
        return None
    adding.store_of_schedules(tx, [ScheduledJob(job, name)])
    return Added(job.id, from_ms(tx.wall), from_ms(due_ms(job.at, job.delay, tx.wall)))


def backfill(tx: Transaction, name: str, fire_times: Sequence[tuple[datetime, NewJob]]) -> Backfilled | None:
    found = get(tx, name)
    if found is None:
        return None
    asked = {to_ms(fire_time): job for fire_time, job in fire_times if port.may_be_backfilled(found, fire_time)}
    taken = _taken(tx, [(name, at) for at in asked])
    had = [at for at in asked if taken.get((name, at)) is not None]
    new = {at: job for at, job in asked.items() if at not in had}
    fired = FireOutcome.FIRED.value
    tx.db.executemany(
        SQL["record_fire_time"], [(name, at, fired, tx.wall, rows.id_bytes(job.id)) for at, job in new.items()]
    )
    if new:
        adding.store_of_schedules(tx, [ScheduledJob(job, name, at) for at, job in new.items()])
        recorded = sum((name, at) not in taken for at in new)
        tx.db.execute(SQL["backfilled"], (len(new), recorded, name))
    return Backfilled([from_ms(at) for at in new], [from_ms(at) for at in had])


def records(tx: Transaction, name: str, before: datetime | None, limit: int) -> list[FireRecord]:
    found = tx.db.execute(SQL["fire_records"], (name, ms(before), limit))
    return [record_of(row, None if row[4] is None else rows.id_text(row[4])) for row in found]


def foresee(tx: Transaction, zones: str) -> int:
    if any(before >= zones for (before,) in list(tx.db.execute(SQL["zones"]))):
        return 0
    tx.db.execute(SQL["note_zones"], (zones,))
    moved = moved_times(everything(tx, None, None))
    tx.db.executemany(SQL["foresee"], [(next_at, name) for name, next_at in moved.items()])
    if moved:
        tx.wake(Topic.SCHEDULES)
    return len(moved)


def attend(tx: Transaction, process_id: str, paces: str) -> None:
    tx.db.execute(SQL["forget_absent"], (tx.boot - span_ms(LIVE_WITHIN),))
    tx.db.execute(SQL["attend"], (process_id, tx.boot, paces))


def leave(tx: Transaction, process_id: str) -> None:
    tx.db.execute(SQL["leave"], (process_id,))


def live(tx: Transaction) -> list[str]:
    return [id for (id,) in tx.db.execute(SQL["live_processes"], (tx.boot - span_ms(LIVE_WITHIN),))]


def attending(tx: Transaction) -> dict[str, str]:
    return dict(tx.db.execute(SQL["attending"], (tx.boot - span_ms(LIVE_WITHIN),)))


def _found(tx: Transaction, statement: str, what: tuple[object, ...]) -> Iterator[StoredSchedule]:
    found = list(tx.db.execute(SQL[statement], what))
    return iter([stored(row, None if row[13] is None else rows.id_text(row[13])) for row in found])


def _previous(tx: Transaction, schedule: Schedule) -> Previous:
    if schedule.overlap is Overlap.ALLOW:
        return Previous()
    [(waiting, claimed)] = tx.db.execute(SQL["unended_of_schedule"], (schedule.name,))
    return Previous(bool(waiting), bool(claimed))


def _taken(tx: Transaction, fire_times: Sequence[tuple[str, int]]) -> dict[tuple[str, int], bytes | None]:
    """The fire times that have a record, each with the job of it."""
    return {(name, at): id for name, at, id in tx.db.execute(SQL["times_taken"], (json.dumps(fire_times),))}

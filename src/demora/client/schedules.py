"""Schedules: adding and changing them, their runs to come and past, and the definitions of an application's code."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from ..core.filters import JobFilter
from ..core.job import Job, NewJob
from ..core.payload import unpack
from ..core.request import check_cursor
from ..core.schedules.definitions import Defined, Definition, Result, changed_fields
from ..core.schedules.firing import MOST_FIRE_TIMES, backfill_times
from ..core.schedules.schedule import Schedule, job_of, next_fire, say_schedule
from ..core.schedules.schedule import preview as fire_times_after
from ..core.schedules.schedule_request import ScheduleRequest, change_schedule, is_schedule_name, make_schedule
from ..core.spans import MILLISECOND, from_ms
from ..core.spans import spread as spread_over
from ..errors import Invalid, ScheduleNotFound, ScheduleTaken, did_you_mean
from ..handlers.registry import Registry
from ..store.jobs import Page, Query
from ..store.schedules import FireRecord, Origin, StoredSchedule
from ..store.store import Store
from ..system import notices
from .paces import CODE
from .queues import MOST_PER_PAGE

T = TypeVar("T")

RUNS = 10  # that a preview shows
MOST_RUNS = 1000
_LONG_AGO = from_ms(0)
_OF_HANDLERS = ("queue", "priority", "max_retries", "retry_delay", "webhook_url")  # fields with defaults of the type


class SchedulePreview(msgspec.Struct, frozen=True):
    """When a schedule would fire: in words, and its next fire times in UTC. `timezone` is the zone of its wall clock."""

    words: str
    timezone: str
    runs: list[datetime]


class BackfillResult(msgspec.Struct, frozen=True):
    """The fire times that got a job, or would get one in a dry run, and those that had one already."""

    added: list[datetime]
    had: list[datetime]


def make_schedule_request(values: Mapping[str, Any]) -> ScheduleRequest:
    """Return a request with these values; `Invalid` names one that is no field of a schedule."""
    known = ScheduleRequest.__struct_fields__
    for unknown in values.keys() - set(known):
        raise Invalid(unknown, f"is not a field of a schedule{did_you_mean(unknown, known)}")
    return ScheduleRequest(**values)


def check_definition(name: str, request: ScheduleRequest) -> None:
    """Refuse a schedule of the code that has no fire time at all. A schedule that is valid today stays valid when its times
    have passed."""
    make_schedule(name, request, now=_LONG_AGO)


class Schedules:
    """The schedules of one store. `make` checks a request for a job as `Client.make` does."""

    def __init__(self, store: Store, registry: Registry, make: Callable[..., NewJob], new_id: Callable[[], str]) -> None:
        self._jobs, self._store, self._registry, self._make, self._new_id = store, store.schedules, registry, make, new_id
        self._defined = dict[str, list[Defined]]()  # what became of the definitions of each process

    async def add_schedule(
        self, /, name: str, type: str, payload: Any = None, *, origin: Origin = Origin.API, by: str = CODE, **values: Any
    ) -> StoredSchedule:
        """Store a schedule that adds jobs of this type: `cron="0 3 * * *"` or `every="90s"` or `at=[…]`.

        Other values are `timezone`, `overlap`, `missed`, `jitter`, `start_at`, `end_at` and the options of its jobs. A
        value that is left out has the default of the type, or else the usual one. `Invalid` names a value that is wrong,
        `ScheduleTaken` a name that exists; then nothing is stored.
        """
        request = make_schedule_request({"type": type, "payload": {} if payload is None else payload, **values})
        stored = await self._store.add(self.checked_schedule(name, request), origin=origin, by=by)
        if stored is None:
            raise ScheduleTaken(name)
        return stored

    def checked_schedule(self, name: str, request: ScheduleRequest) -> Schedule:
        """Return the schedule that a request describes, its jobs checked against the handler of their type."""
        made = make_schedule(name, self._with_defaults(request), now=_now())
        self._check_jobs(made)
        return made

    async def change_schedule(self, /, name: str, *, by: str = CODE, **values: Any) -> StoredSchedule:
        """Change a schedule, and compute its next run from now. Jobs that were added stay as they are."""
        request = make_schedule_request(values)
        before = await self.schedule(name)
        self._check_jobs(change_schedule(before.schedule, request, now=_now()))
        return _found(name, await self._store.change(name, request, by=by))

    async def pause_schedule(self, name: str, *, reason: str | None = None, by: str = CODE) -> StoredSchedule:
        """Stop a schedule until it is resumed. Fire times that pass meanwhile are skipped, and do not count as missed."""
        request = ScheduleRequest(enabled=False, reason=reason)
        return _found(name, await self._store.change(_name(name), request, by=by))

    async def resume_schedule(self, name: str, *, by: str = CODE) -> StoredSchedule:
        """Fire a schedule again, from its next fire time after now."""
        return _found(name, await self._store.change(_name(name), ScheduleRequest(enabled=True), by=by))

    async def trigger_schedule(self, name: str) -> Job:
        """Add a job of a schedule now, whether or not it is paused or an earlier run has not ended. Its fire times stay."""
        found = await self.schedule(name)
        added = _found(name, await self._store.trigger(name, job_of(found.schedule, self._new_id())))
        job = await self._jobs.get(added.id)
        if job is None:
            raise ScheduleNotFound(name)
        return job

    async def remove_schedule(self, name: str) -> None:
        """Delete a schedule and the records of its fire times. Its jobs stay. Code that defines it adds it again."""
        if not await self._store.remove(_name(name)):
            raise ScheduleNotFound(name)

    async def schedule(self, name: str) -> StoredSchedule:
        """Return a schedule; `ScheduleNotFound` if there is none of this name."""
        return _found(name, await self._store.get(_name(name)))

    async def schedules(self, *, after: str | None = None, limit: int | None = None) -> list[StoredSchedule]:
        """Return the schedules by name, at most `limit` of them after the name `after`."""
        if after is not None and not is_schedule_name(after):
            raise Invalid("after", "must be the name of the schedule that the page before ended with")
        return await self._store.all(after=after, limit=limit)

    async def next_runs(self, name: str, count: int = RUNS) -> list[datetime]:
        """Return the next fire times of a schedule in UTC, none if it is paused."""
        _check_count(count)
        found = await self.schedule(name)
        return fire_times_after(found.schedule, _now(), count) if found.schedule.enabled else []

    def preview_schedule(self, *, count: int = RUNS, now: datetime | None = None, **values: Any) -> SchedulePreview:
        """Check values as `add_schedule` takes them, and say when such a schedule would fire after `now`, by default the
        present. Stores nothing."""
        _check_count(count)
        now = now or _now()
        made = make_schedule("preview", make_schedule_request({"type": "preview", **values}), now=now)
        return SchedulePreview(say_schedule(made), made.timezone, fire_times_after(made, now, count))

    async def schedule_jobs(self, name: str, *, after: str | None = None, limit: int = 50) -> Page:
        """Return a page of the jobs that a schedule has added, newest first, also those of a schedule that was removed."""
        if not 1 <= limit <= MOST_PER_PAGE:
            raise Invalid("limit", f"must be from 1 to {MOST_PER_PAGE}")
        cursor = None if after is None else check_cursor(after)
        page = await self._jobs.find(
            Query(JobFilter(schedule=_name(name)), after=cursor, limit=limit, payload=False, result=False)
        )
        if not page.jobs:
            await self.schedule(name)
        return page

    async def fire_records(self, name: str, *, limit: int = 50) -> list[FireRecord]:
        """Return the records of the last fire times of a schedule, newest first."""
        await self.schedule(name)
        return await self._store.records(name, limit=limit)

    async def backfill_schedule(
        self,
        name: str,
        first: datetime,
        last: datetime,
        *,
        dry_run: bool = False,
        spread: timedelta | str | None = None,
    ) -> BackfillResult:
        """Add jobs for the past fire times of a range that have none. They are due at once, or evenly over a `spread`."""
        found = await self.schedule(name)
        decided_to, forgotten_to = found.progress.decided_to, found.forgotten_to
        fire_times = backfill_times(found.schedule, first, last, decided_to=decided_to, forgotten_to=forgotten_to)
        records = await self._store.records(name, before=last + MILLISECOND, limit=MOST_FIRE_TIMES) if fire_times else []
        with_jobs = {record.slot_at for record in records if record.job_id is not None}
        wanted = [fire_time for fire_time in fire_times if fire_time not in with_jobs]
        had = [fire_time for fire_time in fire_times if fire_time in with_jobs]
        if dry_run or not wanted:
            return BackfillResult(wanted, had)
        delays = [timedelta(0)] * len(wanted) if spread is None else spread_over(len(wanted), spread)
        jobs = [
            (fire_time, job_of(found.schedule, self._new_id(), fire_time=fire_time, delay=delay))
            for fire_time, delay in zip(wanted, delays, strict=True)
        ]
        result = _found(name, await self._store.backfill(name, jobs))
        return BackfillResult(result.added, sorted([*had, *result.had]))

    async def define_schedules(
        self, application: str, process_id: str, requests: Mapping[str, ScheduleRequest], *, app_version: str | None = None
    ) -> bool:
        """Bring the schedules in the code of an application into the database, and log what became of each.

        Returns whether that must be done again later, because another live process still registers a schedule that this code
        no longer has, or is of a newer version. Of a repetition only what has changed is logged.
        """
        over = {name: made for name, request in requests.items() if (made := self._over(name, request)) is not None}
        rest = {name: request for name, request in requests.items() if name not in over}
        schedules = tuple(self.checked_schedule(name, request) for name, request in rest.items())
        results = await self._store.define(
            Definition(application, process_id, schedules, app_version, over=tuple(over.values()))
        )
        before, self._defined[process_id] = self._defined.get(process_id, []), results
        for one in results:
            if one.name in over and not before:
                notices.schedule_over(one.name)
            if one not in before:
                notices.schedule_defined(one.name, one.result.value, one.kept)
        return any(one.result in (Result.PENDING, Result.OLDER) for one in results)

    def _over(self, name: str, request: ScheduleRequest) -> Schedule | None:
        """Return a schedule of the code whose last time has passed, None if it has times to come. One that is over keeps no
        process from starting, also if its jobs no longer fit."""
        made = make_schedule(name, self._with_defaults(request), now=_LONG_AGO)
        return made if next_fire(made, _now()) is None else None

    def _with_defaults(self, request: ScheduleRequest) -> ScheduleRequest:
        """Return the request, with the defaults of its type for the fields that it leaves out."""
        handler = None if request.type is UNSET else self._registry.get(str(request.type))
        if handler is None:
            return request
        usual = {name: getattr(handler.defaults, name) for name in _OF_HANDLERS if getattr(request, name) is UNSET}
        return msgspec.structs.replace(request, **{name: value for name, value in usual.items() if value is not None})

    def _check_jobs(self, schedule: Schedule) -> None:
        """Refuse a schedule whose jobs `enqueue` would refuse: by its type, payload, timeout or webhook."""
        options = {"queue": schedule.queue, "timeout": schedule.timeout, "webhook_url": schedule.webhook_url}
        try:
            self._make(schedule.type, unpack(schedule.payload), **options)
        except Invalid as problem:
            raise self._with_example(problem, schedule.type) from None

    def _with_example(self, problem: Invalid, type: str) -> Invalid:
        """Return the refusal of a payload with one that fits the handler."""
        handler = self._registry.get(type)
        if handler is None or problem.field.partition(".")[0] != "payload" or (example := handler.example()) is None:
            return problem
        return Invalid(problem.field, f"{problem.reason}; write for instance {example}")


def changed_by_person(stored: StoredSchedule) -> tuple[str, ...]:
    """Return the fields that a person changed since the code defined the schedule."""
    return () if stored.defined is None else changed_fields(stored.schedule, stored.defined)


def _name(name: str) -> str:
    """Return the name; `ScheduleNotFound` if no schedule can have it, as one with a character that a database refuses."""
    if not is_schedule_name(name):
        raise ScheduleNotFound(name)
    return name


def _found(name: str, found: T | None) -> T:
    if found is None:
        raise ScheduleNotFound(name)
    return found


def _check_count(count: int) -> None:
    if not 1 <= count <= MOST_RUNS:
        raise Invalid("count", f"must be from 1 to {MOST_RUNS}")


def _now() -> datetime:
    return datetime.now(UTC)

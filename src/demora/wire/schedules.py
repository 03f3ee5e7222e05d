"""Schedules on the wire, and their fire times."""

import msgspec

from ..client.schedules import BackfillResult, SchedulePreview
from ..core.schedules.schedule import Schedule
from ..store.schedules import StoredSchedule
from .shape import Shape, time_or_none


class ScheduleView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A schedule: what a caller can set, and what became of it so far."""

    name: str
    type: str
    payload: msgspec.Raw
    cron: str | None
    every: int | None
    at: list[str] | None
    timezone: str
    queue: str
    priority: str
    max_retries: int
    retry_delay: int
    timeout: int | None
    tags: list[str]
    webhook_url: str | None
    enabled: bool
    reason: str | None
    start_at: str | None
    end_at: str | None
    jitter: int
    overlap: str
    missed: str
    missed_limit: int
    late_limit: int
    created_at: str
    last_run_at: str | None
    next_run_at: str | None
    run_count: int
    last_status: str | None
    origin: str
    changed_by: str | None


class SchedulesView(msgspec.Struct, frozen=True, rename="camel"):
    schedules: list[ScheduleView]
    next_cursor: str | None


class RunsView(msgspec.Struct, frozen=True):
    """Times at which a schedule fires."""

    timezone: str
    runs: list[str]


class SchedulePreviewView(msgspec.Struct, frozen=True):
    """When a schedule would fire, in words and in times."""

    words: str
    timezone: str
    runs: list[str]


class BackfillView(msgspec.Struct, frozen=True, rename="camel"):
    """The fire times that got a job, or would get one in a dry run, and those that had one."""

    added: list[str]
    had: list[str]
    dry_run: bool


_SCHEDULE = Shape(Schedule, ScheduleView, created_at="recorded_at")
_PREVIEW = Shape(SchedulePreview, SchedulePreviewView)
_BACKFILL = Shape(BackfillResult, BackfillView)


def schedule_view(stored: StoredSchedule) -> ScheduleView:
    return _SCHEDULE.write(
        stored.schedule,
        payload=msgspec.Raw(stored.schedule.payload),
        last_run_at=time_or_none(stored.last_run_at),
        next_run_at=time_or_none(stored.progress.next_at),
        run_count=stored.run_count,
        last_status=None if stored.last_status is None else stored.last_status.name,
        origin=stored.origin.value,
        changed_by=stored.changed_by,
    )


def schedules_view(found: list[StoredSchedule], limit: int | None = None) -> SchedulesView:
    """Return a page of `limit` schedules, of which one more than that was read to see whether another page follows."""
    shown = found[:limit]
    return SchedulesView([schedule_view(one) for one in shown], shown[-1].schedule.name if len(found) > len(shown) else None)


def preview_view(preview: SchedulePreview) -> SchedulePreviewView:
    return _PREVIEW.write(preview)


def backfill_view(result: BackfillResult, *, dry_run: bool) -> BackfillView:
    return _BACKFILL.write(result, dry_run=dry_run)

"""The operations on schedules."""

from ...core.spans import timestamp
from ...errors import Invalid
from ...wire.jobs import job_view, page_view
from ...wire.requests import (
    NewSchedule,
    PauseRequest,
    PreviewRequest,
    QueuesQuery,
    RunsQuery,
    ScheduleChange,
    ScheduleJobsQuery,
)
from ...wire.schedules import RunsView, preview_view, schedule_view, schedules_view
from .operation import Ask, Reply


async def list_schedules(ask: Ask) -> Reply:
    """List all schedules by name, page by page."""
    query: QueuesQuery = ask.query
    if query.limit < 1:
        raise Invalid("limit", "must be at least 1")
    found = await (await ask.client()).schedules(after=query.cursor, limit=query.limit + 1)
    return Reply(200, schedules_view(found, query.limit))


async def add_schedule(ask: Ask) -> Reply:
    """Add a schedule; 409 if the name exists."""
    request: NewSchedule = ask.body
    added = await (await ask.client()).add_schedule(by=ask.by, **request.options())
    return Reply(201, schedule_view(added))


async def preview_schedule(ask: Ask) -> Reply:
    """Check when a schedule would fire, and say it in words and times. Adds nothing."""
    request: PreviewRequest = ask.body
    return Reply(200, preview_view((await ask.client()).preview_schedule(count=request.count, **request.timing())))


async def get_schedule(ask: Ask) -> Reply:
    """Show a schedule; 404 if it does not exist."""
    return Reply(200, schedule_view(await (await ask.client()).schedule(ask.path["name"])))


async def change_schedule(ask: Ask) -> Reply:
    """Change a schedule. Its next run is computed from now; jobs that were added stay."""
    request: ScheduleChange = ask.body
    changed = await (await ask.client()).change_schedule(ask.path["name"], by=ask.by, **request.options())
    return Reply(200, schedule_view(changed))


async def remove_schedule(ask: Ask) -> Reply:
    """Delete a schedule. Its jobs stay."""
    await (await ask.client()).remove_schedule(ask.path["name"])
    return Reply(204)


async def pause_schedule(ask: Ask) -> Reply:
    """Pause a schedule: it does not fire until it is resumed, and runs that pass meanwhile are not missed."""
    request: PauseRequest = ask.body
    client = await ask.client()
    return Reply(200, schedule_view(await client.pause_schedule(ask.path["name"], reason=request.reason, by=ask.by)))


async def resume_schedule(ask: Ask) -> Reply:
    """Resume a schedule, from its next run after now."""
    return Reply(200, schedule_view(await (await ask.client()).resume_schedule(ask.path["name"], by=ask.by)))


async def trigger_schedule(ask: Ask) -> Reply:
    """Add a job of a schedule now. The times at which it fires stay as they are."""
    return Reply(201, job_view(await (await ask.client()).trigger_schedule(ask.path["name"])))


async def list_next_runs(ask: Ask) -> Reply:
    """List the next times at which a schedule fires, none if it is paused."""
    query: RunsQuery = ask.query
    client, name = await ask.client(), ask.path["name"]
    runs = await client.next_runs(name, query.count)
    return Reply(200, RunsView((await client.schedule(name)).schedule.timezone, [timestamp(run) for run in runs]))


async def list_schedule_jobs(ask: Ask) -> Reply:
    """List the jobs that a schedule has added, newest first."""
    query: ScheduleJobsQuery = ask.query
    page = await (await ask.client()).schedule_jobs(ask.path["name"], after=query.cursor, limit=query.limit)
    return Reply(200, page_view(page))

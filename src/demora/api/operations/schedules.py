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
from .operation import ApiCall, Reply


async def list_schedules(call: ApiCall) -> Reply:
    """List all schedules by name, page by page."""
    query: QueuesQuery = call.query
    if query.limit < 1:
        raise Invalid("limit", "must be at least 1")
    found = await (await call.client()).schedules(after=query.cursor, limit=query.limit + 1)
    return Reply(200, schedules_view(found, query.limit))


async def add_schedule(call: ApiCall) -> Reply:
    """Add a schedule; 409 if the name exists."""
    request: NewSchedule = call.body
    added = await (await call.client()).add_schedule(by=call.by, **request.options())
    return Reply(201, schedule_view(added))


async def preview_schedule(call: ApiCall) -> Reply:
    """Check when a schedule would fire, and say it in words and times. Adds nothing."""
    request: PreviewRequest = call.body
    return Reply(200, preview_view((await call.client()).preview_schedule(count=request.count, **request.timing())))


async def get_schedule(call: ApiCall) -> Reply:
    """Show a schedule; 404 if it does not exist."""
    return Reply(200, schedule_view(await (await call.client()).schedule(call.path["name"])))


async def change_schedule(call: ApiCall) -> Reply:
    """Change a schedule. Its next run is computed from now; jobs that were added stay."""
    request: ScheduleChange = call.body
    changed = await (await call.client()).change_schedule(call.path["name"], by=call.by, **request.options())
    return Reply(200, schedule_view(changed))


async def remove_schedule(call: ApiCall) -> Reply:
    """Delete a schedule. Its jobs stay."""
    await (await call.client()).remove_schedule(call.path["name"])
    return Reply(204)


async def pause_schedule(call: ApiCall) -> Reply:
    """Pause a schedule: it does not fire until it is resumed, and runs that pass meanwhile are not missed."""
    request: PauseRequest = call.body
    client = await call.client()
    return Reply(200, schedule_view(await client.pause_schedule(call.path["name"], reason=request.reason, by=call.by)))


async def resume_schedule(call: ApiCall) -> Reply:
    """Resume a schedule, from its next run after now."""
    return Reply(200, schedule_view(await (await call.client()).resume_schedule(call.path["name"], by=call.by)))


async def trigger_schedule(call: ApiCall) -> Reply:
    """Add a job of a schedule now. The times at which it fires stay as they are."""
    return Reply(201, job_view(await (await call.client()).trigger_schedule(call.path["name"])))


async def list_next_runs(call: ApiCall) -> Reply:
    """List the next times at which a schedule fires, none if it is paused."""
    query: RunsQuery = call.query
    client, name = await call.client(), call.path["name"]
    runs = await client.next_runs(name, query.count)
    return Reply(200, RunsView((await client.schedule(name)).schedule.timezone, [timestamp(run) for run in runs]))


async def list_schedule_jobs(call: ApiCall) -> Reply:
    """List the jobs that a schedule has added, newest first."""
    query: ScheduleJobsQuery = call.query
    page = await (await call.client()).schedule_jobs(call.path["name"], after=query.cursor, limit=query.limit)
    return Reply(200, page_view(page))

"""`demora schedules` and `demora schedule`: list schedules, add and change one, and show when it runs."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import click

from ..client.client import Client
from ..client.schedules import RUNS, BackfillResult, changed_by_person
from ..core.schedules.schedule import Missed, Overlap, Schedule, fire_times_between, preview, say_schedule, why_unreadable
from ..core.spans import say, timestamp
from ..store.schedules import FireRecord, Origin, StoredSchedule
from ..wire.jobs import job_view
from ..wire.schedules import backfill_view, schedule_view, schedules_view
from . import output
from .jobs import read_payload
from .opening import chosen_app, existing, is_app_named, opened
from .options import MOMENT, PRIORITY, SPAN, as_json, asynchronous
from .output import from_now, plain, print_json
from .root import group, verb, who

SHOWN_FIRE_TIMES = 5
_DAYS, _HOURS, _QUARTER = 7, 24, timedelta(minutes=15)
_MANY = 10  # runs of an hour that the picture shows as +

_CLEARED: dict[str, tuple[str, Any]] = {  # what --clear unsets, with the values that mean this
    "start-at": ("start_at", None),
    "end-at": ("end_at", None),
    "timeout": ("timeout", None),
    "webhook-url": ("webhook_url", None),
    "tag": ("tags", ()),
}

schedule_name = click.argument("name", metavar="NAME")


def described(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say when a schedule runs, and which jobs it adds."""
    for option in (
        click.option("--late-limit", type=SPAN, help="How late a missed fire time may still fire. Default: 7d."),
        click.option("--missed-limit", type=int, metavar="N", help="With --missed all: at most the newest N. Default: 100."),
        click.option(
            "--missed", type=click.Choice([one.value for one in Missed]), help="Which missed fire times still fire."
        ),
        click.option(
            "--overlap",
            type=click.Choice([one.value for one in Overlap]),
            help="What happens at a fire time while an earlier job lasts.",
        ),
        click.option("--jitter", type=SPAN, help="Each job is due up to this much later, before the next fire time."),
        click.option("--end-at", type=MOMENT, help="No fire time is after this time."),
        click.option("--start-at", type=MOMENT, help="No fire time is before this time."),
        click.option("--webhook-url", metavar="URL", help="Where to send a webhook when a job ends."),
        click.option("--tag", "tags", metavar="TAG", multiple=True, help="A tag of its jobs; may be repeated."),
        click.option("--timeout", type=SPAN, help="The longest run of a job."),
        click.option("--retry-delay", type=SPAN, help="The delay before the first retry, doubled each time."),
        click.option("--max-retries", type=int, metavar="N", help="Retries after the first run of a job."),
        click.option("--priority", type=PRIORITY, help="The priority of its jobs."),
        click.option("--queue", metavar="QUEUE", help="The queue of its jobs."),
        click.option(
            "--timezone", "--tz", metavar="ZONE", help="The time zone of --cron, such as Europe/Madrid. Default: UTC."
        ),
        click.option("--at", type=MOMENT, multiple=True, help="Run at this time; may be repeated."),
        click.option("--every", type=SPAN, help="Run at this interval: 90s, 1h30m."),
        click.option("--cron", metavar="TEXT", help="Run by the wall clock: '0 3 * * *', or six fields with seconds first."),
    ):
        command = option(command)
    return command


@verb("schedules")
@as_json
@asynchronous
async def schedules(*, as_json: bool) -> None:
    """List the schedules with their next and last runs."""
    async with existing() as client:
        found = await client.schedules()
    if as_json:
        print_json(schedules_view(found))
    else:
        output.schedules(found, datetime.now(UTC))


@group("schedule")
def schedule() -> None:
    """Add, change and show a schedule. It adds jobs at its times."""


@verb("add")
@schedule_name
@click.argument("type", metavar="TYPE")
@click.argument("payload", metavar="[PAYLOAD|@FILE|-]", required=False)
@described
@as_json
@asynchronous
async def add(name: str, type: str, payload: str | None, *, as_json: bool, **options: Any) -> None:
    """Add a schedule. Give one of --cron, --every and --at."""
    request = read_payload(payload)
    async with opened(chosen_app()) as client:
        _refuse_misspelt(client, type)
        added = await client.add_schedule(name, type, request, origin=Origin.CLI, by=who(), **_given(options))
    _tell(added, "is added", as_json=as_json)


@verb("edit")
@schedule_name
@click.option("--type", "type", metavar="TYPE", help="The type of its jobs.")
@click.option("--payload", metavar="JSON", help="The payload of its jobs: JSON, @FILE, or - for standard input.")
@described
@click.option("--clear", "cleared", type=click.Choice(list(_CLEARED)), multiple=True, help="Unset this; may be repeated.")
@as_json
@asynchronous
async def edit(name: str, *, payload: str | None, cleared: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Change a schedule. Its next run is computed from now; jobs that were added stay as they are."""
    given = _given(options) | ({} if payload is None else {"payload": read_payload(payload)})
    for option in cleared:
        if _CLEARED[option][0] in given:
            raise click.UsageError(f"give --{option} or --clear {option}, not both")
    given |= dict(_CLEARED[option] for option in cleared)
    if not given:
        raise click.UsageError("give at least one option that changes something")
    async with existing() as client:
        if "type" in given:
            _refuse_misspelt(client, given["type"])
        changed = await client.change_schedule(name, by=who(), **given)
    _tell(changed, "is changed", as_json=as_json)


@verb("pause")
@schedule_name
@click.option("--reason", metavar="TEXT", help="Why; shown with the schedule.")
@as_json
@asynchronous
async def pause(name: str, *, reason: str | None, as_json: bool) -> None:
    """Pause a schedule. It does not run until it is resumed, and runs that pass do not count as missed."""
    async with existing() as client:
        paused = await client.pause_schedule(name, reason=reason, by=who())
    _tell(paused, f"is paused; demora schedule resume {name} resumes it", as_json=as_json)


@verb("resume")
@schedule_name
@as_json
@asynchronous
async def resume(name: str, *, as_json: bool) -> None:
    """Resume a schedule. It fires at its next regular time."""
    async with existing() as client:
        resumed = await client.resume_schedule(name, by=who())
    _tell(resumed, "is resumed", as_json=as_json)


@verb("trigger")
@schedule_name
@as_json
@asynchronous
async def trigger(name: str, *, as_json: bool) -> None:
    """Add a job of a schedule now. Its regular run times do not change."""
    async with existing() as client:
        job = await client.trigger_schedule(name)
    if as_json:
        print_json(job_view(job))
    else:
        click.echo(f"job {job.id} is added; demora job {job.id} shows it")


@verb("remove")
@schedule_name
@as_json
@asynchronous
async def remove(name: str, *, as_json: bool) -> None:
    """Delete a schedule. Its jobs stay. A schedule in code comes back when a worker starts; pause it instead."""
    async with existing() as client:
        found = await client.schedule(name)
        await client.remove_schedule(name)
    if as_json:
        print_json({"removed": name})
    else:
        click.echo(f"schedule {plain(name)} is removed; its jobs stay")
        if found.origin is Origin.CODE:
            click.echo("it is defined in code, which adds it again at the next start; to stop it, use demora schedule pause")


@verb("show")
@schedule_name
@as_json
@asynchronous
async def show(name: str, *, as_json: bool) -> None:
    """Show a schedule: its next ten runs, in its time zone and in UTC, and a picture of the next week."""
    now = datetime.now(UTC)
    async with existing() as client:
        found = await client.schedule(name)
        records = await client.fire_records(name, limit=SHOWN_FIRE_TIMES)
    unreadable = why_unreadable(found.schedule)
    runs = preview(found.schedule, now, RUNS) if found.schedule.enabled and unreadable is None else []
    if as_json:
        print_json({"schedule": schedule_view(found), "nextRuns": [timestamp(run) for run in runs]})
        return
    week = _week(found.schedule, now) if unreadable is None else _cannot_fire(unreadable)
    for line in (*_facts(found, now), *_runs(found.schedule, runs, now), *week, *_fire_times(records)):
        click.echo(line)


@verb("run")
@schedule_name
@click.option("--from", "first", type=MOMENT, required=True, help="The first time of the range.")
@click.option("--to", "last", type=MOMENT, required=True, help="The last time of the range.")
@click.option("--spread", type=SPAN, help="Spread the jobs evenly over this span from now.")
@click.option("--dry-run", is_flag=True, help="Only show which runs would get a job.")
@as_json
@asynchronous
async def run(name: str, *, first: datetime, last: datetime, spread: timedelta | None, dry_run: bool, as_json: bool) -> None:
    """Add jobs for past runs that have none, for instance those that were missed."""
    async with existing() as client:
        result = await client.backfill_schedule(name, first, last, dry_run=dry_run, spread=spread)
    if as_json:
        print_json(backfill_view(result, dry_run=dry_run))
    else:
        for line in _backfilled(result, dry_run=dry_run):
            click.echo(line)


for command in (add, edit, show, pause, resume, trigger, remove, run):
    schedule.add_command(command)


def _refuse_misspelt(client: Client, type: str) -> None:
    """Refuse a type that is nearly one of the application, as `demora enqueue` does."""
    if is_app_named():
        client.registry.refuse_misspelt(type)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were typed."""
    return {name: value for name, value in options.items() if value is not None and value != ()}


def _tell(stored: StoredSchedule, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json(schedule_view(stored))
        return
    following = stored.progress.next_at
    click.echo(f"schedule {plain(stored.schedule.name)} {what}")
    if following is not None:
        click.echo(f"it runs {plain(say_schedule(stored.schedule))}; next {_in_zone(stored.schedule, following)}")


def _facts(stored: StoredSchedule, now: datetime) -> Iterator[str]:
    one = stored.schedule
    ran_at = stored.last_run_at
    last = "never" if ran_at is None else f"{timestamp(ran_at)} ({from_now(ran_at, now)})"
    status = "" if stored.last_status is None else f", {stored.last_status.name}"
    changed = ", ".join(changed_by_person(stored))
    facts = {
        "schedule": one.name,
        "runs": say_schedule(one),
        "type": one.type,
        "payload": one.payload.decode(),
        "queue": f"{one.queue}, {one.priority.name}",
        "tags": ", ".join(one.tags),
        "retries": f"{one.max_retries}, the first after {say(one.retry_delay)}",
        "timeout": "" if one.timeout is None else say(one.timeout),
        "webhook": one.webhook_url or "",
        "overlap": one.overlap.value,
        "missed": _say_missed(one),
        "paused": "no" if one.enabled else one.reason or "yes",
        "last run": last + status,
        "jobs": f"{stored.run_count} so far",
        "origin": stored.origin.value if stored.application is None else f"{stored.origin.value} of {stored.application}",
    }
    if stored.changed_by is not None:
        facts["changed by"] = stored.changed_by + (f": {changed}" if changed else "")
    for name, value in facts.items():
        if value:
            yield f"{name:<12} {plain(value)}"


def _say_missed(one: Schedule) -> str:
    most = f", at most {one.missed_limit}" if one.missed is Missed.ALL else ""
    return f"{one.missed.value}{most}, up to {say(one.late_limit)} late"


def _runs(schedule: Schedule, runs: list[datetime], now: datetime) -> Iterator[str]:
    if runs:
        yield ""
        yield "next runs"
    for run in runs:
        yield f"  {_in_zone(schedule, run):<32} {timestamp(run)}  {from_now(run, now)}"


def _cannot_fire(why: str) -> Iterator[str]:
    yield ""
    yield plain(f"next runs    unknown on this machine, which cannot fire it: {why}")


def _week(schedule: Schedule, now: datetime) -> Iterator[str]:
    """Draw the next seven days in the zone of the schedule: one line for each day, one character for each hour."""
    if not schedule.enabled:
        return
    zone = _zone(schedule)
    first = now.astimezone(zone).date()
    counts: dict[tuple[int, int], int] = {}
    for part in range(_DAYS * _HOURS * 4):  # by quarters, so that a schedule per second costs no more than another
        begin = now + part * _QUARTER
        for run in islice(fire_times_between(schedule, begin, begin + _QUARTER), _MANY):
            there = run.astimezone(zone)
            place = ((there.date() - first).days, there.hour)
            counts[place] = counts.get(place, 0) + 1
    yield ""
    yield f"next week    {'0':<6}{'6':<6}{'12':<6}{'18':<6} in {zone}"
    for day in range(_DAYS):
        hours = "".join(_mark(counts.get((day, hour), 0)) for hour in range(_HOURS))
        yield f"  {first + timedelta(days=day):%a %d %b} {hours}"


def _mark(count: int) -> str:
    """One character for the runs of an hour: a dot for none, their number, or + for ten and more."""
    return "." if not count else str(count) if count < _MANY else "+"


def _fire_times(records: list[FireRecord]) -> Iterator[str]:
    if records:
        yield ""
        yield "last runs"
    for record in records:
        yield f"  {timestamp(record.slot_at)}  {record.outcome.value:<9} {record.job_id or ''}".rstrip()


def _backfilled(result: BackfillResult, *, dry_run: bool) -> Iterator[str]:
    for fire_time in result.added:
        yield timestamp(fire_time)
    had = f"; {len(result.had)} had one already" if result.had else ""
    yield f"{len(result.added)} runs {'would get' if dry_run else 'got'} a job{had}"


def _in_zone(schedule: Schedule, at: datetime) -> str:
    return f"{at.astimezone(_zone(schedule)):%a %Y-%m-%d %H:%M:%S %Z}"


def _zone(schedule: Schedule) -> tzinfo:
    """Return the zone in which to show times: UTC if this machine does not know that of the schedule."""
    try:
        return ZoneInfo(schedule.timezone)
    except (OSError, ValueError, KeyError):
        return UTC

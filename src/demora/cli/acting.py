"""Commands that act on jobs and queues that are there: on jobs by their ids, each tried, or on all that match a filter."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import click
import msgspec

from ..client import Client
from ..core.states import Status
from ..errors import JobNotFound, WrongState
from ..store import Queue
from ..views import job_view, queue_view
from .completing import queue_names
from .opening import existing
from .options import STATUS, as_json, asynchronous, timing
from .root import Failure, verb, who
from .sweeping import Sweep, by_filter, carry_out, check_choice
from .text import due, plain
from .wire import print_json

ids = click.argument("ids", metavar="[ID...]", nargs=-1)
status = click.option("--status", type=STATUS, multiple=True, help="Instead of FAILED; may be repeated.")
queue_name = click.argument("queue", metavar="QUEUE", shell_complete=queue_names)


Act = Callable[[Client, str], Awaitable[tuple[str, Status | None]]]


class Done(msgspec.Struct, frozen=True):
    """What became of a wish about one job: its status now, or why it was refused."""

    id: str
    done: bool
    status: str | None = None
    error: str | None = None


@verb("cancel")
@ids
@by_filter
@as_json
@asynchronous
async def cancel(ids: tuple[str, ...], *, sweep: Sweep, as_json: bool) -> None:
    """Cancel jobs: those with these ids, or all waiting ones that match. A running one is told to end."""
    check_choice(ids, sweep)
    async with existing() as client:
        if ids:
            await _each(client, ids, _cancel, as_json=as_json)
        else:
            await carry_out(client.cancel_many, sweep, verb="cancel", done="cancelled", as_json=as_json)


@verb("retry")
@ids
@status
@by_filter
@as_json
@asynchronous
async def retry(ids: tuple[str, ...], *, sweep: Sweep, as_json: bool) -> None:
    """Run jobs again, with all their retries: FAILED or CANCELLED ones by id, or all dead letters that match."""
    check_choice(ids, sweep)
    async with existing() as client:
        if ids:
            await _each(client, ids, _retry, as_json=as_json)
        else:
            await carry_out(client.retry_many, sweep, verb="retry", done="retried", as_json=as_json)


@verb("delete")
@ids
@status
@by_filter
@as_json
@asynchronous
async def delete(ids: tuple[str, ...], *, sweep: Sweep, as_json: bool) -> None:
    """Remove jobs that have ended, with their history: by id, or all dead letters that match."""
    check_choice(ids, sweep)
    async with existing() as client:
        if ids:
            await _each(client, ids, _delete, as_json=as_json)
        else:
            await carry_out(client.delete_many, sweep, verb="delete", done="deleted", as_json=as_json)


@verb("reschedule")
@click.argument("id", metavar="ID")
@timing
@as_json
@asynchronous
async def reschedule(id: str, *, at: datetime | None, delay: timedelta | None, priority: str | None, as_json: bool) -> None:
    """Change when a waiting job runs, or its priority. It keeps its id."""
    if at is None and delay is None and priority is None:
        raise click.UsageError("say what to change: --at, --delay or --priority")
    async with existing() as client:
        job = await client.reschedule(id, at=at, delay=delay, priority=priority)
    if as_json:
        print_json(job_view(job))
    else:
        click.echo(f"{job.id} is due {due(job, datetime.now(UTC))}, priority {job.priority.name}")


@verb("pause")
@queue_name
@click.option("--reason", metavar="TEXT", help="Why; shown to whoever looks.")
@as_json
@asynchronous
async def pause(queue: str, *, reason: str | None, as_json: bool) -> None:
    """Hand out nothing from a queue until it is resumed. What runs goes on."""
    async with existing() as client:
        known = {one.name for one in await client.queues()}
        paused = await client.pause(queue, reason, by=who())
    new = "" if queue in known else "it is new: no job was ever put there; "
    _show(paused, f"{queue} is paused; {new}demora resume {queue} lets it go on", as_json=as_json)


@verb("resume")
@queue_name
@as_json
@asynchronous
async def resume(queue: str, *, as_json: bool) -> None:
    """Hand out jobs from a paused queue again."""
    async with existing() as client:
        was_paused = (await client.queue(queue)).pause is not None
        resumed = await client.resume(queue)
    _show(resumed, f"{queue} goes on" if was_paused else f"{queue} was not paused", as_json=as_json)


def _show(queue: Queue, said: str, *, as_json: bool) -> None:
    if as_json:
        print_json(queue_view(queue))
    else:
        click.echo(said)


async def _each(client: Client, ids: tuple[str, ...], act: Act, *, as_json: bool) -> None:
    """Try each; the exit code is 1 if any was refused."""
    tried = [await _try(client, id, act, quiet=as_json) for id in ids]
    if as_json:
        print_json({"jobs": tried})
    if not all(one.done for one in tried):
        click.get_current_context().exit(1)


async def _try(client: Client, id: str, act: Act, *, quiet: bool) -> Done:
    try:
        said, status = await act(client, id)
    except (JobNotFound, WrongState) as problem:
        Failure(str(problem)).show()
        return Done(id, False, getattr(problem, "status", None), str(problem))
    if not quiet:
        click.echo(said)
    return Done(id, True, None if status is None else status.name)


async def _cancel(client: Client, id: str) -> tuple[str, Status]:
    status = await client.cancel(id)
    if status is Status.CANCELLED:
        return f"{plain(id)} is cancelled", status
    return f"{plain(id)} runs; its worker is told to end it", status


async def _retry(client: Client, id: str) -> tuple[str, Status]:
    job = await client.retry(id)
    return f"{job.id} is {job.status.name} again", job.status


async def _delete(client: Client, id: str) -> tuple[str, None]:
    await client.delete(id)
    return f"{plain(id)} is deleted", None

"""Commands that act on jobs and queues that are there. Those that take several ids try each and fail if any did."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import click

from ..client import Client
from ..core.states import Status
from ..errors import JobNotFound, WrongState
from .opening import existing
from .options import asynchronous, timing
from .root import Failure, verb
from .text import due, plain

ids = click.argument("ids", metavar="ID...", nargs=-1, required=True)
queue_name = click.argument("queue", metavar="QUEUE")


@verb("cancel")
@ids
@asynchronous
async def cancel(ids: tuple[str, ...]) -> None:
    """Cancel jobs. A waiting one ends at once; the worker of a running one hears of it within a second."""
    await _each(ids, _cancel)


@verb("retry")
@ids
@asynchronous
async def retry(ids: tuple[str, ...]) -> None:
    """Run FAILED or CANCELLED jobs again, with all their retries."""
    await _each(ids, _retry)


@verb("delete")
@ids
@asynchronous
async def delete(ids: tuple[str, ...]) -> None:
    """Remove jobs that have ended, with their history."""
    await _each(ids, _delete)


@verb("reschedule")
@click.argument("id", metavar="ID")
@timing
@asynchronous
async def reschedule(id: str, *, at: datetime | None, delay: timedelta | None, priority: str | None) -> None:
    """Change when a waiting job runs, or its priority. It keeps its id."""
    if at is None and delay is None and priority is None:
        raise click.UsageError("say what to change: --at, --delay or --priority")
    async with existing() as client:
        job = await client.reschedule(id, at=at, delay=delay, priority=priority)
    click.echo(f"{job.id} is due {due(job, datetime.now(UTC))}, priority {job.priority.name}")


@verb("pause")
@queue_name
@click.option("--reason", metavar="TEXT", help="Why; shown to whoever looks.")
@asynchronous
async def pause(queue: str, *, reason: str | None) -> None:
    """Hand out nothing from a queue until it is resumed. What runs goes on."""
    async with existing() as client:
        await client.pause(queue, reason)
    click.echo(f"{queue} is paused; demora resume {queue} lets it go on")


@verb("resume")
@queue_name
@asynchronous
async def resume(queue: str) -> None:
    """Hand out jobs from a paused queue again."""
    async with existing() as client:
        await client.resume(queue)
    click.echo(f"{queue} goes on")


async def _each(ids: tuple[str, ...], act: Callable[[Client, str], Awaitable[str]]) -> None:
    refused = 0
    async with existing() as client:
        for id in ids:
            try:
                click.echo(await act(client, id))
            except (JobNotFound, WrongState) as problem:
                Failure(str(problem)).show()
                refused += 1
    if refused:
        click.get_current_context().exit(1)


async def _cancel(client: Client, id: str) -> str:
    status = await client.cancel(id)
    return f"{plain(id)} is cancelled" if status is Status.CANCELLED else f"{plain(id)} runs; its worker is told to end it"


async def _retry(client: Client, id: str) -> str:
    job = await client.retry(id)
    return f"{job.id} is {job.status.name} again"


async def _delete(client: Client, id: str) -> str:
    await client.delete(id)
    return f"{plain(id)} is deleted"

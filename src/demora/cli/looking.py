"""Commands that look: jobs, one job, dead letters, queues, workers. They change nothing and make no database."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from ..core.states import Status
from ..store import Page
from ..views import job_view, page_view, queue_view, worker_view
from . import tables
from .details import about
from .opening import existing
from .options import SPAN, STATUS, as_json, asynchronous, paged
from .root import verb
from .watching import watch
from .wire import print_json

LEAST_INTERVAL = timedelta(milliseconds=100)


@verb("jobs")
@click.option("--status", "statuses", type=STATUS, multiple=True, help="Only jobs with this status; may be repeated.")
@paged
@asynchronous
async def jobs(statuses: tuple[str, ...], *, as_json: bool, **filters: Any) -> None:
    """List jobs, newest first."""
    page = await _find([Status[name] for name in statuses], **filters)
    if as_json:
        print_json(page_view(page))
    else:
        tables.jobs(page.jobs, datetime.now(UTC))
        _say_more(page)


@verb("job")
@click.argument("id", metavar="ID")
@as_json
@asynchronous
async def job(id: str, *, as_json: bool) -> None:
    """Show everything about one job: its attempts and its log too."""
    async with existing() as client:
        found = await client.get(id)
    if as_json:
        print_json(job_view(found))
    else:
        click.echo("\n".join(about(found, datetime.now(UTC))))


@verb("dead-letters")
@paged
@asynchronous
async def dead_letters(*, as_json: bool, **filters: Any) -> None:
    """List the jobs that FAILED, newest first. `demora retry` runs them again, `demora delete` removes them."""
    page = await _find([Status.FAILED], **filters)
    if as_json:
        print_json(page_view(page))
    else:
        tables.dead_letters(page.jobs, datetime.now(UTC))
        _say_more(page)


@verb("queues")
@click.option("--watch", "watched", is_flag=True, help="Show queues and workers again and again, until Ctrl-C.")
@click.option("--interval", type=SPAN, help="With --watch: how long between looks, 1s if not given.")
@as_json
def queues(*, watched: bool, interval: timedelta | None, as_json: bool) -> None:
    """List the queues: their counts, and whether paced or paused."""
    if interval is not None and (not watched or interval < LEAST_INTERVAL):
        raise click.UsageError("--interval goes with --watch and is at least 100ms")
    if watched:
        watch(interval or timedelta(seconds=1), as_json=as_json)
    else:
        asyncio.run(_queues(as_json=as_json))


async def _queues(*, as_json: bool) -> None:
    async with existing() as client:
        found = await client.queues()
        paces = {pacing.queue: pacing for pacing in await client.pacings()}
    if as_json:
        print_json({"queues": [queue_view(queue, paces.get(queue.name)) for queue in found]})
    else:
        tables.queues(found, paces)


@verb("workers")
@as_json
@asynchronous
async def workers(*, as_json: bool) -> None:
    """List the workers that are alive."""
    async with existing() as client:
        found = await client.workers()
    if as_json:
        print_json({"workers": [worker_view(worker) for worker in found]})
    else:
        tables.workers(found, datetime.now(UTC))


async def _find(statuses: list[Status], **filters: Any) -> Page:
    async with existing() as client:
        return await client.find(status=statuses, **filters)


def _say_more(page: Page) -> None:
    if page.next is not None:
        click.echo(f"there are more: add --cursor {page.next}")

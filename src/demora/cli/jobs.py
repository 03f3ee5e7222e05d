"""The commands about jobs: enqueue one, look at them, act on them by id or by filter, and follow their events."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from ..client.client import Client
from ..client.events import EventStream
from ..core.events import Event, EventKind
from ..core.filters import Sort
from ..core.job import Job
from ..core.pace import say_pace
from ..core.spans import plural, timestamp
from ..core.states import Status
from ..core.workers import WorkerRecord
from ..errors import Invalid, JobNotFound, WrongState
from ..store.jobs import Page, Queue
from ..wire.events import event_view
from ..wire.jobs import dead_letter_stats_view, job_view, page_view
from ..wire.queues import worker_view
from . import output
from .bulk import Sweep, by_filter, carry_out, check_choice
from .opening import chosen_app, existing, is_app_named, opened
from .options import MOMENT, SPAN, STATUS, as_json, asynchronous, paged, queue_names, timing, whole_id
from .output import about, due, plain, print_json
from .root import Failure, verb

JobAct = Callable[[Client, str], Awaitable[tuple[str, Status | None]]]

ids = click.argument("ids", metavar="[ID...]", nargs=-1)
status = click.option(
    "--status", type=STATUS, multiple=True, help="The status to select instead of FAILED; may be repeated."
)


@verb("enqueue")
@click.argument("type", metavar="TYPE")
@click.argument("payload", metavar="[PAYLOAD|@FILE|-]", required=False)
@timing
@click.option("--queue", metavar="QUEUE", help="The queue of the job.")
@click.option("--max-retries", type=int, metavar="N", help="How often to retry after a failure.")
@click.option("--retry-delay", type=SPAN, help="The delay before the first retry; it doubles each time.")
@click.option("--timeout", type=SPAN, help="How long one attempt may run.")
@click.option("--key", metavar="KEY", help="Idempotency key: for 24 hours, the same key returns the same job.")
@click.option("--expires-at", type=MOMENT, help="Cancel the job if no attempt has started by this time.")
@click.option("--expires-in", type=SPAN, help="The same, as a span from now.")
@click.option("--unique", metavar="KEY", help="Add the job only if no job of this type and key waits; or type+payload.")
@click.option("--if-waiting", type=click.Choice(["keep", "replace"]), help="Keep or replace the unique job that waits.")
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="A tag; may be repeated.")
@click.option("--webhook-url", metavar="URL", help="Where to send a webhook when the job ends.")
@click.option("--webhook-on-cancel", is_flag=True, default=None, help="Send the webhook for a cancelled job too.")
@click.option("--name", metavar="NAME", help="A name for people. Default: the type.")
@click.option("--wait", is_flag=True, help="Wait until the job ends; exit with 0 only if it is COMPLETED.")
@as_json
@asynchronous
async def enqueue(type: str, payload: str | None, *, wait: bool, as_json: bool, **options: Any) -> None:
    """Enqueue a job. The payload is a JSON object, given as text, as @FILE, or as - for standard input."""
    request = read_payload(payload)
    async with opened(chosen_app()) as client:
        if is_app_named():
            client.registry.refuse_misspelt(type)
        [(job, replayed)] = await client.add([client.make(type, request, **options)])
        if not as_json:
            _say_enqueued(job, replayed)
        if wait:
            job = await _ended(client, job)
    _show_enqueued(job, wait=wait, as_json=as_json)


@verb("jobs")
@click.argument("search", metavar="[SEARCH...]", nargs=-1)
@click.option("--status", "statuses", type=STATUS, multiple=True, help="Only jobs with this status; may be repeated.")
@click.option("--sort", type=click.Choice([one.value for one in Sort]), help="The order. Default: as the statuses suggest.")
@click.option("--count", "counted", is_flag=True, help="Also count the jobs that match, up to 100,000.")
@paged
@asynchronous
async def jobs(
    search: tuple[str, ...], statuses: tuple[str, ...], *, sort: str | None, counted: bool, as_json: bool, **filters: Any
) -> None:
    """List jobs. Waiting ones are in order of due time; ended ones have the latest first, others the newest first.

    A SEARCH is words such as status:failed type:email.* tag:vip error:Timeout "created:<2h" text.
    """
    which = {"status": [Status[name] for name in statuses]} | {name: filters.pop(name) for name in ("queue", "type", "tag")}
    async with existing() as client:
        page = await client.find(" ".join(search), **which, sort=sort, **filters)
        count = await client.count(" ".join(search), **which) if counted else None
    if as_json:
        print_json(page_view(page, count))
        return
    output.jobs(page.jobs, datetime.now(UTC), width=output.terminal_width())
    if count is not None:
        click.echo(f"{'' if count.complete else 'at least '}{plural(count.jobs, 'job')} match")
    _say_more(page)


@verb("job")
@click.argument("id", metavar="ID")
@as_json
@asynchronous
async def job(id: str, *, as_json: bool) -> None:
    """Show everything about one job. This includes its attempts and its log."""
    async with existing() as client:
        found = await client.get(await whole_id(client, id))
    if as_json:
        print_json(job_view(found))
    else:
        click.echo("\n".join(about(found, datetime.now(UTC))))


@verb("why")
@click.argument("id", metavar="ID")
@as_json
@asynchronous
async def why(id: str, *, as_json: bool) -> None:
    """Explain in one sentence why a job is in its current state."""
    async with existing() as client:
        found = await client.why(await whole_id(client, id))
    if as_json:
        print_json(found)
    else:
        click.echo(plain(found.sentence))


@verb("dead-letters")
@click.option("--stats", is_flag=True, help="Count all of them by type, error, queue and age instead.")
@paged
@asynchronous
async def dead_letters(*, stats: bool, as_json: bool, **filters: Any) -> None:
    """List FAILED jobs, the latest failure first. `demora retry` runs them again, `demora delete` removes them."""
    if stats:
        await _count_dead_letters(as_json=as_json, **filters)
        return
    page = await _find([Status.FAILED], **filters)
    if as_json:
        print_json(page_view(page))
    else:
        output.dead_letters(page.jobs, datetime.now(UTC), width=output.terminal_width())
        _say_more(page)


async def _count_dead_letters(*, as_json: bool, queue: str | None, type: str | None, tag: str | None, **_: Any) -> None:
    if queue or type or tag:
        raise click.UsageError("--stats counts all dead letters; it takes no --queue, --type or --tag")
    async with existing() as client:
        found = await client.dead_letter_stats()
    if as_json:
        print_json(dead_letter_stats_view(found))
    else:
        output.dead_letter_stats(found, datetime.now(UTC))


@verb("workers")
@as_json
@asynchronous
async def workers(*, as_json: bool) -> None:
    """List the live workers."""
    async with existing() as client:
        found = await client.workers()
    if as_json:
        print_json({"workers": [worker_view(worker) for worker in found]})
    else:
        output.workers(found, datetime.now(UTC))


@verb("cancel")
@ids
@by_filter
@as_json
@asynchronous
async def cancel(ids: tuple[str, ...], *, sweep: Sweep, as_json: bool) -> None:
    """Cancel jobs by id, or all waiting jobs that match. A running job is asked to stop."""
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
    """Run jobs again with all their retries. Takes FAILED or CANCELLED jobs by id, or all dead letters that match."""
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
    """Delete ended jobs with their history. Takes ids, or all dead letters that match."""
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
    """Change the time or the priority of a waiting job. It keeps its id."""
    if at is None and delay is None and priority is None:
        raise click.UsageError("nothing to change: give --at, --delay or --priority")
    async with existing() as client:
        job = await client.reschedule(await whole_id(client, id), at=at, delay=delay, priority=priority)
    if as_json:
        print_json(job_view(job))
    else:
        click.echo(f"{job.id} is due {due(job, datetime.now(UTC))}, priority {job.priority.name}")


def read_payload(text: str | None) -> Any:
    """Return the value of a payload argument. Raises `Invalid`, with the position, if it is not JSON."""
    if text is None:
        return None
    try:
        return json.loads(_source(text))
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno}, column {problem.colno}"
        raise Invalid("payload", f'is not JSON at {where}: {problem.msg}; write for instance \'{{"to": "ann"}}\'') from None
    except UnicodeDecodeError as problem:
        raise Invalid("payload", f"is not UTF-8 at byte {problem.start}") from None
    except (RecursionError, ValueError) as problem:
        raise Invalid("payload", f"cannot be read as JSON: {problem}") from None


def _source(text: str) -> str:
    if text == "-":
        return sys.stdin.buffer.read().decode()
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_bytes().decode()
    except OSError as problem:
        raise Invalid("payload", f"cannot read {text[1:]}: {problem.strerror}") from problem


def _say_enqueued(job: Job, replayed: bool) -> None:
    if replayed:
        click.echo(f"{job.id} already exists, no job added: {job.type} in queue {job.queue}")
    else:
        click.echo(f"{job.id} enqueued: {job.type} in queue {job.queue}, due {due(job, datetime.now(UTC))}")


async def _ended(client: Client, job: Job) -> Job:
    """Wait for the end of a job. First print on stderr what may keep it waiting."""
    for hint in await hints(client, job):
        click.echo(hint, err=True)
    return await client.wait(job.id)


async def hints(client: Client, job: Job) -> list[str]:
    """Return what keeps a job waiting: no worker can run it, or its queue is paused. Empty once the job has ended."""
    if (await client.get(job.id)).status.ended:
        return []
    health = await client.health()
    workers = await client.workers()
    lack = [health.reason] if health.reason is not None else _lack(job, workers)
    return [*lack, *_paused(job, await client.queues())]


def _lack(job: Job, workers: Sequence[WorkerRecord]) -> Iterator[str]:
    serving = [worker for worker in workers if not worker.queues or job.queue in worker.queues]
    if not serving:
        yield f"no live worker serves queue {job.queue}: its jobs wait until one does (demora worker --queues {job.queue})"
    elif not any(job.type in worker.types for worker in serving):
        yield f"no live worker knows type {job.type}: its jobs wait until one does (demora worker --app MODULE:APP)"


def _paused(job: Job, queues: Iterable[Queue]) -> Iterator[str]:
    for queue in queues:
        if queue.name == job.queue and queue.pause is not None:
            why = "" if queue.pause.reason is None else f" ({plain(queue.pause.reason)})"
            yield f"queue {queue.name} is paused{why}: its jobs wait until it is resumed (demora resume {queue.name})"


def _show_enqueued(job: Job, *, wait: bool, as_json: bool) -> None:
    if as_json:
        print_json(job_view(job))
    elif wait:
        text = job.error or "" if job.result_json is None else job.result_json.decode()
        click.echo(f"{job.status.name} {plain(text)}".rstrip())
    if wait and job.status is not Status.COMPLETED:
        click.get_current_context().exit(1)


async def _find(statuses: list[Status], **filters: Any) -> Page:
    async with existing() as client:
        return await client.find(status=statuses, **filters)


def _say_more(page: Page) -> None:
    if not page.complete:
        click.echo(f"the search stopped early, because many jobs do not match; to continue, add --cursor {page.next}")
    elif page.next is not None:
        click.echo(f"for the next page, add --cursor {page.next}")


class Done(msgspec.Struct, frozen=True):
    """The result for one job: its status now, or why the request was refused."""

    id: str
    done: bool
    status: str | None = None
    error: str | None = None


async def _each(client: Client, ids: tuple[str, ...], act: JobAct, *, as_json: bool) -> None:
    """Act on each job. The exit code is 1 if any was refused."""
    tried = [await _try(client, id, act, quiet=as_json) for id in ids]
    if as_json:
        print_json({"jobs": tried})
    if not all(one.done for one in tried):
        click.get_current_context().exit(1)


async def _try(client: Client, id: str, act: JobAct, *, quiet: bool) -> Done:
    try:
        id = await whole_id(client, id)
        message, status = await act(client, id)
    except (JobNotFound, WrongState, Failure) as problem:
        Failure(str(problem)).show()
        return Done(id, False, getattr(problem, "status", None), str(problem))
    if not quiet:
        click.echo(message)
    return Done(id, True, None if status is None else status.name)


async def _cancel(client: Client, id: str) -> tuple[str, Status]:
    status = await client.cancel(id)
    if status is Status.CANCELLED:
        return f"{plain(id)} is CANCELLED", status
    return f"{plain(id)} is running; its worker is asked to stop it", status


async def _retry(client: Client, id: str) -> tuple[str, Status]:
    job = await client.retry(id)
    return f"{job.id} is {job.status.name} again", job.status


async def _delete(client: Client, id: str) -> tuple[str, None]:
    await client.delete(id)
    return f"{plain(id)} is deleted", None


# `demora events`


@verb("events")
@click.option("--queue", metavar="QUEUE", shell_complete=queue_names, help="Only events of this queue.")
@click.option("--type", "type", metavar="TYPE", help="Only events of jobs of this type.")
@click.option("--tag", metavar="TAG", help="Only events of jobs with this tag.")
@click.option("--job", metavar="ID", help="Only events of this job.")
@click.option("--after", metavar="POSITION", help="First print the ends since this position, which --json prints.")
@as_json
def events(*, as_json: bool, **filters: str | None) -> None:
    """Print what happens to jobs and queues. One line each, until Ctrl-C."""
    try:
        asyncio.run(_events(as_json=as_json, **filters))
    except KeyboardInterrupt:  # a normal end here
        return


async def _events(*, as_json: bool, **filters: str | None) -> None:
    async with existing() as client:
        stream: EventStream = client.events(**filters)
        async with stream:
            async for event in stream:
                if as_json:
                    print_json(event_view(event, position=True))
                else:
                    click.echo(plain(event_line(event)))


def event_line(event: Event) -> str:
    """Return an event as one line for people: the time, what happened, and to what."""
    at = "-" if event.at is None else timestamp(event.at)
    return "  ".join([at, event.kind.value, *_event_facts(event)])


def _event_facts(event: Event) -> list[str]:
    job = event.job
    if job is None:
        return [fact for fact in (event.queue, *_queue_facts(event)) if fact]
    facts = [job.id, job.type, job.queue]
    match event.kind:
        case EventKind.STARTED:
            facts += [f"attempt {job.attempt}", job.worker_id or ""]
        case EventKind.PROGRESS:
            facts += ["" if job.progress is None else f"{job.progress:.0%}", job.progress_message or ""]
        case EventKind.RETRYING:
            facts += [f"due {timestamp(job.due_at)}", job.error or ""]
        case EventKind.FAILED | EventKind.CANCELLED:
            facts += [job.error or ""]
        case _:
            pass
    return [fact for fact in facts if fact]


def _queue_facts(event: Event) -> list[str]:
    match event.kind:
        case EventKind.PACE:
            facts = ["default" if event.follows else "off" if event.pace is None else say_pace(event.pace)]
        case EventKind.RESET:
            facts = ["the position is too old; events are missing"]
        case _:
            facts = [event.reason or ""]
    return [*facts, f"by {event.by}" if event.by else ""]

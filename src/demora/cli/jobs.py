"""Acting on many jobs at once: which ones the options mean, asking before it is done, and telling how far it is."""

import asyncio
import functools
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from ..client.bulk import BulkResult, OnProgress
from ..client.client import Client
from ..client.views import bulk_result_view, job_view, page_view, queue_view, worker_view
from ..core.job import Job
from ..core.states import Status
from ..errors import Invalid, JobNotFound, WrongState
from ..store.jobs import Page, Queue, WorkerRecord
from . import output
from .completing import queue_names
from .opening import chosen_app, existing, opened
from .options import MOMENT, SPAN, STATUS, app_option, as_json, asynchronous, in_queue, paged, timing
from .output import about, due, plain, print_json
from .queues import watch
from .root import Failure, verb, who

F = TypeVar("F", bound=Callable[..., Any])
Many = Callable[..., Awaitable[BulkResult]]


class Sweep(msgspec.Struct, frozen=True):
    """Which jobs the options mean, and how to go about it. `filters` are those of `Client.find` that were given."""

    filters: dict[str, Any]
    everything: bool = False
    limit: int | None = None
    dry_run: bool = False
    yes: bool = False

    @property
    def asked_for(self) -> bool:
        return self.everything or bool(self.filters)


dry_run = click.option("--dry-run", is_flag=True, help="Only count what it would be done to.")
yes = click.option("--yes", is_flag=True, help="Do not ask first.")
older_than = click.option("--older-than", type=SPAN, help="Only jobs that ended, or else were added, so long ago: 7d.")


def by_filter(command: F) -> Callable[..., Any]:
    """The options that name many jobs instead of ids, given to the command as `sweep`."""

    @functools.wraps(command)
    def run(
        *args: Any,
        everything: bool,
        limit: int | None,
        dry_run: bool,
        yes: bool,
        status: tuple[str, ...] = (),
        queue: str | None,
        type: str | None,
        tag: str | None,
        older_than: timedelta | None,
        **others: Any,
    ) -> Any:
        given = {"status": status, "queue": queue, "type": type, "tag": tag, "older_than": older_than}
        filters = {name: value for name, value in given.items() if value not in (None, ())}
        return command(*args, sweep=Sweep(filters, everything, limit, dry_run, yes), **others)

    wrapped: Callable[..., Any] = run
    for option in (
        yes,
        dry_run,
        click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many, the newest first."),
        older_than,
        click.option("--tag", metavar="TAG", help="Only jobs with this tag."),
        click.option("--type", "type", metavar="TYPE", help="Only jobs of this type."),
        in_queue,
        click.option("--all", "everything", is_flag=True, help="All of them, whatever their queue, type and tags."),
    ):
        wrapped = option(wrapped)
    return wrapped


def check_choice(ids: tuple[str, ...], sweep: Sweep) -> None:
    """Refuse a command that names no jobs, or names them in two ways."""
    if ids and (sweep.asked_for or sweep.limit or sweep.dry_run):
        raise click.UsageError("name jobs by their ids or by --all, --queue and so on, not by both")
    if not ids and not sweep.asked_for:
        raise click.UsageError("say which jobs: ids, or --all, --queue, --type, --tag, --older-than")


async def carry_out(many: Many, sweep: Sweep, *, verb: str, done: str, as_json: bool) -> None:
    """Do it, after asking where somebody can be asked; otherwise `--yes` must have been said."""
    only_count = functools.partial(many, **sweep.filters, limit=sweep.limit, dry_run=True)
    if sweep.dry_run:
        tally = await only_count()
    else:
        total = await _agreed(only_count, sweep, verb)
        with progress(done, total) as told:
            tally = await many(**sweep.filters, limit=sweep.limit, told=told)
    if as_json:
        print_json(bulk_result_view(tally, dry_run=sweep.dry_run))
    else:
        click.echo(_summary(tally, f"would {verb}" if sweep.dry_run else done, dry_run=sweep.dry_run))


async def _agreed(only_count: Many, sweep: Sweep, verb: str) -> int | None:
    """How many jobs it will be about, if that was counted to ask for consent or to show progress."""
    if not sys.stderr.isatty():
        confirm("", yes=sweep.yes)
        return None
    found = (await only_count()).matched
    if found:
        confirm(f"{verb} {count_of_jobs(found)}?", yes=sweep.yes)
    return found


def confirm(question: str, *, yes: bool, instead: str = ", or --dry-run to see what would be done") -> None:
    """Go on only with consent: `--yes`, or an answer on a terminal. Without either it is a usage error."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(f"nobody can be asked here: add --yes to do it{instead}")
    click.confirm(question, abort=True, err=True)


@contextmanager
def progress(words: str, total: int | None) -> Iterator[OnProgress | None]:
    """A bar on stderr while jobs are worked off; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(words, total=total)
        yield lambda tally: bar.update(task, completed=tally.matched)


def count_of_jobs(count: int) -> str:
    return f"{count} job" if count == 1 else f"{count} jobs"


def _summary(tally: BulkResult, words: str, *, dry_run: bool) -> str:
    said = [f"{words} {count_of_jobs(tally.matched if dry_run else tally.done)}"]
    if tally.skipped:
        said.append(f"{count_of_jobs(tally.skipped)} had moved on meanwhile")
    if tally.more:
        said.append("the limit ended it, there are more")
    return "; ".join(said)


# Commands that look: jobs, one job, dead letters, queues, workers. They change nothing and make no database.


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
        output.jobs(page.jobs, datetime.now(UTC))
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
        output.dead_letters(page.jobs, datetime.now(UTC))
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
        output.queues(found, paces)


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
        output.workers(found, datetime.now(UTC))


async def _find(statuses: list[Status], **filters: Any) -> Page:
    async with existing() as client:
        return await client.find(status=statuses, **filters)


def _say_more(page: Page) -> None:
    if page.next is not None:
        click.echo(f"there are more: add --cursor {page.next}")


# Commands that act on jobs and queues that are there: on jobs by their ids, each tried, or on all that match a filter.


ids = click.argument("ids", metavar="[ID...]", nargs=-1)
status = click.option("--status", type=STATUS, multiple=True, help="Instead of FAILED; may be repeated.")
queue_name = click.argument("queue", metavar="QUEUE", shell_complete=queue_names)


Act = Callable[[Client, str], Awaitable[tuple[str, Status | None]]]


class Done(msgspec.Struct, frozen=True):
    """What became of a request about one job: its status now, or why it was refused."""

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


# Why a job that somebody waits for may not run soon, for people.


async def hints(client: Client, job: Job) -> list[str]:
    """What keeps the job waiting: no worker that would run it, or a paused queue. Empty once it has ended."""
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


# `demora enqueue`: a job from the command line, and if asked for the wait for its end.


@verb("enqueue")
@click.argument("type", metavar="TYPE")
@click.argument("payload", metavar="[PAYLOAD|@FILE|-]", required=False)
@timing
@click.option("--queue", metavar="QUEUE", help="The queue to put it into.")
@click.option("--max-retries", type=int, metavar="N", help="How often to try again after a failure.")
@click.option("--retry-delay", type=SPAN, help="The wait before the first retry; it doubles each time.")
@click.option("--timeout", type=SPAN, help="How long one attempt may run.")
@click.option("--key", metavar="KEY", help="Idempotency key: within 24 hours the same key gives the same job.")
@click.option("--expires-at", type=MOMENT, help="When it is no longer worth starting.")
@click.option("--expires-in", type=SPAN, help="The same, counted from now.")
@click.option("--unique", metavar="KEY", help="Only one job of its type and this key waits; or type+payload.")
@click.option("--if-waiting", type=click.Choice(["keep", "replace"]), help="What becomes of the unique one that waits.")
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="A tag; may be repeated.")
@click.option("--webhook-url", metavar="URL", help="Told of its end.")
@click.option("--webhook-on-cancel", is_flag=True, default=None, help="Told of a cancel too.")
@click.option("--name", metavar="NAME", help="A name for people; the type if not given.")
@click.option("--wait", is_flag=True, help="Wait for the end; exit with 0 only if it is COMPLETED.")
@app_option
@as_json
@asynchronous
async def enqueue(type: str, payload: str | None, *, spec: str | None, wait: bool, as_json: bool, **options: Any) -> None:
    """Enqueue a job. The payload is a JSON object: typed out, read from @FILE, or from standard input with -."""
    request = read_payload(payload)
    async with opened(chosen_app(spec)) as client:
        [(job, replayed)] = await client.add([client.make(type, request, **options)])
        if not as_json:
            _say_enqueued(job, replayed)
        if wait:
            job = await _ended(client, job)
    _show_enqueued(job, wait=wait, as_json=as_json)


def read_payload(text: str | None) -> Any:
    """The value that a payload on the command line stands for; `Invalid` says where it is not JSON."""
    if text is None:
        return None
    try:
        return json.loads(_source(text))
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno}, column {problem.colno}"
        raise Invalid("payload", f"is not JSON at {where}: {problem.msg}") from None
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
        click.echo(f"{job.id} was there before and stands for it: {job.type} in queue {job.queue}")
    else:
        click.echo(f"{job.id} enqueued: {job.type} in queue {job.queue}, due {due(job, datetime.now(UTC))}")


async def _ended(client: Client, job: Job) -> Job:
    for hint in await hints(client, job):
        click.echo(hint, err=True)
    return await client.wait(job.id)


def _show_enqueued(job: Job, *, wait: bool, as_json: bool) -> None:
    if as_json:
        print_json(job_view(job))
    elif wait:
        said = job.error or "" if job.result_json is None else job.result_json.decode()
        click.echo(f"{job.status.name} {plain(said)}".rstrip())
    if wait and job.status is not Status.COMPLETED:
        click.get_current_context().exit(1)

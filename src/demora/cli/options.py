"""What people type: the types of option values, the options that several commands share, ids, and completion in a shell.

An id may be typed whole, or by a part of it that belongs to one job, API key, secret or worker.
"""

import asyncio
import functools
import re
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

import click
from click.shell_completion import ShellComplete, get_completion_class

from ..client.client import Client
from ..client.queues import MOST_PER_PAGE
from ..core.job import Job, Priority
from ..core.request import check_queue
from ..core.spans import moment, span
from ..core.states import Status
from ..errors import Invalid, JobNotFound
from ..settings import LOG_FORMATS, LOG_LEVELS
from .opening import existing
from .root import Failure, root, verb

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def _kind(name: str, read: Callable[[str], T]) -> Callable[[str], T]:
    """Make a click type of `read`. If `read` raises `Invalid`, the command ends with a usage error."""

    def convert(text: str) -> T:
        try:
            return read(text)
        except Invalid as problem:
            raise click.BadParameter(problem.reason) from None

    convert.__name__ = name
    return convert


def _span(text: str) -> timedelta:
    return span(text, "span")


def _moment(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid("time", f"{text!r} is not a time; write it like 2030-01-31T09:00:00Z") from None
    return moment(at, "time")


def _queues(text: str) -> tuple[str, ...] | dict[str, int]:
    """Parse `a,b`, or with weights `a=3,b=1`."""
    parts = [part.strip().partition("=") for part in text.split(",")]
    if not any(separator for _, separator, _ in parts):
        return tuple(check_queue(name) for name, _, _ in parts)
    try:
        return {check_queue(name): int(weight or 1) for name, _, weight in parts}
    except ValueError:
        raise Invalid("queues", "a weight must be a whole number, for example mail=3,reports=1") from None


_QUERY_TIMEOUT = 1.0  # seconds in which the database must list its queues


def queue_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the queue names that start with `incomplete`.

    The list is empty if there is no database or it does not answer: a shell cannot show an error.
    """
    try:
        with ctx.scope(cleanup=False):
            names = asyncio.run(asyncio.wait_for(_names_of_queues(), _QUERY_TIMEOUT))
    except Exception:
        return []
    return [name for name in names if name.startswith(incomplete)]


async def _names_of_queues() -> list[str]:
    async with existing() as client:
        return [queue.name for queue in await client.queues()]


SPAN = _kind("span", _span)
MOMENT = _kind("time", _moment)
QUEUES = _kind("names", _queues)
PRIORITY = click.Choice(list(Priority.__members__), case_sensitive=False)
STATUS = click.Choice(list(Status.__members__), case_sensitive=False)

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, as the HTTP service answers.")
_log_format = click.option("--log-format", type=click.Choice(LOG_FORMATS), help="Text for people, or JSON for programs.")
_log_level = click.option(
    "--log-level", type=click.Choice(LOG_LEVELS, case_sensitive=False), help="The lowest level to log."
)
concurrency = click.option("--concurrency", type=int, metavar="N", help="How many jobs to run at the same time.")
reload_option = click.option(
    "--reload", is_flag=True, help="Restart when a .py file in this folder or below changes. For development."
)
in_queue = click.option("--queue", metavar="QUEUE", shell_complete=queue_names, help="Only jobs in this queue.")
_at = click.option("--at", type=MOMENT, help="When to run, with a time zone: 2030-01-31T09:00:00Z.")
_delay = click.option("--delay", type=SPAN, help="How long to wait before the run: 250ms, 30s, 5m, 1h30m, 7d.")
_priority = click.option("--priority", type=PRIORITY, help="The priority of the job.")


def timing(command: F) -> F:
    """Add `--at`, `--delay` and `--priority`."""
    return _at(_delay(_priority(command)))


def logged(command: F) -> F:
    """Add `--log-format` and `--log-level`."""
    return _log_format(_log_level(command))


def paged(command: F) -> F:
    """Add the filters and the paging of a list of jobs."""
    for option in (
        as_json,
        click.option("--cursor", "after", metavar="CURSOR", help="Continue after the previous page."),
        click.option("--limit", type=click.IntRange(1, MOST_PER_PAGE), default=50, show_default=True, help="Jobs per page."),
        click.option("--tag", metavar="TAG", help="Only jobs with this tag."),
        click.option("--type", "type", metavar="TYPE", help="Only jobs of this type; email.* means all with this prefix."),
        in_queue,
    ):
        command = option(command)
    return command


def asynchronous(command: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a coroutine function as a command."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(command(*args, **kwargs))

    return run


# Completion

SHELLS = ("bash", "zsh", "fish")


@verb("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for bash, zsh or fish."""
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(ShellComplete.source(kind(root, {}, "demora", "_DEMORA_COMPLETE")))


# Ids

LEAST = 4  # characters of a part
MOST_SEARCHED = 1000  # newest jobs in which a part at the end of an id is looked for
_DIGITS = 32  # of an id
_PART = re.compile(r"[0-9a-f]+")


async def whole_id(client: Client, typed: str) -> str:
    """Return the id that begins with the typed text or, among the newest jobs, ends with it.

    Fails if several ids do, and raises `JobNotFound` if none does. A whole id is returned as it is.
    """
    part = _digits(typed)
    if not LEAST <= len(part) < _DIGITS or not _PART.fullmatch(part):
        return typed
    found = await _beginning(client, part) or await _ending(client, part)
    if not found:
        raise JobNotFound(typed)
    if len(found) > 1:
        some = ", ".join(f"{job.id} ({job.type})" for job in found[:3])
        raise Failure(f"{typed} matches several jobs, for example {some}; type more of the id")
    return found[0].id


async def whole_key_id(client: Client, typed: str) -> str:
    """Return the id of the API key that begins with the typed text, or that text if none does."""
    return _only(typed, [key.id for key in (await client.keys.list()).keys])


async def whole_secret_id(client: Client, typed: str) -> str:
    """Return the id of the webhook secret that begins with the typed text, or that text if none does."""
    return _only(typed, [secret.id for secret in (await client.webhooks.secrets()).secrets])


async def whole_worker_id(client: Client, typed: str) -> str:
    """Return the id of the worker that begins with the typed text, or that text if none does."""
    return _only(typed, [worker.id for worker in await client.registered_workers()])


def _only(typed: str, known: list[str]) -> str:
    found = [id for id in known if id.startswith(typed)]
    if typed in known or len(typed) < LEAST or not found:
        return typed
    if len(found) > 1:
        raise Failure(f"several ids begin like this, for example {', '.join(found[:3])}; type more of the id")
    return found[0]


async def _beginning(client: Client, part: str) -> list[Job]:
    """Return up to four jobs whose ids begin with this part. Ids are in order, so this reads no other jobs."""
    last = str(UUID(part.ljust(_DIGITS, "f")))
    page = await client.find(after=last, limit=4, fields=())
    return [job for job in page.jobs if _digits(job.id).startswith(part)]


async def _ending(client: Client, part: str) -> list[Job]:
    found: list[Job] = []
    after: str | None = None
    for _ in range(MOST_SEARCHED // MOST_PER_PAGE):
        page = await client.find(after=after, limit=MOST_PER_PAGE, fields=())
        found += [job for job in page.jobs if _digits(job.id).endswith(part)]
        after = page.next
        if after is None:
            break
    return found


def _digits(id: str) -> str:
    return id.lower().replace("-", "")

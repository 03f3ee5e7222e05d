"""The types of option values, and the options that several commands share."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, ParamSpec, TypeVar

import click

from ..client.queues import MOST_PER_PAGE
from ..core.job import Priority
from ..core.request import check_queue
from ..core.spans import moment, span
from ..core.states import Status
from ..errors import Invalid
from ..settings import LOG_FORMATS, LOG_LEVELS
from .completing import queue_names

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
        click.option("--type", "type", metavar="TYPE", help="Only jobs of this type; email.* means all that begin so."),
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

"""Kinds of values that options take, and the options that several commands share."""

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
    """A kind of value that `read` makes of text; what that refuses is a usage error."""

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
        raise Invalid("time", f"{text!r} is not a time; write for instance 2030-01-31T09:00:00Z") from None
    return moment(at, "time")


def _queues(text: str) -> tuple[str, ...] | dict[str, int]:
    """`a,b`, or with weights `a=3,b=1`."""
    parts = [part.strip().partition("=") for part in text.split(",")]
    if not any(separator for _, separator, _ in parts):
        return tuple(check_queue(name) for name, _, _ in parts)
    try:
        return {check_queue(name): int(weight or 1) for name, _, weight in parts}
    except ValueError:
        raise Invalid("queues", "a weight is a whole number: mail=3,reports=1") from None


SPAN = _kind("span", _span)
MOMENT = _kind("time", _moment)
QUEUES = _kind("names", _queues)
PRIORITY = click.Choice(list(Priority.__members__), case_sensitive=False)
STATUS = click.Choice(list(Status.__members__), case_sensitive=False)

as_json = click.option("--json", "as_json", is_flag=True, help="Print what the HTTP service would answer.")
app_option = click.option("--app", "spec", metavar="MODULE:APP", help="The application; without it the built-in handlers.")
_log_format = click.option("--log-format", type=click.Choice(LOG_FORMATS), help="Lines for people, or JSON for machines.")
_log_level = click.option("--log-level", type=click.Choice(LOG_LEVELS, case_sensitive=False), help="Log from this level up.")
concurrency = click.option("--concurrency", type=int, metavar="N", help="How many jobs run at a time.")
in_queue = click.option("--queue", metavar="QUEUE", shell_complete=queue_names, help="Only jobs in this queue.")
_at = click.option("--at", type=MOMENT, help="When to run, with a zone: 2030-01-31T09:00:00Z.")
_delay = click.option("--delay", type=SPAN, help="How long to wait first: 250ms, 30s, 5m, 1h30m, 7d.")
_priority = click.option("--priority", type=PRIORITY, help="How urgent it is.")


def timing(command: F) -> F:
    """`--at`, `--delay` and `--priority`, as `enqueue` and `reschedule` take them."""
    return _at(_delay(_priority(command)))


def logged(command: F) -> F:
    """How what is logged is written: `--log-format` and `--log-level`."""
    return _log_format(_log_level(command))


def paged(command: F) -> F:
    """The filters and the paging of a list of jobs."""
    for option in (
        as_json,
        click.option("--cursor", "after", metavar="CURSOR", help="Go on where the page before ended."),
        click.option("--limit", type=click.IntRange(1, MOST_PER_PAGE), default=50, show_default=True, help="Jobs a page."),
        click.option("--tag", metavar="TAG", help="Only jobs with this tag."),
        click.option("--type", "type", metavar="TYPE", help="Only jobs of this type."),
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

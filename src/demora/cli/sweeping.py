"""Acting on many jobs at once: which ones the options mean, asking before it is done, and telling how far it is."""

import functools
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import click
import msgspec

from ..bulk import Tally, Told
from ..views import tally_view
from .options import SPAN, in_queue
from .wire import print_json

F = TypeVar("F", bound=Callable[..., Any])
Many = Callable[..., Awaitable[Tally]]


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
        print_json(tally_view(tally, dry_run=sweep.dry_run))
    else:
        click.echo(_summary(tally, f"would {verb}" if sweep.dry_run else done, dry_run=sweep.dry_run))


async def _agreed(only_count: Many, sweep: Sweep, verb: str) -> int | None:
    """How many jobs it will be about, if that was counted to ask for consent or to show progress."""
    if not sys.stderr.isatty():
        confirm("", yes=sweep.yes)
        return None
    found = (await only_count()).matched
    if found:
        confirm(f"{verb} {jobs(found)}?", yes=sweep.yes)
    return found


def confirm(question: str, *, yes: bool, instead: str = ", or --dry-run to see what would be done") -> None:
    """Go on only with consent: `--yes`, or an answer on a terminal. Without either it is a usage error."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(f"nobody can be asked here: add --yes to do it{instead}")
    click.confirm(question, abort=True, err=True)


@contextmanager
def progress(words: str, total: int | None) -> Iterator[Told | None]:
    """A bar on stderr while jobs are worked off; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(words, total=total)
        yield lambda tally: bar.update(task, completed=tally.matched)


def jobs(count: int) -> str:
    return f"{count} job" if count == 1 else f"{count} jobs"


def _summary(tally: Tally, words: str, *, dry_run: bool) -> str:
    said = [f"{words} {jobs(tally.matched if dry_run else tally.done)}"]
    if tally.skipped:
        said.append(f"{jobs(tally.skipped)} had moved on meanwhile")
    if tally.more:
        said.append("the limit ended it, there are more")
    return "; ".join(said)

"""Acting on many jobs at once: which jobs the options select, the confirmation, the progress bar and the summary."""

import functools
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import click
import msgspec

from ..client.bulk import BulkResult, OnProgress
from ..core.spans import plural
from ..wire.jobs import bulk_result_view
from .options import SPAN, in_queue
from .output import print_json

F = TypeVar("F", bound=Callable[..., Any])
Many = Callable[..., Awaitable[BulkResult]]

dry_run = click.option("--dry-run", is_flag=True, help="Only count the jobs.")
yes = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
older_than = click.option(
    "--older-than", type=SPAN, help="Only jobs at least this old, from their end or else their creation: 7d."
)


class Sweep(msgspec.Struct, frozen=True):
    """Which jobs a command acts on, and how. `filters` are the given filters of `Client.find`."""

    filters: dict[str, Any]
    everything: bool = False
    limit: int | None = None
    dry_run: bool = False
    yes: bool = False

    @property
    def selects(self) -> bool:
        return self.everything or bool(self.filters)


def by_filter(command: F) -> Callable[..., Any]:
    """Add the options that select jobs by filter; the command gets them as `sweep`."""

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
        search: str | None,
        **others: Any,
    ) -> Any:
        given = {"filter": search, "status": status, "queue": queue, "type": type, "tag": tag, "older_than": older_than}
        filters = {name: value for name, value in given.items() if value not in (None, ())}
        return command(*args, sweep=Sweep(filters, everything, limit, dry_run, yes), **others)

    wrapped: Callable[..., Any] = run
    for option in (
        yes,
        dry_run,
        click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most this many jobs, newest first."),
        older_than,
        click.option("--search", metavar="SEARCH", help="Only jobs that match this search, written as for demora jobs."),
        click.option("--tag", metavar="TAG", help="Only jobs with this tag."),
        click.option("--type", "type", metavar="TYPE", help="Only jobs of this type."),
        in_queue,
        click.option("--all", "everything", is_flag=True, help="All jobs, of every queue, type and tag."),
    ):
        wrapped = option(wrapped)
    return wrapped


def check_choice(ids: tuple[str, ...], sweep: Sweep) -> None:
    """Refuse a command that selects no jobs, or selects them both by id and by filter."""
    if ids and (sweep.selects or sweep.limit or sweep.dry_run):
        raise click.UsageError("give either job ids or filters (--all, --queue, …), not both")
    if not ids and not sweep.selects:
        raise click.UsageError("no jobs selected: give ids, or --all, --search, --queue, --type, --tag or --older-than")


async def carry_out(many: Many, sweep: Sweep, *, verb: str, done: str, as_json: bool) -> None:
    """Apply a bulk operation after confirmation, with a progress bar, and print its result. A dry run only counts."""
    only_count = functools.partial(many, **sweep.filters, limit=sweep.limit, dry_run=True)
    if sweep.dry_run:
        tally = await only_count()
    else:
        total = await _confirmed(only_count, sweep, verb)
        with progress(done, total) as on_progress:
            tally = await many(**sweep.filters, limit=sweep.limit, on_progress=on_progress)
    if as_json:
        print_json(bulk_result_view(tally, dry_run=sweep.dry_run))
    else:
        click.echo(_summary(tally, f"would {verb}" if sweep.dry_run else done, dry_run=sweep.dry_run))


async def _confirmed(only_count: Many, sweep: Sweep, verb: str) -> int | None:
    """Ask for confirmation. On a terminal, count the jobs for the question and the progress bar and return the count."""
    if not sys.stderr.isatty():
        confirm("", yes=sweep.yes)
        return None
    found = (await only_count()).matched
    if found:
        confirm(f"{verb} {plural(found, 'job')}?", yes=sweep.yes)
    return found


def confirm(question: str, *, yes: bool, instead: str = ", or --dry-run to only count the jobs") -> None:
    """Return if the user confirms, with `--yes` or at the terminal. Without a terminal, `--yes` is required."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(f"this is not a terminal: add --yes to confirm{instead}")
    click.confirm(question, abort=True, err=True)


@contextmanager
def progress(words: str, total: int | None) -> Iterator[OnProgress | None]:
    """Show a progress bar on stderr while the block runs, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(words, total=total)
        yield lambda tally: bar.update(task, completed=tally.matched)


def _summary(tally: BulkResult, words: str, *, dry_run: bool) -> str:
    parts = [f"{words} {plural(tally.matched if dry_run else tally.done, 'job')}"]
    if tally.skipped:
        parts.append(f"skipped {plural(tally.skipped, 'job')} that changed in the meantime")
    if tally.more:
        parts.append("stopped at the limit, more jobs match")
    return "; ".join(parts)

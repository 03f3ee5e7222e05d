"""`demora queue`: one queue, its order and what it keeps; shown, or changed."""

from collections.abc import Iterator
from datetime import timedelta

import click

from ..core.pace_wish import say_pace
from ..core.retention import read_retention
from ..core.spans import say
from ..pacing import Pacing
from ..store import Queue, QueueChange
from ..views import queue_view
from .opening import existing
from .options import SPAN, as_json, asynchronous
from .root import Failure, verb
from .text import plain
from .wire import print_json

_KEEP = "an age, a number of jobs, both (7d,1000), or forever"


@verb("queue")
@click.argument("name", metavar="QUEUE")
@click.option("--step", type=SPAN, help="How much longer a job waits than one of the next higher priority to go first.")
@click.option("--strict/--no-strict", default=None, help="Whether a higher priority always goes first.")
@click.option("--head-start", type=SPAN, help="How far real-time jobs are put before delayed ones.")
@click.option("--keep-completed", metavar="KEEP", help=f"How long COMPLETED jobs are kept: {_KEEP}.")
@click.option("--keep-cancelled", metavar="KEEP", help="The same for CANCELLED jobs.")
@click.option("--keep-failed", metavar="KEEP", help="The same for FAILED jobs, the dead letters.")
@click.option("--webhook-url", metavar="URL", help="Told of the ends of jobs that name none; empty for none.")
@as_json
@asynchronous
async def queue(
    name: str,
    *,
    step: timedelta | None,
    strict: bool | None,
    head_start: timedelta | None,
    keep_completed: str | None,
    keep_cancelled: str | None,
    keep_failed: str | None,
    webhook_url: str | None,
    as_json: bool,
) -> None:
    """Show a queue, or change its order and what it keeps. The next claim of any worker follows."""
    retention = read_retention(keep_completed, keep_cancelled, keep_failed)
    change = QueueChange(step=step, strict=strict, head_start=head_start, retention=retention, webhook_url=webhook_url)
    async with existing() as client:
        if change != QueueChange():
            shown = await client.set_queue(name, change)
        else:
            shown = _found(name, await client.queues())
        pacing = await client.pacing(name)
    if as_json:
        print_json(queue_view(shown, pacing))
    else:
        for line in _about(shown, pacing):
            click.echo(line)


def _found(name: str, queues: list[Queue]) -> Queue:
    for queue in queues:
        if queue.name == name:
            return queue
    raise Failure(f"there is no queue {name}; demora queues lists them")


def _about(queue: Queue, pacing: Pacing | None) -> Iterator[str]:
    kept = queue.retention
    yield f"{'queue':<15} {queue.name}"
    yield f"{'jobs':<15} {queue.ready} ready, {queue.delayed} delayed, {queue.processing} processing, {queue.dead} dead"
    yield f"{'paused':<15} {'no' if queue.pause is None else plain(queue.pause.reason or 'yes')}"
    yield f"{'pace':<15} {'none' if pacing is None else say_pace(pacing.pace)}"
    yield f"{'step':<15} {'strict' if queue.order.strict else say(queue.order.step)}"
    yield f"{'head start':<15} {say(queue.order.head_start)}"
    for name, keep in (("completed", kept.completed), ("cancelled", kept.cancelled), ("failed", kept.failed)):
        yield f"{'keep ' + name:<15} {'as everywhere' if keep is None else keep}"
    if queue.webhook_url is not None:
        yield f"{'webhook':<15} {plain(queue.webhook_url)}"

"""`demora queue`: one queue, its order and what it keeps; shown, or changed."""

from collections.abc import Iterator
from typing import Any

import click

from ..core.pace_wish import say_pace
from ..core.spans import say
from ..pacing import Pacing
from ..store import Queue
from ..views import queue_view
from .opening import existing
from .options import SPAN, as_json, asynchronous
from .root import verb
from .text import plain
from .wire import print_json

_KEEP = "an age, a number of jobs, both (7d,1000), or forever; general: as the settings say"


@verb("queue")
@click.argument("queue", metavar="QUEUE")
@click.option("--step", type=SPAN, help="How much longer a job waits than one of the next higher priority to go first.")
@click.option("--strict/--no-strict", default=None, help="Whether a higher priority always goes first.")
@click.option("--head-start", type=SPAN, help="How far real-time jobs are put before delayed ones.")
@click.option("--keep-completed", metavar="KEEP", help=f"How long COMPLETED jobs are kept: {_KEEP}.")
@click.option("--keep-cancelled", metavar="KEEP", help="The same for CANCELLED jobs.")
@click.option("--keep-failed", metavar="KEEP", help="The same for FAILED jobs, the dead letters.")
@click.option("--webhook-url", metavar="URL", help="Told of the ends of jobs that name none; empty for none.")
@as_json
@asynchronous
async def queue(queue: str, *, as_json: bool, **options: Any) -> None:
    """Show a queue, or change its order and what it keeps. The next claim of any worker follows."""
    given = {name: value for name, value in options.items() if value is not None}
    async with existing() as client:
        shown = await client.set_queue(queue, **given) if given else await client.queue(queue)
        pacing = await client.pacing(queue)
    if as_json:
        print_json(queue_view(shown, pacing))
    else:
        for line in _about(shown, pacing):
            click.echo(line)


def _about(queue: Queue, pacing: Pacing | None) -> Iterator[str]:
    kept = queue.retention
    yield f"{'queue':<15} {queue.name}"
    yield f"{'jobs':<15} {queue.ready} ready, {queue.delayed} delayed, {queue.processing} processing, {queue.dead} dead"
    yield f"{'paused':<15} {'no' if queue.pause is None else plain(queue.pause.reason or 'yes')}"
    yield f"{'pace':<15} {'none' if pacing is None else say_pace(pacing.pace)}"
    yield f"{'step':<15} {'strict' if queue.order.strict else say(queue.order.step)}"
    yield f"{'head start':<15} {say(queue.order.head_start)}"
    for name, keep in (("completed", kept.completed), ("cancelled", kept.cancelled), ("failed", kept.failed)):
        yield f"{'keep ' + name:<15} {'as the settings say' if keep is None else keep}"
    if queue.webhook_url is not None:
        yield f"{'webhook':<15} {plain(queue.webhook_url)}"

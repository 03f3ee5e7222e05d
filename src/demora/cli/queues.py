"""`demora queue`: one queue, its order and what it keeps; shown, or changed."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import click
import msgspec

from ..client.client import Client
from ..client.views import queue_view, worker_view
from ..core.pace_request import say_pace
from ..core.spans import say, timestamp
from ..store.diagnostics import Activity
from ..store.jobs import Queue, WorkerRecord
from ..store.paces import Pacing
from . import output
from .opening import existing
from .options import SPAN, as_json, asynchronous
from .output import plain, print_json
from .root import verb

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


# `demora queues --watch`: queues and workers as they are, again and again, until Ctrl-C.


class Rates(msgspec.Struct, frozen=True):
    """How many jobs a second came into a queue, and how many left it: completed, cancelled or removed."""

    added: float
    ended: float


class Snapshot(msgspec.Struct, frozen=True):
    """One look; there are no rates yet at the first."""

    activity: Activity
    workers: list[WorkerRecord]
    rates: dict[str, Rates]


def watch(interval: timedelta, *, as_json: bool) -> None:
    """Show snapshots until Ctrl-C, which is no failure."""
    try:
        asyncio.run(_watch(interval, as_json=as_json))
    except KeyboardInterrupt:
        return


def rates(before: Activity, now: Activity, seconds: float) -> dict[str, Rates]:
    """By queue, from the counts of two pulses: what was added and is not there any more has left."""
    held = {queue.name: _held(queue) for queue in before.queues}
    found = {}
    for queue in now.queues:
        added = now.added.get(queue.name, 0)
        ended = added + held.get(queue.name, 0) - _held(queue)
        found[queue.name] = Rates(added / seconds, max(ended, 0) / seconds)
    return found


async def _watch(interval: timedelta, *, as_json: bool) -> None:
    async with existing() as client:
        with _screen(as_json) as show:
            async for snapshot in _snapshots(client, interval.total_seconds()):
                show(snapshot)


async def _snapshots(client: Client, seconds: float) -> AsyncIterator[Snapshot]:
    now = asyncio.get_running_loop().time
    activity, at = await client.activity(), now()
    yield Snapshot(activity, await client.workers(), {})
    while True:
        await asyncio.sleep(seconds)
        before, since = activity, at
        activity, at = await client.activity(before.mark), now()
        yield Snapshot(activity, await client.workers(), rates(before, activity, at - since))


@contextmanager
def _screen(as_json: bool) -> Iterator[Callable[[Snapshot], None]]:
    """How snapshots are shown: as JSON, redrawn in place on a terminal, or else one after the other."""
    if as_json:
        yield lambda snapshot: print_json(_view(snapshot))
    elif not sys.stdout.isatty():
        yield _print
    else:
        from rich.live import Live

        with Live(auto_refresh=False) as live:
            yield lambda snapshot: live.update(_drawn(snapshot), refresh=True)


def _print(snapshot: Snapshot) -> None:
    click.echo(timestamp(snapshot.activity.now))
    output.printed(_drawn(snapshot))
    click.echo()
    sys.stdout.flush()


def _drawn(snapshot: Snapshot) -> Any:
    rated = {name: (rate.added, rate.ended) for name, rate in snapshot.rates.items()}
    return output.watched(snapshot.activity, rated, snapshot.workers)


def _view(snapshot: Snapshot) -> dict[str, Any]:
    activity = snapshot.activity
    queues = [_queue(queue, snapshot) for queue in activity.queues]
    return {
        "at": timestamp(activity.now),
        "queues": queues,
        "workers": [_worker(worker, activity) for worker in snapshot.workers],
    }


def _queue(queue: Queue, snapshot: Snapshot) -> dict[str, Any]:
    rate, due = snapshot.rates.get(queue.name), snapshot.activity.due_since.get(queue.name)
    more = {
        "addedPerSecond": None if rate is None else round(rate.added, 3),
        "endedPerSecond": None if rate is None else round(rate.ended, 3),
        "dueSince": None if due is None else timestamp(due),
    }
    shown: dict[str, Any] = msgspec.to_builtins(queue_view(queue))
    return shown | more


def _worker(worker: WorkerRecord, activity: Activity) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(worker_view(worker))
    return shown | {"running": activity.running.get(worker.id, 0)}


def _held(queue: Queue) -> int:
    return queue.ready + queue.delayed + queue.processing + queue.dead

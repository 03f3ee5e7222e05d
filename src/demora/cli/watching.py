"""`demora queues --watch`: queues and workers as they are, again and again, until Ctrl-C."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import click
import msgspec

from ..client import Client
from ..core.spans import timestamp
from ..store import Queue, Worker
from ..survey import Pulse
from ..views import queue_view, worker_view
from . import tables
from .opening import existing
from .wire import print_json


class Rates(msgspec.Struct, frozen=True):
    """How many jobs a second came into a queue, and how many left it: completed, cancelled or removed."""

    added: float
    ended: float


class Snapshot(msgspec.Struct, frozen=True):
    """One look; there are no rates yet at the first."""

    pulse: Pulse
    workers: list[Worker]
    rates: dict[str, Rates]


def watch(interval: timedelta, *, as_json: bool) -> None:
    """Show snapshots until Ctrl-C, which is no failure."""
    try:
        asyncio.run(_watch(interval, as_json=as_json))
    except KeyboardInterrupt:
        return


def rates(before: Pulse, now: Pulse, seconds: float) -> dict[str, Rates]:
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
    pulse, at = await client.pulse(), now()
    yield Snapshot(pulse, await client.workers(), {})
    while True:
        await asyncio.sleep(seconds)
        before, since = pulse, at
        pulse, at = await client.pulse(before.mark), now()
        yield Snapshot(pulse, await client.workers(), rates(before, pulse, at - since))


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
    click.echo(timestamp(snapshot.pulse.now))
    tables.printed(_drawn(snapshot))
    click.echo()
    sys.stdout.flush()


def _drawn(snapshot: Snapshot) -> Any:
    rated = {name: (rate.added, rate.ended) for name, rate in snapshot.rates.items()}
    return tables.watched(snapshot.pulse, rated, snapshot.workers)


def _view(snapshot: Snapshot) -> dict[str, Any]:
    pulse = snapshot.pulse
    queues = [_queue(queue, snapshot) for queue in pulse.queues]
    return {"at": timestamp(pulse.now), "queues": queues, "workers": [_worker(worker, pulse) for worker in snapshot.workers]}


def _queue(queue: Queue, snapshot: Snapshot) -> dict[str, Any]:
    rate, due = snapshot.rates.get(queue.name), snapshot.pulse.due_since.get(queue.name)
    more = {
        "addedPerSecond": None if rate is None else round(rate.added, 3),
        "endedPerSecond": None if rate is None else round(rate.ended, 3),
        "dueSince": None if due is None else timestamp(due),
    }
    shown: dict[str, Any] = msgspec.to_builtins(queue_view(queue))
    return shown | more


def _worker(worker: Worker, pulse: Pulse) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(worker_view(worker))
    return shown | {"running": pulse.running.get(worker.id, 0)}


def _held(queue: Queue) -> int:
    return queue.ready + queue.delayed + queue.processing + queue.dead

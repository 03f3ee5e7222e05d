"""The commands about queues: list and watch them, show or change one, pause and resume, and show or change its pace."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import click
import msgspec

from ..client.client import Client
from ..client.statistics import PaceEffect, PaceHistory
from ..core.pace import EVERY_QUEUE, Governs, PaceRequest, make_pace_request, say_pace
from ..core.spans import say, timestamp
from ..core.workers import WorkerRecord
from ..store.diagnostics import Activity
from ..store.jobs import Queue
from ..store.paces import PaceChange, Pacing
from ..wire.queues import PaceView, pace_view, queue_view, stats_view, worker_view
from . import output
from .opening import existing
from .options import SPAN, as_json, asynchronous, queue_names
from .output import paced_queues, plain, print_json
from .root import verb, who

LEAST_INTERVAL = timedelta(milliseconds=100)
_KEEP = "an age, a number of jobs, both (7d,1000), or forever; general uses the setting"
queue_name = click.argument("queue", metavar="QUEUE", shell_complete=queue_names)


@verb("queues")
@click.option("--watch", "watched", is_flag=True, help="Show queues and workers repeatedly until Ctrl-C.")
@click.option("--interval", type=SPAN, help="With --watch: the time between updates. Default: 1s.")
@as_json
def queues(*, watched: bool, interval: timedelta | None, as_json: bool) -> None:
    """List the queues with their job counts, paces and pauses."""
    if interval is not None and (not watched or interval < LEAST_INTERVAL):
        raise click.UsageError("--interval needs --watch and must be at least 100ms")
    if watched:
        watch(interval or timedelta(seconds=1), as_json=as_json)
    else:
        asyncio.run(_queues(as_json=as_json))


@verb("queue")
@click.argument("queue", metavar="QUEUE")
@click.option("--step", type=SPAN, help="How much longer a job must wait to go ahead of a job of the next higher priority.")
@click.option(
    "--strict/--no-strict", default=None, help="Whether a higher priority always goes first, no matter how long others wait."
)
@click.option("--head-start", type=SPAN, help="The head start of real-time jobs over delayed jobs.")
@click.option("--keep-completed", metavar="KEEP", help=f"How long to keep COMPLETED jobs: {_KEEP}.")
@click.option("--keep-cancelled", metavar="KEEP", help="The same for CANCELLED jobs.")
@click.option("--keep-failed", metavar="KEEP", help="The same for FAILED jobs, the dead letters.")
@click.option("--webhook-url", metavar="URL", help="The webhook URL of jobs that have none of their own; empty for none.")
@as_json
@asynchronous
async def queue(queue: str, *, as_json: bool, **options: Any) -> None:
    """Show a queue, or change its order and its retention. A change takes effect at the next claim."""
    given = {name: value for name, value in options.items() if value is not None}
    async with existing() as client:
        shown = await client.set_queue(queue, **given) if given else await client.queue(queue)
        pacing = await client.pacing(queue)
        history = await client.pace_history([pacing]) if as_json and pacing is not None else {}
    if as_json:
        print_json(queue_view(shown, pacing, history.get(queue)))
    else:
        for line in _about(shown, pacing):
            click.echo(line)


@verb("stats")
@as_json
@asynchronous
async def stats(*, as_json: bool) -> None:
    """Count the jobs by state and queue."""
    async with existing() as client:
        counted = await client.stats(fresh=True)
    if as_json:
        print_json(stats_view(counted))
    else:
        output.stats(counted)


@verb("pause")
@queue_name
@click.option("--reason", metavar="TEXT", help="Why; shown with the queue.")
@as_json
@asynchronous
async def pause(queue: str, *, reason: str | None, as_json: bool) -> None:
    """Pause a queue. Workers claim none of its jobs until it is resumed. Running jobs continue."""
    async with existing() as client:
        known = {one.name for one in await client.queues()}
        paused = await client.pause(queue, reason, by=who())
    new = "" if queue in known else "the queue is new, check the name; "
    _show(paused, f"{queue} is paused; {new}demora resume {queue} resumes it", as_json=as_json)


@verb("resume")
@queue_name
@as_json
@asynchronous
async def resume(queue: str, *, as_json: bool) -> None:
    """Resume a paused queue."""
    async with existing() as client:
        was_paused = (await client.queue(queue)).pause is not None
        resumed = await client.resume(queue)
    _show(resumed, f"{queue} is resumed" if was_paused else f"{queue} was not paused", as_json=as_json)


async def _queues(*, as_json: bool) -> None:
    async with existing() as client:
        found = await client.queues()
        paces = {pacing.queue: pacing for pacing in await client.pacings()}
        history = await client.pace_history(paces.values()) if as_json else {}
    if as_json:
        shown = [queue_view(queue, paces.get(queue.name), history.get(queue.name)) for queue in found]
        print_json({"queues": shown})
    else:
        output.queues(found, paces)


def _about(queue: Queue, pacing: Pacing | None) -> Iterator[str]:
    kept = queue.retention
    yield f"{'queue':<15} {queue.name}"
    yield f"{'jobs':<15} {queue.ready} ready, {queue.delayed} delayed, {queue.processing} processing, {queue.dead} dead"
    yield f"{'paused':<15} {'no' if queue.pause is None else plain(queue.pause.reason or 'yes')}"
    yield f"{'pace':<15} {'none' if pacing is None else say_pace(pacing.pace)}"
    yield f"{'step':<15} {'strict' if queue.order.strict else say(queue.order.step)}"
    yield f"{'head start':<15} {say(queue.order.head_start)}"
    for name, keep in (("completed", kept.completed), ("cancelled", kept.cancelled), ("failed", kept.failed)):
        yield f"{'keep ' + name:<15} {'as in the settings' if keep is None else keep}"
    if queue.webhook_url is not None:
        yield f"{'webhook':<15} {plain(queue.webhook_url)}"


def _show(queue: Queue, message: str, *, as_json: bool) -> None:
    if as_json:
        print_json(queue_view(queue))
    else:
        click.echo(message)


# `demora queues --watch`


def watch(interval: timedelta, *, as_json: bool) -> None:
    """Show snapshots until Ctrl-C, which is a normal end here."""
    try:
        asyncio.run(_watch(interval, as_json=as_json))
    except KeyboardInterrupt:
        return


class Rates(msgspec.Struct, frozen=True):
    """Jobs per second that were added to a queue, and that left it: completed, cancelled or deleted."""

    added: float
    ended: float


class Snapshot(msgspec.Struct, frozen=True):
    """The queues and workers at one moment. The first snapshot has no rates."""

    activity: Activity
    workers: list[WorkerRecord]
    rates: dict[str, Rates]


def rates(before: Activity, now: Activity, seconds: float) -> dict[str, Rates]:
    """Compute the rates by queue from two readings: a job that was added and is no longer held has left."""
    held = {queue.name: _held(queue) for queue in before.queues}
    found = {}
    for queue in now.queues:
        added = now.added.get(queue.name, 0)
        ended = added + held.get(queue.name, 0) - _held(queue)
        found[queue.name] = Rates(added / seconds, max(ended, 0) / seconds)
    return found


def _held(queue: Queue) -> int:
    return queue.ready + queue.delayed + queue.processing + queue.dead


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
    """Yield the function that shows a snapshot: as JSON, in place on a terminal, or else one after the other."""
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


# `demora pace`


@verb("pace")
@click.argument("queue", metavar="[QUEUE]", required=False)
@click.option("--gap", type=SPAN, help="The least time between the first releases of two cycles. Default: 2m.")
@click.option("--burst", type=int, help="Releases per cycle. Default: 3.")
@click.option(
    "--stagger",
    metavar="SPAN",
    help="The time between two releases of a cycle. Default: 30s, or less, so that the burst fits into the gap.",
)
@click.option("--rapid-gap", type=SPAN, help="The gap while no real-time job waits.")
@click.option("--rapid-burst", type=int, help="The burst while no real-time job waits.")
@click.option("--rapid-stagger", metavar="SPAN", help="The stagger while no real-time job waits.")
@click.option(
    "--rapid/--no-rapid", default=None, help="Whether the queue releases faster while no real-time job waits. Default: no."
)
@click.option("--governs", type=click.Choice([kind.value for kind in Governs]), help="Which delayed jobs the pace holds.")
@click.option(
    "--protect", metavar="QUEUE", multiple=True, help="A queue whose real-time jobs prevent the rapid rate; may be repeated."
)
@click.option("--off", is_flag=True, help="Remove the pace, and follow that of all queues ('*') neither now nor later.")
@click.option("--default", is_flag=True, help="Follow the pace of all queues ('*') again, instead of its own or no pace.")
@click.option("--history", is_flag=True, help="Show who changed the pace and when.")
@as_json
@asynchronous
async def pace(
    queue: str | None, *, protect: tuple[str, ...], off: bool, default: bool, history: bool, as_json: bool, **values: Any
) -> None:
    """Show or change the pace of a queue. It says how fast delayed jobs are released. Processes apply it within a second.

    The queue '*' stands for all queues without a pace of their own. Without a queue, shows the delayed jobs of each queue
    that has a pace.
    """
    request = make_pace_request(**values, protect=protect or None)
    if off + default + (request != PaceRequest()) > 1:
        raise click.UsageError("--off and --default cannot be combined with other changes")
    if queue is None:
        if off or default or history or request != PaceRequest():
            raise click.UsageError("name the queue, or '*' for all queues without a pace of their own")
        return await _show_all_paces(as_json=as_json)
    async with existing() as client:
        if off:
            await client.take_pace_off(queue, by=who())
        elif default:
            await client.use_default_pace(queue, by=who())
        elif request != PaceRequest():
            await client.set_pace(queue, request, by=who())
        found, changes = await client.pacing(queue), await client.pace_changes(queue)
        effects = (await client.pace_history([] if found is None else [found])).get(queue)
    if as_json:
        print_json(
            {"queue": queue, "pace": pace_view(found, effects), "changes": [_change_view(change) for change in changes]}
        )
    else:
        click.echo("\n".join(_about_pace(queue, found, effects, changes, history=history)))
    return None


async def _show_all_paces(*, as_json: bool) -> None:
    async with existing() as client:
        pacings = await client.pacings()
        history = await client.pace_history(pacings) if as_json else {}
    if as_json:
        shown = [(pacing.queue, pace_view(pacing, history.get(pacing.queue))) for pacing in pacings]
        print_json({"queues": [{"queue": queue, "pace": pace} for queue, pace in shown]})
    else:
        paced_queues(pacings)


def _about_pace(
    name: str, found: Pacing | None, effects: PaceHistory | None, changes: list[PaceChange], *, history: bool
) -> Iterator[str]:
    view, left_out = pace_view(found), bool(changes) and changes[0].is_off
    if found is None and left_out and name != EVERY_QUEUE:
        yield f"{name} has no pace, even if all queues get one; demora pace {name} --default makes it follow that one again"
    elif found is None or view is None:
        yield f"{name} has no pace; demora pace {name} --gap 2m --burst 3 sets one"
    else:
        yield f"{'queue':<15} {name}"
        yield f"{'pace':<15} {say_pace(found.pace)}{', the pace of all queues' if found.inherited else ''}"
        yield f"{'set':<15} {timestamp(found.set_at)} by {plain(found.set_by)}"
        yield f"{'mode':<15} {_say_mode(found)}"
        if name != EVERY_QUEUE:
            yield from _pace_figures(view)
        if effects is not None:
            yield from _pace_effect("last hour", effects.last_hour)
            yield from _pace_effect("last day", effects.last_day)
    for change in changes if history else []:
        yield f"{timestamp(change.at)} {plain(change.by)}: {_say_change(change)}"


def _pace_figures(view: PaceView) -> Iterator[str]:
    yield f"{'delayed':<15} {view.total_delayed}, {view.ready_now} due, {view.ready_in_hour} due within the hour"
    yield f"{'waiting for gap':<15} {view.waiting_for_gap}"
    yield f"{'next release':<15} {_say_next_release(view)}"
    last = view.time_since_last_release_seconds
    yield f"{'last release':<15} {'none yet' if last is None else f'{last:.0f} s ago'}"


def _pace_effect(when: str, effect: PaceEffect) -> Iterator[str]:
    """Write what the pace did in a stretch of time: releases, how long jobs were held, and how late real-time jobs began."""
    held, waits = effect.held, effect.real_time_wait
    said = f"{effect.released} released"
    if held.p50 is not None and held.p99 is not None and held.max is not None:
        said += f", held {_span(held.p50)} (p50), {_span(held.p99)} (p99), {_span(held.max)} (most)"
    if waits.p50 is not None and waits.p99 is not None:
        said += f"; real-time jobs waited {_span(waits.p50)} (p50), {_span(waits.p99)} (p99)"
    yield f"{when:<15} {said}"


def _span(ms: float) -> str:
    return f"{ms / 1000:.0f} s" if ms >= 10_000 else f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms:.0f} ms"


def _say_mode(found: Pacing) -> str:
    """Write the mode and, if the pace has two, why this one is in force."""
    if found.pace.rapid is None:
        return "normal"
    queues = ", ".join(found.pace.protected(found.queue))
    mode, waits = found.pace.mode(quiet=found.quiet), "no" if found.quiet else "a"
    return f"{mode}, because {waits} real-time job waits in {plain(queues)}"


def _say_next_release(view: PaceView) -> str:
    wait = view.next_release_in_seconds
    return "nothing delayed" if wait is None else f"in {wait:.0f} s"


def _change_view(change: PaceChange) -> dict[str, str | None]:
    pace = None if change.pace is None and not change.follows else _say_change(change)
    return {"at": timestamp(change.at), "by": change.by, "pace": pace}


def _say_change(change: PaceChange) -> str:
    if change.follows:
        return "default"
    return "off" if change.pace is None else say_pace(change.pace)

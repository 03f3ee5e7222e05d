"""`demora pace`: show, change or remove the pace of a queue."""

from collections.abc import Iterator
from datetime import timedelta

import click

from ..client.statistics import PaceEffect, PaceHistory
from ..client.views import PaceView, pace_view
from ..core.pace import EVERY_QUEUE, Governs
from ..core.pace_request import PaceRequest, make_pace_request, say_pace
from ..core.spans import timestamp
from ..store.paces import PaceChange, Pacing
from .opening import existing
from .options import SPAN, as_json, asynchronous
from .output import paced_queues, plain, print_json
from .root import verb, who


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
@click.option("--default", is_flag=True, help="Follow the pace of all queues ('*') again, instead of its own or of none.")
@click.option("--history", is_flag=True, help="Show who changed the pace and when.")
@as_json
@asynchronous
async def pace(
    queue: str | None,
    *,
    gap: timedelta | None,
    burst: int | None,
    stagger: str | None,
    rapid_gap: timedelta | None,
    rapid_burst: int | None,
    rapid_stagger: str | None,
    rapid: bool | None,
    governs: str | None,
    protect: tuple[str, ...],
    off: bool,
    default: bool,
    history: bool,
    as_json: bool,
) -> None:
    """Show or change the pace of a queue. It says how fast delayed jobs are released. Processes apply it within a second.

    The queue '*' stands for all queues without a pace of their own. Without a queue, shows the delayed jobs of each queue
    that has a pace.
    """
    request = make_pace_request(
        gap=gap,
        burst=burst,
        stagger=stagger,
        rapid_gap=rapid_gap,
        rapid_burst=rapid_burst,
        rapid_stagger=rapid_stagger,
        rapid=rapid,
        governs=governs,
        protect=protect or None,
    )
    if off + default + (request != PaceRequest()) > 1:
        raise click.UsageError("--off and --default cannot be combined with other changes")
    if queue is None:
        if off or default or history or request != PaceRequest():
            raise click.UsageError("name the queue, or '*' for all queues without a pace of their own")
        return await _show_all(as_json=as_json)
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
        print_json({"queue": queue, "pace": pace_view(found, effects), "changes": [_change(change) for change in changes]})
    else:
        click.echo("\n".join(_about(queue, found, effects, changes, history=history)))
    return None


async def _show_all(*, as_json: bool) -> None:
    async with existing() as client:
        pacings = await client.pacings()
        history = await client.pace_history(pacings) if as_json else {}
    if as_json:
        shown = [(pacing.queue, pace_view(pacing, history.get(pacing.queue))) for pacing in pacings]
        print_json({"queues": [{"queue": queue, "pace": pace} for queue, pace in shown]})
    else:
        paced_queues(pacings)


def _about(
    name: str, found: Pacing | None, effects: PaceHistory | None, changes: list[PaceChange], *, history: bool
) -> Iterator[str]:
    view, left_out = pace_view(found), bool(changes) and changes[0].is_off
    if found is None and left_out and name != EVERY_QUEUE:
        yield f"{name} has no pace, also when all queues get one; demora pace {name} --default has it follow them again"
    elif found is None or view is None:
        yield f"{name} has no pace; demora pace {name} --gap 2m --burst 3 sets one"
    else:
        yield f"{'queue':<15} {name}"
        yield f"{'pace':<15} {say_pace(found.pace)}{', as all queues without their own' if found.inherited else ''}"
        yield f"{'set':<15} {timestamp(found.set_at)} by {plain(found.set_by)}"
        yield f"{'mode':<15} {_mode(found)}"
        if name != EVERY_QUEUE:
            yield from _figures(view)
        if effects is not None:
            yield from _effect("last hour", effects.last_hour)
            yield from _effect("last day", effects.last_day)
    for change in changes if history else []:
        yield f"{timestamp(change.at)} {plain(change.by)}: {_say(change)}"


def _figures(view: PaceView) -> Iterator[str]:
    yield f"{'delayed':<15} {view.total_delayed}, {view.ready_now} due, {view.ready_in_hour} due within the hour"
    yield f"{'waiting for gap':<15} {view.waiting_for_gap}"
    yield f"{'next release':<15} {_seconds(view)}"
    last = view.time_since_last_release_seconds
    yield f"{'last release':<15} {'none yet' if last is None else f'{last:.0f} s ago'}"


def _effect(when: str, effect: PaceEffect) -> Iterator[str]:
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


def _mode(found: Pacing) -> str:
    """Write the mode and, if the pace has two, why this one is in force."""
    if found.pace.rapid is None:
        return "normal"
    queues = ", ".join(found.pace.protected(found.queue))
    mode, waits = found.pace.mode(quiet=found.quiet), "no" if found.quiet else "a"
    return f"{mode}, because {waits} real-time job waits in {plain(queues)}"


def _seconds(view: PaceView) -> str:
    wait = view.next_release_in_seconds
    return "nothing delayed" if wait is None else f"in {wait:.0f} s"


def _change(change: PaceChange) -> dict[str, str | None]:
    pace = None if change.pace is None and not change.follows else _say(change)
    return {"at": timestamp(change.at), "by": change.by, "pace": pace}


def _say(change: PaceChange) -> str:
    if change.follows:
        return "default"
    return "off" if change.pace is None else say_pace(change.pace)

"""`demora pace`: the pace of a queue, shown, changed or taken off; `demora why`: why a job is where it is."""

from collections.abc import Iterator
from datetime import timedelta

import click

from ..client.views import PaceView, pace_view
from ..core.pace import Governs
from ..core.pace_request import PaceRequest, make_pace_request, say_pace
from ..core.spans import timestamp
from ..store.paces import PaceChange, Pacing
from .opening import existing
from .options import SPAN, as_json, asynchronous
from .output import plain, print_json
from .root import verb, who


@verb("pace")
@click.argument("queue", metavar="QUEUE")
@click.option("--gap", type=SPAN, help="From the first release of a cycle to that of the next, at least.")
@click.option("--burst", type=int, help="Releases in a cycle.")
@click.option("--stagger", type=SPAN, help="Between two releases of a cycle.")
@click.option("--rapid-gap", type=SPAN, help="The gap while no real-time job waits.")
@click.option("--rapid-burst", type=int, help="The burst while no real-time job waits.")
@click.option("--rapid-stagger", type=SPAN, help="The stagger while no real-time job waits.")
@click.option("--rapid/--no-rapid", default=None, help="Whether there is a rapid rate at all.")
@click.option("--governs", type=click.Choice([kind.value for kind in Governs]), help="Which delayed jobs.")
@click.option("--protect", metavar="QUEUE", multiple=True, help="A queue whose real-time jobs count; may be repeated.")
@click.option("--off", is_flag=True, help="Take the pace off.")
@click.option("--history", is_flag=True, help="Show who changed it and when.")
@as_json
@asynchronous
async def pace(
    queue: str,
    *,
    gap: timedelta | None,
    burst: int | None,
    stagger: timedelta | None,
    rapid_gap: timedelta | None,
    rapid_burst: int | None,
    rapid_stagger: timedelta | None,
    rapid: bool | None,
    governs: str | None,
    protect: tuple[str, ...],
    off: bool,
    history: bool,
    as_json: bool,
) -> None:
    """Show or change how fast the delayed jobs of a queue are let go. Every process follows within a second."""
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
    if off and request != PaceRequest():
        raise click.UsageError("--off goes alone")
    async with existing() as client:
        if off:
            await client.take_pace_off(queue, by=who())
        elif request != PaceRequest():
            await client.set_pace(queue, request, by=who())
        found, changes = await client.pacing(queue), await client.pace_changes(queue)
    if as_json:
        print_json({"queue": queue, "pace": pace_view(found), "changes": [_change(change) for change in changes]})
    else:
        click.echo("\n".join(_about(queue, found, changes if history else [])))


@verb("why")
@click.argument("id", metavar="ID")
@as_json
@asynchronous
async def why(id: str, *, as_json: bool) -> None:
    """Say why a job is where it is, in one sentence."""
    async with existing() as client:
        found = await client.why(id)
    if as_json:
        print_json(found)
    else:
        click.echo(plain(found.sentence))


def _about(name: str, found: Pacing | None, changes: list[PaceChange]) -> Iterator[str]:
    view = pace_view(found)
    if found is None or view is None:
        yield f"{name} has no pace; demora pace {name} --gap 2m --burst 3 --stagger 30s gives it one"
    else:
        yield f"{'queue':<15} {name}"
        yield f"{'pace':<15} {say_pace(found.pace)}"
        yield f"{'set':<15} {timestamp(found.set_at)} by {plain(found.set_by)}"
        yield f"{'mode':<15} {_mode(found)}"
        yield f"{'delayed':<15} {view.total_delayed}, {view.ready_now} due, {view.ready_in_hour} due within the hour"
        yield f"{'waiting':<15} {view.waiting_for_gap} for their slot"
        yield f"{'next release':<15} {_seconds(view)}"
        last = view.time_since_last_release_seconds
        yield f"{'last release':<15} {'none yet' if last is None else f'{last:.0f} s ago'}"
    for change in changes:
        yield f"{timestamp(change.at)} {plain(change.by)}: {'off' if change.pace is None else say_pace(change.pace)}"


def _mode(found: Pacing) -> str:
    """The mode, and where there are two, why it is this one."""
    if found.pace.rapid is None:
        return "normal"
    queues = ", ".join(found.pace.protected(found.queue))
    mode, waits = found.pace.mode(quiet=found.quiet), "no" if found.quiet else "a"
    return f"{mode}, as {waits} real-time job waits in {plain(queues)}"


def _seconds(view: PaceView) -> str:
    wait = view.next_release_in_seconds
    return "nothing delayed" if wait is None else f"in {wait:.0f} s"


def _change(change: PaceChange) -> dict[str, str | None]:
    return {"at": timestamp(change.at), "by": change.by, "pace": None if change.pace is None else say_pace(change.pace)}

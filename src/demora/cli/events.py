"""The command that prints events as they happen."""

import asyncio

import click

from ..client.events import EventStream
from ..client.views import event_view
from ..core.events import Event, EventKind
from ..core.pace_request import say_pace
from ..core.spans import timestamp
from .completing import queue_names
from .opening import existing
from .options import as_json
from .output import plain, print_json
from .root import verb


@verb("events")
@click.option("--queue", metavar="QUEUE", shell_complete=queue_names, help="Only events of this queue.")
@click.option("--type", "type", metavar="TYPE", help="Only events of jobs of this type.")
@click.option("--tag", metavar="TAG", help="Only events of jobs with this tag.")
@click.option("--job", metavar="ID", help="Only events of this job.")
@click.option("--after", metavar="POSITION", help="First the ends since this position, which --json prints.")
@as_json
def events(*, as_json: bool, **filters: str | None) -> None:
    """Print what happens to jobs and queues. One line each, until Ctrl-C."""
    try:
        asyncio.run(_events(as_json=as_json, **filters))
    except KeyboardInterrupt:  # a normal end here
        return


async def _events(*, as_json: bool, **filters: str | None) -> None:
    async with existing() as client:
        stream: EventStream = client.events(**filters)
        async with stream:
            async for event in stream:
                if as_json:
                    print_json(event_view(event, position=True))
                else:
                    click.echo(plain(line(event)))


def line(event: Event) -> str:
    """Return an event as one line for people: the time, what happened, and to what."""
    at = "-" if event.at is None else timestamp(event.at)
    return "  ".join([at, event.kind.value, *_facts(event)])


def _facts(event: Event) -> list[str]:
    job = event.job
    if job is None:
        return [fact for fact in (event.queue, *_about_queue(event)) if fact]
    facts = [job.id, job.type, job.queue]
    match event.kind:
        case EventKind.STARTED:
            facts += [f"attempt {job.attempt}", job.worker_id or ""]
        case EventKind.PROGRESS:
            facts += ["" if job.progress is None else f"{job.progress:.0%}", job.progress_message or ""]
        case EventKind.RETRYING:
            facts += [f"due {timestamp(job.due_at)}", job.error or ""]
        case EventKind.FAILED | EventKind.CANCELLED:
            facts += [job.error or ""]
        case _:
            pass
    return [fact for fact in facts if fact]


def _about_queue(event: Event) -> list[str]:
    match event.kind:
        case EventKind.PACE:
            facts = ["default" if event.follows else "off" if event.pace is None else say_pace(event.pace)]
        case EventKind.RESET:
            facts = ["the position is too old; events are missing"]
        case _:
            facts = [event.reason or ""]
    return [*facts, f"by {event.by}" if event.by else ""]

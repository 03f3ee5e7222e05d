"""`demora enqueue`: a job from the command line, and if asked for the wait for its end."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from ..client import Client
from ..core.job import Job
from ..core.states import Status
from ..errors import Invalid
from ..views import job_view
from .hints import hints
from .opening import chosen_app, opened
from .options import MOMENT, SPAN, app_option, as_json, asynchronous, timing
from .root import verb
from .text import due, plain
from .wire import print_json


@verb("enqueue")
@click.argument("type", metavar="TYPE")
@click.argument("payload", metavar="[PAYLOAD|@FILE|-]", required=False)
@timing
@click.option("--queue", metavar="QUEUE", help="The queue to put it into.")
@click.option("--max-retries", type=int, metavar="N", help="How often to try again after a failure.")
@click.option("--retry-delay", type=SPAN, help="The wait before the first retry; it doubles each time.")
@click.option("--timeout", type=SPAN, help="How long one attempt may run.")
@click.option("--key", metavar="KEY", help="Idempotency key: within 24 hours the same key gives the same job.")
@click.option("--expires-at", type=MOMENT, help="When it is no longer worth starting.")
@click.option("--expires-in", type=SPAN, help="The same, counted from now.")
@click.option("--unique", metavar="KEY", help="Only one job of its type and this key waits; or type+payload.")
@click.option("--if-waiting", type=click.Choice(["keep", "replace"]), help="What becomes of the unique one that waits.")
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="A tag; may be repeated.")
@click.option("--webhook-url", metavar="URL", help="Told of its end.")
@click.option("--webhook-on-cancel", is_flag=True, default=None, help="Told of a cancel too.")
@click.option("--name", metavar="NAME", help="A name for people; the type if not given.")
@click.option("--wait", is_flag=True, help="Wait for the end; exit with 0 only if it is COMPLETED.")
@app_option
@as_json
@asynchronous
async def enqueue(type: str, payload: str | None, *, spec: str | None, wait: bool, as_json: bool, **options: Any) -> None:
    """Enqueue a job. The payload is a JSON object: typed out, read from @FILE, or from standard input with -."""
    wish = read_payload(payload)
    async with opened(chosen_app(spec)) as client:
        [(job, replayed)] = await client.add([client.make(type, wish, **options)])
        if not as_json:
            _say_enqueued(job, replayed)
        if wait:
            job = await _ended(client, job)
    _show(job, wait=wait, as_json=as_json)


def read_payload(text: str | None) -> Any:
    """The value that a payload on the command line stands for; `Invalid` says where it is not JSON."""
    if text is None:
        return None
    try:
        return json.loads(_source(text))
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno}, column {problem.colno}"
        raise Invalid("payload", f"is not JSON at {where}: {problem.msg}") from None
    except UnicodeDecodeError as problem:
        raise Invalid("payload", f"is not UTF-8 at byte {problem.start}") from None
    except (RecursionError, ValueError) as problem:
        raise Invalid("payload", f"cannot be read as JSON: {problem}") from None


def _source(text: str) -> str:
    if text == "-":
        return sys.stdin.buffer.read().decode()
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_bytes().decode()
    except OSError as problem:
        raise Invalid("payload", f"cannot read {text[1:]}: {problem.strerror}") from problem


def _say_enqueued(job: Job, replayed: bool) -> None:
    if replayed:
        click.echo(f"{job.id} was there before and stands for it: {job.type} in queue {job.queue}")
    else:
        click.echo(f"{job.id} enqueued: {job.type} in queue {job.queue}, due {due(job, datetime.now(UTC))}")


async def _ended(client: Client, job: Job) -> Job:
    for hint in await hints(client, job):
        click.echo(hint, err=True)
    return await client.wait(job.id)


def _show(job: Job, *, wait: bool, as_json: bool) -> None:
    if as_json:
        print_json(job_view(job))
    elif wait:
        said = job.error or "" if job.result_json is None else job.result_json.decode()
        click.echo(f"{job.status.name} {plain(said)}".rstrip())
    if wait and job.status is not Status.COMPLETED:
        click.get_current_context().exit(1)

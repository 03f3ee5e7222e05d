"""`demora webhooks`: what was told of a job's end, the secrets it is signed with, and help for whoever receives it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from ..client import new_id
from ..core.spans import say
from ..core.states import RETRYABLE
from ..core.webhook import message_id
from ..hookstore import Signing
from ..outbound import Crowded, Forbidden, NoAnswer
from ..views import secret_view, told_view
from ..webhooks import OVERLAP, MadeSecret, Told, Try
from .listening import listen
from .opening import chosen_app, existing, opened
from .options import SPAN, as_json, asynchronous
from .root import Failure, Family, group, verb
from .text import due, plain
from .wire import print_json

job_id = click.argument("id", metavar="ID")


class _OrId(Family):
    """`demora webhooks ID` means `demora webhooks show ID`."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        known = self.get_command(ctx, args[0]) is not None or args[0].startswith("-")
        return super().resolve_command(ctx, args if known else ["show", *args])


@click.group("webhooks", cls=_OrId, params=group("-")(lambda: None).params)
def webhooks() -> None:
    """What was told of a job's end, and the secrets it is signed with."""


@verb("show")
@job_id
@as_json
@asynchronous
async def show(id: str, *, as_json: bool) -> None:
    """Show the deliveries about a job, with each try: when, what the server answered, and how it began."""
    async with existing() as client:
        _show(await client.webhooks.of(id), as_json=as_json)


@verb("retry")
@job_id
@as_json
@asynchronous
async def retry(id: str, *, as_json: bool) -> None:
    """Deliver again what was given up about a job, under the same ids."""
    async with existing() as client:
        before = await client.webhooks.of(id)
        found = await client.webhooks.redeliver(id)
    _show(found, as_json=as_json)
    if found and not as_json and not any(told.delivery.status in RETRYABLE for told in before):
        click.echo("\n".join(_nothing_done(found)))


@verb("test")
@click.argument("url", metavar="URL")
@as_json
@asynchronous
async def test(url: str, *, as_json: bool) -> None:
    """Send a signed message of no job to URL, once, and say what came back. Exits with 1 unless that is a 2xx."""
    app = chosen_app(None)
    async with opened(app):
        try:
            reply = await app.deliveries.test(url, new_id())
        except (Forbidden, NoAnswer, Crowded) as problem:
            raise Failure(str(problem)) from problem
    if as_json:
        print_json({"status": reply.status, "excerpt": reply.text(500)})
    else:
        click.echo(f"{reply.status} {plain(reply.text(500))}".rstrip())
    if not 200 <= reply.status < 300:
        click.get_current_context().exit(1)


@verb("disabled")
@as_json
@asynchronous
async def disabled(*, as_json: bool) -> None:
    """List the URLs that nothing is sent to any more, since their server answered 410."""
    async with existing() as client:
        found = await client.webhooks.disabled()
    if as_json:
        print_json({"disabled": [{"url": one.url, "reason": one.reason} for one in found]})
    else:
        for one in found:
            click.echo(f"{plain(one.url)}  {plain(one.reason)}, {one.disabled_at:%Y-%m-%d %H:%M:%S}Z")


@verb("enable")
@click.argument("url", metavar="URL")
@as_json
@asynchronous
async def enable(url: str, *, as_json: bool) -> None:
    """Send to a disabled URL again. What was given up meanwhile is among the dead letters; retry delivers it."""
    async with existing() as client:
        await client.webhooks.enable(url)
    if as_json:
        print_json({"url": url})
    else:
        click.echo(f"{plain(url)} is enabled")


@group("secret")
def secret() -> None:
    """Secrets that webhooks are signed with. Each is shown once; the database keeps them readable, since it signs."""


@verb("create")
@as_json
@asynchronous
async def create(*, as_json: bool) -> None:
    """Make a secret and print it, this once. Beside others in force, each delivery is signed with all of them."""
    async with opened(chosen_app(None)) as client:
        _made(await client.webhooks.create_secret(), None, as_json=as_json)


@verb("rotate")
@click.option("--overlap", type=SPAN, default=OVERLAP, show_default=say(OVERLAP), help="How long the others go on signing.")
@as_json
@asynchronous
async def rotate(*, overlap: timedelta, as_json: bool) -> None:
    """Make a secret and print it, this once. All others sign beside it until the overlap is over, and then no more."""
    async with opened(chosen_app(None)) as client:
        _made(await client.webhooks.rotate_secret(overlap), overlap, as_json=as_json)


@verb("list")
@as_json
@asynchronous
async def list_(*, as_json: bool) -> None:
    """List the secrets, without what they are."""
    async with existing() as client:
        found = await client.webhooks.secrets()
    if as_json:
        print_json({"secrets": [secret_view(one, found.now) for one in found.secrets]})
    else:
        for line in _secrets(found):
            click.echo(line)


@verb("forget")
@job_id
@as_json
@asynchronous
async def forget(id: str, *, as_json: bool) -> None:
    """Delete a secret: nothing is signed with it from now on."""
    async with existing() as client:
        await client.webhooks.forget_secret(id)
    if as_json:
        print_json({"id": id})
    else:
        click.echo(f"secret {plain(id)} is forgotten")


for command in (create, rotate, list_, forget):
    secret.add_command(command)
for command in (show, retry, test, listen, disabled, enable, secret):
    webhooks.add_command(command)


def _made(made: MadeSecret, overlap: timedelta | None, *, as_json: bool) -> None:
    if as_json:
        print_json({"id": made.stored.id, "secret": made.text})
        return
    click.echo(made.text)
    others = "" if overlap is None else f"; all others sign for {say(overlap) or 'no time'} more"
    click.echo(f"secret {made.stored.id}: give it to whoever receives; it is not shown again{others}", err=True)


def _secrets(found: Signing) -> list[str]:
    return [
        f"{one.id}  made {one.created_at:%Y-%m-%d %H:%M:%S}Z  "
        + (
            "in force"
            if one.ends_at is None
            else f"{'until' if one.in_force(found.now) else 'ended'} {one.ends_at:%Y-%m-%d %H:%M:%S}Z"
        )
        for one in found.secrets
    ]


def _show(found: list[Told], *, as_json: bool) -> None:
    if as_json:
        print_json(told_view(found))
        return
    if not found:
        click.echo("nothing was to be told of this job so far")
    for told in found:
        job = told.delivery
        click.echo(f"{message_id(job.id)}  {job.status.name}  {plain(told.url)}")
        for one in told.tries:
            click.echo(f"  {_line(one)}")


def _nothing_done(found: list[Told]) -> Iterator[str]:
    """Why nothing is delivered again, and what comes by itself."""
    yield "nothing was given up about this job, so nothing is delivered again"
    for job in (told.delivery for told in found):
        if job.status.waiting:
            yield f"{message_id(job.id)} is tried next {due(job, datetime.now(UTC))}"


def _line(one: Try) -> str:
    at = "never started" if one.at is None else f"{one.at:%Y-%m-%d %H:%M:%S}Z"
    what = str(one.status) if one.status is not None else plain(one.error or "")
    return f"{at}  {what}  {plain(one.excerpt or '')}".rstrip()

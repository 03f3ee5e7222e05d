"""`demora webhooks`: the deliveries of a job, the secrets that sign them, and a receiver for development."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from ..client.client import Client
from ..client.webhooks import OVERLAP, DeliveryHistory, DeliveryTry, MadeSecret
from ..core.outbound.webhook import Secret, message_id, objection, secret_text
from ..core.spans import say
from ..core.states import RETRYABLE
from ..outbound.sender import Crowded, Forbidden, NoAnswer
from ..store.webhooks import Signing
from ..system.addresses import cannot_listen
from ..system.ids import new_id
from ..wire.webhooks import deliveries_view, secret_view
from .opening import app_to_look_at, existing, opened
from .options import SPAN, as_json, asynchronous, whole_id, whole_secret_id
from .output import due, plain, print_json
from .root import Failure, Family, group, verb

HERE = "127.0.0.1"
MOST_BODY = 2 * 1024 * 1024
REQUEST_TIMEOUT = 10.0  # seconds for one request to arrive
job_id = click.argument("id", metavar="ID")


class _OrId(Family):
    """`demora webhooks ID` means `demora webhooks show ID`."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        known = self.get_command(ctx, args[0]) is not None or args[0].startswith("-")
        return super().resolve_command(ctx, args if known else ["show", *args])


@click.group("webhooks", cls=_OrId, params=group("-")(lambda: None).params)
def webhooks() -> None:
    """Manage webhook deliveries and the secrets that sign them."""


@verb("show")
@job_id
@as_json
@asynchronous
async def show(id: str, *, as_json: bool) -> None:
    """Show the webhook deliveries of a job. Each attempt has its time, its status and the start of the response."""
    async with existing() as client:
        _show(await client.webhooks.of(await whole_id(client, id)), as_json=as_json)


@verb("retry")
@job_id
@as_json
@asynchronous
async def retry(id: str, *, as_json: bool) -> None:
    """Repeat the failed webhook deliveries of a job. The message ids stay the same."""
    async with existing() as client:
        id = await whole_id(client, id)
        before = await client.webhooks.of(id)
        found = await client.webhooks.redeliver(id)
    _show(found, as_json=as_json)
    if found and not as_json and not any(history.delivery.status in RETRYABLE for history in before):
        click.echo("\n".join(_nothing_done(found)))


@verb("test")
@click.argument("url", metavar="URL")
@as_json
@asynchronous
async def test(url: str, *, as_json: bool) -> None:
    """Send one signed test message to URL and print the response. Exits with 1 unless the status is 2xx."""
    app = app_to_look_at()
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


@verb("listen")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=9090, show_default=True, help="The port to listen on, at 127.0.0.1."
)
@click.option("--answer", type=click.IntRange(200, 599), default=204, show_default=True, help="The status of the responses.")
@click.option("--once", is_flag=True, help="Stop after the first message; exit with 1 if it cannot be verified.")
@asynchronous
async def listen(*, port: int, answer: int, once: bool) -> None:
    """Receive webhooks on this machine, for development. Verifies each message with the secrets in force and prints it."""
    app = app_to_look_at()
    async with opened(app) as client:
        receiver = _Receiver(lambda: _secrets_to_verify(app.settings.webhook_secrets, client), answer)
        server = await _started(receiver, port)
        address = server.sockets[0].getsockname()
        click.echo(
            f"listening on http://{address[0]}:{address[1]}/ (DEMORA_OUTBOUND_ALLOW=127.0.0.0/8 lets demora send here)"
        )
        async with server:
            while True:
                problem = await receiver.seen.get()
                if once:
                    break
    if problem is not None:
        raise Failure(f"the message cannot be verified: {problem}")


@verb("disabled")
@as_json
@asynchronous
async def disabled(*, as_json: bool) -> None:
    """List the disabled URLs. A URL is disabled if its server answers 410."""
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
    """Enable a disabled URL. Deliveries that failed in the meantime are dead letters; retry repeats them."""
    async with existing() as client:
        await client.webhooks.enable(url)
    if as_json:
        print_json({"url": url})
    else:
        click.echo(f"{plain(url)} is enabled")


@group("secret")
def secret() -> None:
    """Manage the secrets that sign webhooks. The database stores them in readable form."""


@verb("create")
@as_json
@asynchronous
async def create(*, as_json: bool) -> None:
    """Create a secret and print it. Each delivery is signed with all secrets in force."""
    async with opened(app_to_look_at()) as client:
        _made(await client.webhooks.create_secret(), None, as_json=as_json)


@verb("rotate")
@click.option(
    "--overlap", type=SPAN, default=OVERLAP, show_default=say(OVERLAP), help="How long the other secrets still sign."
)
@as_json
@asynchronous
async def rotate(*, overlap: timedelta, as_json: bool) -> None:
    """Create a secret and print it. All other secrets end after the overlap."""
    async with opened(app_to_look_at()) as client:
        _made(await client.webhooks.rotate_secret(overlap), overlap, as_json=as_json)


@verb("reveal")
@as_json
@asynchronous
async def reveal(*, as_json: bool) -> None:
    """Print the secrets in force, for the receivers. Creates the first one if there is none."""
    async with opened(app_to_look_at()) as client:
        made = await client.webhooks.ensure_secret()
        found = await client.webhooks.secrets()
    shown = [(one.id, secret_text(one.secret.key)) for one in found.secrets if one.in_force(found.now)]
    if as_json:
        print_json({"secrets": [{"id": id, "secret": text} for id, text in shown]})
        return
    for _, text in shown:
        click.echo(text)
    if made is not None:
        click.echo("this secret is new: give it to the receiver", err=True)


@verb("list")
@as_json
@asynchronous
async def list_(*, as_json: bool) -> None:
    """List the secrets by id, without their values."""
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
    """Delete a secret at once. It signs no more deliveries."""
    async with existing() as client:
        id = await whole_secret_id(client, id)
        await client.webhooks.forget_secret(id)
    if as_json:
        print_json({"id": id})
    else:
        click.echo(f"secret {plain(id)} is forgotten")


for command in (create, rotate, reveal, list_, forget):
    secret.add_command(command)
for command in (show, retry, test, listen, disabled, enable, secret):
    webhooks.add_command(command)


def _show(found: list[DeliveryHistory], *, as_json: bool) -> None:
    if as_json:
        print_json(deliveries_view(found))
        return
    if not found:
        click.echo("no webhook was sent for this job so far")
    for history in found:
        job = history.delivery
        click.echo(f"{message_id(job.id)}  {job.status.name}  {plain(history.url)}")
        for one in history.tries:
            click.echo(f"  {_line(one)}")


def _line(one: DeliveryTry) -> str:
    at = "never started" if one.at is None else f"{one.at:%Y-%m-%d %H:%M:%S}Z"
    what = str(one.status) if one.status is not None else plain(one.error or "")
    return f"{at}  {what}  {plain(one.excerpt or '')}".rstrip()


def _nothing_done(found: list[DeliveryHistory]) -> Iterator[str]:
    """Say that there is nothing to repeat, and when the next attempts are due."""
    yield "no delivery of this job has failed, so there is nothing to repeat"
    for job in (history.delivery for history in found):
        if job.status.waiting:
            yield f"{message_id(job.id)} is due {due(job, datetime.now(UTC))}"


async def _started(receiver: "_Receiver", port: int) -> asyncio.Server:
    try:
        return await asyncio.start_server(receiver.serve, HERE, port, limit=MOST_BODY)
    except OSError as problem:
        raise cannot_listen(problem, HERE, port, "--port") from problem


class _Receiver:
    def __init__(self, secrets: Callable[[], Awaitable[list[Secret]]], answer: int) -> None:
        self._secrets, self._answer = secrets, answer
        self.seen: asyncio.Queue[str | None] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                headers, body = await _message(reader)
            problem = objection(headers, body, await self._secrets(), datetime.now(UTC))
            _print(headers, body, problem)
            writer.write(_reply(self._answer if problem is None else 401))
            await writer.drain()
            self.seen.put_nowait(problem)
        except (ConnectionError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            click.echo("received something that is not a webhook message", err=True)
        finally:
            writer.close()


async def _message(reader: asyncio.StreamReader) -> tuple[dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    lines = [line.partition(":") for line in head.split("\r\n")[1:-2]]
    headers = {name.strip().lower(): value.strip() for name, _, value in lines}
    length = int(headers.get("content-length", "0"))
    if not 0 <= length <= MOST_BODY:
        raise ValueError("too large")
    return headers, await reader.readexactly(length)


def _print(headers: dict[str, str], body: bytes, problem: str | None) -> None:
    verdict = "verified" if problem is None else f"NOT VERIFIED: {problem}"
    click.echo(f"{plain(headers.get('webhook-id', 'no id'))}  {verdict}")
    click.echo(f"  {plain(body.decode('utf-8', 'replace'))}")


def _reply(status: int) -> bytes:
    return f"HTTP/1.1 {status} Received\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()


async def _secrets_to_verify(given: tuple[Secret, ...], client: Client) -> list[Secret]:
    found = await client.webhooks.secrets()
    return [*given, *(one.secret for one in found.secrets if one.in_force(found.now))]


def _made(made: MadeSecret, overlap: timedelta | None, *, as_json: bool) -> None:
    if as_json:
        print_json({"id": made.stored.id, "secret": made.text})
        return
    click.echo(made.text)
    others = "" if overlap is None else f"; all other secrets sign for {say(overlap) or 'no time'} more"
    click.echo(f"secret {made.stored.id}: give it to the receiver{others}", err=True)


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

"""`demora webhooks listen`: a receiver for development, which verifies what it is sent and prints it."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import click

from ..addresses import cannot_listen
from ..client import Client
from ..core.signing import Secret, objection
from .opening import chosen_app, opened
from .options import asynchronous
from .root import Failure, verb
from .text import plain

HERE = "127.0.0.1"
MOST_BODY = 2 * 1024 * 1024
PATIENCE = 10.0  # seconds for one request to arrive


@verb("listen")
@click.option("--port", type=click.IntRange(0, 65535), default=9090, show_default=True, help="Listen on 127.0.0.1 here.")
@click.option("--answer", type=click.IntRange(200, 599), default=204, show_default=True, help="The status to answer with.")
@click.option("--once", is_flag=True, help="End after the first message; exit with 1 if it is not to be trusted.")
@asynchronous
async def listen(*, port: int, answer: int, once: bool) -> None:
    """Receive webhooks on this machine: verify each with the secrets in force, print it, and answer. For development."""
    app = chosen_app(None)
    async with opened(app) as client:
        receiver = _Receiver(lambda: _secrets(app.settings.webhook_secrets, client), answer)
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
        raise Failure(f"the message is not to be trusted: {problem}")


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
            async with asyncio.timeout(PATIENCE):
                headers, body = await _message(reader)
            problem = objection(headers, body, await self._secrets(), datetime.now(UTC))
            _print(headers, body, problem)
            writer.write(_reply(self._answer if problem is None else 401))
            await writer.drain()
            self.seen.put_nowait(problem)
        except (ConnectionError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            click.echo("something came that was no message", err=True)
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


async def _secrets(given: tuple[Secret, ...], client: Client) -> list[Secret]:
    found = await client.webhooks.secrets()
    return [*given, *(one.secret for one in found.secrets if one.in_force(found.now))]

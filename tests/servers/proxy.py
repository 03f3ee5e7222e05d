"""A TCP proxy that cuts connections at a chosen moment: before a message arrives, or once its answer is on the way."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class Proxy:
    """Stands before a server. `cut_at(n)` cuts the connection that sends the n-th message from now on.

    With `arrives` the server gets the message and answers it, and the answer is lost; else the message itself is.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._left = 0
        self._arrives = True
        self._writers: set[asyncio.StreamWriter] = set()
        self.cuts = 0
        self.refusing = False  # then new connections are cut at once

    def cut_at(self, nth: int = 1, *, arrives: bool = True) -> None:
        self._left, self._arrives = nth, arrives

    def cut_all(self) -> None:
        """Cut every connection at once."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        if self.refusing:
            to_client.transport.abort()
            return
        server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._writers |= {to_client, to_server}
        answers = asyncio.create_task(_pass_on(server, to_client))
        try:
            while data := await client.read(1 << 20):
                self._left -= 1
                if self._left == 0:
                    await self._cut(data, server, to_server, answers)
                    break
                to_server.write(data)
        except OSError:
            pass
        finally:
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)
            for writer in (to_client, to_server):
                self._writers.discard(writer)
                writer.transport.abort()

    async def _cut(
        self, data: bytes, server: asyncio.StreamReader, to_server: asyncio.StreamWriter, answers: "asyncio.Task[None]"
    ) -> None:
        self.cuts += 1
        answers.cancel()
        await asyncio.gather(answers, return_exceptions=True)
        if self._arrives:
            to_server.write(data)
            await server.read(1)


async def _pass_on(server: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await server.read(1 << 20):
            to_client.write(data)
    to_client.transport.abort()


@asynccontextmanager
async def before(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy before the server of a URL, and the URL that leads through it."""
    port = urlsplit(url).port or 5432
    proxy = Proxy(port)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    own = listener.sockets[0].getsockname()[1]
    try:
        yield proxy, url.replace(f":{port}/", f":{own}/")
    finally:
        listener.close()
        proxy.cut_all()
        await asyncio.sleep(0)

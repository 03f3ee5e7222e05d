"""A TCP proxy that cuts connections at a chosen moment, before a message arrives or once its answer is on the way, and that
can keep everything back for a while."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal
from urllib.parse import urlsplit

from tests.servers.wire import Wire

IDLE = b"Z\x00\x00\x00\x05I"  # what PostgreSQL says last, once nothing of a transaction is left
Moment = Literal["before it arrives", "at once", "before the answer"]


class Proxy:
    """Stands before a server. `cut_at(n)` cuts the connection that sends the n-th message from now on.

    With `arrives` the server gets the message and answers it, and the answer is lost; else the message itself is.
    `cut_commit(n)` counts only messages that commit something, and may also cut as soon as the message is on its way.
    """

    def __init__(self, port: int) -> None:
        self.server_port = port
        self._left = 0
        self._moment: Moment = "before the answer"
        self._commits = False
        self._passing = asyncio.Event()
        self._passing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.cuts = 0
        self.refusing = False  # then new connections are cut at once

    def cut_at(self, nth: int = 1, *, arrives: bool = True) -> None:
        self._left, self._commits, self._moment = nth, False, "before the answer" if arrives else "before it arrives"

    def cut_commit(self, nth: int, moment: Moment) -> None:
        self._left, self._commits, self._moment = nth, True, moment

    def hold(self) -> None:
        """Keep back whatever is said from now on, in both directions, and leave the connections be."""
        self._passing.clear()

    def release(self) -> None:
        """Pass on what was kept back."""
        self._passing.set()

    def cut_all(self) -> None:
        """Cut every connection at once."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        if self.refusing:
            to_client.transport.abort()
            return
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self.server_port)
        except OSError:
            to_client.transport.abort()
            return
        self._writers |= {to_client, to_server}
        answers = asyncio.create_task(self._pass_on(server, to_client))
        try:
            await self._listen(client, server, to_server, answers)
        except OSError:
            pass
        finally:
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)
            for writer in (to_client, to_server):
                self._writers.discard(writer)
                writer.transport.abort()

    async def _listen(
        self,
        client: asyncio.StreamReader,
        server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
        answers: "asyncio.Task[None]",
    ) -> None:
        """Pass on what the client says, until it ends or is cut."""
        wire = Wire()
        while data := await client.read(1 << 20):
            await self._passing.wait()
            if wire.commits(data) or not self._commits:
                self._left -= 1
                if self._left == 0:
                    return await self._cut(data, server, to_server, answers)
            to_server.write(data)
        return None

    async def _cut(
        self, data: bytes, server: asyncio.StreamReader, to_server: asyncio.StreamWriter, answers: "asyncio.Task[None]"
    ) -> None:
        moment = self._moment
        answers.cancel()
        await asyncio.gather(answers, return_exceptions=True)
        if moment != "before it arrives":
            to_server.write(data)
        if moment == "at once":
            await to_server.drain()
            to_server.close()
        if moment != "before the answer" or await (_until_idle(server) if self._commits else server.read(1)):
            self.cuts += 1

    async def _pass_on(self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await server.read(1 << 20):
                await self._passing.wait()
                to_client.write(data)
        to_client.transport.abort()


async def _until_idle(server: asyncio.StreamReader) -> bool:
    """Wait until a server has carried out what it was told; False if it went away before."""
    end = b""
    while data := await server.read(1 << 20):
        end = (end + data)[-len(IDLE) :]
        if end == IDLE:
            return True
    return False


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

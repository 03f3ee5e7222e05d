"""A proxy between a worker and the service, which loses requests and answers, holds one back, and cuts the worker off."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import urlsplit

_VERB = re.compile(rb"POST /api/v1/workers/[^/ ]+/(claim|renew|settle) ")
_WHOLE = re.compile(rb"\]\}(\r\n0\r\n\r\n)?$")  # the end of an answer: of its JSON, and of its last chunk


class Proxy:
    """Passes requests and answers on, except those that a trial holds back or drops. `caught` is set when it has done so."""

    def __init__(self, host: str, port: int, *, tls: bool) -> None:
        self._host, self._port, self._tls = host, port, tls
        self._answer: bytes | None = None  # the verb whose next answer is lost
        self._request: bytes | None = None  # the verb whose next request is lost
        self._held: bytes | None = None  # the verb whose next request is held back
        self._dark, self._released = False, asyncio.Event()
        self._connections: set[_Connection] = set()
        self.caught, self._moved = asyncio.Event(), asyncio.Event()

    def lose_answer(self, verb: str) -> None:
        """Lose the next answer to this verb in its middle: the worker gets a status and the beginning of the body.

        Of claims, that is the next one that got a job.
        """
        self._answer = verb.encode()
        self.caught.clear()

    def lose_request(self, verb: str) -> None:
        """Lose the next request with this verb: the service never sees it."""
        self._request = verb.encode()
        self.caught.clear()

    def hold(self, verb: str) -> None:
        """Hold back the next request with this verb until `mend`, and cut the worker off meanwhile."""
        self._held = verb.encode()
        self._released.clear()
        self.caught.clear()

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Let nothing pass during the block."""
        self._darken()
        try:
            yield
        finally:
            self.mend()

    async def answered(self, verb: str) -> None:
        """Return when no request with this verb waits for its answer."""
        while any(connection.asked == verb.encode() for connection in self._connections):
            self._moved.clear()
            await self._moved.wait()

    def mend(self) -> None:
        """Pass on everything again, also what is held back."""
        self._answer = self._request = self._held = None
        self._dark = False
        self._released.set()

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            if self._dark:
                raise ConnectionError
            server, to_server = await asyncio.open_connection(self._host, self._port, ssl=self._tls or None)
        except OSError:
            to_client.transport.abort()
            return
        connection = _Connection(to_client, to_server)
        self._connections.add(connection)
        ways = [
            asyncio.create_task(self._listen(client, connection)),
            asyncio.create_task(self._reply(server, connection)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._connections.discard(connection)
            self._moved.set()
            for way in ways:
                way.cancel()
            connection.cut()

    async def _listen(self, client: asyncio.StreamReader, connection: "_Connection") -> None:
        with contextlib.suppress(OSError):
            while data := await client.read(1 << 16):
                if (found := _VERB.search(data)) is not None:
                    connection.asked = found[1]
                    if found[1] == self._request:
                        self._request = None
                        self.caught.set()
                        return
                    if found[1] == self._held:
                        await self._hold_back(connection)
                connection.to_server.write(data)
                await connection.to_server.drain()

    async def _hold_back(self, connection: "_Connection") -> None:
        """Wait for `mend`, with all other connections cut."""
        self._held = None
        self._darken(but=connection)
        self.caught.set()
        await self._released.wait()

    async def _reply(self, server: asyncio.StreamReader, connection: "_Connection") -> None:
        with contextlib.suppress(OSError):
            while data := await server.read(1 << 20):
                if connection.asked == self._answer and (connection.asked != b"claim" or b'"jobs":[{' in data):
                    self._answer = None
                    self.caught.set()
                    begun, jobs, _ = data.partition(b'"jobs":')
                    connection.to_client.write(begun + jobs)
                    connection.to_client.close()
                    await connection.to_client.wait_closed()
                    return
                connection.to_client.write(data)
                await connection.to_client.drain()
                if _WHOLE.search(data) is not None:
                    connection.asked = b""
                    self._moved.set()

    def _darken(self, *, but: "_Connection | None" = None) -> None:
        self._dark = True
        for connection in self._connections - {but}:
            connection.cut()


class _Connection:
    """A connection of a worker, and the verb that it waits for."""

    def __init__(self, to_client: asyncio.StreamWriter, to_server: asyncio.StreamWriter) -> None:
        self.to_client, self.to_server, self.asked = to_client, to_server, b""

    def cut(self) -> None:
        for writer in (self.to_client, self.to_server):
            writer.transport.abort()


@asynccontextmanager
async def before(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy before the service, and the URL that leads through it."""
    named = urlsplit(url)
    tls = named.scheme == "https"
    proxy = Proxy(named.hostname or "127.0.0.1", named.port or (443 if tls else 80), tls=tls)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    try:
        yield proxy, f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()

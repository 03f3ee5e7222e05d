"""A small HTTP server for tests: it writes down what it was sent, and answers as it is told, also badly."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Self

HANG = b"hang"  # instead of an answer: keep the caller waiting


class Received(NamedTuple):
    """One request, as it came; header names in small letters."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    head: bytes


Answer = Callable[[Received], bytes | Awaitable[bytes]]


def answer(status: int = 200, body: bytes = b"", **headers: str) -> bytes:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status} Whatever", f"content-length: {len(body)}", *(f"{n}: {v}" for n, v in named.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Receiver:
    """`async with Receiver(answer) as receiver:`; every request gets what `answer` makes of it."""

    def __init__(self, how: Answer | bytes = b"", *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.how, self._host, self._tls = how or answer(), host, tls
        self.received: list[Received] = []
        self.connections = 0
        self.port = 0
        self._let_go = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self._host, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._let_go.set()
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}/hook"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            request = await _request(reader)
            self.received.append(request)
            said: Any = self.how(request) if callable(self.how) else self.how
            if not isinstance(said, bytes):
                said = await said
            if said == HANG:
                await self._let_go.wait()
            else:
                writer.write(said)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def _request(reader: asyncio.StreamReader) -> Received:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, path, headers, body, head)

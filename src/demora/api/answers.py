"""Answers: encoded item by item, counted, and sent piece by piece, no faster than the caller reads them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from starlette.types import Send

from .budget import Share
from .reading import ClientGone

JSON, PROBLEM = "application/json", "application/problem+json"
CHUNK = 64 * 1024  # bytes sent at once: the server waits between two until the caller has read most of the first
_ALWAYS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_encode = msgspec.json.Encoder().encode


class Listing(msgspec.Struct, frozen=True):
    """Items that are written one by one under a name, and what else stands beside them."""

    name: str
    items: Iterable[Any]
    beside: Mapping[str, Any] = {}

    def pieces(self) -> Iterator[bytes]:
        yield _encode(self.name).join((b"{", b":["))
        for n, item in enumerate(self.items):
            yield b"," + _encode(item) if n else _encode(item)
        yield b"]" + b"".join(b"," + _encode(name) + b":" + _encode(value) for name, value in self.beside.items()) + b"}"


class Reply(msgspec.Struct, frozen=True):
    """An answer: a status, a value to be written as JSON unless None, and headers."""

    status: int
    value: Any = None
    headers: Mapping[str, str] = {}
    media: str = JSON

    def pieces(self) -> Iterator[bytes]:
        if isinstance(self.value, Listing):
            yield from self.value.pieces()
        elif self.value is not None:
            yield _encode(self.value)

    async def send(self, send: Send, share: Share | None = None) -> None:
        """Encode the answer and send it. Its bytes are counted in the share before the first of them is sent."""
        pieces, size = [], 0
        for piece in self.pieces():
            pieces.append(piece)
            size += len(piece)
            if share is not None:
                share.answer(size)
        try:
            await send({"type": "http.response.start", "status": self.status, "headers": self._headers(size)})
            await _send_body(pieces, size, send)
        except RuntimeError as problem:  # the server has closed the connection: what the caller sent next was no request
            raise ClientGone from problem

    def _headers(self, size: int) -> list[tuple[bytes, bytes]]:
        own = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()]
        if self.value is None:
            return [*_ALWAYS, *own] if self.status == 204 else [*_ALWAYS, *own, (b"content-length", b"0")]
        return [*_ALWAYS, *own, (b"content-length", b"%d" % size), (b"content-type", self.media.encode())]


async def _send_body(pieces: list[bytes], size: int, send: Send) -> None:
    if size <= CHUNK:
        await send({"type": "http.response.body", "body": b"".join(pieces)})
        return
    pieces.reverse()  # what is sent is given up at once
    buffer = bytearray()
    while pieces:
        piece = pieces.pop()
        for start in range(0, len(piece), CHUNK):
            buffer += piece[start : start + CHUNK]
            if len(buffer) >= CHUNK:
                await send({"type": "http.response.body", "body": bytes(buffer), "more_body": True})
                buffer.clear()
    await send({"type": "http.response.body", "body": bytes(buffer)})

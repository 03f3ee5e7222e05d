"""Answers: encoded item by item, counted in the byte budget, and sent in chunks, no faster than the caller reads."""

import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from starlette.types import Send

from .budget import Share
from .reading import ClientGone
from .request_ids import id_header

JSON, PROBLEM = "application/json", "application/problem+json"
CHUNK = 64 * 1024  # bytes sent at once; the server then waits until the caller has read most of them
LEAST_COMPRESSED = 1024  # bytes
_ALWAYS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_encode = msgspec.json.Encoder().encode


class Listing(msgspec.Struct, frozen=True):
    """A JSON object with a list of items under a name, encoded one by one, and further fields `beside` it."""

    name: str
    items: Iterable[Any]
    beside: Mapping[str, Any] = {}

    def pieces(self) -> Iterator[bytes]:
        yield _encode(self.name).join((b"{", b":["))
        for n, item in enumerate(self.items):
            yield b"," + _encode(item) if n else _encode(item)
        yield b"]" + b"".join(b"," + _encode(name) + b":" + _encode(value) for name, value in self.beside.items()) + b"}"


class Reply(msgspec.Struct, frozen=True):
    """An answer: a status, a value to encode as JSON unless it is None or bytes, and headers.

    `unsent` is called if the answer could not be written because the caller is gone.

    It is `compressible` only if it holds no payload, result or secret: the size of a compressed text gives away some of it.
    """

    status: int
    value: Any = None
    headers: Mapping[str, str] = {}
    media: str = JSON
    compressible: bool = False
    unsent: Callable[[], Awaitable[None]] | None = None

    def pieces(self) -> Iterable[bytes]:
        if isinstance(self.value, Listing):
            return self.value.pieces()
        if self.value is None:
            return ()
        return (self.value if isinstance(self.value, bytes) else _encode(self.value),)

    async def send(self, send: Send, id: str, share: Share | None = None, *, gzip: bool = False) -> None:
        """Encode the answer to the request with this id and send it, compressed if the caller takes gzip. The share counts
        all its bytes, before they are compressed and before the first is sent."""
        pieces, size = [], 0
        for piece in self.pieces():
            pieces.append(piece)
            size += len(piece)
            if share is not None:
                share.answer(size)
        headers = self._headers(id, size)
        packed = False
        if self.compressible and size >= LEAST_COMPRESSED:
            headers.append((b"vary", b"accept-encoding"))
            if packed := gzip:
                headers = [header for header in headers if header[0] != b"content-length"]
                headers.append((b"content-encoding", b"gzip"))
        try:
            await send({"type": "http.response.start", "status": self.status, "headers": headers})
            if size <= CHUNK and not packed:
                await send({"type": "http.response.body", "body": b"".join(pieces)})
            else:
                await _send_chunks(_compressed(_chunks(pieces)) if packed else _chunks(pieces), send)
        except RuntimeError as problem:  # the server closed the connection, because the caller's next bytes were no request
            raise ClientGone from problem

    def _headers(self, id: str, size: int) -> list[tuple[bytes, bytes]]:
        headers = self._own_headers(id)
        if self.value is not None:
            headers += (b"content-length", b"%d" % size), (b"content-type", self.media.encode())
        elif self.status != 204:
            headers.append((b"content-length", b"0"))
        return headers

    def _own_headers(self, id: str) -> list[tuple[bytes, bytes]]:
        headers = [*_ALWAYS, id_header(id)]
        for name, value in self.headers.items():
            headers.append((name.lower().encode("latin-1"), value.encode("latin-1")))
        return headers


def _chunks(pieces: list[bytes]) -> Iterator[bytes]:
    pieces.reverse()  # so that sent pieces are freed at once
    buffer = bytearray()
    while pieces:
        piece = pieces.pop()
        for start in range(0, len(piece), CHUNK):
            buffer += piece[start : start + CHUNK]
            if len(buffer) >= CHUNK:
                yield bytes(buffer)
                buffer.clear()
    yield bytes(buffer)


def _compressed(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Compress chunk by chunk, so that a large answer does not block the event loop."""
    packer = zlib.compressobj(level=1, wbits=16 + zlib.MAX_WBITS)  # gzip
    for chunk in chunks:
        yield packer.compress(chunk)
    yield packer.flush()


async def _send_chunks(chunks: Iterator[bytes], send: Send) -> None:
    body = next(chunks)
    for following in chunks:
        await send({"type": "http.response.body", "body": body, "more_body": True})
        body = following
    await send({"type": "http.response.body", "body": body})

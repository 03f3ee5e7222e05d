"""One request and its answer: what the application sees of a connection, by the rules of ASGI.

The connection adds the body as it arrives; the application receives it, and sends the answer. It replaces uvicorn's request
and response cycle, which examined each header of an answer twice: here one look at the whole head finds a header that could
end a line.
"""

import asyncio
import logging
import re
from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus
from typing import Protocol

from starlette.types import ASGIApp, Message, Scope
from uvicorn.protocols.http.flow_control import FlowControl

_log = logging.getLogger("uvicorn.error")
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # all but the tab, CR and LF
_WITHOUT_BODY = (204, 304)


class Wire(Protocol):
    """The connection that an answer is written to."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def is_closing(self) -> bool: ...
    def answered(self) -> None:
        """Note that the answer was written as a whole."""


class Exchange:
    """A request under way. `receive` and `send` are those of ASGI."""

    __slots__ = (
        *("_answer_left", "_body", "_chunked", "_flow", "_has_news", "_head", "_head_only", "_headers"),
        *("_more_body", "_news", "_wire", "complete", "disconnected", "expects_continue", "keep_alive", "started"),
    )

    def __init__(
        self,
        wire: Wire,
        flow: FlowControl,
        headers: Iterable[tuple[bytes, bytes]],
        *,
        head_only: bool,
        keep_alive: bool,
        expects_continue: bool,
    ) -> None:
        self._wire, self._flow = wire, flow
        self._headers, self._head_only = headers, head_only  # the headers of every answer; whether it has no body
        self.keep_alive, self.expects_continue = keep_alive, expects_continue
        self._body: bytes | bytearray = b""
        self._more_body = True
        self._has_news = False  # whether `receive` has something to return
        self._news: asyncio.Event | None = None  # set then too; only a `receive` that has to wait makes it
        self.disconnected = self.started = self.complete = False
        self._chunked, self._answer_left = False, 0
        self._head = b""  # of an answer of known length, until the first bytes of the body, which follow at once

    def is_complete(self) -> bool:
        """Return whether the answer was written as a whole."""
        return self.complete

    @property
    def under_way(self) -> bool:
        return not self.complete and not self.disconnected

    # Called by the connection.

    async def run(self, application: ASGIApp, scope: Scope) -> None:
        """Run the application. If it fails or sends no whole answer, log that, and answer 500 if that is still possible."""
        try:
            await application(scope, self.receive, self.send)
        except BaseException as problem:
            _log.error("Exception in ASGI application\n", exc_info=problem)
        else:
            if not self.under_way:
                return
            _log.error("The ASGI application returned without a whole answer")
        if self.started:
            self._wire.write(self._head)
            self._wire.close()
        else:
            await self._fail()

    def add_to_body(self, part: bytes) -> int:
        """Add a part of the body, and return how many bytes wait for the application now."""
        if self._body:
            self._body = self._body if isinstance(self._body, bytearray) else bytearray(self._body)
            self._body += part
        else:
            self._body = part  # a small body arrives in one part, which is not copied
        self._tell()
        return len(self._body)

    def end_body(self) -> None:
        self._more_body = False
        self._tell()

    def disconnect(self) -> None:
        """Note that the caller is gone, or that the connection is about to be closed."""
        self.disconnected = self.disconnected or not self.complete
        self._tell()

    def _tell(self) -> None:
        self._has_news = True
        if self._news is not None:
            self._news.set()

    # Called by the application.

    async def receive(self) -> Message:
        if self.expects_continue and not self._wire.is_closing():
            self._wire.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.expects_continue = False
        if self.under_way:
            self._flow.resume_reading()
            if not self._has_news:
                await self._wait()
            self._has_news = False
        if not self.under_way:
            return {"type": "http.disconnect"}
        body, self._body = self._body, b""
        return {"type": "http.request", "body": bytes(body), "more_body": self._more_body}

    async def _wait(self) -> None:
        if self._news is None:
            self._news = asyncio.Event()
        self._news.clear()
        await self._news.wait()

    async def send(self, message: Message) -> None:
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected:
            return
        kind = message["type"]
        if kind == "http.response.start" and not self.started:
            self._start(message["status"], message.get("headers", ()))
        elif kind == "http.response.body" and self.started and not self.complete:
            self._write(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"the application sent {kind} when another message was due")

    # The answer.

    def _start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        lines, length, chunked, closes = [_status_line(status)], None, False, False
        for name, value in (*self._headers, *headers):
            name = _checked_name(name)
            lines.append(b"%b: %b" % (name, value))
            if name == b"content-length":
                length = int(value)
            elif name == b"transfer-encoding":
                chunked = chunked or value.lower() == b"chunked"
            elif name == b"connection":
                closes = closes or b"close" in value.lower()
        if closes:
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close")
        if length is None and not chunked and not self._head_only and status not in _WITHOUT_BODY:
            chunked = True
            lines.append(b"transfer-encoding: chunked")
        self.started, self.expects_continue = True, False
        self._chunked, self._answer_left = chunked, length or 0
        head = _head(lines)
        if length is None:
            self._wire.write(head)  # a stream may have nothing to say for long
        else:
            self._head = head

    def _write(self, body: bytes, *, more: bool) -> None:
        head, self._head = self._head, b""
        if self._head_only:
            self._answer_left = 0
            self._wire.write(head)
        elif self._chunked:
            part = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            self._wire.write(head + (part if more else part + b"0\r\n\r\n"))
        else:
            self._answer_left -= len(body)
            if self._answer_left < 0:
                raise RuntimeError("the answer is longer than its Content-Length")
            self._wire.write(head + body)
        if not more:
            self._finish()

    def _finish(self) -> None:
        if self._answer_left:
            raise RuntimeError("the answer is shorter than its Content-Length")
        self.complete = True
        self._tell()
        if not self.keep_alive:
            self._wire.close()
        self._wire.answered()

    async def _fail(self) -> None:
        text = b"Internal Server Error"
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(text))]
        await self.send({"type": "http.response.start", "status": 500, "headers": [*headers, (b"connection", b"close")]})
        await self.send({"type": "http.response.body", "body": text})


def _head(lines: list[bytes]) -> bytes:
    """Return the head of an answer. Raises if a header holds the end of a line, or another control character."""
    head = b"\r\n".join(lines)
    ends = len(lines) - 1
    if head.count(b"\n") != ends or head.count(b"\r") != ends or _CONTROLS.search(head):
        raise RuntimeError("a header of the answer contains a control character")
    return head + b"\r\n\r\n"


@lru_cache(1024)
def _checked_name(name: bytes) -> bytes:
    if not _NAME.fullmatch(name):
        raise RuntimeError("a header of the answer has no valid name")
    return name.lower()


@lru_cache(1024)
def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return b"HTTP/1.1 %d %b" % (status, phrase.encode())

"""One connection of the HTTP server: parses requests with `http1`, runs the application, and enforces the deadlines.

It replaces uvicorn's protocol classes. A connection handles one request at a time; the bytes of the next one wait until
the first is answered. Its memory is bounded: one head (64 KiB), the part of a body that the application has not read yet
(uvicorn's high-water mark), one read of pipelined bytes, and one answer.
"""

import asyncio
import math
from http import HTTPStatus
from ipaddress import IPv4Network, IPv6Network
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

from ...wire.problems import ProblemKind
from ..request_ids import HEADER, new_request_id
from .exchange import Exchange
from .http1 import FULL, TIMED_OUT, BadRequest, ChunkedBody, HeadReader, RequestHead

if TYPE_CHECKING:
    from .server import Admission, Connections

_NEVER = math.inf
ANSWERED = "demora.answered"  # an ASGI extension: a function that says whether the answer was written as a whole
_READ_TO_THE_END = 64 * 1024  # bytes of a body that are read after its answer, to keep the connection
_DISCARDED, _DISCARDED_AFTER_ANSWER = 1024 * 1024, 32 * 1024 * 1024  # bytes that a closing connection reads


class Limits(msgspec.Struct, frozen=True):
    """The limits of connections. Spans are seconds, rates are bytes per second."""

    connections: int = 1000
    per_address: int = 250  # of an IPv4 address or an IPv6 /64, except trusted ones
    trusted: tuple[IPv4Network | IPv6Network, ...] = ()
    head: float = 10.0  # from its first byte, or from the connection, to its end
    body: float = 20.0  # at first, and then as long as the body arrives at `rate`
    answer: float = 30.0  # within which a caller must read `answer * rate` bytes, or all
    rate: float = 1024.0
    keep_alive: float = 75.0  # longer than reverse proxies keep a connection idle (60 s): they should close first
    linger: float = 5.0  # for a caller to read an answer after which the connection is closed


class Connection(asyncio.Protocol):
    """A connection. It is also the transport that uvicorn's flow control pauses."""

    def __init__(
        self, config: Config, state: ServerState, connections: "Connections", admission: "Admission", limits: Limits
    ) -> None:
        self._config, self._state, self._limits = config, state, limits
        self._connections, self._admission = connections, admission
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._flow: FlowControl = None  # type: ignore[assignment]
        self._head = HeadReader()
        self._body: int | ChunkedBody | None = None  # the rest of the body: a number of bytes, or chunks
        self._exchange: Exchange | None = None
        self._pending = b""  # bytes of the next request, received before this one is answered
        self._lingering = 0  # bytes that are still read and discarded before the connection is aborted
        self._stopping = False
        self._deadline = _NEVER
        self._body_since, self._body_bytes, self._swept_at = 0.0, 0, 0.0
        self._unread: tuple[float, int] | None = None  # since when, and how many bytes, the caller has not read

    @property
    def transport(self) -> asyncio.Transport:
        """The transport of the event loop, whose socket a forked child closes."""
        return self._transport

    # Called by the event loop.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport, self._flow = transport, FlowControl(self)  # type: ignore[arg-type]
        self._server, self._client = get_local_addr(transport), get_remote_addr(transport)
        self._state.connections.add(self)  # type: ignore[arg-type]
        self._connections.join(self, self._admission)
        self._wait_for_head(self._limits.head)

    def connection_lost(self, exc: Exception | None) -> None:
        self._state.connections.discard(self)
        self._connections.leave(self)
        self._end_exchange()
        self._flow.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._lingering:
            self._discard(len(data))
        elif self._pending:
            self._pending += data  # the last read before the pause
        else:
            self._read(data)

    def pause_writing(self) -> None:
        self._flow.pause_writing()

    def resume_writing(self) -> None:
        self._flow.resume_writing()

    # Called by the server.

    def shutdown(self) -> None:
        """Close the connection once the current request is answered."""
        self._stopping = True
        if self._exchange is not None and self._exchange.under_way:
            self._exchange.keep_alive = False
        else:
            self._transport.close()

    def give_way(self) -> None:
        """Close a connection without a current request, to make room for another."""
        if self._head.begun and not self._lingering:
            self._transport.write(self._refusal("there are too many connections; try again", FULL))
        if self._lingering:
            self._transport.abort()
        else:
            self._transport.close()

    def check_deadlines(self, now: float) -> None:
        """Close the connection, with an answer if possible, if the caller sends or reads too slowly."""
        paused = self._flow.read_paused or (self._exchange is not None and self._exchange.expects_continue)
        if self._body is not None and paused:
            self._body_since += now - self._swept_at  # the application does not read: not the caller's fault
        self._swept_at = now
        if self._stalled(now):
            self._transport.abort()
        elif self._body is not None and not self._lingering:
            late = self._limits.body + self._body_bytes / self._limits.rate
            if now - self._body_since > late:
                self._refuse(BadRequest("the body arrives too slowly", TIMED_OUT))
        elif now >= self._deadline:
            self._overdue()

    # Called by the exchange and its flow control.

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def close(self) -> None:
        """Close once all is written. The rest of the request is still read: a reset would destroy the answer."""
        if self._body is not None or self._pending:
            self._linger(_DISCARDED_AFTER_ANSWER)
        else:
            self._transport.close()

    def is_closing(self) -> bool:
        return self._lingering > 0 or self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._pending:
            self._transport.resume_reading()

    def answered(self) -> None:
        """Continue with the next request, or close if too much of this request's body is still to come."""
        self._state.total_requests += 1
        if self.is_closing():
            return
        if self._body is None:
            self._wait_for_head(self._limits.keep_alive)
            self._go_on()
        elif isinstance(self._body, int) and self._body <= _READ_TO_THE_END:
            self._unread = None
            self._flow.resume_reading()
        else:
            self.close()

    # Reading.

    def _read(self, data: bytes) -> None:
        try:
            while data and not self.is_closing():
                if self._body is not None:
                    data = self._read_body(data)
                elif self._exchange is not None and self._exchange.under_way:
                    self._pending, data = data, b""
                    self._flow.pause_reading()
                else:
                    data = self._read_head(data)
        except BadRequest as refusal:
            self._refuse(refusal)

    def _read_head(self, data: bytes) -> bytes:
        begun = self._head.begun
        found = self._head.feed(data)
        if found is None:
            if not begun:
                self._deadline = self._loop.time() + self._limits.head
            return b""
        head, rest = found
        self._begin(head)
        return rest

    def _begin(self, head: RequestHead) -> None:
        self._connections.busy(self)
        self._deadline, self._unread = _NEVER, None
        self._exchange = exchange = Exchange(
            self,
            self._flow,
            self._state.default_headers,
            head_only=head.method == b"HEAD",
            keep_alive=head.keep_alive and not self._stopping,
            expects_continue=head.expects_continue,
        )
        if head.length == 0:
            exchange.end_body()
        else:
            self._body = ChunkedBody(len(head.headers)) if head.length is None else head.length
            self._body_since = self._swept_at = self._loop.time()
            self._body_bytes = 0
        task = self._loop.create_task(exchange.run(self._config.loaded_app, self._scope(head, exchange)))
        task.add_done_callback(self._state.tasks.discard)
        self._state.tasks.add(task)

    def _scope(self, head: RequestHead, exchange: Exchange) -> dict[str, Any]:
        path, _, query = head.target.partition(b"?")
        text = path.decode("ascii")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": head.version,
            "server": self._server,
            "client": self._client,
            "scheme": "http",
            "root_path": "",
            "method": head.method.decode("ascii"),
            "path": unquote(text) if "%" in text else text,
            "raw_path": path,
            "query_string": query,
            "headers": head.headers,
            "state": {},
            "extensions": {ANSWERED: exchange.is_complete},
        }

    def _read_body(self, data: bytes) -> bytes:
        assert self._exchange is not None
        exchange = self._exchange
        if isinstance(self._body, ChunkedBody):
            part, rest = self._body.feed(data)
            ended = self._body.ended
        else:
            assert self._body is not None
            part, rest = data[: self._body], data[self._body :]
            self._body -= len(part)
            ended = not self._body
        self._body_bytes += len(part)
        if part and not exchange.complete and exchange.add_to_body(part) > HIGH_WATER_LIMIT:
            self._flow.pause_reading()
        if ended:
            self._body = None
            exchange.end_body()
            if exchange.complete:
                self._wait_for_head(self._limits.keep_alive)
        return rest

    # Between requests, and at the end.

    def _wait_for_head(self, seconds: float) -> None:
        self._unread = None
        self._deadline = self._loop.time() + seconds
        self._connections.waits(self)

    def _go_on(self) -> None:
        pending, self._pending = self._pending, b""
        self._flow.resume_reading()
        if pending:
            self._transport.resume_reading()  # the exchange may have asked for it already, when there was something pending
            self._read(pending)

    def _overdue(self) -> None:
        if self._lingering:
            self._transport.abort()
        elif self._head.begun:
            self._refuse(BadRequest("the request did not arrive in time", TIMED_OUT))
        else:
            self._transport.close()

    def _stalled(self, now: float) -> bool:
        """Return whether the caller has read too little of its answer for too long."""
        size = self._transport.get_write_buffer_size()
        if not size:
            self._unread = None
        elif self._unread is None:
            self._unread = now, size
        elif now - self._unread[0] >= self._limits.answer:
            if size > self._unread[1] - self._limits.answer * self._limits.rate:
                return True
            self._unread = now, size
        return False

    def _refuse(self, refusal: BadRequest) -> None:
        """Answer with the reason, unless an answer has begun, and close: the start of the next request is unknown."""
        exchange = self._exchange
        if exchange is None or not (exchange.under_way and exchange.started):
            self._transport.write(self._refusal(refusal.reason, refusal.kind))
        self._end_exchange()
        self._linger(_DISCARDED)

    def _refusal(self, reason: str, kind: ProblemKind) -> bytes:
        problem = {"type": kind.type, "title": kind.title, "status": kind.status, "detail": reason}
        return refusal(problem, self._state.default_headers, kind.retry_after)

    def _end_exchange(self) -> None:
        if self._exchange is not None:
            self._exchange.disconnect()

    def _linger(self, most: int) -> None:
        """Half-close, and discard up to `most` bytes until the caller closes too or the time is up."""
        if self.is_closing():
            return
        self._wait_for_head(self._limits.linger)
        self._lingering, self._pending, self._body, self._head = most, b"", None, HeadReader()
        self._flow.resume_reading()
        self._transport.resume_reading()
        self._transport.write_eof()

    def _discard(self, size: int) -> None:
        self._lingering -= size
        if self._lingering <= 0:
            self._lingering = 1
            self._transport.abort()


def refusal(problem: dict[str, Any], headers: list[tuple[bytes, bytes]], retry_after: int | None) -> bytes:
    """Return the bytes of an error answer after which the connection is closed. The request was not read as far as its
    `X-Request-Id`, so it gets a new one."""
    id = new_request_id()
    body, status = msgspec.json.encode({**problem, "requestId": id}), problem["status"]
    lines = [b"HTTP/1.1 %d %s" % (status, HTTPStatus(status).phrase.encode())]
    lines += [name + b": " + value for name, value in headers]
    lines += [b"content-type: application/problem+json", b"content-length: %d" % len(body), b"connection: close"]
    lines.append(b"%s: %s" % (HEADER.encode(), id.encode()))
    if retry_after is not None:
        lines.append(b"retry-after: %d" % retry_after)
    return b"\r\n".join([*lines, b"", body])

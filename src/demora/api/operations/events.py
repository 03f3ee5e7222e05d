"""The operation that sends events to a listener for as long as it listens, as server-sent events."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
from starlette.types import Receive, Send

from ...client.events import LONGEST_POSITION, Batch, EventStream
from ...core.events import Event, EventFilter
from ...errors import ListenerTooSlow, StoreError
from ...wire.events import event_view
from ...wire.problems import Overloaded
from ..budget import Share
from ..reading import ClientGone, disconnected
from ..stopping import Stopping
from ..waiting import WaitingRequest
from .operation import ApiCall, Reply

EVENT_STREAM = "text/event-stream"
COMMENT_EVERY = 15.0  # seconds: proxies close a connection that is silent for a minute
RETRY = 2000  # milliseconds after which a browser connects again
PIECE = 64 * 1024  # bytes sent at once
_HEADERS = {"x-accel-buffering": "no"}  # a proxy must not collect events
_encode = msgspec.json.Encoder().encode


async def hear_events(call: ApiCall) -> Reply:
    """Send events of jobs and queues as they happen, as server-sent events; with `Last-Event-ID`, first the ends since."""
    client = await call.client()
    last = call.headers.get("last-event-id")
    if last is not None and len(last) > LONGEST_POSITION:
        last = ""  # no position at all: the listener gets a reset
    stream = client.events(**call.query.options(), after=last)
    if call.head_only:
        return Reply(200, b"", _HEADERS, EVENT_STREAM)
    waiting = call.waits.take(call.key)
    try:
        await stream.begin()
    except BaseException:
        waiting.leave()
        raise
    return EventReply(
        *(200, None, _HEADERS, EVENT_STREAM),
        stream=stream,
        waiting=waiting,
        receive=call.receive,
        stopping=call.stopping,
        still_allowed=call.still_allowed,
    )


class EventReply(Reply, frozen=True, kw_only=True):
    """An answer that goes on until the caller leaves, is cut off or loses its key, or the service stops."""

    stream: EventStream
    receive: Receive
    stopping: Stopping
    waiting: WaitingRequest
    still_allowed: Callable[[], Awaitable[bool]] | None

    async def send(self, send: Send, id: str, share: Share | None = None, *, gzip: bool = False) -> None:
        gone = asyncio.ensure_future(disconnected(self.receive))
        gone.add_done_callback(lambda _: self.stream.close())
        try:
            headers = [*self._own_headers(id), (b"content-type", self.media.encode())]
            await send({"type": "http.response.start", "status": self.status, "headers": headers})
            with self.stopping.calling(self.stream.close), contextlib.suppress(Overloaded):  # the caller connects again
                await self._send_events(send, share)
            await send({"type": "http.response.body", "body": b""})
        except RuntimeError as problem:  # the server closed the connection
            raise ClientGone from problem
        finally:
            self.waiting.leave()
            self.stream.close()
            gone.cancel()

    async def _send_events(self, send: Send, share: Share | None) -> None:
        async for text in self._texts():
            for start in range(0, len(text), PIECE):
                if share is not None:
                    share.answer(len(text) - start)
                await send({"type": "http.response.body", "body": text[start : start + PIECE], "more_body": True})

    async def _texts(self) -> AsyncIterator[bytes]:
        yield b":\nretry: %d\n" % RETRY + _position(self.stream)
        with contextlib.suppress(ListenerTooSlow, StoreError):  # the caller connects again, from where it was
            while not self.stream.ended:
                batch = await self.stream.wait(COMMENT_EVERY)
                if self.still_allowed is not None and not await self.still_allowed():
                    return
                if batch is not None:
                    yield _text(batch, self.stream.filter)
                elif not self.stream.ended:
                    yield b":\n" + _position(self.stream)


def _position(stream: EventStream) -> bytes:
    """A block that dispatches no event and tells a browser where to resume."""
    return b"id: %s\n\n" % stream.position.encode() if stream.position else b"\n"


def _text(batch: Batch, which: EventFilter) -> bytes:
    """The events of a batch that a listener hears, empty if it hears none. Listeners with the same filter share the text."""
    text: bytes | None = batch.texts.get(which)
    if text is None:
        text = b"".join(_block(event) for event in batch.matching(which))
        if which.job is None:
            batch.texts[which] = text
    return text


def _block(event: Event) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (event.position.encode(), event.kind.encode(), _encode(event_view(event)))

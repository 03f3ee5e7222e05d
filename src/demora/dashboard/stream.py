"""The stream that tells an open page that something has changed: the page then fetches its live block.

All streams of a process share one reader of events, and one look a second at their sessions. A stream keeps its connection
busy, so it counts as a request that waits.
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..api.operations.events import COMMENT_EVERY, EVENT_STREAM
from ..api.reading import disconnected
from ..api.waiting import WaitingRequest
from ..app import Demora
from ..client.events import EventStream
from ..errors import DemoraError
from ..system import notices

TICK = 1.0  # seconds at least between two ticks
FETCHED = 12  # pages that fetch their live block in a second: with more streams, ticks are rarer
LOOK = 1.0  # seconds between two looks at the sessions
UNREAD = 20.0  # seconds after which a stream that the browser does not read is cut off
READING, WATCHING = "the stream of the dashboard", "the look at the sessions of the dashboard"
MOUNTED_LIFE = 10.0  # seconds of a stream in another application, which cannot tell its streams that it stops
HELLO, CHANGED, ALIVE, AGAIN, ENDED = (
    b"event: %s\ndata:\n\n" % name for name in (b"hello", b"changed", b"alive", b"again", b"ended")
)

StillAllowed = Callable[[], Awaitable[bool]]


class Streams:
    """The open streams of a dashboard. The first one starts the reader, and the last one stops it.

    It calls `changed` before it tells the pages of a change: what they fetch then must not be older. With a `life`, a stream
    ends after this many seconds, and the page opens the next one.
    """

    def __init__(self, app: Demora, changed: Callable[[], None], *, life: float | None = None) -> None:
        self._app, self._changed, self._life = app, changed, life
        self._open: dict[Stream, None] = {}
        self._reading: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._stopped = False

    def __len__(self) -> int:
        return len(self._open)

    def open(self, still_allowed: StillAllowed, waiting: WaitingRequest | None = None) -> "Stream":
        """Return a stream that ends when it is no longer allowed. It counts as `waiting` until then."""
        return Stream(self, still_allowed, self._life, waiting)

    def stop(self) -> None:
        """End all streams, so that the server can shut down. Later ones end at once."""
        self._stopped = True
        for stream in self._open:
            stream.end(AGAIN)

    def change(self) -> None:
        """Tell all pages that something has changed."""
        self._changed()
        for stream in self._open:
            stream.tick()

    def join(self, stream: "Stream") -> None:
        self._open[stream] = None
        if self._stopped:
            stream.end(AGAIN)
        elif self._reading is None or self._watching is None:
            self._reading = asyncio.create_task(self._read(), name="demora-ticks")
            self._watching = asyncio.create_task(self._watch(), name="demora-sessions")

    def leave(self, stream: "Stream") -> None:
        self._open.pop(stream, None)
        if not self._open and self._reading is not None and self._watching is not None:
            self._reading.cancel()
            self._watching.cancel()
            self._reading = self._watching = None

    async def _read(self) -> None:
        """Tell the pages of changes for as long as there are streams. It also tells them at the start, since something may
        have changed before. No error ends it, since the open pages would then show no more changes."""
        while True:
            try:
                async with (await self._app.open()).events().every(TICK) as events:
                    notices.store_well(READING)
                    await self._tell(events)
            except DemoraError:
                pass  # the database is away, or so many events came that we were cut off
            except Exception as problem:
                notices.store_trouble(READING, problem, TICK)
            await asyncio.sleep(TICK)

    async def _tell(self, events: EventStream) -> None:
        now = asyncio.get_running_loop().time
        earliest, changed = now(), True
        while not events.ended:
            if changed and now() >= earliest:
                self.change()
                earliest, changed = now() + max(TICK, len(self._open) / FETCHED), False
            batch = await events.wait(max(0.001, earliest - now()) if changed else None)
            changed = changed or batch is not None

    async def _watch(self) -> None:
        """End the streams whose session has ended. One that cannot be looked up stays until the next look."""
        while True:
            await asyncio.sleep(LOOK)
            for stream in list(self._open):
                try:
                    allowed = await stream.still_allowed()
                except Exception as problem:
                    notices.store_trouble(WATCHING, problem, LOOK)
                    continue
                notices.store_well(WATCHING)
                if not allowed:
                    stream.end(ENDED)


class Stream(Response):
    """One stream, as an answer. A slow reader gets one tick for many changes."""

    def __init__(
        self, streams: Streams, still_allowed: StillAllowed, life: float | None, waiting: WaitingRequest | None
    ) -> None:
        super().__init__(headers={"x-accel-buffering": "no", "cache-control": "no-store, no-transform"})
        del self.headers["content-length"]
        self.headers["content-type"] = EVENT_STREAM
        self.still_allowed, self._waiting = still_allowed, waiting
        self._streams, self._life = streams, math.inf if life is None else life
        self._woken, self._changed, self._last = asyncio.Event(), False, b""

    def tick(self) -> None:
        """Tell the page of a change: now, or a second after the last tick."""
        self._changed = True
        self._woken.set()

    def end(self, last: bytes) -> None:
        """End the stream, with these last words."""
        self._last = self._last or last
        self._woken.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(disconnected(receive))
        gone.add_done_callback(lambda _: self.end(AGAIN))
        self._streams.join(self)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await self._speak(send)
            await send({"type": "http.response.body", "body": b""})
        except (OSError, RuntimeError):  # the browser is gone, or it has not read for long: a timeout is an OSError
            return
        finally:
            self._streams.leave(self)
            gone.cancel()
            if self._waiting is not None:
                self._waiting.leave()

    async def _speak(self, send: Send) -> None:
        now = asyncio.get_running_loop().time
        until, earliest = now() + self._life, now()
        await _say(send, b":\n" + HELLO)
        alive = now() + COMMENT_EVERY
        while not self._last:
            if self._changed and now() >= earliest:
                self._changed, earliest = False, now() + TICK
                await _say(send, CHANGED)
            elif now() >= until:
                self.end(AGAIN)
            elif now() >= alive:
                alive = now() + COMMENT_EVERY
                await _say(send, b":\n" + ALIVE)
            else:
                await self._wait(min(alive, until, earliest if self._changed else math.inf) - now())
        await _say(send, self._last)

    async def _wait(self, seconds: float) -> None:
        self._woken.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()


async def _say(send: Send, text: bytes) -> None:
    async with asyncio.timeout(UNREAD):
        await send({"type": "http.response.body", "body": text, "more_body": True})

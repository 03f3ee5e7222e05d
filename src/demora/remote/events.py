"""The events of a service, heard over HTTP as server-sent events."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec

from ..client.events import Batch
from ..core.events import Event, EventFilter
from ..errors import StoreError
from ..wire.events import EventView, read_event
from .connection import ServiceConnection

EVENTS = "/api/v1/events"
SILENCE = 60.0  # seconds without a byte after which the connection is made anew; the service says something every 15 s
PAUSE = 1.0  # seconds between two tries to connect, at least


class RemoteEvents:
    """The events that one listener hears over HTTP, on a connection of its own. If it breaks, another one continues from the
    last position."""

    def __init__(self, connection: ServiceConnection, which: EventFilter, after: str | None) -> None:
        self._connection, self._filter, self._after, self._position = connection, which, after, after or ""
        self._before = self._position  # the position before the last event that came
        self.pause: float | None = None  # the service decides how often it looks
        self._heard: AsyncIterator[Event] | None = None
        self._pending: asyncio.Future[Event] | None = None
        self._closed = asyncio.Event()

    @property
    def ended(self) -> bool:
        return self._closed.is_set()

    @property
    def position(self) -> str:
        return self._before if self._is_unheard else self._position

    @property
    def _is_unheard(self) -> bool:
        """Whether an event has come between two waits, which no wait has returned yet."""
        pending = self._pending
        return pending is not None and pending.done() and not pending.cancelled() and pending.exception() is None

    async def begin(self) -> None:
        """Connect, unless that is done."""
        if self._heard is None:
            first = await self._connect()
            self._heard = self._hear(first)

    async def wait(self, timeout: float | None = None) -> Batch | None:
        await self.begin()
        assert self._heard is not None
        if self._closed.is_set():
            return None
        self._pending = self._pending or asyncio.ensure_future(anext(self._heard))
        done, _ = await asyncio.wait({self._pending}, timeout=timeout)
        if not done:
            return None
        event, self._pending = self._pending, None
        if event.cancelled():
            return None
        heard = event.result()
        return Batch([heard], heard.position, heard.position)

    def close(self) -> None:
        self._closed.set()
        if self._pending is not None:
            self._pending.cancel()

    async def _hear(self, lines: AsyncIterator[bytes]) -> AsyncIterator[Event]:
        """Yield events. A stream that ends is made anew, at once if it lasted; a proxy may end each one as it begins."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not self._closed.is_set():
            try:
                async for block in _blocks(lines):
                    self._before, self._position = self._position, block.get(b"id", b"").decode() or self._position
                    if b"data" in block and b"event" in block:
                        yield read_event(msgspec.json.decode(block[b"data"], type=EventView), self._position)
            except StoreError:  # the answer broke off
                pass
            while not self._closed.is_set():
                await asyncio.sleep(max(began + PAUSE - loop.time(), 0))
                began = loop.time()
                with contextlib.suppress(StoreError):
                    lines = await self._connect()
                    break

    async def _connect(self) -> AsyncIterator[bytes]:
        which = self._filter
        given = {"queue": which.queue, "type": which.type, "tag": which.tag, "job": which.job}
        query = [(name, value) for name, value in given.items() if value is not None]
        return await self._connection.stream(EVENTS, query, after=self._position or self._after, silence=SILENCE)


async def _blocks(lines: AsyncIterator[bytes]) -> AsyncIterator[dict[bytes, bytes]]:
    """Yield the fields of each block of server-sent events."""
    block: dict[bytes, bytes] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(b":")
            if name:
                block[name] = value.removeprefix(b" ")
        elif block:
            yield block
            block = {}

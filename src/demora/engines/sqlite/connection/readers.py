"""Readers of their own: searches, which may take long, and quick reads, which must not wait for one."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import apsw

from ....errors import SearchTooSlow, StoreClosed, StoreError
from ...sql.searching import SearchTurns
from .transactions import Transaction
from .transactors import LIGHT, ThreadTransactor

T = TypeVar("T")
Make = Callable[[str], Awaitable[ThreadTransactor]]  # opens a reader whose thread has this name

AGAIN = 0.05  # seconds between interrupts: one that falls between two statements has no effect


class QuickReads:
    """A reader for reads that take microseconds, such as the lookup of an API key. It is opened when first used."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self._opening: asyncio.Task[ThreadTransactor] | None = None

    async def run(self, call: Callable[[Transaction], T]) -> T:
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._make("demora-sqlite-quick-reader"))
        opening = self._opening
        try:
            reader = opening.result() if opening.done() else await asyncio.shield(opening)
        except (Exception, asyncio.CancelledError):
            if self._opening is opening and opening.done():
                self._opening = None  # the next read tries again
            raise
        return await reader.run(call, 1)

    async def close(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None:
            await asyncio.wait([opening])
            if not opening.cancelled() and opening.exception() is None:
                await opening.result().close()


class Searches:
    """Readers that run one search each, on a connection and a thread of their own. They are opened when needed."""

    def __init__(self, make: Make) -> None:
        self._make, self._turns = make, SearchTurns()
        self._idle: list[ThreadTransactor] = []
        self._running: set[asyncio.Task[object]] = set()
        self._closed = False

    async def run(self, call: Callable[[Transaction], T], within: timedelta | None = None) -> T:
        """Run a search. After `within` it is interrupted and raises `SearchTooSlow`. If the caller is cancelled, the search
        is interrupted too."""
        async with self._turns.turn(within):
            search = asyncio.ensure_future(self._search(call, within))
            self._running.add(search)
            search.add_done_callback(self._running.discard)
            try:
                return await asyncio.shield(search)
            except asyncio.CancelledError:
                search.cancel()
                await asyncio.wait([search])
                if self._closed:
                    raise StoreClosed from None
                raise

    async def _search(self, call: Callable[[Transaction], T], within: timedelta | None) -> T:
        if self._closed:
            raise StoreClosed
        reader = self._idle.pop() if self._idle else await self._make("demora-sqlite-search")
        found = reader.run(call, LIGHT + 1)
        try:
            done, _ = await asyncio.wait([found], timeout=None if within is None else within.total_seconds())
            if done or within is None:
                return found.result()
            await self._stop(reader, found)
            return _ended(found, within)
        finally:
            await self._stop(reader, found)
            self._idle.append(reader)

    async def _stop(self, reader: ThreadTransactor, found: "asyncio.Future[T]") -> None:
        while not found.done():
            reader.interrupt()
            await asyncio.wait([found], timeout=AGAIN)
        found.exception()  # marks it as seen: the caller may be gone

    async def close(self) -> None:
        self._closed = True
        for search in list(self._running):
            search.cancel()
        if self._running:
            await asyncio.wait(self._running)
        while self._idle:
            await self._idle.pop().close()


def _ended(found: "asyncio.Future[T]", within: timedelta) -> T:
    """The result of an interrupted search, if it ended just before the interrupt; else `SearchTooSlow`."""
    try:
        return found.result()
    except StoreError as problem:
        if isinstance(problem.__cause__, apsw.InterruptError):
            raise SearchTooSlow(within.total_seconds()) from problem
        raise

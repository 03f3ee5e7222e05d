"""The stores of an application, one for each event loop: how they are made, opened, held open and closed."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import OneLoopOnly, StoreError
from ..store.store import Store
from .client import Client


class StoresPerLoop:
    """Makes and opens a store with its own connections on each event loop that asks for one.

    A `given` store is used instead of those that `make` makes. `client_of` makes the client of a store that has just been
    opened.
    """

    def __init__(self, given: Store | None, make: Callable[[], Store], client_of: Callable[[Store], Client]) -> None:
        self.given, self._make, self._client_of = given, make, client_of
        self.lock = threading.Lock()  # held while a store is made for one more loop
        self._stores: dict[asyncio.AbstractEventLoop, _LoopStore] = {}
        self._holds = _Holds()
        self._kept_closed: str | None = None

    async def open(self) -> Client:
        """Open the store of the running loop, unless it is open, and return its client.

        Concurrent calls share one opening. Cancelling one of them does not stop it.
        """
        if self._kept_closed is not None:
            raise StoreError(self._kept_closed)
        loop = asyncio.get_running_loop()
        here = self._stores.get(loop) or self._make_on(loop)
        if here.client is not None:
            return here.client
        if here.opening is None:
            here.opening = asyncio.ensure_future(self._open(loop, here))
        return await asyncio.shield(here.opening)

    async def _open(self, loop: asyncio.AbstractEventLoop, here: "_LoopStore") -> Client:
        try:
            await here.store.open()
        except BaseException:
            self._stores.pop(loop, None)  # so that the next call tries again
            raise
        here.client = self._client_of(here.store)
        return here.client

    async def close(self) -> None:
        """Close the store of the running loop at once, even if blocks still hold it open."""
        here = self._stores.pop(asyncio.get_running_loop(), None)
        if here is not None and here.opening is not None:
            await asyncio.wait([here.opening])
        if here is not None and here.client is not None:
            await here.client.store.close()

    def keep_closed(self, reason: str) -> None:
        """Refuse to open a store in this process from now on. Each attempt raises `StoreError` with this reason."""
        self._kept_closed = reason

    async def hold(self) -> None:
        """Open the store for a block. The block counts from the start, since others may end while the store opens."""
        self._holds.begin()
        try:
            await self.open()
        except BaseException:
            await self.let_go(closes=False)
            raise

    async def let_go(self, *, closes: bool) -> None:
        """End a block. The last block to end on a loop closes the store there if one of them ended with `closes`."""
        if self._holds.end(closes=closes):
            await self.close()

    def make_here(self) -> None:
        """Make the store of the running loop, not yet open. `OneLoopOnly` if it is in memory and another running loop has
        it."""
        self._make_on(asyncio.get_running_loop())

    def _make_on(self, loop: asyncio.AbstractEventLoop) -> "_LoopStore":
        with self.lock:
            self._stores = {other: its for other, its in self._stores.items() if its.is_here() and not other.is_closed()}
            store = self.given or self._make()
            if any(other.is_running() and other is not loop for other in self._stores):
                sibling = store.sibling()
                if sibling is None:
                    raise OneLoopOnly
                store = sibling
            return self._stores.setdefault(loop, _LoopStore(store))

    def only_loop(self) -> asyncio.AbstractEventLoop | None:
        """Return the only loop that can reach the store, because the store is in memory; None if any loop can."""
        for loop, its in list(self._stores.items()):
            if its.in_memory and its.is_here() and loop.is_running():
                return loop
        return None

    @contextmanager
    def using(self, store: Store) -> Iterator[None]:
        """Use this store instead of the application's own for the duration of the block. For tests."""
        before = self.given, self._stores
        self.given, self._stores = store, {}
        try:
            yield
        finally:
            self.given, self._stores = before


class _LoopStore:
    """The store of one event loop. `client` is None until the store is open."""

    def __init__(self, store: Store) -> None:
        self.store, self.in_memory, self._pid = store, store.sibling() is None, os.getpid()
        self.opening: asyncio.Task[Client] | None = None
        self.client: Client | None = None

    def is_here(self) -> bool:
        """Whether it was made in this process, not in its parent before a fork."""
        return self._pid == os.getpid()


class _Holds:
    """Counts the blocks (`async with app:`, `app.worker()`) that hold the store open on each event loop."""

    def __init__(self) -> None:
        self._open: dict[asyncio.AbstractEventLoop, int] = {}
        self._closing: set[asyncio.AbstractEventLoop] = set()

    def begin(self) -> None:
        """Count a block that begins on the running loop."""
        loop = asyncio.get_running_loop()
        self._open[loop] = self._open.get(loop, 0) + 1

    def end(self, *, closes: bool) -> bool:
        """Count a block that ends, and return whether the caller must close the store now.

        The last block to end closes the store if one of the blocks on this loop ended with `closes`.
        """
        loop = asyncio.get_running_loop()
        if closes:
            self._closing.add(loop)
        left = self._open.pop(loop, 1) - 1
        if left > 0:
            self._open[loop] = left
            return False
        must_close = loop in self._closing
        self._closing.discard(loop)
        return must_close

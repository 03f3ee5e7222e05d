"""The store of an application on each event loop, and the blocks that hold it open there."""

import asyncio
import os

from ..store.store import Store
from .client import Client


class LoopStore:
    """The store of one event loop. `client` is None until the store is open."""

    def __init__(self, store: Store) -> None:
        self.store, self.in_memory, self._pid = store, store.sibling() is None, os.getpid()
        self.opening: asyncio.Task[Client] | None = None
        self.client: Client | None = None

    def is_here(self) -> bool:
        """Whether it was made in this process, not in its parent before a fork."""
        return self._pid == os.getpid()


class Holds:
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

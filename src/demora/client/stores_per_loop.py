"""An application's store as each event loop has it, and the blocks that hold it open there."""

import asyncio
import os

from ..store.jobs import Store
from .client import Client


class LoopStore:
    """The store as one event loop has it; the client is there once it is open."""

    def __init__(self, store: Store) -> None:
        self.store, self.in_memory, self._pid = store, store.sibling() is None, os.getpid()
        self.opening: asyncio.Task[Client] | None = None
        self.client: Client | None = None

    def is_here(self) -> bool:
        """Whether it was made in this process, and not in one that this was forked from."""
        return self._pid == os.getpid()


class Holds:
    """Blocks begin and end on a loop; the last one to end there closes the store, if one of them is to close it."""

    def __init__(self) -> None:
        self._open: dict[asyncio.AbstractEventLoop, int] = {}
        self._closing: set[asyncio.AbstractEventLoop] = set()

    def begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._open[loop] = self._open.get(loop, 0) + 1

    def end(self, *, closes: bool) -> bool:
        """Whether the store is to be closed now. A block that does not close it leaves that to those that ended before."""
        loop = asyncio.get_running_loop()
        if closes:
            self._closing.add(loop)
        left = self._open.pop(loop, 1) - 1
        if left > 0:
            self._open[loop] = left
            return False
        wanted = loop in self._closing
        self._closing.discard(loop)
        return wanted

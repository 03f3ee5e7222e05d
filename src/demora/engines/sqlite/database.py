"""How calls reach a SQLite file: which thread and connection they run on. The store and its parts share one `Database`."""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw

from ...store.jobs import Topic
from ...system.clock import Clock
from .connection import connections
from .connection.connections import Waits
from .connection.file_watch import FileWatch, OpenedFile
from .connection.locking import LockTurns, Stall
from .connection.readers import QuickReads, Searches
from .connection.transactions import READING, WRITING, Batches, Transaction
from .connection.transactors import InlineTransactor, ThreadTransactor, Transactor
from .notifier import sockets_folder

T = TypeVar("T")
Q = TypeVar("Q")  # a request
A = TypeVar("A")  # the answer to it

SCAN = 1000  # the weight of a read that may scan a table: it always runs on the reader's thread
SPARE_CACHE = 2048  # KiB of cache for a connection that is seldom used


class Database:
    """One SQLite file, or a database in memory. Writes run on one thread, reads on another one, and searches on threads of
    their own. With `inline` every call runs on the event loop.

    After a commit `notify` is called with its topics on the thread of the call, and `wake` on the event loop.
    """

    def __init__(
        self,
        path: Path | None,
        clock: Clock,
        *,
        inline: bool,
        connect: Callable[[Path | None], apsw.Connection],
        waits: Waits,
        stall: Stall,
        notify: Callable[[set[Topic]], None],
        wake: Callable[[set[Topic]], None],
        file: OpenedFile | None = None,
    ) -> None:
        self.path, self.clock, self.inline = path, clock, inline
        self.waits, self.stall = waits, stall
        self.on_unplaced: Callable[[], None] = lambda: None
        self.file = file  # which every connection must have open
        self._connect, self._notify, self._wake = connect, notify, wake
        self._writes: Transactor | None = None
        self._reads: Transactor | None = None
        self._quick: QuickReads | None = None
        self._searches: Searches | None = None

    @property
    def is_open(self) -> bool:
        return self._writes is not None

    async def open(self, begin: Callable[[Transaction], None]) -> None:
        """Connect, and run `begin` as the first write."""
        make_writer = partial(self._batches, WRITING)
        if self.inline:
            self._writes = self._reads = InlineTransactor(make_writer(), self._wake)
            await self.write(begin)
            return
        writes = ThreadTransactor(make_writer, self._wake, "demora-sqlite-writer")
        await writes.start()
        reads = ThreadTransactor(partial(self._batches, READING), self._wake, "demora-sqlite-reader")
        try:
            await reads.start()
            await writes.run(begin, 1)
        except BaseException:
            await _close(reads, writes)
            raise
        self._writes, self._reads = writes, reads
        self._quick, self._searches = QuickReads(self._reader), Searches(self._reader)

    async def close(self) -> None:
        writes, reads = self._writes, self._reads
        self._writes = self._reads = None
        quick, searches = self._quick, self._searches
        self._quick = self._searches = None
        self.file = None
        for readers in (quick, searches):
            if readers is not None:
                await readers.close()
        await _close(*([writes] if writes is reads else [reads, writes]))

    def write(self, call: Callable[[Transaction], T], weight: int = 1) -> "asyncio.Future[T]":
        """Run a call in a transaction that is committed when the future is done."""
        return connections.opened(self._writes).run(call, weight)

    def write_jointly(
        self, call: Callable[[Transaction, Sequence[Q]], list[A]], requests: Sequence[Q], weight: int
    ) -> "asyncio.Future[list[A]]":
        """Run a call as `write` does, and as one with other such calls of the same function."""
        return connections.opened(self._writes).join(call, requests, weight)

    def read(self, call: Callable[[Transaction], T], weight: int = SCAN) -> "asyncio.Future[T]":
        """Run a call that writes nothing."""
        return connections.opened(self._reads).run(call, weight)

    async def read_quickly(self, call: Callable[[Transaction], T]) -> T:
        """Run a read that takes microseconds; it waits for no other read."""
        return await (self.read(call, weight=1) if self._quick is None else self._quick.run(call))

    async def search(self, call: Callable[[Transaction], T], within: timedelta | None) -> T:
        """Run a read that may take long; no other read waits for it. An inline store ignores the time limit."""
        return await (self.read(call) if self._searches is None else self._searches.run(call, within))

    async def bare(self, call: Callable[[apsw.Connection], T]) -> T:
        """Run a call on the writer's connection, outside of any transaction."""
        return await connections.opened(self._writes).bare(call)

    async def data_version(self) -> int:
        """A number that changes when another connection writes. On the writer it does not count the writer's own writes."""
        return await self.bare(_data_version)

    def file_is_there(self) -> bool:
        """Whether the file is still the one that was opened."""
        return self.file is None or self.file.is_there()

    async def _reader(self, name: str) -> ThreadTransactor:
        reader = ThreadTransactor(self._spare_batches, self._wake, name)
        starting = asyncio.ensure_future(reader.start())
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])
            if starting.exception() is None:
                await reader.close()
            raise
        return reader

    def _spare_batches(self) -> Batches:
        batches = self._batches(READING)
        batches.set_cache(SPARE_CACHE)
        return batches

    def _batches(self, begin: str) -> Batches:
        timer = (lambda: 0.0) if self.inline else time.perf_counter  # an inline store has no rival for the lock
        turns = LockTurns(None if self.inline or self.path is None else sockets_folder(self.path), limit=self.waits.turn)
        if self.file is not None:
            self.file.check()  # to connect would create a new file in its place
        db = self._connect(self.path)
        try:
            watch = None if self.inline else self._watch(db, begin)
        except BaseException:
            db.close()
            raise
        if begin == READING:
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # the writer closes last, and decides that
        return Batches(
            *(db, begin, self._clocks, self._notify, timer, turns),
            file=self.file,
            watch=watch,
            stall=self.stall,
            waits=self.waits,
            on_unplaced=lambda: self.on_unplaced(),
        )

    def _watch(self, db: apsw.Connection, begin: str) -> FileWatch | None:
        if self.file is None:
            self.file = OpenedFile(db.filename)
        self.file.check()
        return FileWatch(db, self.file) if begin == WRITING else None

    def _clocks(self) -> tuple[int, int]:
        return self.clock.wall_us(), self.clock.boot()


async def _close(*transactors: Transactor | None) -> None:
    for transactor in transactors:
        if transactor is not None:
            await transactor.close()


def _data_version(db: apsw.Connection) -> int:
    return int(db.pragma("data_version"))

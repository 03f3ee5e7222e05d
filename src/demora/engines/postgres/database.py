"""How calls reach a PostgreSQL database: which pool they use. The store and its parts share one `Database`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Generic, TypeVar

from ...errors import SearchTooSlow, StoreClosed
from ...system.clock import Clock
from ..options import PostgresOptions
from ..sql.searching import AT_ONCE, SearchTurns
from .connection import connections, migrating
from .connection.connections import Identity, LazyPool, Pool, Session
from .connection.transactions import Once, SessionCall, Writes
from .notifier import Notifier

K = TypeVar("K")
T = TypeVar("T")

READS = 3  # tries of a read whose connection broke
READERS = 2  # statements under way, beyond which reads of single values are gathered
MOST_GATHERED = 100  # values that one statement reads


class Database:
    """One schema of a PostgreSQL database. Writes and most reads share a pool; quick reads and searches have their own.

    Time is the database's, unless there is a `clock`. `after_commit` is called with the session of each committed write.
    """

    def __init__(
        self,
        url: str,
        options: PostgresOptions,
        clock: Clock | None,
        notifier: Notifier,
        after_commit: Callable[[Session], Awaitable[None]],
    ) -> None:
        self.url, self.options, self.clock, self.notifier = url, options, clock, notifier
        self.on_unplaced: Callable[[], None] = lambda: None
        self._after_commit = after_commit
        self._pool: Pool | None = None
        self._quick: LazyPool | None = None
        self._searches: LazyPool | None = None

    @property
    def is_open(self) -> bool:
        return self._pool is not None

    async def open(self) -> None:
        identity = Identity()
        pool = Pool(self.url, self.options, self.wall_us, identity)
        try:
            if await pool.open() != migrating.newest():
                await migrating.migrate(self.url, self.options)
            await pool.identify()
        except BaseException:
            await pool.close()
            raise
        self._quick = LazyPool(self.url, self.options, self.wall_us, identity, connections=1)
        self._searches = LazyPool(self.url, self.options, self.wall_us, identity, connections=AT_ONCE)
        self._turns = SearchTurns()
        self.writes = Writes(pool, self._after_commit)
        self._pool = pool

    async def close(self) -> None:
        """Refuse further calls, finish the writes under way, and disconnect."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        await self.writes.close()
        await self.notifier.close()
        quick, searches = self._quick, self._searches
        self._quick = self._searches = None
        for apart in (quick, searches):
            if apart is not None:
                await apart.close()
        await pool.close()

    def opened(self) -> Pool:
        """The pool; `StoreClosed` if the database is not open."""
        if self._pool is None:
            raise StoreClosed
        return self._pool

    def wall_us(self) -> int | None:
        """The time of the clock that tests pass, else None."""
        return None if self.clock is None else self.clock.wall_us()

    async def write(self, call: SessionCall[T]) -> T:
        """Run a write to its end, also if the caller is cancelled meanwhile."""
        self.opened()
        return await self.writes.run(call)

    async def write_once(self, call: SessionCall[T]) -> T:
        """Run a write in one transaction. After a lost answer it answers as the first try did, if that was committed."""
        return await self.write(Once(call))

    async def write_here(self, call: SessionCall[T]) -> T:
        """Run a write in the caller's task. If that is cancelled, the store waits for no answer."""
        self.opened()
        return await self.writes.run_here(call)

    async def read(self, call: SessionCall[T]) -> T:
        """Run a read, and run it again if the connection breaks meanwhile."""
        await self.notifier.ready()
        return await self._read_in(self.opened(), call)

    async def read_quickly(self, call: SessionCall[T]) -> T:
        """Run a read that takes milliseconds; it waits for no other call."""
        return await self._read_in(await _opened(self._quick), call)

    async def search(self, call: SessionCall[T], within: timedelta | None) -> T:
        """Run a read that may take long; no other call waits for it."""
        self.opened()
        await self.notifier.ready()
        async with self._turns.turn(within):
            return await self._read_in(await _opened(self._searches), call, within)

    async def _read_in(self, pool: Pool, call: SessionCall[T], within: timedelta | None = None) -> T:
        for left in reversed(range(READS)):
            self.opened()
            try:
                async with pool.session() as session:
                    session.limit = None if within is None else within.total_seconds()
                    return await call(session)
            except TimeoutError as problem:
                if within is not None:
                    raise SearchTooSlow(within.total_seconds()) from problem
                if not left:
                    raise connections.translate(problem) from problem
            except connections.DRIVER as problem:
                if left and connections.is_lost(problem):
                    continue
                raise connections.translate(problem) from problem
        raise AssertionError("the last try returns or raises")


async def _opened(pool: LazyPool | None) -> Pool:
    if pool is None:
        raise StoreClosed
    return await pool.opened()


class GatheredReads(Generic[K, T]):
    """Reads values by their keys. Those that are asked for while `READERS` statements are under way share the next one, so
    that many callers at once cost a few statements."""

    def __init__(self, database: Database, call: Callable[[Session, Sequence[K]], Awaitable[Mapping[K, T]]]) -> None:
        self._database, self._call = database, call
        self._waiting: list[tuple[K, asyncio.Future[T | None]]] = []
        self._under_way = 0

    async def get(self, key: K) -> T | None:
        """Return the value of a key, None if there is none. The read begins after this call."""
        if self._under_way >= READERS:
            found: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
            self._waiting.append((key, found))
            return await found
        self._under_way += 1
        try:
            return (await self._read([key])).get(key)
        finally:
            self._go_on()

    def _go_on(self) -> None:
        """After a read: begin the next one if callers wait."""
        if self._waiting:
            taken, self._waiting = self._waiting[:MOST_GATHERED], self._waiting[MOST_GATHERED:]
            self._database.writes.start(self._answer(taken))
        else:
            self._under_way -= 1

    async def _answer(self, taken: "Sequence[tuple[K, asyncio.Future[T | None]]]") -> None:
        try:
            values = await self._read([key for key, found in taken if not found.done()])
        except Exception as problem:
            for _, found in taken:
                if not found.done():
                    found.set_exception(problem)
        else:
            for key, found in taken:
                if not found.done():  # else its caller was cancelled
                    found.set_result(values.get(key))
        finally:
            self._go_on()

    async def _read(self, keys: Sequence[K]) -> Mapping[K, T]:
        return await self._database.read(lambda session: self._call(session, keys))

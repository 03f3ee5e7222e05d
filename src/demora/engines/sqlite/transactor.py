"""Group commit: calls made at the same time share one transaction, and one thread owns the connection.

While one batch commits, the next gathers; there is no timer. Each call has its savepoint, so that a bad one fails alone.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

import apsw

from ...errors import StoreBusy, StoreClosed, StoreError
from ...store import Topic

T = TypeVar("T")

LOCK_HELD_AT_MOST = 0.005  # seconds; others that write to the file wait no longer for one batch


class Transaction:
    """What a verb works on: the connection, the clocks read at its start, and whom to wake once it is committed."""

    __slots__ = ("boot", "db", "topics", "wall")

    def __init__(self, db: apsw.Connection, wall: int, boot: int, topics: set[Topic]) -> None:
        self.db, self.wall, self.boot, self.topics = db, wall, boot, topics

    def wake(self, topic: Topic) -> None:
        self.topics.add(topic)


class Pending:
    """A call on its way, and the future of whoever awaits it."""

    __slots__ = ("bare", "call", "error", "future", "result")

    def __init__(self, call: Callable[[Any], Any], future: "asyncio.Future[Any]", *, bare: bool = False) -> None:
        self.call, self.future, self.bare = call, future, bare
        self.result: Any = None
        self.error: Exception | None = None

    def resolve(self) -> None:
        if self.future.done():  # the awaiting task was cancelled; the write stands
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Batches:
    """Runs calls on one connection, as many to a transaction as have gathered."""

    def __init__(
        self, db: apsw.Connection, begin: str, clocks: Callable[[], tuple[int, int]], ring: Callable[[set[Topic]], None]
    ) -> None:
        self._db, self._begin, self._clocks, self._ring = db, begin, clocks, ring

    def commit(self, batch: list[Pending]) -> tuple[list[Pending], set[Topic]]:
        """Commit what fits from the front of `batch`; the rest stays in it. Answers with the finished calls."""
        topics: set[Topic] = set()
        finished: list[Pending] = []
        try:
            self._execute(self._begin)
            self._run(batch, finished, topics)
            self._execute("commit")
        except Exception as problem:
            self._abandon()
            finished += batch
            batch.clear()
            topics.clear()
            for pending in finished:
                pending.error = pending.error or translate(problem)
        if topics:
            self._ring(topics)
        return finished, topics

    def bare(self, call: Callable[[apsw.Connection], T]) -> T:
        """Run a call outside of any transaction."""
        return call(self._db)

    def close(self) -> None:
        self._db.close()

    def _run(self, batch: list[Pending], finished: list[Pending], topics: set[Topic]) -> None:
        started, alone = time.perf_counter(), len(batch) == 1
        while batch:
            pending = batch.pop(0)
            finished.append(pending)
            if alone:
                self._apply(pending, topics)
            else:
                self._apply_in_savepoint(pending, topics)
            if time.perf_counter() - started > LOCK_HELD_AT_MOST:
                return

    def _apply(self, pending: Pending, topics: set[Topic]) -> None:
        pending.result = pending.call(Transaction(self._db, *self._clocks(), topics))

    def _apply_in_savepoint(self, pending: Pending, topics: set[Topic]) -> None:
        self._execute("savepoint one")
        woken: set[Topic] = set()
        try:
            self._apply(pending, woken)
        except Exception as problem:
            pending.error = translate(problem)
            self._execute("rollback to one")
        else:
            topics |= woken
        self._execute("release one")

    def _execute(self, sql: str) -> None:
        self._db.execute(sql)

    def _abandon(self) -> None:
        if self._db.in_transaction:
            try:
                self._execute("rollback")
            except apsw.Error:
                if self._db.in_transaction:
                    raise


class Transactor(Protocol):
    """Where calls are run: on a thread of their own, or inline in a simulation."""

    def run(self, call: Callable[[Transaction], T]) -> "asyncio.Future[T]": ...

    def bare(self, call: Callable[[apsw.Connection], T]) -> "asyncio.Future[T]": ...

    async def close(self) -> None: ...


Woken = Callable[[set[Topic]], None]


class ThreadTransactor:
    """Runs batches on a thread of its own, so that the event loop never waits for a disk."""

    def __init__(self, make: Callable[[], Batches], woken: Woken, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._make, self._woken = make, woken
        self._calls: SimpleQueue[Pending | None] = SimpleQueue()
        self._closed = False
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    async def start(self) -> None:
        """Open the connection on its thread; raises what that raises."""
        self._thread.start()
        await self._ready

    def run(self, call: Callable[[Transaction], T]) -> "asyncio.Future[T]":
        return self._submit(call)

    def bare(self, call: Callable[[apsw.Connection], T]) -> "asyncio.Future[T]":
        return self._submit(call, bare=True)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._calls.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def _submit(self, call: Callable[[Any], Any], *, bare: bool = False) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._closed:
            future.set_exception(StoreClosed())
        else:
            self._calls.put(Pending(call, future, bare=bare))
        return future

    def _main(self) -> None:
        try:
            batches = self._make()
        except Exception as problem:
            self._loop.call_soon_threadsafe(self._ready.set_exception, translate(problem))
            return
        self._loop.call_soon_threadsafe(self._ready.set_result, None)
        waiting: list[Pending] = []
        while self._gather(waiting):
            finished, topics = run_next(batches, waiting)
            self._tell(finished, topics)
        batches.close()

    def _gather(self, waiting: list[Pending]) -> bool:
        """Add all that has been asked for; blocks while there is nothing. False once closed and empty."""
        try:
            while True:
                pending = self._calls.get(block=not waiting)
                if pending is None:
                    self._calls.put(None)  # leave the sign for the next look
                    return bool(waiting)
                waiting.append(pending)
        except Empty:
            return True

    def _tell(self, finished: Sequence[Pending], topics: set[Topic]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._resolve, finished, topics)
        except RuntimeError:  # the loop is gone, and with it everyone who awaited
            self._closed = True

    def _resolve(self, finished: Sequence[Pending], topics: set[Topic]) -> None:
        for pending in finished:
            pending.resolve()
        if topics:
            self._woken(topics)


class InlineTransactor:
    """Runs batches on the event loop itself, for simulations and for databases in memory."""

    def __init__(self, batches: Batches, woken: Woken) -> None:
        self._batches, self._woken = batches, woken
        self._waiting: list[Pending] = []
        self._closed = False

    def run(self, call: Callable[[Transaction], T]) -> "asyncio.Future[T]":
        return self._submit(call)

    def bare(self, call: Callable[[apsw.Connection], T]) -> "asyncio.Future[T]":
        return self._submit(call, bare=True)

    async def close(self) -> None:
        self._flush()
        if not self._closed:
            self._closed = True
            self._batches.close()

    def _submit(self, call: Callable[[Any], Any], *, bare: bool = False) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if self._closed:
            future.set_exception(StoreClosed())
            return future
        if not self._waiting:
            loop.call_soon(self._flush)
        self._waiting.append(Pending(call, future, bare=bare))
        return future

    def _flush(self) -> None:
        while self._waiting:
            finished, topics = run_next(self._batches, self._waiting)
            for pending in finished:
                pending.resolve()
            if topics:
                self._woken(topics)


def run_next(batches: Batches, waiting: list[Pending]) -> tuple[list[Pending], set[Topic]]:
    """Run the bare calls in `waiting`, or else its next batch, and take what is finished out of it."""
    bare = [pending for pending in waiting if pending.bare]
    if not bare:
        return batches.commit(waiting)
    for pending in bare:
        waiting.remove(pending)
        try:
            pending.result = batches.bare(pending.call)
        except Exception as problem:
            pending.error = translate(problem)
    return bare, set()


def translate(problem: Exception) -> Exception:
    """The store's own error for a driver's; any other error stays what it is."""
    if isinstance(problem, apsw.BusyError):
        error: StoreError = StoreBusy("the database file stayed locked by another process; nothing was written")
    elif isinstance(problem, apsw.Error):
        error = StoreError(f"SQLite: {problem}")
    else:
        return problem
    error.__cause__ = problem
    return error

"""Writing: as a rule each call runs in a task of the store's own, so that whoever awaits it may be cancelled and the write
stands. A claim runs in the task of whoever asked: what it took comes back by its lease.

When the connection breaks in the middle, nobody knows whether the write was committed. Then the old session is ended, which
settles what became of it, and the verb is asked again with `again`: it reads first, and does only what was not done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ...errors import StoreClosed, StoreUnreachable
from . import troubles
from .connections import Pool, Session

T = TypeVar("T")
Verb = Callable[[Session, bool], Awaitable[T]]

PATIENCE = 15.0  # seconds to go on asking what became of a write
PAUSE = 0.1  # seconds between two tries to reach the server
TRIES = 10  # of a write that others got in the way of
FENCE = 5000  # milliseconds to wait for the end of an old session


class Writes:
    """The writes under way on one pool."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._under_way: set[asyncio.Future[Any]] = set()
        self._closed = False

    def run(self, verb: Verb[T]) -> "asyncio.Future[T]":
        """Run a verb to its end; to cancel the awaiting task does not withdraw it."""
        if self._closed:
            raise StoreClosed
        return asyncio.shield(self.start(self.finish(verb)))

    def start(self, work: Any) -> "asyncio.Task[Any]":
        """Begin some work that `close` waits for."""
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return task

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Some work in the caller's own task that `close` waits for."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way.add(done)
        try:
            yield
        finally:
            self._under_way.discard(done)
            done.set_result(None)

    async def finish(self, verb: Verb[T], *, again: bool = False) -> T:
        """What a verb answers, also if the connection broke meanwhile; raises the store's own errors."""
        lost: _Lost | None = None
        problem: Exception = StoreClosed()
        for _ in range(TRIES):
            try:
                return await self._once(verb, again=again or lost is not None)
            except _Lost as loss:
                problem = lost = loss
                await self._fence(loss)
            except StoreUnreachable as out_of_reach:
                if lost is None:
                    raise
                problem = out_of_reach
                await self._fence(lost)
            except troubles.PASSING as passing:
                problem = passing
        raise troubles.translate(problem) if lost is None else troubles.unknown(problem)

    async def close(self) -> None:
        self._closed = True
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _once(self, verb: Verb[T], *, again: bool) -> T:
        async with self.pool.session() as session:
            try:
                return await verb(session, again)
            except troubles.PASSING:
                raise
            except troubles.DRIVER as problem:
                if troubles.is_lost(problem):
                    raise _Lost(session.backend) from problem
                raise troubles.translate(problem) from problem

    async def _fence(self, lost: "_Lost") -> None:
        """Wait until the server can be reached and the lost session has ended; what it did not commit by then it never
        will."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        while True:
            try:
                return await self._end(lost)
            except (StoreUnreachable, *troubles.DRIVER) as problem:
                if loop.time() > deadline:
                    raise troubles.unknown(problem) from problem
            await asyncio.sleep(PAUSE)

    async def _end(self, lost: "_Lost") -> None:
        """End the lost session; `TimeoutError` if it has not ended in time."""
        async with self.pool.session() as session:
            if lost.backend is not None:
                pid, started = lost.backend
                answers = await session.rows("fence", pid=pid, started=started, patience=FENCE)
                if not all(ended for (ended,) in answers):
                    raise TimeoutError("the session that was cut off does not end")

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # whoever awaits it is told; if nobody does, nobody need be


class _Lost(Exception):
    """The connection broke while a verb was under way."""

    def __init__(self, backend: "tuple[int, Any] | None") -> None:
        super().__init__("the connection broke")
        self.backend = backend

"""Writing: as a rule each call runs in a task of the store's own, so that whoever awaits it may be cancelled and the write
stands. A claim runs in the task of whoever asked: what it took comes back by its lease.

When the connection breaks in the middle, nobody knows whether the write was committed. Then the old session is ended, which
settles what became of it, and the verb is asked again with `again`: it reads first, and does only what was not done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from ...errors import StoreClosed, StoreUnreachable
from . import connections
from .connections import Pool, Session

T = TypeVar("T")
Verb = Callable[[Session, bool], Awaitable[T]]

RECHECK_LIMIT = 15.0  # seconds to go on asking what became of a write
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
            except connections.PASSING as passing:
                problem = passing
        raise connections.translate(problem) if lost is None else connections.unknown(problem)

    async def close(self) -> None:
        self._closed = True
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _once(self, verb: Verb[T], *, again: bool) -> T:
        async with self.pool.session() as session:
            try:
                return await verb(session, again)
            except connections.PASSING:
                raise
            except connections.DRIVER as problem:
                if connections.is_lost(problem):
                    raise _Lost(session.backend) from problem
                raise connections.translate(problem) from problem

    async def _fence(self, lost: "_Lost") -> None:
        """Wait until the server can be reached and the lost session has ended; what it did not commit by then it never
        will."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RECHECK_LIMIT
        while True:
            try:
                return await self._end(lost)
            except (StoreUnreachable, *connections.DRIVER) as problem:
                if loop.time() > deadline:
                    raise connections.unknown(problem) from problem
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


# Group commit: while one statement is under way, the calls that come gather, and the next statement is about all of them.


W = TypeVar("W")  # what a call is about, one by one
A = TypeVar("A")  # what is answered for each

MOST = 1000  # requests to one statement, unless one call has more


class _Call(Generic[W, A]):
    __slots__ = ("again", "future", "requests")

    def __init__(self, requests: Sequence[W], future: "asyncio.Future[list[A]]", *, again: bool = False) -> None:
        self.requests, self.future, self.again = requests, future, again

    def answer(self, answers: list[A]) -> None:
        if not self.future.done():  # else the awaiting task was cancelled; the write stands
            self.future.set_result(answers)

    def fail(self, problem: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(problem)


class Gathering(Generic[W, A]):
    """Runs `verb` about the requests of all calls that have gathered. Requests with the same `key` do not share a statement.
    The verb is told whether the same was asked before, and nobody knows what became of it."""

    def __init__(
        self,
        writes: Writes,
        verb: Callable[[Sequence[W], bool], Awaitable[list[A]]],
        key: Callable[[W], Hashable] | None = None,
    ) -> None:
        self._writes, self._verb, self._key = writes, verb, key
        self._waiting: list[_Call[W, A]] = []
        self._working = False
        self._closed = False

    async def ask(self, requests: Sequence[W]) -> list[A]:
        if self._closed:
            raise StoreClosed
        if not self._working:
            return await self._ask_alone(requests)
        call: _Call[W, A] = _Call(requests, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        return await call.future

    async def _ask_alone(self, requests: Sequence[W]) -> list[A]:
        """Run a statement in the task of whoever asked. If that is cancelled meanwhile, the request stands all the same."""
        self._working = True
        try:
            with self._writes.under_way():
                return await self._verb(requests, False)
        except asyncio.CancelledError:
            nobody = asyncio.get_running_loop().create_future()
            self._waiting.insert(0, _Call(requests, nobody, again=True))
            raise
        finally:
            self._working = False
            if self._waiting:
                self._working = True
                self._writes.start(self._work())

    def close(self) -> None:
        self._closed = True

    async def _work(self) -> None:
        while self._waiting:
            await self._run(self._take())
        self._working = False

    def _take(self) -> list[_Call[W, A]]:
        """What fits from the front."""
        taken, count, keys = [self._waiting.pop(0)], 0, set[Any]()
        self._fits(taken[0], keys)
        count = MOST if taken[0].again else len(taken[0].requests)
        while self._waiting and count + len(self._waiting[0].requests) <= MOST and self._fits(self._waiting[0], keys):
            taken.append(self._waiting.pop(0))
            count += len(taken[-1].requests)
        return taken

    def _fits(self, call: _Call[W, A], keys: set[Any]) -> bool:
        if self._key is None:
            return True
        own = {self._key(request) for request in call.requests}
        if own & keys:
            return False
        keys |= own
        return True

    async def _run(self, calls: Sequence[_Call[W, A]]) -> None:
        try:
            answers = iter(await self._verb([request for call in calls for request in call.requests], calls[0].again))
        except Exception as problem:
            await self._run_alone(calls, problem)
        else:
            for call in calls:
                call.answer([next(answers) for _ in call.requests])

    async def _run_alone(self, calls: Iterable[_Call[W, A]], problem: Exception) -> None:
        calls = list(calls)
        if len(calls) == 1:
            return calls[0].fail(problem)
        for call in calls:
            await self._run([call])
        return None

"""Writes on PostgreSQL, also when the connection breaks in the middle.

A call is an async function of a session. As a rule it runs in a task of the store's own: if the caller is cancelled, the
write still happens. A claim runs in the caller's own task; if that is cancelled, the jobs come back when their lease lapses.

When the connection breaks, the engine does not know whether the write was committed. It first ends the old session on the
server; after that, the write is either committed or will never be. Then it runs the call again with `session.again`: the
call reads what was written, and writes only what is missing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from ....errors import StoreClosed, StoreUnreachable
from ....store.jobs import Topic
from ....system import crash
from . import connections
from .connections import Pool, Session

T = TypeVar("T")
SessionCall = Callable[[Session], Awaitable[T]]

RECHECK_LIMIT = 15.0  # seconds to keep trying to find out whether a write was committed
PAUSE = 0.1  # seconds between two tries to reach the server
TRIES = 10  # of one write, after deadlocks and lost connections
FENCE = 5000  # milliseconds to wait for the end of an old session


class Writes:
    """Runs writes on one pool, and `after_commit` with the session of each that was committed."""

    def __init__(self, pool: Pool, after_commit: Callable[[Session], Awaitable[None]]) -> None:
        self.pool, self._after_commit = pool, after_commit
        self._under_way: set[asyncio.Future[Any]] = set()
        self._closed = False

    def run(self, call: SessionCall[T]) -> "asyncio.Future[T]":
        """Run a call in a task of its own. Cancelling the awaiting task does not cancel the call."""
        if self._closed:
            raise StoreClosed
        return asyncio.shield(self.start(self.finish(call)))

    async def run_here(self, call: SessionCall[T]) -> T:
        """Run a call in the caller's task: handing it to another task would take a good part of the time of a claim."""
        with self.under_way():
            return await self.finish(call)

    def start(self, work: Any) -> "asyncio.Task[Any]":
        """Start some work that `close` waits for."""
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return task

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Mark work in the caller's own task that `close` waits for."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way.add(done)
        try:
            yield
        finally:
            self._under_way.discard(done)
            done.set_result(None)

    async def finish(self, call: SessionCall[T], *, again: bool = False) -> T:
        """Run a call until its outcome is known, and return its answer. Raises the store's own errors."""
        answer, session = await self._outcome(call, again=again)
        crash.at("batch.committed")
        await self._after_commit(session)
        return answer

    async def _outcome(self, call: SessionCall[T], *, again: bool) -> tuple[T, Session]:
        lost: _Lost | None = None
        problem: Exception = StoreClosed()
        for _ in range(TRIES):
            try:
                return await self._once(call, again=again or lost is not None)
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

    async def _once(self, call: SessionCall[T], *, again: bool) -> tuple[T, Session]:
        async with self.pool.session() as session:
            session.again = again
            try:
                return await call(session), session
            except connections.PASSING:
                raise
            except connections.DRIVER as problem:
                if connections.is_lost(problem):
                    raise _Lost(session.backend) from problem
                raise connections.translate(problem) from problem

    async def _fence(self, lost: "_Lost") -> None:
        """Wait until the server can be reached and the lost session has ended: from then on it commits nothing."""
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
                answers = await session.rows("fence", pid=pid, started=started, limit=FENCE)
                if not all(ended for (ended,) in answers):
                    raise TimeoutError("the lost session does not end")

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as seen: the caller, if there still is one, gets it from the future


class _Lost(Exception):
    """The connection broke while a call was under way."""

    def __init__(self, backend: "tuple[int, Any] | None") -> None:
        super().__init__("the connection broke")
        self.backend = backend


class Once(Generic[T]):
    """A call in one transaction. Before the commit it notes the number of the transaction and its answer. If the connection
    breaks during the commit, the second try asks the server whether the first was committed. So it never mistakes the write
    of another caller for its own."""

    def __init__(self, call: SessionCall[T]) -> None:
        self._call = call
        self._first: _First[T] | None = None

    async def __call__(self, session: Session) -> T:
        first, self._first = self._first, None
        if session.again and first is not None and await _was_committed(session, first.number):
            session.topics |= first.topics
            session.unplaced = first.unplaced
            return first.answer
        async with session.transaction():
            answer = await self._call(session)
            number = (await session.row("transaction"))["number"]
            if number is not None:
                self._first = _First(number, answer, set(session.topics), session.unplaced)
        return answer


class _First(NamedTuple, Generic[T]):
    """What a first try came to, if it was committed."""

    number: str
    answer: T
    topics: set[Topic]
    unplaced: bool


async def _was_committed(session: Session, number: str) -> bool:
    """Whether a transaction was committed. Behind a pooler it may still be under way: wait until it has ended."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + RECHECK_LIMIT
    while (status := (await session.row("transaction_status", number=number))["status"]) == "in progress":
        if loop.time() > deadline:
            raise connections.unknown(TimeoutError("the lost transaction does not end"))
        await asyncio.sleep(PAUSE)
    return bool(status == "committed")


# Group commit


W = TypeVar("W")  # one request
A = TypeVar("A")  # the answer to it

MOST = 1000  # requests to one statement, unless one caller has more


class _Pending(Generic[W, A]):
    """The requests of one caller, and the future of their answers."""

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
    """Runs `call` with the requests of several callers: those that come while one statement is under way share the next.

    Requests with the same `key` do not share a statement. If a shared statement fails, each caller's requests run alone."""

    def __init__(
        self,
        writes: Writes,
        call: Callable[[Session, Sequence[W]], Awaitable[list[A]]],
        key: Callable[[W], Hashable] | None = None,
    ) -> None:
        self._writes, self._call, self._key = writes, call, key
        self._waiting: list[_Pending[W, A]] = []
        self._working = False
        self._closed = False

    async def ask(self, requests: Sequence[W]) -> list[A]:
        if self._closed:
            raise StoreClosed
        if not self._working:
            return await self._ask_alone(requests)
        pending: _Pending[W, A] = _Pending(requests, asyncio.get_running_loop().create_future())
        self._waiting.append(pending)
        return await pending.future

    async def _ask_alone(self, requests: Sequence[W]) -> list[A]:
        """Run a statement in the caller's task. If that is cancelled meanwhile, the requests are run again without it."""
        self._working = True
        try:
            with self._writes.under_way():
                return await self._finish(requests)
        except asyncio.CancelledError:
            unread = asyncio.get_running_loop().create_future()
            self._waiting.insert(0, _Pending(requests, unread, again=True))
            raise
        finally:
            self._working = False
            if self._waiting:
                self._working = True
                self._writes.start(self._work())

    def close(self) -> None:
        self._closed = True

    async def _finish(self, requests: Sequence[W], *, again: bool = False) -> list[A]:
        return await self._writes.finish(lambda session: self._call(session, requests), again=again)

    async def _work(self) -> None:
        while self._waiting:
            await self._run(self._take())
        self._working = False

    def _take(self) -> list[_Pending[W, A]]:
        """Take the next requests that fit into one statement."""
        taken, count, keys = [self._waiting.pop(0)], 0, set[Any]()
        self._fits(taken[0], keys)
        count = MOST if taken[0].again else len(taken[0].requests)
        while self._waiting and count + len(self._waiting[0].requests) <= MOST and self._fits(self._waiting[0], keys):
            taken.append(self._waiting.pop(0))
            count += len(taken[-1].requests)
        return taken

    def _fits(self, pending: _Pending[W, A], keys: set[Any]) -> bool:
        if self._key is None:
            return True
        own = {self._key(request) for request in pending.requests}
        if own & keys:
            return False
        keys |= own
        return True

    async def _run(self, together: Sequence[_Pending[W, A]]) -> None:
        requests = [request for pending in together for request in pending.requests]
        try:
            answers = iter(await self._finish(requests, again=together[0].again))
        except Exception as problem:
            await self._run_alone(together, problem)
        else:
            for pending in together:
                pending.answer([next(answers) for _ in pending.requests])

    async def _run_alone(self, together: Sequence[_Pending[W, A]], problem: Exception) -> None:
        if len(together) == 1:
            return together[0].fail(problem)
        for pending in together:
            await self._run([pending])
        return None

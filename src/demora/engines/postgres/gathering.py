"""Group commit: while one statement is under way, the calls that come gather, and the next statement is about all of them.

There is no timer. A call that the database refuses fails alone: the others are asked again without it. Whoever finds nothing
under way runs its statement itself, since each hand-over takes as long as a good part of it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from ...errors import StoreClosed
from .writes import Writes

W = TypeVar("W")  # what a call is about, one by one
A = TypeVar("A")  # what is answered for each

MOST = 1000  # wishes to one statement, unless one call has more


class _Call(Generic[W, A]):
    __slots__ = ("again", "future", "wishes")

    def __init__(self, wishes: Sequence[W], future: "asyncio.Future[list[A]]", *, again: bool = False) -> None:
        self.wishes, self.future, self.again = wishes, future, again

    def answer(self, answers: list[A]) -> None:
        if not self.future.done():  # else the awaiting task was cancelled; the write stands
            self.future.set_result(answers)

    def fail(self, problem: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(problem)


class Gathering(Generic[W, A]):
    """Runs `verb` about the wishes of all calls that have gathered. Wishes with the same `key` do not share a statement. The
    verb is told whether the same was asked before, and nobody knows what became of it."""

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

    async def ask(self, wishes: Sequence[W]) -> list[A]:
        if self._closed:
            raise StoreClosed
        if not self._working:
            return await self._ask_alone(wishes)
        call: _Call[W, A] = _Call(wishes, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        return await call.future

    async def _ask_alone(self, wishes: Sequence[W]) -> list[A]:
        """Run a statement in the task of whoever asked. If that is cancelled meanwhile, the wish stands all the same."""
        self._working = True
        try:
            with self._writes.under_way():
                return await self._verb(wishes, False)
        except asyncio.CancelledError:
            nobody = asyncio.get_running_loop().create_future()
            self._waiting.insert(0, _Call(wishes, nobody, again=True))
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
        count = MOST if taken[0].again else len(taken[0].wishes)
        while self._waiting and count + len(self._waiting[0].wishes) <= MOST and self._fits(self._waiting[0], keys):
            taken.append(self._waiting.pop(0))
            count += len(taken[-1].wishes)
        return taken

    def _fits(self, call: _Call[W, A], keys: set[Any]) -> bool:
        if self._key is None:
            return True
        own = {self._key(wish) for wish in call.wishes}
        if own & keys:
            return False
        keys |= own
        return True

    async def _run(self, calls: Sequence[_Call[W, A]]) -> None:
        try:
            answers = iter(await self._verb([wish for call in calls for wish in call.wishes], calls[0].again))
        except Exception as problem:
            await self._run_alone(calls, problem)
        else:
            for call in calls:
                call.answer([next(answers) for _ in call.wishes])

    async def _run_alone(self, calls: Iterable[_Call[W, A]], problem: Exception) -> None:
        calls = list(calls)
        if len(calls) == 1:
            return calls[0].fail(problem)
        for call in calls:
            await self._run([call])
        return None

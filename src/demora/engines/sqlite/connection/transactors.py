"""Where the calls to a SQLite file run: on a thread of their own, or on the event loop.

A transactor collects the calls that come at the same time, has their transactions run, and gives each caller its answer.
"""

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

import apsw

from ....errors import StoreClosed, StoreError
from ....store.jobs import Topic
from .locking import Overtaken
from .transactions import Batches, Pending, Transaction, translate

T = TypeVar("T")
Q = TypeVar("Q")  # a request
A = TypeVar("A")  # the answer to it

Wake = Callable[[set[Topic]], None]  # wakes the waiters of this process

AT_ONCE = 4  # calls in one pass of the loop
LIGHT = 512  # jobs: some milliseconds of work, as long as making them took; a heavier call goes to the thread
QUICK = 0.002  # seconds; if a commit takes longer, calls go to the thread


class Transactor(Protocol):
    """Runs calls: on a thread of its own, or inline on the event loop."""

    def run(self, call: Callable[[Transaction], T], weight: int) -> "asyncio.Future[T]":
        """Run a call in a transaction; `weight` is how many jobs of ordinary size it concerns."""
        ...

    def join(
        self, call: Callable[[Transaction, Sequence[Q]], list[A]], requests: Sequence[Q], weight: int
    ) -> "asyncio.Future[list[A]]":
        """Run a call that gives an answer to each request. Calls of the same function that wait at the same time may be run
        as one, with the requests of all. If a request fails, only the call that it came with fails."""
        ...

    def bare(self, call: Callable[[apsw.Connection], T]) -> "asyncio.Future[T]":
        """Run a call outside of any transaction."""
        ...

    async def close(self) -> None: ...


class ThreadTransactor:
    """Runs batches on a thread of its own, so that the event loop never waits for a slow disk or another process.

    Handing a call over and back costs more than a commit to a quick disk, since both threads take turns to wait for the GIL.
    So a light call that comes alone, while the thread is idle, the lock free and the disk quick, is committed on the event
    loop. In one pass of the loop, the first few such calls run at once. Later ones run together at the end of the pass: on
    the loop if that saves time, as for reads and adds, and otherwise on the thread. So calls made at the same time still
    share a transaction, and they hold up the loop for no longer than a batch may hold the lock.
    """

    def __init__(self, make: Callable[[], Batches], wake: Wake, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._make, self._wake = make, wake
        self._calls: SimpleQueue[Pending | None] = SimpleQueue()
        self._batches: Batches | None = None
        self._waiting: list[Pending] = []  # taken from the calls, not finished
        self._under_way: list[Pending] = []  # of these, the calls that the thread may be running
        self._here: list[Pending] = []  # made in this pass of the loop
        self._at_once = AT_ONCE  # calls that may still be committed at once in this pass
        self._pass_ends = False  # whether `_end_pass` is called at the end of this pass
        self._in_flight = 0  # handed to the thread and not finished
        self._closed = False
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        _made.add(self)

    async def start(self) -> None:
        """Open the connection on the thread; raises its error if that fails."""
        self._thread.start()
        await self._ready

    def run(self, call: Callable[[Transaction], T], weight: int) -> "asyncio.Future[T]":
        return self._submit(Pending(call, self._loop.create_future(), weight=weight))

    def join(
        self, call: Callable[[Transaction, Sequence[Q]], list[A]], requests: Sequence[Q], weight: int
    ) -> "asyncio.Future[list[A]]":
        return self._submit(Pending(call, self._loop.create_future(), weight=weight, requests=requests))

    def bare(self, call: Callable[[apsw.Connection], T]) -> "asyncio.Future[T]":
        pending = Pending(call, self._loop.create_future(), bare=True)
        if self._closed:
            pending.future.set_exception(StoreClosed())
        else:
            self._hand_over(pending)
        return pending.future

    def _submit(self, pending: Pending) -> "asyncio.Future[Any]":
        if self._closed:
            pending.future.set_exception(StoreClosed())
        elif self._here or (self._in_flight == 0 and pending.weight <= LIGHT):
            self._here.append(pending)
            self._soon()
        else:
            self._hand_over(pending)
        return pending.future

    def interrupt(self) -> None:
        """Interrupt the statement that runs on the thread, if one does."""
        if self._batches is not None:
            self._batches.interrupt()

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._flush_here()
            self._calls.put(None)
            if self._batches is not None:
                self._batches.hurry()
        await asyncio.shield(self._gone)  # not in an executor: when the process ends there is none
        self._thread.join()

    def _soon(self) -> None:
        """Flush the first calls of a pass of the loop at once, and the others together at its end."""
        if not self._pass_ends:
            self._pass_ends = True
            self._loop.call_soon(self._end_pass)
        if self._at_once > 0:
            self._at_once -= 1
            self._flush_here()

    def _end_pass(self) -> None:
        """Flush the calls of this pass. If several came that gain by running together, those of the next pass wait for each
        other too."""
        self._pass_ends = False
        self._at_once = AT_ONCE if len(self._here) <= 1 or not self._gain_together(self._here) else 0
        self._flush_here()

    def _flush_here(self) -> None:
        """Commit a call that came alone, or calls that gain by running together, right here if that is quick. Hand
        all others to the thread."""
        batch, self._here = self._here, []
        batches = self._batches
        quick = batches is not None and self._in_flight == 0 and batches.disk_takes < QUICK
        light = len(batch) == 1 or self._gain_together(batch)
        if batch and light and quick and batches is not None and batches.begin_at_once():
            self._resolve(*batches.commit(batch))
        for pending in batch:
            self._hand_over(pending)

    def _gain_together(self, batch: Sequence[Pending]) -> bool:
        """Whether light calls take far less time together: reads, and calls that may be joined."""
        reads = self._batches is not None and not self._batches.writes
        joined = reads or all(pending.requests is not None for pending in batch)
        return joined and sum(pending.weight for pending in batch) <= LIGHT

    def _hand_over(self, pending: Pending) -> None:
        self._in_flight += 1
        self._calls.put(pending)

    def _main(self) -> None:
        try:
            batches = self._batches = self._make()
        except Exception as problem:
            self._call_back(self._ready.set_exception, translate(problem))
            self._call_back(_set_done, self._gone)
            return
        batches.turns.pass_by = self._overtake
        self._loop.call_soon_threadsafe(self._ready.set_result, None)
        self._serve(batches)

    def _serve(self, batches: Batches) -> None:
        try:
            while self._gather(self._waiting):
                self._under_way = [*self._waiting]
                finished, topics = batches.run_next(self._waiting)
                self._call_back(self._take_back, finished, topics)
            self._batches = None
            batches.close()
        except Overtaken:
            return
        except BaseException as problem:
            self._call_back(self._die, problem)
            raise
        self._call_back(_set_done, self._gone)

    def _die(self, problem: BaseException) -> None:
        """After an error that ended the thread: fail every call that waits, and refuse all others."""
        self._closed, self._batches = True, None
        left = [*self._under_way, *self._waiting, *self._here]
        while not self._calls.empty():
            left += [pending for pending in [self._calls.get()] if pending is not None]
        for pending in left:
            pending.error = pending.error or _ended(problem)
            pending.resolve()
        _set_done(self._gone)

    def _overtake(self) -> None:
        """Start another thread in place of the one that waits too long for its turn. The watchdog calls it."""
        batches = self._batches
        assert batches is not None, "a thread that waits for its turn has its connection"
        self._thread = threading.Thread(target=self._serve, args=[batches], name=self._thread.name, daemon=True)
        self._thread.start()

    def _gather(self, waiting: list[Pending]) -> bool:
        """Move all new calls to `waiting`; blocks while there are none. False once closed and empty."""
        try:
            while True:
                pending = self._calls.get(block=not waiting)
                if pending is None:
                    self._calls.put(None)  # for the next call of this method
                    return bool(waiting)
                waiting.append(pending)
        except Empty:
            return True

    def _call_back(self, callback: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop is closed, and so are all callers
            self._closed = True

    def _take_back(self, finished: Sequence[Pending], topics: set[Topic]) -> None:
        self._in_flight -= len(finished)
        self._resolve(finished, topics)

    def _resolve(self, finished: Sequence[Pending], topics: set[Topic]) -> None:
        for pending in finished:
            pending.resolve()
        if topics:
            self._wake(topics)


def _ended(problem: BaseException) -> StoreError:
    error = StoreError(f"the thread of the database has ended ({problem!r}); a write may or may not have been made")
    error.__cause__ = problem
    return error


_made: "weakref.WeakSet[ThreadTransactor]" = weakref.WeakSet()


def _close_inherited() -> None:
    """A forked child has no such thread, and must not use the connection."""
    for transactor in [*_made]:
        transactor._closed = True


os.register_at_fork(after_in_child=_close_inherited)


def _set_done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class InlineTransactor:
    """Runs batches on the event loop itself, for simulations and for databases in memory."""

    def __init__(self, batches: Batches, wake: Wake) -> None:
        self._batches, self._wake = batches, wake
        self._waiting: list[Pending] = []
        self._closed = False

    def run(self, call: Callable[[Transaction], T], weight: int) -> "asyncio.Future[T]":
        return self._submit(call, weight=weight)

    def join(
        self, call: Callable[[Transaction, Sequence[Q]], list[A]], requests: Sequence[Q], weight: int
    ) -> "asyncio.Future[list[A]]":
        return self._submit(call, weight=weight, requests=requests)

    def bare(self, call: Callable[[apsw.Connection], T]) -> "asyncio.Future[T]":
        return self._submit(call, bare=True)

    async def close(self) -> None:
        self._flush()
        if not self._closed:
            self._closed = True
            self._batches.close()

    def _submit(self, call: Callable[..., Any], **kind: Any) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if self._closed:
            future.set_exception(StoreClosed())
            return future
        if not self._waiting:
            loop.call_soon(self._flush)
        self._waiting.append(Pending(call, future, **kind))
        return future

    def _flush(self) -> None:
        while self._waiting:
            finished, topics = self._batches.run_next(self._waiting)
            for pending in finished:
                pending.resolve()
            if topics:
                self._wake(topics)

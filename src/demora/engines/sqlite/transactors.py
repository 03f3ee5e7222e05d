"""Where batches run: on a thread that owns the connection, or on the event loop itself.

While one batch commits, the next gathers; there is no timer.
"""

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

import apsw

from ...errors import StoreClosed
from ...store import Topic
from .batches import Batches, Pending, Transaction, translate
from .turns import Overtaken

T = TypeVar("T")


class Transactor(Protocol):
    """Where calls are run: on a thread of their own, or inline in a simulation."""

    def run(self, call: Callable[[Transaction], T], weight: int) -> "asyncio.Future[T]":
        """Run a call in a transaction; `weight` is how many jobs of ordinary size it is about."""
        ...

    def bare(self, call: Callable[[apsw.Connection], T]) -> "asyncio.Future[T]":
        """Run a call outside of any transaction."""
        ...

    async def close(self) -> None: ...


Woken = Callable[[set[Topic]], None]


AT_ONCE = 4  # calls in one pass of the loop
LIGHT = 512  # jobs: some milliseconds of work, as much as goes into making them; a call about more goes to the thread
QUICK = 0.002  # seconds; a disk that takes longer to commit is waited for on the thread


class ThreadTransactor:
    """Runs batches on a thread of its own, so that the event loop never waits for a slow disk or another process.

    To hand a call over and back costs more than a quick disk takes to commit it, since both threads then wait for the
    interpreter in turn. So a light call that comes alone, while the thread is idle, the lock free and the disk quick, is
    committed on the spot: the first few of a pass of the loop at once, later ones at its end, so that calls made together
    still share a transaction and nobody can hold up the loop.
    """

    def __init__(self, make: Callable[[], Batches], woken: Woken, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._make, self._woken = make, woken
        self._calls: SimpleQueue[Pending | None] = SimpleQueue()
        self._batches: Batches | None = None
        self._waiting: list[Pending] = []  # taken from the calls, not finished
        self._here: list[Pending] = []  # asked for in this pass of the loop
        self._at_once = AT_ONCE  # calls that may still be committed at once in this pass
        self._in_flight = 0  # handed over and not back
        self._closed = False
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        _made.add(self)

    async def start(self) -> None:
        """Open the connection on its thread; raises what that raises."""
        self._thread.start()
        await self._ready

    def run(self, call: Callable[[Transaction], T], weight: int) -> "asyncio.Future[T]":
        pending = Pending(call, self._loop.create_future())
        if self._closed:
            pending.future.set_exception(StoreClosed())
        elif self._here or (self._in_flight == 0 and weight <= LIGHT):
            self._here.append(pending)
            self._soon()
        else:
            self._hand_over(pending)
        return pending.future

    def bare(self, call: Callable[[apsw.Connection], T]) -> "asyncio.Future[T]":
        pending = Pending(call, self._loop.create_future(), bare=True)
        if self._closed:
            pending.future.set_exception(StoreClosed())
        else:
            self._hand_over(pending)
        return pending.future

    def interrupt(self) -> None:
        """End the statement that runs on the thread, if one does."""
        if self._batches is not None:
            self._batches.interrupt()

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._flush_here()
            self._calls.put(None)
            if self._batches is not None:
                self._batches.hurry()
        await asyncio.shield(self._gone)  # not by an executor: at the end of the process there is none
        self._thread.join()

    def _soon(self) -> None:
        """Flush at once what comes first in a pass of the loop, and the rest of it together at its end."""
        if self._at_once == AT_ONCE:
            self._loop.call_soon(self._end_pass)
        if self._at_once > 0:
            self._at_once -= 1
            self._flush_here()

    def _end_pass(self) -> None:
        self._at_once = AT_ONCE
        self._flush_here()

    def _flush_here(self) -> None:
        """Commit on the spot what came alone, if that is quick; hand over everything else."""
        batch, self._here = self._here, []
        batches = self._batches
        quick = batches is not None and self._in_flight == 0 and batches.disk_takes < QUICK
        if len(batch) == 1 and quick and batches is not None and batches.begin_at_once():
            self._resolve(*batches.commit(batch))
        else:
            for pending in batch:
                self._hand_over(pending)

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
                finished, topics = batches.run_next(self._waiting)
                self._call_back(self._take_back, finished, topics)
            self._batches = None
            batches.close()
        except Overtaken:
            return
        except BaseException:
            self._call_back(_set_done, self._gone)
            raise
        self._call_back(_set_done, self._gone)

    def _overtake(self) -> None:
        """Go on with another thread while this one waits for a turn that does not come; called by the watchdog."""
        batches = self._batches
        assert batches is not None, "a thread that waits for its turn has its connection"
        self._thread = threading.Thread(target=self._serve, args=[batches], name=self._thread.name, daemon=True)
        self._thread.start()

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

    def _call_back(self, callback: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop is gone, and with it everyone who awaited
            self._closed = True

    def _take_back(self, finished: Sequence[Pending], topics: set[Topic]) -> None:
        self._in_flight -= len(finished)
        self._resolve(finished, topics)

    def _resolve(self, finished: Sequence[Pending], topics: set[Topic]) -> None:
        for pending in finished:
            pending.resolve()
        if topics:
            self._woken(topics)


_made: "weakref.WeakSet[ThreadTransactor]" = weakref.WeakSet()


def _close_inherited() -> None:
    """In a forked child there is neither the thread nor the right to use the connection."""
    for transactor in [*_made]:
        transactor._closed = True


os.register_at_fork(after_in_child=_close_inherited)


def _set_done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class InlineTransactor:
    """Runs batches on the event loop itself, for simulations and for databases in memory."""

    def __init__(self, batches: Batches, woken: Woken) -> None:
        self._batches, self._woken = batches, woken
        self._waiting: list[Pending] = []
        self._closed = False

    def run(self, call: Callable[[Transaction], T], weight: int) -> "asyncio.Future[T]":
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
            finished, topics = self._batches.run_next(self._waiting)
            for pending in finished:
                pending.resolve()
            if topics:
                self._woken(topics)

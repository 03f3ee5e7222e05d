"""A seeded event loop with virtual time, for several simulated processes.

Each callback belongs to the process that scheduled it. Within a process callbacks run in order, as on a real loop; which
process goes next is drawn from the seed. When nothing is ready, time jumps to the next timer. A killed process runs no
further line, not even a `finally`; a stopped one goes on where it was when it is continued.
"""

import asyncio
import contextlib
import contextvars
import hashlib
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

OWNER: contextvars.ContextVar[str] = contextvars.ContextVar("owner", default="world")


MOST_STEPS_NOW = 50_000  # without that time passes
MOST_STEPS = 400_000  # in all: a usual seed takes some thousands


class Deadlock(Exception):
    """The simulation has not ended, and never will: nothing is ready and no timer is set, or it goes in circles."""


class Killed(BaseException):
    """Ends the callback in which a process dies."""


class SimLoop(asyncio.AbstractEventLoop):
    """Runs callbacks of simulated processes in an order and at times that only the seed decides."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._now = 0.0
        self._ready: dict[str, deque[asyncio.Handle]] = {}
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self._trace = hashlib.blake2b(digest_size=8)
        self._dead: set[str] = set()
        self._stopped: set[str] = set()
        self._tasks: list[asyncio.Task[Any]] = []
        self._prune_at = 2000
        self._closed = False
        self.steps = self._steps_now = 0

    # Processes

    def kill(self, owner: str) -> None:
        """End a process like kill -9: what it had scheduled is dropped, and what it still schedules."""
        self._dead.add(owner)
        self._ready.pop(owner, None)
        self._stopped.discard(owner)

    def pause(self, owner: str) -> None:
        self._stopped.add(owner)

    def resume(self, owner: str) -> None:
        self._stopped.discard(owner)

    def alive(self, owner: str) -> bool:
        return owner not in self._dead

    def spawn(self, owner: str, main: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Start a process with this main coroutine."""
        context = contextvars.copy_context()
        context.run(OWNER.set, owner)
        return self.create_task(main, context=context)

    def trace(self) -> str:
        """A hash of all that has run, when, and for whom."""
        return self._trace.hexdigest()

    # Scheduling

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context or contextvars.copy_context())
        self._enter(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context or contextvars.copy_context())
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass  # found cancelled when its time comes

    def _enter(self, handle: asyncio.Handle) -> None:
        owner = handle._context.get(OWNER, "world")  # type: ignore[attr-defined]
        if owner not in self._dead:
            self._ready.setdefault(owner, deque()).append(handle)

    # Running

    def run_until_complete(self, future: Any) -> Any:
        asyncio.events._set_running_loop(self)
        try:
            task = asyncio.ensure_future(future, loop=self)
            while not task.done():
                self._step()
            return task.result()
        finally:
            asyncio.events._set_running_loop(None)

    def _step(self) -> None:
        owners = [owner for owner, handles in self._ready.items() if handles and owner not in self._stopped]
        if not owners:
            self._advance()
            return
        owner = owners[self._random.randrange(len(owners))] if len(owners) > 1 else owners[0]
        handle = self._ready[owner].popleft()
        if handle._cancelled:  # type: ignore[attr-defined]
            return
        self.steps += 1
        self._steps_now += 1
        if self._steps_now > MOST_STEPS_NOW or self.steps > MOST_STEPS:
            raise Deadlock(f"at {self._now:.3f} s: {self.steps} steps and no end")
        self._trace.update(f"{owner} {self._now:.6f} {_name(handle)}\n".encode())
        handle._run()

    def _advance(self) -> None:
        """Jump to the next timer; those of stopped processes wait with them."""
        while self._timers and self._timers[0][2]._cancelled:  # type: ignore[attr-defined]
            heapq.heappop(self._timers)
        if not self._timers:
            raise Deadlock(f"at {self._now:.3f} s: nothing is ready and no timer is set")
        self._now = max(self._now, self._timers[0][0])
        self._steps_now = 0
        while self._timers and self._timers[0][0] <= self._now:
            handle = heapq.heappop(self._timers)[2]
            if not handle._cancelled:  # type: ignore[attr-defined]
                self._enter(handle)

    # What asyncio asks of a loop

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.append(task)  # a killed process must not be closed, which would run its `finally`
        if len(self._tasks) > self._prune_at:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._prune_at = 2 * len(self._tasks) + 2000
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Killed):
            return
        raise RuntimeError(f"{context['message']}: {error!r}") from error

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Put an end to what killed processes left behind now, while no loop runs: collected later, during another
        simulation, their last lines would act there."""
        self._closed = True
        for task in self._tasks:
            if not task.done():
                with contextlib.suppress(BaseException):
                    task.get_coro().close()  # type: ignore[union-attr]
        self._tasks.clear()


def _name(handle: asyncio.Handle) -> str:
    """What a callback is, the same in every interpreter."""
    callback = handle._callback  # type: ignore[attr-defined]
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return getattr(task.get_coro(), "__qualname__", "task")
    return getattr(callback, "__qualname__", type(callback).__name__)

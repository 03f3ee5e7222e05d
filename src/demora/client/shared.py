"""Reads that callers share. A value is reused for a second or so, or for 20 times as long as reading it takes.

So a slow read costs at most 5 % of a core, and many callers cost no more than one.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

REUSED_FOR = 1.0  # seconds for which a value is reused at least
REUSED_TIMES = 20  # a slow read is reused for 20 times its duration
UNUSED = 10.0  # seconds after its time for which a value is kept
MANY = 64  # values that are kept also if they are unused
OLDEST = 60.0  # seconds for which a value may be returned at least while a new one is read, to a caller without patience


class Shared(Generic[T]):
    """One value that the callers of one event loop share. One of them reads it at a time."""

    def __init__(
        self,
        read: Callable[[], Awaitable[T]],
        *,
        seconds: float | None = None,
        found: Callable[[], None] = lambda: None,
    ) -> None:
        self._read, self._seconds, self._found = read, seconds, found
        self._missed = False
        self._value: asyncio.Future[T] | None = None
        self._before: asyncio.Future[T] | None = None  # the value before, which may be returned while a new one is read
        self._began = self._until = self._quick_until = self._before_until = -math.inf
        self._outdated = False

    async def get(self, *, fresh: bool = False, patience: float | None = None) -> T:
        """Return the value: read at most `seconds` ago, or 20 times as long ago as reading takes. With `fresh` it is
        read after this call began.

        Concurrent callers share one read, and one that gives up ends it for none of the others. A read that failed is not
        kept. A caller with `patience` waits for this many seconds, and then gets the value before, if that is not too old;
        the read goes on.
        """
        asked = _now()
        while self._value is not None and (fresh and self._began < asked) and not self._value.done():
            await asyncio.wait([self._value])  # one read at a time
        value = self._value
        if value is None or (self._began < asked if fresh else _now() >= self._until):
            value = self._begin()
        before = self._earlier
        if patience is not None and not value.done() and before is not None:
            await asyncio.wait([value], timeout=patience)
            if not value.done():
                return before.result()
        return await asyncio.shield(value)

    async def get_soon(self, *, patience: float, first: float) -> T | None:
        """Return the value, or after `patience` the value before. If there is none, or it is too old, the caller waits until
        the read has taken `first` seconds, and then gets None. The read continues, and `found` is called when it has
        ended."""
        value = self._begin() if self._value is None or self.lapsed else self._value
        before = self._earlier
        if not value.done():
            wait = patience if before is not None else max(0.0, self._began + first - _now())
            await asyncio.wait([value], timeout=wait)
        if value.done():
            return value.result()
        if before is not None:
            return before.result()
        self._missed = True
        return None

    def outdate(self) -> None:
        """Let the next call read the value anew because something was changed, unless reading it so often would take more
        than 5 % of a core."""
        self._outdated = True
        if self._value is not None and self._value.done():
            self._until = min(self._until, self._quick_until)

    def reads(self, read: Callable[[], Awaitable[T]]) -> None:
        """Read the value in another way from now on."""
        self._read = read

    @property
    def lapsed(self) -> bool:
        """Whether the next call reads the value anew."""
        return self._value is None or _now() >= self._until

    @property
    def is_brief(self) -> bool:
        """Whether the value is reused for no more than a second, if it is quick to read."""
        return self._seconds is None or self._seconds <= REUSED_FOR

    def is_unused(self) -> bool:
        """Whether no caller has asked for a while."""
        return self._value is None or _now() >= self._until + UNUSED

    @property
    def _earlier(self) -> "asyncio.Future[T] | None":
        """The value before, if it is not too old."""
        return self._before if _now() < self._before_until else None

    def _begin(self) -> "asyncio.Future[T]":
        self._before = self._value
        value = self._value = asyncio.ensure_future(self._read())
        self._began, self._until, self._outdated = _now(), math.inf, False
        value.add_done_callback(self._keep)
        value.add_done_callback(self._tell)
        return value

    def _keep(self, value: "asyncio.Future[T]") -> None:
        if value.cancelled() or value.exception() is not None:
            self._value = self._before = None
            return
        seconds = REUSED_FOR if self._seconds is None else self._seconds
        slow = REUSED_TIMES * (_now() - self._began)
        self._quick_until = _now() + slow
        self._until = self._quick_until if self._outdated else _now() + max(seconds, slow)
        self._before, self._before_until = None, _now() + max(OLDEST, 2 * slow)

    def _tell(self, value: "asyncio.Future[T]") -> None:
        if self._missed:
            self._missed = False
            self._found()


class SharedReads:
    """Values by name that all callers of one event loop share for a short time.

    It calls `found` when a value has been read that a caller did not wait for.
    """

    def __init__(self, *, most: int = 1000, found: Callable[[], None] = lambda: None) -> None:
        self._values: dict[str, Shared[Any]] = {}
        self._most, self._found = most, found

    async def get(
        self,
        name: str,
        seconds: float,
        read: Callable[[], Awaitable[T]],
        *,
        patience: float | None = None,
    ) -> T:
        """Return the value of this name, read at most `seconds` ago, or 20 times as long ago as reading takes.

        With `patience` as `Shared.get`.
        """
        return await self._shared(name, seconds, read).get(patience=patience)

    async def get_soon(
        self, name: str, seconds: float, read: Callable[[], Awaitable[T]], *, patience: float, first: float
    ) -> T | None:
        """Return the value of this name as `get` does, or None as `Shared.get_soon` does."""
        return await self._shared(name, seconds, read).get_soon(patience=patience, first=first)

    def outdate(self, *, everything: bool = False) -> None:
        """Let the next calls read anew what is reused for a second at most, or `everything`, because something was changed.
        Values that are slow to read stay."""
        for value in self._values.values():
            if everything or value.is_brief:
                value.outdate()

    def forget(self) -> None:
        """Drop all values, so that the next calls read them anew."""
        self._values.clear()

    def _shared(self, name: str, seconds: float, read: Callable[[], Awaitable[T]]) -> Shared[T]:
        shared = self._values.get(name)
        if shared is None:
            shared = Shared(read, seconds=seconds, found=self._found)
            if len(self._values) >= MANY:
                self._values = {one: value for one, value in self._values.items() if not value.is_unused()}
            if len(self._values) < self._most:
                self._values[name] = shared
        elif shared.lapsed:
            shared.reads(read)
        return shared


def _now() -> float:
    return asyncio.get_running_loop().time()

"""Requests that wait for the end of a job, for jobs to claim, or for events: how many may wait, and what ends a wait.

A caller that waits keeps its connection busy, so the server cannot close it for a new one. At most half of the connections
may wait, and at most half of these for one key: listeners keep no other caller out.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from starlette.types import Receive

from ..core.access import ApiKey
from ..wire.problems import TooManyWaits
from .http_server.server import affordable
from .reading import ClientGone, disconnected
from .stopping import Stopping

T = TypeVar("T")


class WaitLimit:
    """Counts the requests that wait, of all and of each key."""

    def __init__(self, connections: int) -> None:
        self._most = affordable(connections) // 2
        self._all, self._by_key = 0, Counter[str]()

    def take(self, key: ApiKey | None) -> "WaitingRequest":
        """Count a request that waits. Raises `TooManyWaits` if there are too many."""
        if self._all >= self._most:
            raise TooManyWaits
        if key is not None and self._by_key[key.id] >= max(self._most // 2, 1):
            raise TooManyWaits(of_key=True)
        self._all += 1
        if key is not None:
            self._by_key[key.id] += 1
        return WaitingRequest(self, None if key is None else key.id)

    def leave(self, key: str | None) -> None:
        self._all -= 1
        if key is not None:
            self._by_key[key] -= 1
            if not self._by_key[key]:
                del self._by_key[key]


class WaitingRequest:
    """One counted request that waits: a context manager that no longer counts it at the end."""

    __slots__ = ("_key", "_waits")

    def __init__(self, waits: WaitLimit, key: str | None) -> None:
        self._waits: WaitLimit | None = waits
        self._key = key

    def leave(self) -> None:
        """Count this request no longer. A second call does nothing."""
        waits, self._waits = self._waits, None
        if waits is not None:
            waits.leave(self._key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.leave()


async def unless_ended(work: Coroutine[Any, Any, T], receive: Receive, stopping: Stopping) -> T | None:
    """Wait for something in this task. Returns None if the service stops before. Raises `ClientGone` if the caller leaves.

    The wait is cancelled then. Only watching the connection takes a task of its own, since a thousand callers may wait.
    """
    wait = _Wait()
    gone = asyncio.ensure_future(disconnected(receive))
    gone.add_done_callback(wait.caller_left)
    try:
        with stopping.calling(wait.end):
            return await work
    except asyncio.CancelledError:
        if not wait.ended or wait.task.uncancel():
            raise
        if wait.left:
            raise ClientGone from None
        return None
    finally:
        work.close()
        wait.over = True
        gone.cancel()


class _Wait:
    """A wait of the current task, and why it ended early."""

    __slots__ = ("ended", "left", "over", "task")

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task, self.ended, self.left, self.over = task, False, False, False

    def end(self) -> None:
        if not self.over and not self.ended:
            self.ended = True
            self.task.cancel()

    def caller_left(self, gone: "asyncio.Future[None]") -> None:
        if not gone.cancelled() and not self.over:
            self.left = True
            self.end()

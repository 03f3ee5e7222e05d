"""Resolves host names on a small pool of threads of its own.

`getaddrinfo` blocks for as long as a remote name server takes. So look-ups have their own threads, callers share the look-up
of the same name, and a look-up does not start if no caller waits for it any more.
"""

import asyncio
import functools
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

THREADS = 16  # concurrent look-ups; one that hangs holds its thread until the system gives up


def look_up(host: str, port: int) -> list[str]:
    """Resolve a name with the resolver of this machine and return its addresses, each once. Blocks."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Lookups:
    """Resolves names with `ask` on `threads` threads. Several event loops can share it."""

    def __init__(self, threads: int = THREADS, ask: Callable[[str, int], list[str]] = look_up) -> None:
        self._ask = ask
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="demora-names")
        self._under_way: dict[str, _Lookup] = {}
        self._lock = threading.RLock()  # a look-up may end while it is being started

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a name. Joins a look-up of the same name that is already running."""
        with self._lock:
            lookup = self._under_way.get(host) or self._start(host, port)
            lookup.callers += 1
        try:
            return await asyncio.shield(asyncio.wrap_future(lookup.future))
        finally:
            with self._lock:
                lookup.callers -= 1
                if not lookup.callers and lookup.future.cancel():
                    self._forget(host, lookup)

    def _start(self, host: str, port: int) -> "_Lookup":
        lookup = _Lookup(self._pool.submit(self._ask, host, port))
        self._under_way[host] = lookup
        lookup.future.add_done_callback(lambda _: self._forget(host, lookup))
        return lookup

    def _forget(self, host: str, lookup: "_Lookup") -> None:
        with self._lock:
            if self._under_way.get(host) is lookup:
                del self._under_way[host]


class _Lookup:
    __slots__ = ("callers", "future")

    def __init__(self, future: "Future[list[str]]") -> None:
        self.future, self.callers = future, 0


@functools.cache
def lookups() -> Lookups:
    """Return the look-ups of this process."""
    return Lookups()

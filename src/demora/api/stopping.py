"""Tells requests that wait, or that send events, that the server stops."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from ..system.stop_signals import hear_stop_signals


class Stopping:
    """Knows whether the service stops, and then calls back each request that waits. That costs less than a task for each.

    With `by_signals`, it does so when the process gets a stop signal. The server of a host application waits for all
    requests before it tells the application to stop, so requests that wait would delay the stop.
    """

    def __init__(self, *, by_signals: bool = False) -> None:
        self._by_signals, self._stopped = by_signals, False
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _OneLoop] = WeakKeyDictionary()

    def stop(self) -> None:
        """Tell the requests of all loops. Call it on the loop that serves them."""
        self._stopped = True
        for loop in list(self._loops.values()):
            loop.stop()

    @contextmanager
    def calling(self, call: Callable[[], object]) -> Iterator[None]:
        """Call the function if the service stops during the block, or has stopped already."""
        here = self._here()
        here.calls.add(call)
        try:
            if here.stopped:
                call()
            yield
        finally:
            here.calls.discard(call)

    def _here(self) -> "_OneLoop":
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            self._loops[loop] = _OneLoop(self._stopped)
            if self._by_signals:
                hear_stop_signals(self._loops[loop].stop)
        return self._loops[loop]


class _OneLoop:
    """The requests that wait on one event loop."""

    def __init__(self, stopped: bool) -> None:
        self.stopped = stopped
        self.calls: set[Callable[[], object]] = set()

    def stop(self) -> None:
        self.stopped = True
        for call in list(self.calls):
            call()

"""Whether writes succeed, for a look at the health of the service."""

import asyncio
from collections.abc import Callable

from ...errors import StoreBusy

WITHIN = 2.0  # seconds that a write may take
FRESH = 1.0  # seconds for which an answer holds: any number of looks cost one write a second


class WriteProbe:
    """One small write at a time, which all share that ask meanwhile."""

    def __init__(self, write: Callable[[], "asyncio.Future[None]"], *, within: float = WITHIN, fresh: float = FRESH) -> None:
        self._write, self._within, self._fresh = write, within, fresh
        self._last: asyncio.Future[None] | None = None
        self._asked_at = 0.0

    async def ask(self) -> None:
        """Raise what a write raises now, or `StoreBusy` if one has not come back in time."""
        now = asyncio.get_running_loop().time()
        last = self._last
        if last is None or (last.done() and now - self._asked_at > self._fresh):
            last = self._last = self._write()
            last.add_done_callback(_seen)
            self._asked_at = now
        await asyncio.wait([last], timeout=max(self._asked_at + self._within - now, 0))
        if not last.done():
            raise StoreBusy(f"a write has not come back for {self._within:.0f} s")
        last.result()


def _seen(last: "asyncio.Future[None]") -> None:
    if not last.cancelled():
        last.exception()

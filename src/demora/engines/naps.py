"""A nap: until somebody rings, or until its time, to a fraction of a millisecond."""

import asyncio

from ..alarms import Alarm


class Nap:
    """What one sleeper rests on, again and again. To ring before it rests keeps it awake."""

    def __init__(self) -> None:
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self._rung = True
        self._end()

    def forget(self) -> None:
        """Forget earlier rings."""
        self._rung = False

    async def take(self, seconds: float) -> bool:
        """Rest; whether somebody has rung."""
        if self._rung:
            return True
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        alarm = Alarm(loop, seconds, self._end)
        try:
            await self._waiter
        finally:
            alarm.cancel()
            self._waiter = None
        return self._rung

    def _end(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

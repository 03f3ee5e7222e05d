"""Limits how many searches run at once. A search may read every job, so each engine runs it apart from other reads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from ...errors import TooManySearches

AT_ONCE = 3  # searches of one process
TURN_LIMIT = 1.0  # seconds that a search with a time limit waits for its turn


class SearchTurns:
    """Lets `AT_ONCE` searches run at once. A search with a time limit waits briefly for its turn, any other
    as long as needed."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(AT_ONCE)

    @asynccontextmanager
    async def turn(self, within: timedelta | None) -> AsyncIterator[None]:
        """Run the block once there is room for it; raises `TooManySearches` if there is none in time."""
        try:
            async with asyncio.timeout(None if within is None else TURN_LIMIT):
                await self._free.acquire()
        except TimeoutError:
            raise TooManySearches(AT_ONCE) from None
        try:
            yield
        finally:
            self._free.release()

"""Searches may read every job, so each engine runs few of them at once, apart from all other reads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from ..errors import TooManySearches

AT_ONCE = 3  # searches of one process
PATIENCE = 1.0  # seconds that a search with a limit of time waits for its turn


class SearchTurns:
    """Lets few searches run at once. One with a limit of time waits briefly for its turn, the others for as long as it
    takes."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(AT_ONCE)

    @asynccontextmanager
    async def turn(self, within: timedelta | None) -> AsyncIterator[None]:
        """Run the block when it is its turn, or raise `TooManySearches`."""
        try:
            async with asyncio.timeout(None if within is None else PATIENCE):
                await self._free.acquire()
        except TimeoutError:
            raise TooManySearches(AT_ONCE) from None
        try:
            yield
        finally:
            self._free.release()

"""Opens an application and waits for its database, which may start at the same time and need longer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..app import Demora
from ..errors import StoreBusy, StoreUnreachable
from ..system import notices

OPENING = "opening the database"
START_UP_LIMIT = 60.0  # seconds that the database has to become available
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 4.0  # seconds between two attempts


@asynccontextmanager
async def opened_when_there(app: Demora) -> AsyncIterator[None]:
    """Open an application, and close it at the end of the block. Waits up to 60 seconds for its database.

    Raises `StoreUnreachable` if the database cannot be reached, at once if waiting will not help, and `StoreBusy` if it
    stays locked.
    """
    loop, pause = asyncio.get_running_loop(), FIRST_PAUSE
    until = loop.time() + START_UP_LIMIT
    while True:
        try:
            await app.open()
            notices.store_well(OPENING)
            break
        except (StoreUnreachable, StoreBusy) as problem:
            may_pass = isinstance(problem, StoreBusy) or problem.may_pass
            if not may_pass or loop.time() + pause > until:
                raise
            notices.store_trouble(OPENING, problem, pause)
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)
    async with app:
        yield

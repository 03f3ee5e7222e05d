"""Opening an application whose database may not be there yet: what is started together is not up at the same moment."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..app import Demora
from ..errors import StoreBusy, StoreUnreachable
from ..system import notices

OPENING = "opening the database"
START_UP_LIMIT = 60.0  # seconds in which the database must be there
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 4.0  # seconds between two tries


@asynccontextmanager
async def opened_when_there(app: Demora) -> AsyncIterator[None]:
    """An open application; `StoreUnreachable` if its database stays out of reach, or at once if waiting will not help;
    `StoreBusy` if it stays locked."""
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

"""The scheduler of a process without a worker: `demora scheduler`, and a service that only serves HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from ..app import Demora
from ..scheduler.attending import attending
from ..scheduler.scheduler import Scheduler


@asynccontextmanager
async def scheduler_of(app: Demora, name: str) -> AsyncIterator[Scheduler]:
    """Apply the paces and define the schedules of an application, and provide the scheduler of this process, which counts
    as live under its name until the end of the block. The caller runs the scheduler."""
    await app.apply_paces()
    store, define = (await app.open()).store, partial(app.define_schedules, name)
    async with attending(store.schedules, name, paces=app.settings.asked_paces):
        again = await define()
        yield Scheduler(store, app.settings.retention, process_id=name, define=define if again else None)

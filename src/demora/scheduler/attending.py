"""Keeps a process without a worker among the live ones that fire schedules. A worker's heartbeat does this for its own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from ..core.workers import HEARTBEAT_EVERY
from ..errors import StoreError
from ..store.schedules import ScheduleStore
from ..system import notices

ATTEND_EVERY = HEARTBEAT_EVERY.total_seconds()
LEAVING = 2.0  # seconds to leave; if that fails, the others count this process as dead after a while
WHAT = "the heartbeat of the scheduler"


@contextlib.asynccontextmanager
async def attending(schedules: ScheduleStore, process_id: str, *, paces: str = "") -> AsyncIterator[None]:
    """Attend until the end of the block. The process is live when the block begins. `paces` are those that its settings ask
    for."""
    await schedules.attend(process_id, paces=paces)
    keeping = asyncio.ensure_future(_keep_attending(schedules, process_id, paces))
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])
        with contextlib.suppress(StoreError, TimeoutError):
            await asyncio.wait_for(schedules.leave(process_id), LEAVING)


async def _keep_attending(schedules: ScheduleStore, process_id: str, paces: str) -> None:
    while True:
        await asyncio.sleep(ATTEND_EVERY)
        try:
            await schedules.attend(process_id, paces=paces)
            notices.store_well(WHAT)
        except Exception as problem:  # a defect must not end this task: the others would count this process as dead
            notices.store_trouble(WHAT, problem, ATTEND_EVERY)

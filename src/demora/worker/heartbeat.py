"""A worker's heartbeat: its record among the workers, written again and again while it lives."""

import asyncio
from collections.abc import Awaitable, Callable

from .. import notices
from ..errors import StoreError
from ..store import Store, Worker

EVERY = 10.0  # seconds


async def beat(store: Store, record: Callable[[], Awaitable[Worker]]) -> None:
    """Go on until cancelled, with a record made anew for each beat; trouble of the store is told and outlived."""
    while True:
        try:
            await store.heartbeat(await record())
            notices.store_well("the heartbeat")
        except StoreError as problem:
            notices.store_trouble("the heartbeat", problem, EVERY)
        await asyncio.sleep(EVERY)

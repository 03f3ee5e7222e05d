"""A worker's heartbeat: its record among the workers, written again and again while it lives."""

import asyncio
import os
import socket

from .. import notices
from ..errors import StoreError
from ..store import Store, Worker

EVERY = 10.0  # seconds


async def beat(store: Store, id: str, slots: int, queues: tuple[str, ...] | None, types: tuple[str, ...]) -> None:
    """Go on until cancelled; trouble of the store is told and outlived."""
    record = Worker(id, socket.gethostname(), os.getpid(), slots, queues or (), types)
    while True:
        try:
            await store.heartbeat(record)
            notices.store_well("the heartbeat")
        except StoreError as problem:
            notices.store_trouble("the heartbeat", problem, EVERY)
        await asyncio.sleep(EVERY)

"""Settles what runs came to: outcomes that arrive while one batch is being recorded go together in the next."""

import asyncio
import random
from collections.abc import Callable

from .. import notices
from ..core.states import Status
from ..errors import StoreError
from ..store import Settlement, Store

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds between tries while the store is in trouble

LONGEST_GATHERING = 0.005  # seconds
LARGEST_BATCH = 250

Recorded = Callable[[Settlement, Status | None], None]


class Ledger:
    """Records settlements in batches, and tries again while the store is in trouble: a repeated verdict changes nothing."""

    def __init__(self, store: Store, recorded: Recorded, *, chance: Callable[[], float] = random.random) -> None:
        self._store, self._recorded, self._chance = store, recorded, chance
        self._waiting: list[Settlement] = []
        self._flushing: asyncio.Task[None] | None = None

    def enter(self, settlement: Settlement) -> None:
        self._waiting.append(settlement)
        if self._flushing is None:
            self._flushing = asyncio.ensure_future(self._flush())

    async def drain(self) -> None:
        """Return when all that was entered is recorded."""
        while self._flushing is not None:
            await self._flushing

    async def _flush(self) -> None:
        try:
            while self._waiting:
                await self._gather()
                batch, self._waiting = self._waiting, []
                answers = await self._settle(batch)
                for settlement, status in zip(batch, answers, strict=True):
                    self._recorded(settlement, status)
        finally:
            self._flushing = None

    async def _gather(self) -> None:
        """Let a burst of short runs come in together: wait while each pass of the loop brings more, but not for long."""
        loop = asyncio.get_running_loop()
        until, seen = loop.time() + LONGEST_GATHERING, 0
        while seen < len(self._waiting) < LARGEST_BATCH and loop.time() < until:
            seen = len(self._waiting)
            await asyncio.sleep(0)

    async def _settle(self, batch: list[Settlement]) -> list[Status | None]:
        pause = FIRST_PAUSE
        while True:
            try:
                return await self._store.settle(batch)
            except StoreError as problem:
                wait = pause * (0.5 + self._chance() / 2)
                notices.store_trouble("settling", problem, wait)
                await asyncio.sleep(wait)
                pause = min(pause * 2, LONGEST_PAUSE)

"""Records the outcomes of runs in batches: those that arrive while one batch is being written form the next."""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from datetime import timedelta

from ..core.states import Status
from ..errors import StoreBusy, StoreClosed, StoreError, WorkerRefused
from ..store.jobs import Settlement
from ..store.store import Store
from ..system import crash, notices

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds between tries while the store is in trouble
GIVES_UP_AFTER = 1.0  # seconds without a recorded batch, after which a stopping worker gives up
LONGEST_GATHERING = 0.005  # seconds
LARGEST_BATCH = 250  # settlements
MOST_BYTES = 8 * 1024 * 1024  # of results in one batch

OnSettled = Callable[[Settlement, Status | None], None]  # with the new status; None if the lease was lost
OnRecorded = Callable[[float], None]  # with the seconds that the store took for a batch


class Settler:
    """Records settlements in batches, and retries while the store is in trouble: a repeated verdict changes nothing.

    It drops a settlement that it cannot record within the length of a lease, because the lease has lapsed by then.
    """

    def __init__(
        self,
        store: Store,
        lease: timedelta,
        *,
        on_settled: OnSettled,
        on_recorded: OnRecorded,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._store, self._on_settled, self._on_recorded, self._chance = store, on_settled, on_recorded, chance
        self._lease = lease.total_seconds()
        self._waiting: deque[Settlement] = deque()
        self._flushing: asyncio.Task[None] | None = None
        self._under_way: list[Settlement] = []
        self._batches = 0  # recorded

    def add(self, settlement: Settlement) -> None:
        """Queue a settlement for the next batch; returns at once."""
        self._waiting.append(settlement)
        if self._flushing is None:
            self._flushing = asyncio.ensure_future(self._flush())

    async def drain(self, by: float | None = None) -> bool:
        """Wait until every settlement is recorded. If the store records nothing more after the time `by` of the loop's
        clock, drops the rest, whose leases will lapse, and returns False."""
        now = asyncio.get_running_loop().time
        while (flushing := self._flushing) is not None:
            before = self._batches
            await asyncio.wait([flushing], timeout=None if by is None else max(by - now(), GIVES_UP_AFTER))
            if not flushing.done() and self._batches == before:
                flushing.cancel()
                await asyncio.wait([flushing])
                self._drop([*self._under_way, *self._waiting])
                return False
            if flushing.done():
                flushing.result()
        return True

    async def _flush(self) -> None:
        try:
            while self._waiting:
                await self._gather()
                batch = self._under_way = self._next_batch()
                answers = await self._settle(batch)
                self._batches, self._under_way = self._batches + 1, []
                crash.at("worker.settled")
                for settlement, status in zip(batch, answers, strict=True):
                    self._on_settled(settlement, status)
        finally:
            self._flushing = None

    async def _gather(self) -> None:
        """Wait briefly while each pass of the loop brings more settlements, so that short runs share a batch."""
        loop = asyncio.get_running_loop()
        until, seen = loop.time() + LONGEST_GATHERING, 0
        while seen < len(self._waiting) < LARGEST_BATCH and loop.time() < until:
            seen = len(self._waiting)
            await asyncio.sleep(0)

    def _next_batch(self) -> list[Settlement]:
        batch, size = list[Settlement](), 0
        while self._waiting and len(batch) < LARGEST_BATCH and size < MOST_BYTES:
            batch.append(self._waiting.popleft())
            size += len(batch[-1].verdict.result or b"")
        return batch

    async def _settle(self, batch: list[Settlement]) -> list[Status | None]:
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE
        until = loop.time() + self._lease
        while True:
            asked_at = loop.time()
            try:
                answers = await self._store.settle(batch)
                self._on_recorded(loop.time() - asked_at)
                notices.store_well("settling")
                return answers
            except StoreError as problem:
                if isinstance(problem, StoreClosed | WorkerRefused) or loop.time() > until:
                    return await self._settle_each(batch)
                wait = pause * (0.5 + self._chance() / 2)
                notices.store_trouble("settling", problem, wait)
                await asyncio.sleep(wait)
                pause = min(pause * 2, LONGEST_PAUSE)
            except Exception:
                return await self._settle_each(batch)

    async def _settle_each(self, batch: list[Settlement]) -> list[Status | None]:
        """Try each settlement alone, once, so that one that the store rejects does not affect the others."""
        answers: list[Status | None] = []
        for settlement in batch:
            try:
                answers += await self._store.settle([settlement])
            except Exception as problem:
                notices.settlement_dropped(settlement.report.lease.id, problem)
                answers.append(None)
        return answers

    def _drop(self, settlements: list[Settlement]) -> None:
        for settlement in settlements:
            notices.settlement_dropped(
                settlement.report.lease.id, StoreBusy("the worker stopped before it could be written")
            )
        self._waiting.clear()

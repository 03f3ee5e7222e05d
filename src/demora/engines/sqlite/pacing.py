"""The verbs about the pace of queues, for the store to be both."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from ...core.pace import USUAL_PACE, Pace
from ...core.pace_wish import PaceWish
from ...pacing import Outlook, PaceChange, Pacing, Released
from . import outlooks, paces, releases
from .batches import Transaction

T = TypeVar("T")


class PacedVerbs(ABC):
    """The port `Paced`, by the ways of its store to write and to read."""

    @abstractmethod
    def _write(self, call: Callable[[Transaction], T], weight: int = 1) -> "asyncio.Future[T]": ...

    @abstractmethod
    def _read(self, call: Callable[[Transaction], T], weight: int = 1) -> "asyncio.Future[T]": ...

    async def set_pace(
        self, queue: str, wish: PaceWish | None, *, by: str, usual: Pace = USUAL_PACE, setting: str | None = None
    ) -> Pacing | None:
        return await self._write(lambda tx: paces.set_pace(tx, queue, wish, by, usual, setting))

    async def release(self, queues: Sequence[str] | None = None, *, wake: bool = True) -> Released:
        return await self._write(lambda tx: releases.release(tx, queues, wake=wake))

    async def pacings(self) -> list[Pacing]:
        return await self._read(paces.pacings)

    async def pace_changes(self, queue: str, *, limit: int) -> list[PaceChange]:
        return await self._read(lambda tx: paces.changes(tx, queue, limit))

    async def outlook(self, id: str) -> Outlook | None:
        return await self._read(lambda tx: outlooks.outlook(tx, id))

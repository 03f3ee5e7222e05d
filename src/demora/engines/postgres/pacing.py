"""The verbs about the pace of queues, for the store to be both."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ...core.pace import USUAL_PACE, Pace
from ...core.pace_wish import PaceWish
from ...pacing import Outlook, PaceChange, Pacing, Released
from ...store import Topic
from . import outlooks, paces, releases
from .connections import Session

T = TypeVar("T")


class PacedVerbs(ABC):
    """The port `Paced`, by the ways of its store to write and to read."""

    @abstractmethod
    async def _ringing(self, verb: Callable[[Session, set[Topic], bool], Awaitable[T]]) -> T: ...

    @abstractmethod
    async def _read(self, look: Callable[[Session], Awaitable[T]]) -> T: ...

    async def set_pace(
        self, queue: str, wish: PaceWish | None, *, by: str, usual: Pace = USUAL_PACE, setting: str | None = None
    ) -> Pacing | None:
        return await self._ringing(
            lambda session, topics, again: paces.set_pace(session, topics, queue, wish, by, usual, setting)
        )

    async def release(self, queues: Sequence[str] | None = None, *, wake: bool = True) -> Released:
        return await self._ringing(lambda session, topics, again: releases.release(session, queues, topics, wake=wake))

    async def pacings(self) -> list[Pacing]:
        return await self._read(paces.pacings)

    async def pace_changes(self, queue: str, *, limit: int) -> list[PaceChange]:
        return await self._read(lambda session: paces.changes(session, queue, limit))

    async def outlook(self, id: str) -> Outlook | None:
        return await self._read(lambda session: outlooks.outlook(session, id))

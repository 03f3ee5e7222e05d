"""What an application may ask about the pace of queues, and why a job waits."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ..core.pace import USUAL_PACE, Pace
from ..core.pace_request import PaceRequest, make_pace_request, request_of
from ..core.request import check_queue
from ..errors import JobNotFound, StoreError
from ..store.jobs import Store
from ..store.paces import BY_SETTINGS, PaceChange, PaceStore, Pacing
from .why import Why, explain

CODE = "code"
MOST_CHANGES = 200


class Pacer:
    """The part of the client that is about paces."""

    store: Store
    usual_pace: Pace = USUAL_PACE

    async def set_pace(
        self, /, queue: str, pace: Pace | PaceRequest | None = None, *, by: str = CODE, **values: Any
    ) -> Pacing:
        """Give a queue a pace, or change the one it has: a `Pace`, or only what is to change (`gap="2m"`, `burst`,
        `stagger`, `rapid_gap`, `rapid_burst`, `rapid_stagger`, `rapid=False`, `governs`, `protect`).
        Every process follows at once."""
        given = pace or make_pace_request(**values)
        request = request_of(given) if isinstance(given, Pace) else given
        found = await self._paced().set_pace(check_queue(queue), request, by=by, usual=self.usual_pace)
        assert found is not None, "a request makes a pace"
        return found

    async def take_pace_off(self, queue: str, *, by: str = CODE) -> None:
        """Hold nothing of a queue any longer. Where it has no pace, nothing is changed, and no queue comes into being."""
        if await self.pacing(check_queue(queue)) is not None:
            await self._paced().set_pace(queue, None, by=by)

    async def pacings(self) -> list[Pacing]:
        """Every queue that has a pace, and how it stands."""
        return await self._paced().pacings()

    async def pacing(self, queue: str) -> Pacing | None:
        """The pace of a queue and how it stands; None if it has none."""
        return next((found for found in await self.pacings() if found.queue == queue), None)

    async def pace_changes(self, queue: str) -> list[PaceChange]:
        """Who changed the pace of a queue and when, newest first."""
        return await self._paced().pace_changes(check_queue(queue), limit=MOST_CHANGES)

    async def apply_paces(self, requests: Mapping[str, PaceRequest | None], *, by: str = BY_SETTINGS) -> None:
        """Set what settings or code ask for, unless they asked for the same the last time: what was changed since stands."""
        for queue, request in requests.items():
            text = f"{by}: {'off' if request is None else msgspec.json.encode(request).decode()}"
            await self._paced().set_pace(check_queue(queue), request, by=by, usual=self.usual_pace, setting=text)

    async def why(self, id: str) -> Why:
        """Why a job is where it is, in one sentence with its data."""
        outlook = await self._paced().outlook(id)
        if outlook is None:
            raise JobNotFound(id)
        return explain(outlook)

    def _paced(self) -> PaceStore:
        if isinstance(self.store, PaceStore):
            return self.store
        raise StoreError("this store keeps no pace")

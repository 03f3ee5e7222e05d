"""The pace of queues, and why a job waits."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ..core.pace import EVERY_QUEUE, USUAL_PACE, Pace
from ..core.pace_request import PaceRequest, check_paced, make_pace_request, request_of, say_pace
from ..errors import JobNotFound
from ..store.paces import BY_SETTINGS, DelayedStats, PaceChange, PaceStore, Pacing
from ..system import notices
from .why import Why, explain

CODE = "code"  # who makes a change, unless the caller says otherwise
MOST_CHANGES = 200


class Paces:
    """The paces of one store. `usual` gives the values that a request for a new pace leaves out."""

    def __init__(self, paces: PaceStore, usual: Pace = USUAL_PACE) -> None:
        self._paces, self._usual = paces, usual

    async def set_pace(
        self, /, queue: str, pace: Pace | PaceRequest | None = None, *, by: str = CODE, **values: Any
    ) -> Pacing:
        """Give a queue a pace, or change the one it has. The next claim of every process follows it. The queue `*` stands
        for all queues without a pace of their own, also for those named later.

        Pass a `Pace`, or only the values to change: `gap="2m"`, `burst`, `stagger`, `rapid=True`, `rapid_gap`,
        `rapid_burst`, `rapid_stagger`, `governs`, `protect`. `Invalid` if a stagger is given with which the burst does not
        fit into the gap.
        """
        given = pace or make_pace_request(**values)
        request = request_of(given) if isinstance(given, Pace) else given
        found = await self._paces.set(check_paced(queue), request, by=by, usual=self._usual)
        assert found is not None, "a request makes a pace"
        notices.pace_set(queue, say_pace(found.pace), by)
        return found

    async def take_pace_off(self, queue: str, *, by: str = CODE) -> None:
        """Remove the pace of a queue, which then does not follow that of `*` either. Does nothing to a queue without a pace,
        and creates no queue."""
        if await self.pacing(queue) is not None:
            await self._paces.set(queue, None, by=by)
            notices.pace_set(queue, None, by)

    async def pacings(self) -> list[Pacing]:
        """Return the state of `*`, if it has a pace, and of every queue that has a pace. Of the queues that follow `*`, only
        those are returned that have delayed jobs or have released some."""
        return await self._paces.all()

    async def pacing(self, queue: str) -> Pacing | None:
        """Return the pace of a queue, its own or that of `*`, and its state; None if the queue has no pace."""
        return await self._paces.of(check_paced(queue))

    async def delayed_stats(self) -> dict[str, DelayedStats]:
        """Return how many delayed jobs each queue with a pace has, how many of them wait for the gap, and when the next one
        and the last one is released."""
        return {pacing.queue: pacing.stats for pacing in await self.pacings() if pacing.queue != EVERY_QUEUE}

    async def pace_changes(self, queue: str) -> list[PaceChange]:
        """Return who changed the pace of a queue and when, newest first."""
        return await self._paces.changes(check_paced(queue), limit=MOST_CHANGES)

    async def apply_paces(self, requests: Mapping[str, PaceRequest | None], *, by: str = BY_SETTINGS) -> None:
        """Set the paces that the settings or the code ask for.

        A request that is the same as the last one from this source is skipped, so that a change made at run time stands.
        """
        for queue, request in sorted(requests.items(), key=lambda one: one[0] != EVERY_QUEUE):  # others may build on it
            text = f"{by}: {'off' if request is None else msgspec.json.encode(request).decode()}"
            before = await self.pacing(queue)
            found = await self._paces.set(queue, request, by=by, usual=self._usual, setting=text)
            if (found and found.pace) != (before and before.pace):
                notices.pace_set(queue, None if found is None else say_pace(found.pace), by)

    async def why(self, id: str) -> Why:
        """Say in one sentence, with its data, why a job is in its present state."""
        outlook = await self._paces.outlook(id)
        if outlook is None:
            raise JobNotFound(id)
        return explain(outlook)

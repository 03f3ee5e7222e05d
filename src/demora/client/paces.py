"""The pace of queues, and why a job waits."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ..core.action import OWN_QUEUES
from ..core.job import Job
from ..core.pace import (
    EVERY_QUEUE,
    USUAL_PACE,
    DelayedStats,
    Pace,
    PaceRequest,
    check_paced,
    forecast,
    make_pace_request,
    request_of,
    say_pace,
)
from ..core.spans import from_ms, to_ms
from ..errors import Invalid, JobNotFound
from ..store.paces import BY_SETTINGS, PaceChange, PaceStore, Pacing
from ..system import notices
from ..system.log_limit import is_watched
from .why import Why, explain

CODE = "code"  # who makes a change, unless the caller says otherwise
MOST_CHANGES = 200
MOST_PREVIEWED = 20  # releases that a preview shows
MOST_PER_LIST = 200  # jobs that are explained in one call
MOST_AHEAD = 1000  # jobs that are counted before each of them


class PacePreview(msgspec.Struct, frozen=True):
    """A pace that is not set yet: when it would release the first held jobs, and how many jobs are held."""

    pace: Pace
    releases: list[datetime]
    held: int


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
        watched = is_watched(self._paces)
        found = await self._paces.set(check_paced(queue), request, by=by, usual=self._usual)
        assert found is not None, "a request makes a pace"
        if not watched:
            notices.pace_set(queue, say_pace(found.pace), by)
        return found

    async def preview_pace(self, /, queue: str, *, most: int = MOST_PREVIEWED, **values: Any) -> PacePreview:
        """Return the pace that `set_pace` would give a queue, and when it would release the jobs that are held now.

        Values and errors are those of `set_pace`. Changes nothing.
        """
        request, now = make_pace_request(**values), await self.pacing(queue)
        pace = request.over(self._usual if now is None else now.pace)
        if now is None:
            return PacePreview(pace, [], 0)
        rate, count = pace.rate(quiet=now.quiet), min(now.held, most)
        releases = [from_ms(forecast(rate, now.state, to_ms(now.now), n)) for n in range(1, count + 1)]
        return PacePreview(pace, releases, now.held)

    async def take_pace_off(self, queue: str, *, by: str = CODE) -> None:
        """Remove the pace of a queue. It then does not follow that of `*` either, also if `*` gets one later, until
        `use_default_pace`. Creates the queue if necessary. Does nothing if that was done before."""
        last, watched = await self._paces.changes(check_paced(queue), limit=1), is_watched(self._paces)
        if last[0].is_off if last else queue == EVERY_QUEUE:
            return
        await self._paces.set(queue, None, by=by)
        if not watched:
            notices.pace_set(queue, None, by)

    async def use_default_pace(self, queue: str, *, by: str = CODE) -> None:
        """Have a queue follow the pace of `*` again, instead of its own or of none. demora's own queues cannot."""
        if check_paced(queue) == EVERY_QUEUE or queue in OWN_QUEUES:
            raise Invalid("queue", f"{queue} cannot follow the pace of all queues; name a queue of yours")
        watched = is_watched(self._paces)
        if await self._paces.follow(queue, by=by) and not watched:
            notices.pace_set(queue, None, by, follows=True)

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
            before, watched = await self.pacing(queue), is_watched(self._paces)
            found = await self._paces.set(queue, request, by=by, usual=self._usual, setting=text)
            if (found and found.pace) != (before and before.pace) and not watched:
                notices.pace_set(queue, None if found is None else say_pace(found.pace), by)

    async def why(self, id: str) -> Why:
        """Say in one sentence, with its data, why a job is in its present state."""
        outlook = await self._paces.outlook(id)
        if outlook is None:
            raise JobNotFound(id)
        return explain(outlook)

    async def why_many(self, ids: Sequence[str]) -> list[tuple[Job, Why]]:
        """Return the jobs with these ids, without payload, result and log, each with why it is in its present state.

        Made for a page of a list: it is one call to the store, and of a long line it counts only the first 1,000 jobs. Ids
        that no job has are left out.
        """
        if len(ids) > MOST_PER_LIST:
            raise Invalid("ids", f"at most {MOST_PER_LIST} are allowed")
        return [(one.job, explain(one)) for one in await self._paces.outlooks(ids, most_ahead=MOST_AHEAD)]

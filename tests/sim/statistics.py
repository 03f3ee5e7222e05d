"""Holds the statistics of a simulation to an oracle: at some moments of each seed, the counts of all queues and the six
figures of each paced queue must follow from the recorded steps of the jobs. The oracle shares no code with the core or the
SQL."""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from demora.client.counts import Counts
from demora.client.paces import Paces
from demora.core.action import OWN_QUEUES
from demora.core.pace import EVERY_QUEUE, Pace
from demora.core.spans import span_ms
from demora.store.audit import SqlEvent
from demora.store.store import Store
from tests.sim.world import World

MOMENTS = 12
SELDOM = 3.0  # seconds between two moments, on average
WAITING = ("PENDING", "QUEUED", "RETRYING")
RELEASED = 3
LANES = {"scheduled": (1,), "retries": (2,), "both": (1, 2)}
HOUR = 3_600_000


class Known(msgspec.Struct):
    """What the steps so far tell: the last step of each job that is there, and the release times and moments by queue."""

    now: int
    last: dict[str, SqlEvent]
    used: dict[str, list[int]]
    released_at: dict[str, int]
    stepped: bool


class Statistics:
    """Looks at a simulation now and then. `queue` is the one with this pace, or `*`."""

    def __init__(self, world: World, seed: int, pace: Pace | None, queue: str) -> None:
        self._world, self._pace, self._queue = world, pace, queue
        self._chance = random.Random(f"moments {seed}")
        self.wrong: list[str] = []
        self.compared = self.gaps = 0  # moments, and queues in them whose next release was foretold

    async def watch(self, store: Store) -> None:
        """Compare at some moments. Where something happens while the figures are read, that moment is left out."""
        for _ in range(MOMENTS):
            await asyncio.sleep(self._chance.expovariate(1 / SELDOM))
            before, now = await store.audit.events(), self._world.clock.wall()
            stats, delayed = await Counts(store).stats(fresh=True), await Paces(store.paces).delayed_stats()
            if await store.audit.events() == before and self._world.clock.wall() == now:
                known = know(before, now, stepped="clock stepped" in self._world.fired)
                self.compared += 1
                self.wrong += [
                    f"statistics at {now}: {fault}" for fault in (*self._counts(known, stats), *self._six(known, delayed))
                ]

    def _counts(self, known: Known, stats: Any) -> Iterator[str]:
        counted = defaultdict[str, Counter[str]](Counter)
        for job in known.last.values():
            counted[job.queue or ""][self._kind(known, job)] += 1
        names = ("ready", "delayed", "processing", "dead")
        for queue in {*counted, *stats.queues}:
            found = stats.queues.get(queue)
            for name in names:
                said = 0 if found is None else getattr(found, name)
                if said != counted[queue][name]:
                    yield f"{said} jobs of {queue} are {name}, and it is {counted[queue][name]}"
        for name in names:
            said, right = getattr(stats.total, name), sum(one[name] for one in counted.values())
            if said != right:
                yield f"{said} jobs are {name} in all, and it is {right}"

    def _kind(self, known: Known, job: SqlEvent) -> str:
        if job.status in WAITING:
            return "delayed" if job.due_at > known.now or self._holds(job) else "ready"
        return {"PROCESSING": "processing", "FAILED": "dead"}.get(job.status or "", "ended")

    def _holds(self, job: SqlEvent) -> bool:
        """Whether a pace governs this job."""
        paced = job.queue == self._queue or (self._queue == EVERY_QUEUE and job.queue not in OWN_QUEUES)
        return self._pace is not None and paced and job.lane in LANES[self._pace.governs.value]

    def _six(self, known: Known, delayed: dict[str, Any]) -> Iterator[str]:
        held = defaultdict[str, list[SqlEvent]](list)
        for job in known.last.values():
            if job.status in WAITING and self._holds(job):
                held[job.queue or ""].append(job)
        own = set() if self._pace is None or self._queue == EVERY_QUEUE else {self._queue}
        if set(delayed) != {*held, *known.used, *own}:
            yield f"the paced queues are {sorted(delayed)}, and it is {sorted({*held, *known.used, *own})}"
        for queue in set(delayed) & {*held, *known.used, *own}:
            for name, said, right in self._figures(known, queue, held[queue], delayed[queue]):
                if said != right:
                    yield f"{name} of {queue} is {said}, and it is {right}"

    def _figures(self, known: Known, queue: str, held: Sequence[SqlEvent], said: Any) -> Iterator[tuple[str, Any, Any]]:
        dues, now = sorted(job.due_at for job in held), known.now
        due = [at for at in dues if at <= now]
        yield "total_delayed", said.total_delayed, len(dues)
        yield "ready_now", said.ready_now, len(due)
        yield "ready_in_hour", said.ready_in_hour, sum(at <= now + HOUR for at in dues)
        last = known.released_at.get(queue)
        yield "time_since_last", said.time_since_last_release_seconds, None if last is None else max(now - last, 0) / 1000
        assert self._pace is not None
        if self._pace.rapid is not None or known.stepped or any((job.expires_at or now + 1) <= now for job in held):
            return  # the rate or the clock changed, or a job that no release takes is counted until it is cancelled
        cycle = Cycle(self._pace, known.used.get(queue, ()), last or 0)
        right = cycle.next(dues[0], now) if dues else None
        yield "next_release_in", said.next_release_in_seconds, None if right is None else (right - now) / 1000
        free = cycle.take(due, now)
        self.gaps += bool(due)
        if free < 2:
            yield "waiting_for_gap", said.waiting_for_gap, len(due) - free
        else:  # how many jobs catch up after a rest depends on the due time of each: counted are only the ones to go first
            yield "waiting_for_gap", len(due) - free <= said.waiting_for_gap < len(due), True


class Cycle:
    """The cycle that the last release belongs to, found again from the release times alone.

    At the moment of the last release, every release time before it was used or lost. A job that was held even then may have
    let a more urgent one go first, so its due time does not tell that such a time is left.
    """

    def __init__(self, pace: Pace, used: Sequence[int], released_at: int = 0) -> None:
        self._released_at = released_at
        self._burst, self._apart = pace.burst, span_ms(pace.rate(quiet=False).apart)
        self._length = max(span_ms(pace.gap), self._burst * self._apart)
        self._began: int | None = None
        self._last = 0
        for at in sorted(used):
            self._use(at)

    def next(self, due: int, now: int) -> int:
        """When a job that is due then is released, at the earliest."""
        return max(self._time(due, now), now)

    def take(self, dues: Sequence[int], now: int) -> int:
        """How many of these jobs could be released now. Uses up their release times."""
        for number, due in enumerate(dues):
            at = self._time(due, now)
            if at > now:
                return number
            self._use(at)
        return len(dues)

    def _time(self, due: int, now: int) -> int:
        over = due if self._began is None else self._began + self._length
        if self._began is not None and now < over + self._length:
            times = [self._began + n * self._apart for n in range(self._burst)]
            left = [at for at in times if at > self._last and at >= due and at > self._released_at]
            if left:
                return left[0]
        begins = max(over, due)
        return now if now >= begins + self._length else begins

    def _use(self, at: int) -> None:
        if self._began is None or at >= self._began + self._length:
            self._began = at
        self._last = at


def know(events: Sequence[SqlEvent], now: int, *, stepped: bool) -> Known:
    """What these steps tell."""
    known = Known(now, {}, {}, {}, stepped)
    for event in events:
        if event.kind in ("accepted", "stale"):
            continue
        before = known.last.pop(event.job, None)
        if event.kind == "removed":
            continue
        known.last[event.job] = event
        if (
            event.kind == "changed"
            and event.lane == RELEASED
            and event.queue
            and (before is None or before.lane != RELEASED)
        ):
            known.used.setdefault(event.queue, []).append(event.due_at)
            known.released_at[event.queue] = event.at
    return known

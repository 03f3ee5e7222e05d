"""The schedules of a simulation: with every policy, fired by all workers while these die, sleep, and lose their clock."""

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from demora.core.schedules.firing import FireOutcome
from demora.core.schedules.schedule import Missed, Overlap, Schedule, fire_times_between
from demora.core.schedules.schedule_request import ScheduleRequest
from demora.core.spans import from_ms
from demora.engines.sqlite import SqliteStore
from demora.engines.sqlite.schedules import SqliteSchedules
from demora.store.audit import Evidence
from demora.store.schedules import Fired, Firing, Origin
from tests.sim.world import World

MOST = 5  # schedules in one simulation
PROMPT = timedelta(seconds=10)  # a fire time that is no later than this always fires
ENDED = ("COMPLETED", "FAILED", "CANCELLED")
TYPES = ("quick", "slow", "failing")


class Decision(NamedTuple):
    """What a process decided about the fire times of a schedule, and was applied."""

    schedule: Schedule
    after: datetime  # up to which they had been decided
    now: datetime
    outcomes: Mapping[FireOutcome, list[datetime]]


SOMETIMES: dict[str, Callable[[Decision], object]] = {
    "a fire time fires": lambda decision: decision.outcomes[FireOutcome.FIRED],
    "a fire time fires late": lambda decision: any(
        decision.now - fire_time > PROMPT for fire_time in decision.outcomes[FireOutcome.FIRED]
    ),
    "a fire time is missed": lambda decision: decision.outcomes[FireOutcome.MISSED],
    "a fire time is skipped": lambda decision: decision.outcomes[FireOutcome.SKIPPED],
    "a fire time is replaced": lambda decision: decision.outcomes[FireOutcome.REPLACED],
}


class WatchedSchedules(SqliteSchedules):
    """Writes down the decisions that were applied."""

    decisions: list[Decision]

    async def fire(self, firings: Sequence[Firing]) -> list[Fired]:
        results = await super().fire(firings)
        for firing, result in zip(firings, results, strict=True):
            if result.applied:
                self.decisions.append(_decision(firing))
        return results


class Schedules:
    """The schedules of one simulation, and what is held against those who fire them."""

    def __init__(self, world: World) -> None:
        self._chance: random.Random = world.random
        self._decisions: list[Decision] = []
        self._exclusive: set[str] = set()

    def watch(self, store: SqliteStore) -> SqliteStore:
        """Have the decisions written down that pass this store."""
        store.schedules = WatchedSchedules(store._database)
        store.schedules.decisions = self._decisions
        return store

    async def add(self, store: SqliteStore) -> None:
        for n in range(self._chance.randint(1, MOST)):
            new = Schedule(
                name=f"schedule-{n}",
                type=self._chance.choice(TYPES),
                payload=b"{}",
                recorded_at=from_ms(0),
                every=timedelta(seconds=self._chance.choice((1, 2, 5))),
                overlap=self._chance.choice(tuple(Overlap)),
                missed=self._chance.choice(tuple(Missed)),
                missed_limit=self._chance.choice((3, 100)),
                jitter=timedelta(milliseconds=self._chance.choice((0, 0, 700))),
            )
            if new.overlap is not Overlap.ALLOW:
                self._exclusive.add(new.name)
            await store.schedules.add(new, origin=Origin.CODE, by="simulation")

    async def pause(self, store: SqliteStore) -> list[str]:
        """Fire no more, and return what is wrong with the fire times up to here."""
        faults = [fault for one in await store.schedules.all() for fault in await self._gaps(store, one.schedule.name)]
        for one in await store.schedules.all():
            await store.schedules.change(one.schedule.name, ScheduleRequest(enabled=False), by="simulation")
        return faults

    async def _gaps(self, store: SqliteStore, name: str) -> list[str]:
        """Every fire time up to the last decision is on record, or kept, or so long ago that it is not recorded."""
        found = await store.schedules.get(name)
        assert found is not None
        records = [record.slot_at for record in await store.schedules.records(name, limit=10_000)]
        waiting = [] if found.progress.kept_at is None else [found.progress.kept_at]
        wanted = fire_times_between(found.schedule, found.schedule.recorded_at, found.progress.decided_to)
        lost = sorted({*wanted} - {*records, *waiting})
        return [f"I11 schedules: fire time {lost[0]} of {name} was passed over, and {len(lost) - 1} others"] if lost else []

    def reached(self) -> frozenset[str]:
        """The situations that some schedule came into."""
        return frozenset(name for name, fact in SOMETIMES.items() if any(map(fact, self._decisions)))

    def judge(self, evidence: Evidence) -> Iterator[str]:
        """The rules of missed fire times and of overlap; the checker judges that no fire time has two jobs, or one too
        early."""
        for decision in self._decisions:
            yield from _missed_by_policy(decision)
        yield from _overlaps(evidence, self._exclusive)


def _decision(firing: Firing) -> Decision:
    outcomes = {outcome: list[datetime]() for outcome in FireOutcome}
    for fire_time in firing.decision.fire_times:
        outcomes[fire_time.outcome].append(fire_time.slot_at)
    now = firing.decision.progress.decided_to
    return Decision(firing.due.schedule, firing.due.progress.decided_to, now, outcomes)


def _missed_by_policy(decision: Decision) -> Iterator[str]:
    """Hold a decision to the policy, by counting in milliseconds from the first fire time."""
    schedule = decision.schedule
    if schedule.overlap is not Overlap.ALLOW:
        return
    every = schedule.every
    assert every is not None
    first, last = ((at - schedule.anchor_at) // every for at in (decision.after, decision.now))
    fire_times = [schedule.anchor_at + n * every for n in range(first + 1, last + 1)]
    prompt = [fire_time for fire_time in fire_times if decision.now - fire_time <= PROMPT]
    late = [fire_time for fire_time in fire_times if decision.now - fire_time > PROMPT]
    most = {Missed.SKIP: 0, Missed.LAST: 1, Missed.ALL: schedule.missed_limit}[schedule.missed]
    fire = late[max(len(late) - most, 0) :] + prompt if most else prompt
    fired = decision.outcomes[FireOutcome.FIRED]
    if fired != fire:
        yield f"I11 schedules: at {decision.now} {schedule.name} fired {len(fired)} fire times, not {len(fire)}"


def _overlaps(evidence: Evidence, exclusive: Collection[str]) -> Iterator[str]:
    """No fire time of these schedules gets its job while an earlier one has not ended."""
    schedules = {
        fire_time.job: fire_time.schedule
        for fire_time in evidence.fire_times
        if fire_time.job is not None and fire_time.schedule in exclusive
    }
    unended = defaultdict[str, set[str]](set)
    for event in evidence.events or ():
        name = schedules.get(event.job)
        if name is None:
            continue
        if event.kind == "added":
            if unended[name]:
                yield f"I11 schedules: job {event.job} of {name} was added while {min(unended[name])} had not ended"
            unended[name].add(event.job)
        elif event.kind not in ("accepted", "stale") and event.status in ENDED:
            unended[name].discard(event.job)

"""Pace: when delayed jobs are let go, so that they never hurt what they use. This is the only place that knows the rule.

A cycle is `burst` slots, `stagger` apart; the next cycle begins `gap` after its first slot, but not before the last slot and
a stagger have passed. A slot lets one held job go. Slots are nominal: what comes late to one uses it under its own time, so
that nothing drifts. If nothing is held when a cycle could begin, it begins with the first job that is. Slots that passed
while nothing was held are lost; those that passed while a job was held are made up late and together, unless a whole cycle
passed meanwhile: then the next begins now, and nothing of before is made up. A change of mode or policy leaves the next slot
where it is; the one after is computed anew. Times are whole milliseconds of the database's clock.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import Enum
from itertools import islice

import msgspec

from .job import Lane, Priority
from .spans import span_ms


class Governs(Enum):
    """Which of a queue's delayed jobs are let go by its pace; those that were enqueued to run now never are."""

    RETRIES = "retries"
    SCHEDULED = "scheduled"
    BOTH = "both"

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return _LANES[self]


_LANES = {
    Governs.RETRIES: (Lane.RETRY,),
    Governs.SCHEDULED: (Lane.SCHEDULED,),
    Governs.BOTH: (Lane.SCHEDULED, Lane.RETRY),
}


class Rate(msgspec.Struct, frozen=True):
    """How fast a queue is let go: at most `burst` jobs in a `gap`, each `stagger` after the one before."""

    gap: timedelta
    burst: int
    stagger: timedelta

    @property
    def cycle(self) -> int:
        """The milliseconds from the first slot of a cycle to that of the next."""
        return max(span_ms(self.gap), self.burst * span_ms(self.stagger))

    @property
    def reach(self) -> int:
        """More held jobs than one plan can let go."""
        return 2 * self.burst


class Pace(msgspec.Struct, frozen=True):
    """The policy of a queue. `rapid` is its rate while no real-time job waits in it, or in the queues that it is to
    `protect`; None: there is one rate only."""

    gap: timedelta = timedelta(seconds=120)
    burst: int = 3
    stagger: timedelta = timedelta(seconds=30)
    rapid: Rate | None = Rate(timedelta(seconds=30), 5, timedelta(seconds=15))
    governs: Governs = Governs.BOTH
    protect: tuple[str, ...] = ()

    def rate(self, *, quiet: bool) -> Rate:
        """The rate now; `quiet` says that no real-time job waits."""
        if quiet and self.rapid is not None:
            return self.rapid
        return Rate(self.gap, self.burst, self.stagger)

    def mode(self, *, quiet: bool) -> str:
        return "rapid" if quiet and self.rapid is not None else "normal"

    def protected(self, queue: str) -> tuple[str, ...]:
        """The queues whose real-time jobs make this pace the normal one."""
        return self.protect or (queue,)


class PaceState(msgspec.Struct, frozen=True):
    """How far a queue has got: the time of its next slot, which is the `step`-th of the cycle that began at `cycle_at`, or
    with step 0 the earliest beginning of the next cycle. `seen_at` is when this was written."""

    cycle_at: int
    step: int
    next_at: int
    seen_at: int
    released_at: int | None = None
    released: int = 0


class Release(msgspec.Struct, frozen=True):
    """A delayed job that was let go, under the slot that it used."""

    id: str
    queue: str
    priority: Priority
    slot_at: datetime


class Plan(msgspec.Struct, frozen=True):
    """What may be done now: one held job for each slot, in the queue's order, and the state once that is done."""

    slots: tuple[int, ...]
    state: PaceState


USUAL_PACE = Pace()


def begin(now: int) -> PaceState:
    """The state of a queue that never had a pace: its first release is immediate."""
    return PaceState(cycle_at=now, step=0, next_at=now, seen_at=now)


def plan(rate: Rate, state: PaceState, now: int, dues: Sequence[int]) -> Plan:
    """Which slots may be used now, for held jobs that were due at `dues`: in order, and all of them, or `Rate.reach`. Fewer
    will do if not all of those are let go."""
    state, slots = _as_of(state, now), list[int]()
    while len(slots) < len(dues):
        first = dues[len(slots)]
        state = _without_missed(rate, state, now)
        slot = state.next_at if state.step else _beginning(rate, max(state.next_at, first), now)
        if slot > now:
            break
        if first <= slot:
            slots.append(slot)
        state = _after(rate, state, slot)
    released_at, released = (now, state.released + len(slots)) if slots else (state.released_at, state.released)
    return Plan(tuple(slots), msgspec.structs.replace(state, seen_at=now, released_at=released_at, released=released))


def look_at(state: PaceState, now: int, first_due: int) -> int:
    """When to plan next, if the first held or coming job is due then: not before could anything be let go."""
    return max(now if now < state.seen_at else state.next_at, first_due)


def forecast(rate: Rate, state: PaceState, now: int, nth: int) -> int:
    """About when the `nth` held job is let go (the first is 1), if the mode and those before it stay as they are."""
    return next(islice(_upcoming(rate, state, now), nth - 1, None))


def _upcoming(rate: Rate, state: PaceState, now: int) -> Iterator[int]:
    """The times at which held jobs go, one after another, if somebody looks at each of them."""
    state = _as_of(state, now)
    while True:
        state = _without_missed(rate, state, now)
        slot = state.next_at if state.step else _beginning(rate, state.next_at, now)
        yield max(slot, now)
        state = _after(rate, state, slot)


def _as_of(state: PaceState, now: int) -> PaceState:
    """The state by the clock as it is: if that was set back, all moves back by what it is known to have lost."""
    lost = state.seen_at - now
    if lost <= 0:
        return state
    return msgspec.structs.replace(state, cycle_at=state.cycle_at - lost, next_at=state.next_at - lost, seen_at=now)


def _without_missed(rate: Rate, state: PaceState, now: int) -> PaceState:
    """The state without the rest of a cycle after which a whole one has passed."""
    if state.step == 0:
        return state
    last = state.next_at + (max(rate.burst - state.step, 1) - 1) * span_ms(rate.stagger)
    end = _end(rate, state.cycle_at, last)
    return state if now < end + rate.cycle else msgspec.structs.replace(state, step=0, next_at=end)


def _beginning(rate: Rate, at: int, now: int) -> int:
    """When a cycle begins that could have begun at a time: then, or now if all of it has passed."""
    return at if now < at + rate.cycle else now


def _after(rate: Rate, state: PaceState, slot: int) -> PaceState:
    """The state once a slot has been used, or was lost."""
    cycle_at, step = (state.cycle_at if state.step else slot), state.step + 1
    if step < rate.burst:
        return msgspec.structs.replace(state, cycle_at=cycle_at, step=step, next_at=slot + span_ms(rate.stagger))
    return msgspec.structs.replace(state, cycle_at=cycle_at, step=0, next_at=_end(rate, cycle_at, slot))


def _end(rate: Rate, cycle_at: int, last: int) -> int:
    """When a cycle that began then and whose last slot is this makes room for the next."""
    return max(cycle_at + span_ms(rate.gap), last + span_ms(rate.stagger))

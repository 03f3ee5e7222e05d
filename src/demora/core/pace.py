"""Pace: when a queue releases its delayed jobs, so that they do not use up what real-time jobs need. The rule is only here.

A cycle has `burst` release times, each `stagger` after the one before. The next cycle begins `gap` after the first release
time of this one. At each release time one held job is released.

- A stagger that was not given is 30 s, or less if the burst would not fit into the gap otherwise. With a burst of 1 there is
  none.

- A release that happens late counts for its release time, so nothing drifts.
- If no job is held when a cycle could begin, the cycle begins with the next job that is held.
- Release times that pass while no job is held are lost.
- Release times that pass while a job is held are made up at the next look. If a whole cycle has passed meanwhile, the next
  cycle begins now, and nothing from before is made up.
- A change of mode or policy keeps the next release time. The one after it follows the new rate.

Times are whole milliseconds of the database's clock.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import Enum
from itertools import islice

import msgspec

from .job import Lane, Priority
from .spans import MILLISECOND, ZERO, span_ms

EVERY_QUEUE = "*"  # in place of a queue's name: all queues that have no pace of their own
USUAL_STAGGER = timedelta(seconds=30)


class Governs(Enum):
    """Which delayed jobs of a queue its pace holds back. It never holds back jobs that were enqueued to run now."""

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
    """How fast a queue releases jobs: at most `burst` in a `gap`. With None as the `stagger`, it follows from the two."""

    gap: timedelta
    burst: int
    stagger: timedelta | None = None

    @property
    def apart(self) -> timedelta:
        """The time between two release times of a cycle."""
        if self.burst == 1:
            return ZERO
        return min(USUAL_STAGGER, self.widest) if self.stagger is None else self.stagger

    @property
    def widest(self) -> timedelta:
        """The longest stagger with which the burst fits into the gap."""
        return span_ms(self.gap) // self.burst * MILLISECOND

    @property
    def fits(self) -> bool:
        """Whether the next cycle can begin when the gap is over."""
        return self.burst * span_ms(self.apart) <= span_ms(self.gap)

    @property
    def cycle(self) -> int:
        """The milliseconds from the beginning of a cycle to that of the next."""
        return max(span_ms(self.gap), self.burst * span_ms(self.apart))

    @property
    def reach(self) -> int:
        """A number of jobs that is greater than one plan can release."""
        return 2 * self.burst


class Pace(msgspec.Struct, frozen=True):
    """The policy of a queue. `rapid` is its rate while no real-time job waits in this queue, or in the queues to `protect`.
    With None there is only the normal rate, so that no job is released before its gap is over."""

    gap: timedelta = timedelta(seconds=120)
    burst: int = 3
    stagger: timedelta | None = None
    rapid: Rate | None = None
    governs: Governs = Governs.BOTH
    protect: tuple[str, ...] = ()

    def rate(self, *, quiet: bool) -> Rate:
        """Return the rate to use now. `quiet` says that no real-time job waits."""
        if quiet and self.rapid is not None:
            return self.rapid
        return Rate(self.gap, self.burst, self.stagger)

    def mode(self, *, quiet: bool) -> str:
        return "rapid" if quiet and self.rapid is not None else "normal"

    def holds(self, lane: int) -> bool:
        """Return whether the pace holds back the jobs of a lane."""
        return lane in self.governs.lanes

    def protected(self, queue: str) -> tuple[str, ...]:
        """Return the queues whose waiting real-time jobs rule out the rapid rate."""
        return self.protect or (queue,)


class PaceState(msgspec.Struct, frozen=True):
    """The progress of a queue. `next_at` is its next release time, number `step` of the cycle that began at `cycle_at`; with
    step 0 it is the earliest beginning of the next cycle. `seen_at` is when the state was written."""

    cycle_at: int
    step: int
    next_at: int
    seen_at: int
    released_at: int | None = None
    released: int = 0
    former_at: int | None = None  # the release before the last one

    @property
    def last_gap(self) -> timedelta | None:
        """How long after the release before it the last one was; None if there was none."""
        if self.released_at is None or self.former_at is None:
            return None
        return max(self.released_at - self.former_at, 0) * MILLISECOND


class Release(msgspec.Struct, frozen=True):
    """A released job. `release_at` is the release time that it used."""

    id: str
    queue: str
    priority: Priority
    release_at: datetime


class Plan(msgspec.Struct, frozen=True):
    """What to do now: release one held job for each of the `release_times`, in the queue's order, then store the state.

    `states` are the states after the first release time, the first two, and so on. If only some of the jobs can be released,
    the one for their number is stored, so that the release times of the others stay unused.
    """

    release_times: tuple[int, ...]
    state: PaceState
    states: tuple[PaceState, ...] = ()


USUAL_PACE = Pace()
USUAL_RAPID = Rate(timedelta(seconds=30), 5)


def begin(now: int) -> PaceState:
    """Return the state of a queue that never had a pace. Its first release is immediate."""
    return PaceState(cycle_at=now, step=0, next_at=now, seen_at=now)


def plan(rate: Rate, state: PaceState, now: int, dues: Sequence[int]) -> Plan:
    """Return the releases that are possible now. `dues` are the due times of the held jobs in order, of all or of the first
    `Rate.reach`. Fewer are enough if the plan does not release all of them."""
    state, release_times, states = _as_of(state, now), list[int](), list[PaceState]()
    while len(release_times) < len(dues):
        first = dues[len(release_times)]
        state = _without_missed(rate, state, now)
        release_at = state.next_at if state.step else _beginning(rate, max(state.next_at, first), now)
        if release_at > now:
            break
        state = _after(rate, state, release_at)
        if first <= release_at:
            release_times.append(release_at)
            states.append(_released(state, now, len(release_times)))
    return Plan(tuple(release_times), _released(state, now, len(release_times)), tuple(states))


def _released(state: PaceState, now: int, jobs: int) -> PaceState:
    """Return the state with a note of the jobs that are released now."""
    if not jobs:
        return msgspec.structs.replace(state, seen_at=now)
    released = state.released + jobs
    return msgspec.structs.replace(state, seen_at=now, released_at=now, released=released, former_at=state.released_at)


def look_at(state: PaceState, now: int, first_due: int) -> int:
    """Return when to plan next. `first_due` is when the first job, held or still to come, is due. No release is possible
    before."""
    return max(now if now < state.seen_at else state.next_at, first_due)


def next_release(rate: Rate, state: PaceState, now: int, first_due: int) -> int:
    """Return when the first job, held or still to come, is released, if the mode does not change. Release times before it is
    due are lost to it."""
    state = _as_of(state, now)
    while True:
        state = _without_missed(rate, state, now)
        release_at = state.next_at if state.step else _beginning(rate, max(state.next_at, first_due), now)
        if release_at >= first_due:
            return max(release_at, now)
        state = _after(rate, state, release_at)


def forecast(rate: Rate, state: PaceState, now: int, nth: int) -> int:
    """Estimate when the `nth` held job (the first is 1) is released, if the mode and the jobs before it do not change."""
    return next(islice(_upcoming(rate, state, now), nth - 1, None))


def _upcoming(rate: Rate, state: PaceState, now: int) -> Iterator[int]:
    """Yield the times at which held jobs are released, one after another, if none is late."""
    state = _as_of(state, now)
    while True:
        state = _without_missed(rate, state, now)
        release_at = state.next_at if state.step else _beginning(rate, state.next_at, now)
        yield max(release_at, now)
        state = _after(rate, state, release_at)


def _as_of(state: PaceState, now: int) -> PaceState:
    """Return the state for the clock as it is now. If the clock was set back, all times move back by as much as is known."""
    lost = state.seen_at - now
    if lost <= 0:
        return state
    return msgspec.structs.replace(state, cycle_at=state.cycle_at - lost, next_at=state.next_at - lost, seen_at=now)


def _without_missed(rate: Rate, state: PaceState, now: int) -> PaceState:
    """Return the state without the rest of its cycle if a whole further cycle has passed since."""
    if state.step == 0:
        return state
    last = state.next_at + (max(rate.burst - state.step, 1) - 1) * span_ms(rate.apart)
    end = _end(rate, state.cycle_at, last)
    return state if now < end + rate.cycle else msgspec.structs.replace(state, step=0, next_at=end)


def _beginning(rate: Rate, at: int, now: int) -> int:
    """Return when a cycle begins that could have begun at a time: then, or now if all of it has passed."""
    return at if now < at + rate.cycle else now


def _after(rate: Rate, state: PaceState, release_at: int) -> PaceState:
    """Return the state after a release time was used or lost."""
    cycle_at, step = (state.cycle_at if state.step else release_at), state.step + 1
    if step < rate.burst:
        return msgspec.structs.replace(state, cycle_at=cycle_at, step=step, next_at=release_at + span_ms(rate.apart))
    return msgspec.structs.replace(state, cycle_at=cycle_at, step=0, next_at=_end(rate, cycle_at, release_at))


def _end(rate: Rate, cycle_at: int, last: int) -> int:
    """Return when the next cycle may begin after one that began at `cycle_at` and has its last release time at `last`."""
    return max(cycle_at + span_ms(rate.gap), last + span_ms(rate.apart))

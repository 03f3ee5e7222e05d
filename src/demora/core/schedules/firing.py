"""Which fire times of a schedule fire now, and what becomes of the others. The scheduler asks; a store applies the decision.

A schedule is decided up to a time: no fire time up to there is looked at again. Creating, changing and resuming a schedule
set this time to now, so no fire time is missed before the creation or during a pause.

- A fire time that is at most `PROMPT` late always fires.
- Of older fire times within `late_limit`, `Missed` says which fire: none, the newest, or the newest `missed_limit`.
- Each fire time that fires then meets the `Overlap` policy.
"""

import hashlib
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from enum import Enum
from itertools import islice

import msgspec

from ...errors import Invalid
from ..spans import MILLISECOND, from_ms, moment, timestamp, to_ms
from .schedule import Missed, Overlap, Schedule, fire_times_back, fire_times_between, next_fire

PROMPT = timedelta(seconds=10)
MOST_RECORDED = 100  # missed fire times that one decision records: the newest


class FireOutcome(Enum):
    """What became of a fire time."""

    FIRED = "fired"  # it has a job
    SKIPPED = "skipped"  # an earlier job had not ended
    MISSED = "missed"  # no process saw it in time
    REPLACED = "replaced"  # a later fire time took its place


class Decided(msgspec.Struct, frozen=True):
    """One fire time and what becomes of it."""

    slot_at: datetime
    outcome: FireOutcome


class Progress(msgspec.Struct, frozen=True):
    """How far a schedule is decided. `kept_at` is a fire time that waits for the end of earlier jobs. `next_at` is the first
    fire time after `decided_to`, None if there is none or the schedule is paused."""

    decided_to: datetime
    next_at: datetime | None
    kept_at: datetime | None = None


class Previous(msgspec.Struct, frozen=True):
    """Whether the schedule has unended jobs: `waiting` ones that were never claimed, and ones that were `claimed`."""

    waiting: bool = False
    claimed: bool = False

    @property
    def unended(self) -> bool:
        return self.waiting or self.claimed


class Decision(msgspec.Struct, frozen=True):
    """What to do with a schedule now, in one transaction: record the fire times, add a job for each that fired, cancel the
    waiting jobs of `Previous` if `cancels` is set, and store the progress."""

    fire_times: tuple[Decided, ...]
    progress: Progress
    cancels: bool = False

    @property
    def fired(self) -> list[datetime]:
        return [one.slot_at for one in self.fire_times if one.outcome is FireOutcome.FIRED]


class Overlapped(msgspec.Struct, frozen=True):
    """What an overlap policy makes of fire times, oldest first."""

    fired: tuple[datetime, ...] = ()
    skipped: tuple[datetime, ...] = ()
    replaced: tuple[datetime, ...] = ()
    kept: datetime | None = None
    cancels: bool = False


class DueTimes(msgspec.Struct, frozen=True):
    """The fire times since the last decision: those that are to fire, and the newest of those that are missed."""

    due: tuple[datetime, ...]
    missed: tuple[datetime, ...]


NO_PREVIOUS = Previous()


def begin(schedule: Schedule, now: datetime) -> Progress:
    """Return the progress of a schedule that is created, changed or resumed now."""
    return Progress(now, next_fire(schedule, now) if schedule.enabled else None)


def foreseen(schedule: Schedule, progress: Progress) -> Progress:
    """Return the progress with its next fire time computed anew, for a newer database of time zones."""
    following = next_fire(schedule, progress.decided_to) if schedule.enabled else None
    return msgspec.structs.replace(progress, next_at=following)


def decide(schedule: Schedule, progress: Progress, now: datetime, previous: Previous = NO_PREVIOUS) -> Decision:
    """Return what becomes of all fire times up to now. `previous` matters only with an overlap policy other than `allow`.

    A clock that was set back changes nothing: the fire times up to `decided_to` stay decided.
    """
    if not schedule.enabled:
        return Decision((), progress)
    found, after = due_times(schedule, progress, now)
    waiting = () if progress.kept_at is None else (progress.kept_at,)
    overlapped = apply_overlap(schedule.overlap, (*waiting, *found.due), previous)
    fire_times = [
        *(Decided(fire_time, FireOutcome.MISSED) for fire_time in found.missed),
        *(Decided(fire_time, FireOutcome.REPLACED) for fire_time in overlapped.replaced),
        *(Decided(fire_time, FireOutcome.SKIPPED) for fire_time in overlapped.skipped),
        *(Decided(fire_time, FireOutcome.FIRED) for fire_time in overlapped.fired),
    ]
    fire_times.sort(key=lambda one: one.slot_at)
    return Decision(tuple(fire_times), msgspec.structs.replace(after, kept_at=overlapped.kept), cancels=overlapped.cancels)


def due_times(schedule: Schedule, progress: Progress, now: datetime) -> tuple[DueTimes, Progress]:
    """Return the fire times from the next one up to now that are to fire, the newest of those that are not, and the progress
    after them."""
    first = progress.next_at
    if first is None or first > now:
        return DueTimes((), ()), progress
    following = next_fire(schedule, first)
    if now - first <= PROMPT and (following is None or following > now):  # the usual case, and the only one in a hurry
        return DueTimes((first,), ()), Progress(now, following)
    found = _late_times(schedule, progress.decided_to, now)
    return found, begin(schedule, now)


def first_to_look(slot_at: datetime, processes: Collection[str]) -> str | None:
    """Return which of the live schedulers looks when a fire time comes; the others look a little later. The choice
    differs from one fire time to the next, and all processes choose the same. None if there are no live schedulers."""
    return max(processes, key=lambda id: hashlib.sha256(f"{id}\n{to_ms(slot_at)}".encode()).digest(), default=None)


def apply_overlap(overlap: Overlap, fire_times: Sequence[datetime], previous: Previous) -> Overlapped:
    """Return what becomes of fire times that are due, oldest first. A fire time that was kept before is the first of
    them."""
    if not fire_times:
        return Overlapped()
    match overlap:
        case Overlap.ALLOW:
            return Overlapped(fired=tuple(fire_times))
        case Overlap.SKIP:
            free = 0 if previous.unended else 1
            return Overlapped(fired=tuple(fire_times[:free]), skipped=tuple(fire_times[free:]))
        case Overlap.QUEUE:
            free = 0 if previous.unended else 1
            kept = fire_times[free] if len(fire_times) > free else None
            return Overlapped(fired=tuple(fire_times[:free]), kept=kept, skipped=tuple(fire_times[free + 1 :]))
        case Overlap.REPLACE:
            *replaced, latest = fire_times
            if previous.claimed:
                return Overlapped(replaced=tuple(replaced), kept=latest, cancels=previous.waiting)
            return Overlapped(replaced=tuple(replaced), fired=(latest,), cancels=previous.waiting)


def _late_times(schedule: Schedule, decided_to: datetime, now: datetime) -> DueTimes:
    late = now - PROMPT  # a fire time before this is not prompt any more
    prompt = list(fire_times_back(schedule, now, max(decided_to, late - MILLISECOND)))
    older = fire_times_back(schedule, late - MILLISECOND, decided_to)
    chosen, missed = list[datetime](), list[datetime]()
    most = _most_late(schedule)
    for fire_time in islice(older, most + MOST_RECORDED):
        fires = len(chosen) < most and fire_time >= now - schedule.late_limit
        (chosen if fires else missed).append(fire_time)
    return DueTimes(tuple(reversed(prompt + chosen)), tuple(reversed(missed[:MOST_RECORDED])))


def _most_late(schedule: Schedule) -> int:
    return {Missed.SKIP: 0, Missed.LAST: 1, Missed.ALL: schedule.missed_limit}[schedule.missed]


MOST_FIRE_TIMES = 10_000


def backfill_times(
    schedule: Schedule, first: datetime, last: datetime, *, decided_to: datetime, forgotten_to: datetime | None
) -> list[datetime]:
    """Return the fire times from `first` to `last` that were decided on, oldest first, whether or not they have a job.

    Fire times after `decided_to` are left out, because they fire by themselves. `Invalid` refuses a range that begins where
    the records of fire times are no longer kept (up to `forgotten_to`), since a fire time there may have had its job, and a
    range of more than `MOST_FIRE_TIMES` fire times.
    """
    first, last = from_ms(to_ms(moment(first, "from"))), from_ms(to_ms(moment(last, "to")))
    if last < first:
        raise Invalid("to", f"must not be before from, {timestamp(first)}")
    if forgotten_to is not None and first <= forgotten_to:
        raise Invalid(
            "from", f"which fire times had a job is known only after {timestamp(forgotten_to)}; give a time after that one"
        )
    found = list(islice(fire_times_between(schedule, first - MILLISECOND, min(last, decided_to)), MOST_FIRE_TIMES + 1))
    if len(found) > MOST_FIRE_TIMES:
        raise Invalid(
            "to", f"the range has more than {MOST_FIRE_TIMES:,} fire times; give one that ends before {timestamp(found[-1])}"
        )
    return found

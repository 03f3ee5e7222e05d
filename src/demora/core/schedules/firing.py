"""Which slots of a schedule fire now, and what becomes of the others. The scheduler asks; a store applies the decision.

A schedule is decided up to a time: no slot up to there is looked at again. Creating, changing and resuming a schedule set
this time to now, so time before the creation and time in a pause has no missed slots.

- A slot that is at most `PROMPT` late always fires.
- Of older slots within `late_limit`, `Missed` says which fire: none, the newest, or the newest `missed_limit`.
- Each slot that fires then meets the `Overlap` policy.
"""

import hashlib
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from enum import Enum
from itertools import islice

import msgspec

from ..spans import MILLISECOND, to_ms
from .schedule import Missed, Overlap, Schedule, next_fire, slots_back

PROMPT = timedelta(seconds=10)
MOST_RECORDED = 100  # missed slots that one decision records: the newest


class SlotOutcome(Enum):
    """What became of a slot."""

    FIRED = "fired"  # it has a job
    SKIPPED = "skipped"  # an earlier job had not ended
    MISSED = "missed"  # no process saw it in time
    REPLACED = "replaced"  # a later slot took its place


class Decided(msgspec.Struct, frozen=True):
    """One slot and what becomes of it."""

    slot_at: datetime
    outcome: SlotOutcome


class Progress(msgspec.Struct, frozen=True):
    """How far a schedule is decided. `kept_at` is a slot that waits for the end of earlier jobs. `next_at` is the first slot
    after `decided_to`, None if there is none or the schedule is paused."""

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
    """What to do with a schedule now, in one transaction: record the slots, add a job for each that fired, cancel the
    waiting jobs of `Previous` if `cancels` is set, and store the progress."""

    slots: tuple[Decided, ...]
    progress: Progress
    cancels: bool = False

    @property
    def fired(self) -> list[datetime]:
        return [one.slot_at for one in self.slots if one.outcome is SlotOutcome.FIRED]


class Overlapped(msgspec.Struct, frozen=True):
    """What an overlap policy makes of slots, oldest first."""

    fired: tuple[datetime, ...] = ()
    skipped: tuple[datetime, ...] = ()
    replaced: tuple[datetime, ...] = ()
    kept: datetime | None = None
    cancels: bool = False


class DueSlots(msgspec.Struct, frozen=True):
    """The slots since the last decision: those that are to fire, and the newest of those that are missed."""

    due: tuple[datetime, ...]
    missed: tuple[datetime, ...]


NO_PREVIOUS = Previous()


def begin(schedule: Schedule, now: datetime) -> Progress:
    """Return the progress of a schedule that is created, changed or resumed now."""
    return Progress(now, next_fire(schedule, now) if schedule.enabled else None)


def foreseen(schedule: Schedule, progress: Progress) -> Progress:
    """Return the progress with its next slot computed anew, for a newer database of time zones."""
    following = next_fire(schedule, progress.decided_to) if schedule.enabled else None
    return msgspec.structs.replace(progress, next_at=following)


def decide(schedule: Schedule, progress: Progress, now: datetime, previous: Previous = NO_PREVIOUS) -> Decision:
    """Return what becomes of all slots up to now. `previous` matters only with an overlap policy other than `allow`.

    Of a clock that was set back nothing follows: the slots up to `decided_to` stay decided.
    """
    if not schedule.enabled:
        return Decision((), progress)
    found, after = due_slots(schedule, progress, now)
    waiting = () if progress.kept_at is None else (progress.kept_at,)
    overlapped = apply_overlap(schedule.overlap, (*waiting, *found.due), previous)
    slots = [
        *(Decided(slot, SlotOutcome.MISSED) for slot in found.missed),
        *(Decided(slot, SlotOutcome.REPLACED) for slot in overlapped.replaced),
        *(Decided(slot, SlotOutcome.SKIPPED) for slot in overlapped.skipped),
        *(Decided(slot, SlotOutcome.FIRED) for slot in overlapped.fired),
    ]
    slots.sort(key=lambda one: one.slot_at)
    return Decision(tuple(slots), msgspec.structs.replace(after, kept_at=overlapped.kept), cancels=overlapped.cancels)


def due_slots(schedule: Schedule, progress: Progress, now: datetime) -> tuple[DueSlots, Progress]:
    """Return the slots from the next one up to now that are to fire, the newest of those that are not, and the progress
    after them."""
    first = progress.next_at
    if first is None or first > now:
        return DueSlots((), ()), progress
    following = next_fire(schedule, first)
    if now - first <= PROMPT and (following is None or following > now):  # the usual case, and the only one in a hurry
        return DueSlots((first,), ()), Progress(now, following)
    found = _late_slots(schedule, progress.decided_to, now)
    return found, begin(schedule, now)


def first_to_look(slot_at: datetime, processes: Collection[str]) -> str | None:
    """Return which of the live schedulers looks at a slot at its time; the others look a little later. Each slot has another
    first one, and all processes name the same. None if there are none."""
    return max(processes, key=lambda id: hashlib.sha256(f"{id}\n{to_ms(slot_at)}".encode()).digest(), default=None)


def apply_overlap(overlap: Overlap, slots: Sequence[datetime], previous: Previous) -> Overlapped:
    """Return what becomes of slots that are due, oldest first. A slot that was kept before is the first of them."""
    if not slots:
        return Overlapped()
    match overlap:
        case Overlap.ALLOW:
            return Overlapped(fired=tuple(slots))
        case Overlap.SKIP:
            free = 0 if previous.unended else 1
            return Overlapped(fired=tuple(slots[:free]), skipped=tuple(slots[free:]))
        case Overlap.QUEUE:
            free = 0 if previous.unended else 1
            kept = slots[free] if len(slots) > free else None
            return Overlapped(fired=tuple(slots[:free]), kept=kept, skipped=tuple(slots[free + 1 :]))
        case Overlap.REPLACE:
            *replaced, latest = slots
            if previous.claimed:
                return Overlapped(replaced=tuple(replaced), kept=latest, cancels=previous.waiting)
            return Overlapped(replaced=tuple(replaced), fired=(latest,), cancels=previous.waiting)


def _late_slots(schedule: Schedule, decided_to: datetime, now: datetime) -> DueSlots:
    late = now - PROMPT  # a slot before this is not prompt any more
    prompt = list(slots_back(schedule, now, max(decided_to, late - MILLISECOND)))
    older = slots_back(schedule, late - MILLISECOND, decided_to)
    chosen, missed = list[datetime](), list[datetime]()
    most = _most_late(schedule)
    for slot in islice(older, most + MOST_RECORDED):
        fires = len(chosen) < most and slot >= now - schedule.late_limit
        (chosen if fires else missed).append(slot)
    return DueSlots(tuple(reversed(prompt + chosen)), tuple(reversed(missed[:MOST_RECORDED])))


def _most_late(schedule: Schedule) -> int:
    return {Missed.SKIP: 0, Missed.LAST: 1, Missed.ALL: schedule.missed_limit}[schedule.missed]

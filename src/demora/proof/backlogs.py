"""Pace, the other half: while jobs are held, slots are used. Told by what was held when, and what was let go meanwhile."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from ..audit import PaceFacts
from .findings import Fault
from .history import SqlEvent
from .lives import TRACES, WAITING
from .paces import RELEASED
from .timing import FaultTimes

STEP = 50  # milliseconds by which two clocks may drift apart unless one was set
Spell = tuple[int, int]  # from when to when


def judge(
    events: Sequence[SqlEvent], paces: Sequence[PaceFacts], times: FaultTimes, share: float
) -> Iterator[tuple[None, Fault]]:
    """While at least one job is held, at least this share of the slots is used, faults not counted.

    Of each spell only the cycles count that surely lie in it as a whole, and only under a pace with one rate. Once a clock
    was set, nothing can be said. A pause of the queue is a fault as far as this is concerned.
    """
    steps = [event for event in events if event.kind not in TRACES]
    if not (steps and paces) or any(_is_step(*pair) for pair in pairwise(steps)):
        return
    slots = _slots(steps)
    for pace, spell in _reigns(paces, max(event.at for event in steps)):
        [(gap, burst, stagger)] = set(pace.rates)
        cycle, there, used = max(gap, burst * stagger), 0, 0
        held = _spells(one for one in _held(steps, pace) if one[0] < one[1])
        for begin, end in (calm for one in held for calm in times.calm(*_within(one, spell))):
            whole = max((end - begin) // cycle - 1, 0) * burst
            there += whole
            used += min(bisect_right(slots[pace.queue], end) - bisect_left(slots[pace.queue], begin), whole)
        if used < share * there:
            yield None, ("I8", f"{pace.queue} used {used} of {there} slots while jobs were held")


def _is_step(earlier: SqlEvent, later: SqlEvent) -> bool:
    return abs((later.at - later.boot) - (earlier.at - earlier.boot)) > STEP


def _slots(events: Iterable[SqlEvent]) -> defaultdict[str, list[int]]:
    """Every slot that was used, by queue, in order."""
    slots, lanes = defaultdict[str, list[int]](list), dict[str, int | None]()
    for event in events:
        if event.kind == "changed" and event.lane == RELEASED != lanes.get(event.job) and event.queue:
            slots[event.queue].append(event.due_at)
        lanes[event.job] = event.lane
    for used in slots.values():
        used.sort()
    return slots


def _reigns(paces: Sequence[PaceFacts], last: int) -> Iterator[tuple[PaceFacts, Spell]]:
    """Each pace with one rate, and how long it was in force."""
    for n, pace in enumerate(paces):
        later = (other.at for other in paces[n + 1 :] if other.queue == pace.queue)
        if len(set(pace.rates)) == 1:
            yield pace, (pace.at, next(later, last))


def _held(events: Iterable[SqlEvent], pace: PaceFacts) -> Iterator[Spell]:
    """When each job of the pace's queue was due and in a lane that it governs. One that was let go late, under the slot that
    it had missed, was so up to that slot: what is made up was not wasted."""
    since: dict[str, SqlEvent] = {}
    last = 0
    for event in events:
        last = max(last, event.at)
        before = since.pop(event.job, None)
        if before is not None:
            yield _due(before), _until(before, event.due_at if event.lane == RELEASED else event.at)
        if event.status in WAITING and event.queue == pace.queue and event.lane in pace.lanes:
            since[event.job] = event
    yield from ((_due(event), _until(event, last)) for event in since.values())


def _due(event: SqlEvent) -> int:
    return max(event.at, event.due_at)


def _until(event: SqlEvent, at: int) -> int:
    """What has expired is held no longer, whoever records it and when."""
    return at if event.expires_at is None else min(at, event.expires_at)


def _spells(spans: Iterable[Spell]) -> list[Spell]:
    """Spans that touch or overlap, as one."""
    spells: list[Spell] = []
    for begin, end in sorted(spans):
        if spells and begin <= spells[-1][1]:
            spells[-1] = spells[-1][0], max(end, spells[-1][1])
        else:
            spells.append((begin, end))
    return spells


def _within(one: Spell, other: Spell) -> Spell:
    return max(one[0], other[0]), min(one[1], other[1])

"""Pace: what was let go, slot by slot, held to the rates that were in force. A slot is the due time of a released job."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from ..store.audit import PaceFacts
from .findings import Fault
from .history import SqlEvent
from .lives import TRACES, WAITING
from .timing import FaultTimes

RELEASED = 3
Found = tuple[str | None, Fault]
Rate = tuple[int, int, int]


def judge(events: Sequence[SqlEvent], paces: Sequence[PaceFacts]) -> Iterator[Found]:
    """No job of a governed lane is claimed, no slot is used before its time or twice, and no cycle has more than its burst.

    Clocks that are set, and rates that change, begin anew: what was let go before is not counted with what was after.
    """
    released = defaultdict[str, list[SqlEvent]](list)
    lanes: dict[str, int | None] = {}
    for event in events:
        if event.kind == "changed" and event.lane == RELEASED and lanes.get(event.job) != RELEASED and event.queue:
            released[event.queue].append(event)
            if event.at < event.due_at:
                yield event.job, ("I8", f"was let go at {event.at}, {event.due_at - event.at} ms before its slot")
        elif event.kind == "claimed" and event.lane in _governed(paces, event):
            yield event.job, ("I8", "was claimed although the pace of its queue had not let it go")
        if event.lane is not None:
            lanes[event.job] = event.lane
    for queue, gone in released.items():
        for stretch, rates in _stretches(gone, [pace for pace in paces if pace.queue == queue]):
            yield from _crowded(queue, stretch, rates)


def _governed(paces: Iterable[PaceFacts], event: SqlEvent) -> tuple[int, ...]:
    """The lanes that the pace of the event's queue governs for certain: changes of the same millisecond say nothing."""
    changes = [pace for pace in paces if pace.queue == event.queue and pace.at <= event.at]
    return changes[-1].lanes if changes and changes[-1].at < event.at else ()


def _stretches(gone: Sequence[SqlEvent], paces: Sequence[PaceFacts]) -> Iterator[tuple[list[SqlEvent], set[Rate]]]:
    """What was let go while one pace was in force and no clock was set."""
    stretch: list[SqlEvent] = []
    force: PaceFacts | None = None
    for event in gone:
        now = next((pace for pace in reversed(paces) if pace.at <= event.at), None)
        if stretch and (now != force or _stepped(stretch[-1], event)):
            yield stretch, set(force.rates if force else ())
            stretch = []
        stretch, force = [*stretch, event], now
    if stretch:
        yield stretch, set(force.rates if force else ())


def _stepped(earlier: SqlEvent, later: SqlEvent) -> bool:
    """Whether the clock was set meanwhile: back by what it shows, or against the time since the machine's boot."""
    return later.at < earlier.at or abs((later.at - later.boot) - (earlier.at - earlier.boot)) > 1


def _crowded(queue: str, events: Sequence[SqlEvent], rates: set[Rate]) -> Iterator[Found]:
    stretch = sorted(events, key=lambda event: (event.at, event.due_at))  # one statement moves its rows in any order
    for earlier, later in pairwise(stretch):
        if later.due_at < earlier.due_at:
            yield later.job, ("I8", f"used a slot of {queue} that had passed before {earlier.due_at} was used")
    slots = [event.due_at for event in stretch]
    staggers = min((stagger for _, _, stagger in rates), default=0)
    if staggers > 0 and len(set(slots)) < len(slots):
        yield None, ("I8", f"a slot of {queue} was used twice")
    if len(rates) != 1:
        return
    [(gap, burst, stagger)] = rates
    for n, slot in enumerate(slots):
        within = bisect_left(slots, slot + max(gap, burst * stagger)) - n
        if slots == sorted(slots) and within > burst:
            yield None, ("I8", f"{queue} let {within} jobs go in a cycle from {slot}; its burst is {burst}")


# Pace, the other half: while jobs are held, slots are used. Told by what was held when, and what was let go meanwhile.


STEP = 50  # milliseconds by which two clocks may drift apart unless one was set
Spell = tuple[int, int]  # from when to when


def judge_backlogs(
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

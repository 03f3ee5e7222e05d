"""Judges paces: the releases of a queue must keep to the rate in force, and must use it while jobs are held.

The due time of a released job is the release time that it used.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec

from ..store.audit import PaceFacts
from .findings import Fault, Found
from .history import SqlEvent
from .lives import TRACES, WAITING
from .timing import FaultTimes

RELEASED = 3  # the lane of released jobs
EVERY_QUEUE = "*"  # in place of a queue: all that have no pace of their own. The checker shares no code with the core
STEP = 50  # milliseconds by which two clocks may drift apart unless one was set

GapBurstStagger = tuple[int, int, int]
Spell = tuple[int, int]  # its beginning and its end


def judge(events: Sequence[SqlEvent], paces: Sequence[PaceFacts]) -> Iterator[Found]:
    """No job of a governed lane is claimed, no release time is used early or twice, and no cycle has more releases
    than its burst.

    When a clock is set or a rate changes, counting starts again: releases before and after are not counted together.
    """
    released = defaultdict[str, list[SqlEvent]](list)
    lanes: dict[str, int | None] = {}
    paces = _by_queue(paces, events)
    for event in events:
        if event.kind == "changed" and event.lane == RELEASED and lanes.get(event.job) != RELEASED and event.queue:
            released[event.queue].append(event)
            if event.at < event.due_at:
                yield event.job, ("I8", f"was released at {event.at}, {event.due_at - event.at} ms before its release time")
        elif event.kind == "claimed" and event.lane in _governed(paces, event):
            yield event.job, ("I8", "was claimed although the pace of its queue had not released it")
        if event.lane is not None:
            lanes[event.job] = event.lane
    for queue, gone in released.items():
        for stretch, rates in _stretches(gone, [pace for pace in paces if pace.queue == queue]):
            yield from _crowded(queue, stretch, rates)


def judge_backlogs(
    events: Sequence[SqlEvent], paces: Sequence[PaceFacts], times: FaultTimes, share: float
) -> Iterator[tuple[None, Fault]]:
    """While at least one job is held, the pace uses at least this share of its release times. Times of faults do not
    count.

    Only cycles that certainly lie in a spell as a whole count, and only those of a pace with a single rate. Nothing is
    judged if a clock was set. A pause of the queue must be given as a fault.
    """
    steps = [event for event in events if event.kind not in TRACES]
    if not (steps and paces) or any(_is_step(*pair) for pair in pairwise(steps)):
        return
    releases, paces = _release_times(steps), _by_queue(paces, steps)
    for pace, spell in _reigns(paces, max(event.at for event in steps)):
        [(gap, burst, stagger)] = set(pace.rates)
        cycle, there, used = max(gap, burst * stagger), 0, 0
        held = _spells(one for one in _held(steps, pace) if one[0] < one[1])
        for begin, end in (calm for one in held for calm in times.calm(*_within(one, spell))):
            whole = max((end - begin) // cycle - 1, 0) * burst
            there += whole
            used += min(bisect_right(releases[pace.queue], end) - bisect_left(releases[pace.queue], begin), whole)
        if used < share * there:
            yield None, ("I8", f"{pace.queue} used {used} of {there} release times while jobs were held")


def _by_queue(paces: Sequence[PaceFacts], events: Iterable[SqlEvent]) -> list[PaceFacts]:
    """Return the paces that each queue kept to: those of all queues, until it had one of its own or was left out."""
    if all(pace.queue != EVERY_QUEUE for pace in paces):
        return list(paces)
    return [pace for queue in sorted({event.queue for event in events if event.queue}) for pace in kept_to(queue, paces)]


def kept_to(queue: str, paces: Iterable[PaceFacts]) -> Iterator[PaceFacts]:
    """Yield the paces that a queue kept to, from changes in order: those of all queues unless it had one of its own or was
    left out, and again once it follows them."""
    shared, follows = PaceFacts(EVERY_QUEUE, 0), True
    for pace in paces:
        if pace.queue == EVERY_QUEUE:
            shared = pace
            if follows:
                yield msgspec.structs.replace(pace, queue=queue)
        elif pace.queue == queue:
            follows = pace.follows
            yield msgspec.structs.replace(shared, queue=queue, at=pace.at) if follows else pace


def _governed(paces: Iterable[PaceFacts], event: SqlEvent) -> tuple[int, ...]:
    """Return the lanes that the pace of the event's queue certainly governs. After a change in the same millisecond it is
    uncertain."""
    changes = [pace for pace in paces if pace.queue == event.queue and pace.at <= event.at]
    return changes[-1].lanes if changes and changes[-1].at < event.at else ()


def _stretches(
    gone: Sequence[SqlEvent], paces: Sequence[PaceFacts]
) -> Iterator[tuple[list[SqlEvent], set[GapBurstStagger]]]:
    """Yield the releases in groups: in each, one pace was in force and no clock was set."""
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
    """Whether the clock was set between two events: it went back, or moved against the time since the machine's boot."""
    return later.at < earlier.at or abs((later.at - later.boot) - (earlier.at - earlier.boot)) > 1


def _crowded(queue: str, events: Sequence[SqlEvent], rates: set[GapBurstStagger]) -> Iterator[Found]:
    stretch = sorted(events, key=lambda event: (event.at, event.due_at))  # one statement writes its rows in any order
    for earlier, later in pairwise(stretch):
        if later.due_at < earlier.due_at:
            yield later.job, ("I8", f"used a release time of {queue} that was before {earlier.due_at}, which had been used")
    releases = [event.due_at for event in stretch]
    staggers = min((stagger for _, _, stagger in rates), default=0)
    if staggers > 0 and len(set(releases)) < len(releases):
        yield None, ("I8", f"a release time of {queue} was used twice")
    if len(rates) != 1:
        return
    [(gap, burst, stagger)] = rates
    for n, first in enumerate(releases):
        within = bisect_left(releases, first + max(gap, burst * stagger)) - n
        if releases == sorted(releases) and within > burst:
            yield None, ("I8", f"{queue} released {within} jobs in a cycle from {first}; its burst is {burst}")


def _is_step(earlier: SqlEvent, later: SqlEvent) -> bool:
    return abs((later.at - later.boot) - (earlier.at - earlier.boot)) > STEP


def _release_times(events: Iterable[SqlEvent]) -> defaultdict[str, list[int]]:
    """Return the release times that were used, by queue, in order."""
    releases, lanes = defaultdict[str, list[int]](list), dict[str, int | None]()
    for event in events:
        if event.kind == "changed" and event.lane == RELEASED != lanes.get(event.job) and event.queue:
            releases[event.queue].append(event.due_at)
        lanes[event.job] = event.lane
    for used in releases.values():
        used.sort()
    return releases


def _reigns(paces: Sequence[PaceFacts], last: int) -> Iterator[tuple[PaceFacts, Spell]]:
    """Yield each pace with a single rate, and the time in which it was in force."""
    for n, pace in enumerate(paces):
        later = (other.at for other in paces[n + 1 :] if other.queue == pace.queue)
        if len(set(pace.rates)) == 1:
            yield pace, (pace.at, next(later, last))


def _held(events: Iterable[SqlEvent], pace: PaceFacts) -> Iterator[Spell]:
    """Yield when each job of the pace's queue was due and in a lane that the pace governs. A job that was released late
    counts as held until its release time, since one that is made up is not wasted."""
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
    """Return when a job was no longer held: at a time, or at its expiry if that is earlier."""
    return at if event.expires_at is None else min(at, event.expires_at)


def _spells(spans: Iterable[Spell]) -> list[Spell]:
    """Merge spans that touch or overlap."""
    spells: list[Spell] = []
    for begin, end in sorted(spans):
        if spells and begin <= spells[-1][1]:
            spells[-1] = spells[-1][0], max(end, spells[-1][1])
        else:
            spells.append((begin, end))
    return spells


def _within(one: Spell, other: Spell) -> Spell:
    return max(one[0], other[0]), min(one[1], other[1])

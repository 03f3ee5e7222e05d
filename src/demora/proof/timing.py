"""Judges timing: how late jobs started outside of faults, and how long the queues took to drain after them."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from operator import attrgetter

from .findings import Fault
from .history import SqlEvent, WorldEvent
from .lives import WAITING

RESCUED = "rescued"
CALM = frozenset({"healed", "drained", RESCUED})

EventTime = Callable[[SqlEvent | WorldEvent], int]  # reads the time of an event
WALL: EventTime = attrgetter("at")
BOOT: EventTime = attrgetter("boot")


class FaultTimes:
    """The times of faults: each from a fault until all faults are over, by one clock."""

    def __init__(self, world: Sequence[WorldEvent], clock: EventTime = WALL) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        for event in sorted(world, key=clock):
            disturbed = len(self._begins) > len(self._ends)
            if event.kind == "healed" and disturbed:
                self._ends.append(clock(event))
            elif event.kind not in CALM and not disturbed:
                self._begins.append(clock(event))

    def calm_since(self, ready: int, started: int) -> int | None:
        """Return since when no fault delayed a job that was ready and has started; None if it started during a fault."""
        n = bisect_right(self._begins, started) - 1
        if n < 0:
            return ready
        return None if n >= len(self._ends) or started <= self._ends[n] else max(ready, self._ends[n])

    def calm(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of a span without faults."""
        for fault, healed in zip_longest(self._begins, self._ends):
            if begin < min(fault, end):
                yield begin, min(fault, end)
            if healed is None:
                return
            begin = max(begin, healed)
        if begin < end:
            yield begin, end


def judge_starts(events: Sequence[SqlEvent], times: FaultTimes, bound: int) -> Iterator[Fault]:
    """Each claim comes within the bound after the job was due and waiting. Times of faults do not count.

    The bound must allow for the queueing that the load causes. A pause must be given as a fault.
    """
    since = 0
    for event in events:
        if event.kind == "claimed":
            calm = times.calm_since(max(since, event.due_at), event.at)
            if calm is not None and event.at - calm > bound:
                yield "I7", f"started {event.at - calm} ms after it could have started; {bound} ms are allowed"
        elif event.status in WAITING:
            since = event.at


def judge_rescues(
    world: Sequence[WorldEvent], lives: Mapping[str, Sequence[SqlEvent]], bound: int
) -> Iterator[tuple[str, Fault]]:
    """No safety net has to find a job that moved without a fault, longer ago than the bound: until then it may be on its
    way."""
    times = FaultTimes(world, _clock_of(world))
    for event, since, found in rescues(world, lives, bound):
        if times.calm_since(since, found) == since:
            late = f"{found - since} ms after it moved, and there was no fault"
            yield event.job or "", ("I7", f"was found by a safety net ({event.detail}) {late}")


def rescues(
    world: Sequence[WorldEvent], lives: Mapping[str, Sequence[SqlEvent]], bound: int
) -> Iterator[tuple[WorldEvent, int, int]]:
    """Yield the rescues of jobs that still waited, and had moved longer ago than the bound; when they had moved; and when
    they were found."""
    clock = _clock_of(world)
    for event in world:
        if event.kind == RESCUED:
            found, moves = clock(event), lives.get(event.job or "", ())
            before = [move for move in moves if clock(move) <= found and move.status is not None]
            if before and before[-1].status in WAITING and found - clock(before[-1]) > bound:
                yield event, clock(before[-1]), found


def _clock_of(world: Sequence[WorldEvent]) -> EventTime:
    """The clock that is never set, if all events have its time."""
    return WALL if any(event.boot is None for event in world) else BOOT


def judge_draining(world: Sequence[WorldEvent], bound: int) -> Iterator[Fault]:
    healed = next((event.at for event in reversed(world) if event.kind == "healed"), None)
    drained = next((event.at for event in reversed(world) if event.kind == "drained"), None)
    if healed is not None and (drained is None or drained - healed > bound):
        took = "never" if drained is None else f"in {drained - healed} ms"
        yield "I16", f"the queues drained {took} after all faults were over; {bound} ms are allowed"

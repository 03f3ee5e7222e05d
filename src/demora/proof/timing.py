"""Judges timing: how late jobs started outside of faults, and how long the queues took to drain after them."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from .findings import Fault
from .history import SqlEvent, WorldEvent
from .lives import WAITING

RESCUED = "rescued"
CALM = frozenset({"healed", "drained", RESCUED})


class FaultTimes:
    """The times of faults: each from a fault until all faults are over."""

    def __init__(self, world: Sequence[WorldEvent]) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        for event in world:
            disturbed = len(self._begins) > len(self._ends)
            if event.kind == "healed" and disturbed:
                self._ends.append(event.at)
            elif event.kind not in CALM and not disturbed:
                self._begins.append(event.at)

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
    world: Sequence[WorldEvent], lives: Mapping[str, Sequence[SqlEvent]], times: FaultTimes, bound: int
) -> Iterator[tuple[str, Fault]]:
    """No safety net has to find a job that moved without a fault, longer ago than the bound: until then it may be on its
    way."""
    for event, since in rescues(world, lives, bound):
        if times.calm_since(since, event.at) == since:
            found = (
                f"was found by a safety net ({event.detail}) {event.at - since} ms after it moved, and there was no fault"
            )
            yield event.job or "", ("I7", found)


def rescues(
    world: Sequence[WorldEvent], lives: Mapping[str, Sequence[SqlEvent]], bound: int
) -> Iterator[tuple[WorldEvent, int]]:
    """Yield the rescues of jobs that still waited, and had moved longer ago than the bound; and when they had moved."""
    for event in world:
        if event.kind == RESCUED:
            before = [move for move in lives.get(event.job or "", ()) if move.at <= event.at and move.status is not None]
            if before and before[-1].status in WAITING and event.at - before[-1].at > bound:
                yield event, before[-1].at


def judge_draining(world: Sequence[WorldEvent], bound: int) -> Iterator[Fault]:
    healed = next((event.at for event in reversed(world) if event.kind == "healed"), None)
    drained = next((event.at for event in reversed(world) if event.kind == "drained"), None)
    if healed is not None and (drained is None or drained - healed > bound):
        took = "never" if drained is None else f"in {drained - healed} ms"
        yield "I16", f"the queues drained {took} after all faults were over; {bound} ms are allowed"

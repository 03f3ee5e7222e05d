"""Pace: what was let go, slot by slot, held to the rates that were in force. A slot is the due time of a released job."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from ..audit import PaceFacts
from .findings import Fault
from .history import SqlEvent

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

"""Statistics: what became of runs, and how late and how long they were, in windows of time. Pure.

Each settled run is counted in the window of 10 s in which it was settled. A window holds counts and histograms, so windows
can be added up: over processes, over types, and over longer windows when they get older. Windows of 10 s become minutes
after an hour, and minutes become hours after a day; after a week the window is deleted.

A histogram counts values in bins whose bounds grow by a factor of 2^(1/4). A percentile is the middle of its bin, so it is
off by at most 10 % from 0.1 ms to 7 days, however many values there are and however they were added up. The largest value
is kept exactly.

A caller may make up any number of queues and types. A window keeps 1,000 pairs of them by name and counts the others as
`other`, and a series covers about a hundred of them at a time, so storage and memory are bounded.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from heapq import nsmallest
from math import ceil, sqrt
from typing import TypeVar

import msgspec

from .job import Lane
from .spans import from_ms, span_ms
from .states import Status

T = TypeVar("T")

WINDOW = timedelta(seconds=10)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
WINDOW_MS = span_ms(WINDOW)
# Windows of each width, how long they are kept, and the width of the windows that they are added to then. The margins keep
# the windows of the last hour and of the last day narrow, whenever they are asked for.
THINNED = ((WINDOW, HOUR + MINUTE, MINUTE), (MINUTE, DAY + HOUR, HOUR))
KEPT = 7 * DAY + HOUR
CLOSED_AFTER = WINDOW  # from the end of a window until the counts of all processes in it are added up

MOST_PAIRS = 1000  # of a queue and a type that a window keeps by name
OTHER = "other"  # the queue and the type of all further pairs
MOST_RANKED = 10_000  # names that a ranking knows at one time

BINS_PER_OCTAVE = 4
SMALLEST_US = 100  # the upper bound of the first bin
_LARGEST_US = span_ms(7 * DAY) * 1000

BOUNDS = tuple(
    round(SMALLEST_US * 2 ** (n / BINS_PER_OCTAVE))
    for n in range(200)
    if SMALLEST_US * 2 ** (n / BINS_PER_OCTAVE) <= _LARGEST_US
)
"""The upper bounds of the bins in microseconds; the last bin has none."""

BinCounts = dict[int, int]  # of values, by the number of their bin


def bin_of(us: int) -> int:
    """Return the number of the bin that counts this many microseconds."""
    return bisect_right(BOUNDS, us)


_bin_of = partial(bisect_right, BOUNDS)  # saves a call for each value


def _add(counts: BinCounts, more: BinCounts) -> None:
    for number, count in more.items():
        counts[number] = counts.get(number, 0) + count


class Tally(msgspec.Struct, array_like=True):
    """What is counted in one window.

    - `completed`, `failed`, `retried`, `cancelled`: settled runs, by what became of the job. `returned` are the runs that
      were no attempts: handed back, snoozed, or without a handler.
    - `realtime`, `delayed`: how late runs began, from the due time of the job to the start of the run, for jobs that were
      enqueued to run at once and for all others. `run`: how long they took. Attempts whose lease held are counted here.
    - `released`: jobs that a pace released. `held`: how long it had held them, from their due time.
    - `latest_realtime`, `latest_delayed`, `longest`, `longest_held`: the largest values of these, in microseconds.
    - `ready`, `waiting`: the most ready and the most delayed jobs that were counted in a queue at one time.
    """

    completed: int = 0
    failed: int = 0
    retried: int = 0
    cancelled: int = 0
    returned: int = 0
    released: int = 0
    realtime: BinCounts = {}
    delayed: BinCounts = {}
    run: BinCounts = {}
    held: BinCounts = {}
    latest_realtime: int = 0
    latest_delayed: int = 0
    longest: int = 0
    longest_held: int = 0
    ready: int = 0
    waiting: int = 0

    def add_run(self, status: Status, *, counts: bool) -> None:
        """Count a settled run: the new status of its job, and whether the run counts as an attempt. PostgreSQL counts the
        same classes in SQL."""
        if not counts and not status.ended:
            self.returned += 1
        elif status is Status.COMPLETED:
            self.completed += 1
        elif status is Status.FAILED:
            self.failed += 1
        elif status is Status.CANCELLED:
            self.cancelled += 1
        else:
            self.retried += 1

    def add_successes(self, lane: int, times: Sequence[tuple[int, int]]) -> None:
        """Count successful attempts of jobs that were claimed from one lane: how late each began, and how long it took, in
        microseconds."""
        self.completed += len(times)
        lates, rans = [max(late, 0) for late, _ in times], [ran for _, ran in times]
        if lane == Lane.REALTIME:
            counts, self.latest_realtime = self.realtime, max(self.latest_realtime, *lates)
        else:
            counts, self.latest_delayed = self.delayed, max(self.latest_delayed, *lates)
        self.longest = max(self.longest, *rans)
        _add(counts, Counter(map(_bin_of, lates)))
        _add(self.run, Counter(map(_bin_of, rans)))

    def add_times(self, lane: int, late_us: int, ran_us: int) -> None:
        """Count how late an attempt began, and how long it took. `lane` is the one that its job was claimed from."""
        late = max(late_us, 0)
        if lane == Lane.REALTIME:
            counts, self.latest_realtime = self.realtime, max(self.latest_realtime, late)
        else:
            counts, self.latest_delayed = self.delayed, max(self.latest_delayed, late)
        self.longest = max(self.longest, ran_us)
        number, ran = bin_of(late), bin_of(ran_us)
        counts[number] = counts.get(number, 0) + 1
        self.run[ran] = self.run.get(ran, 0) + 1

    def add_release(self, held_us: int) -> None:
        """Count a release of a job that a pace had held for so long."""
        held, self.released = max(held_us, 0), self.released + 1
        number = bin_of(held)
        self.held[number] = self.held.get(number, 0) + 1
        self.longest_held = max(self.longest_held, held)

    def add(self, other: "Tally") -> None:
        """Add what another window, process or type counted."""
        self.completed += other.completed
        self.failed += other.failed
        self.retried += other.retried
        self.cancelled += other.cancelled
        self.returned += other.returned
        self.released += other.released
        _add(self.realtime, other.realtime)
        _add(self.delayed, other.delayed)
        _add(self.run, other.run)
        _add(self.held, other.held)
        self.latest_realtime = max(self.latest_realtime, other.latest_realtime)
        self.latest_delayed = max(self.latest_delayed, other.latest_delayed)
        self.longest = max(self.longest, other.longest)
        self.longest_held = max(self.longest_held, other.longest_held)
        self.ready = max(self.ready, other.ready)
        self.waiting = max(self.waiting, other.waiting)

    @property
    def latest(self) -> int:
        return max(self.latest_realtime, self.latest_delayed)

    @property
    def late(self) -> BinCounts:
        """How late all runs began, whichever lane their jobs came from."""
        numbers = self.realtime.keys() | self.delayed.keys()
        return {number: self.realtime.get(number, 0) + self.delayed.get(number, 0) for number in numbers}


class Key(msgspec.Struct, frozen=True):
    """A window of one queue and type: its beginning and width in milliseconds. The type is empty for counts of a queue."""

    queue: str
    type: str
    at: int
    width: int


Windows = dict[Key, Tally]
Name = tuple[str, str]  # a queue and a type
Window = tuple[int, int]  # the width and the beginning of a window


def begin_of(at: int, width: int) -> int:
    """Return the beginning of the window of this width that a time is in, all in milliseconds."""
    return at - at % width


def widened(windows: Iterable[tuple[Key, Tally]], width: timedelta | None = None) -> Windows:
    """Add windows up: those of the same key, or those that are in the same window of this width."""
    ms, sums = None if width is None else span_ms(width), Windows()
    for key, tally in windows:
        wide = key if ms is None or key.width >= ms else Key(key.queue, key.type, begin_of(key.at, ms), ms)
        if (total := sums.get(wide)) is None:
            total = sums[wide] = Tally()  # its histograms are its own: those of `tally` stay as they are
        total.add(tally)
    return sums


def capped(windows: Windows, known: Mapping[Window, Set[Name]]) -> Windows:
    """Count further pairs as `other` once a window has `MOST_PAIRS` by name, and do the same for the depths of queues.
    `known` has the names in the windows that have so many, or will have with these."""
    named = {
        (place, typed): {name for name in names if bool(name[1]) is typed and name[0] != OTHER}
        for place, names in known.items()
        for typed in (True, False)
    }
    kept = Windows()
    for key, tally in windows.items():
        names = named.setdefault(((key.width, key.at), bool(key.type)), set())
        if (key.queue, key.type) not in names and key.queue:  # without a queue it says that the minute was sampled
            if len(names) >= MOST_PAIRS:
                key = Key(OTHER, key.type and OTHER, key.at, key.width)
            else:
                names.add((key.queue, key.type))
        kept.setdefault(key, Tally()).add(tally)
    return kept


class Stretch(Enum):
    """How far back a series goes, and how far apart its points are."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"

    @property
    def length(self) -> timedelta:
        return {Stretch.HOUR: HOUR, Stretch.DAY: DAY, Stretch.WEEK: 7 * DAY}[self]

    @property
    def step(self) -> timedelta:
        return {Stretch.HOUR: MINUTE, Stretch.DAY: 15 * MINUTE, Stretch.WEEK: HOUR}[self]

    def points(self, now: datetime) -> list[datetime]:
        """Return the beginnings of its points, oldest first. The last one is that of the step that `now` is in."""
        step, count = span_ms(self.step), self.length // self.step
        last = begin_of(round(now.timestamp() * 1000), step)
        return [from_ms(last - n * step) for n in reversed(range(count))]


# Series


Steps = dict[int, Tally]  # by the beginning of the step, in milliseconds
ReadyAndDelayed = tuple[int, int]  # how many jobs are ready, and how many are delayed
Depths = dict[int, ReadyAndDelayed]


class Series:
    """Takes the windows of a stretch, in any order, and adds them up by step: `all` runs, and those of the queues and types
    that are named. Without names it takes all of them; with more than `most` it is `crowded` and has seen enough.

    The windows of one step usually follow each other. Those of a queue and type are added up first and then, when another
    step begins or `end` is called, to `all`, their queue and their type.

    `depths` are the largest depths of each queue in a step, `deepest` those of all queues together.
    """

    def __init__(
        self,
        stretch: Stretch,
        *,
        queues: Collection[str] | None = None,
        types: Collection[str] | None = None,
        most: int = 100,
    ) -> None:
        self.stretch, self._step, self._most = stretch, span_ms(stretch.step), most
        self._asked = (None if queues is None else frozenset(queues), None if types is None else frozenset(types))

    def begin(self, now: datetime) -> None:
        """Forget what was taken before: all windows follow."""
        self.now, self.crowded = now, False
        self.all: Steps = {}
        self.queues: dict[str, Steps] = {}
        self.types: dict[str, Steps] = {}
        self.depths: dict[str, Depths] = {}
        self._together: dict[Window, ReadyAndDelayed] = {}
        self._at, self._pairs = 0, dict[Name, tuple[Tally, list[Steps]]]()

    def take(self, key: Key, tally: Tally) -> bool:
        """Add a window. Returns whether it needs more."""
        at = begin_of(key.at, self._step)
        if not key.type:
            self._take_depth(key, at, (tally.ready, tally.waiting))
            return not self.crowded
        if at != self._at:
            self.end()
            self._at = at
        pair = self._pairs.get((key.queue, key.type))
        if pair is None:
            named = (self._of(self.queues, key.queue, self._asked[0]), self._of(self.types, key.type, self._asked[1]))
            pair = Tally(), [self.all, *(steps for steps in named if steps is not None)]
            self._pairs[key.queue, key.type] = pair
        pair[0].add(tally)
        return not self.crowded

    def end(self) -> None:
        """Add up what is left, after the last window."""
        for tally, sums in self._pairs.values():
            for steps in sums:
                steps.setdefault(self._at, Tally()).add(tally)
        self._pairs = {}

    def _take_depth(self, key: Key, at: int, depth: ReadyAndDelayed) -> None:
        place = key.width, key.at
        ready, delayed = self._together.get(place, (0, 0))
        self._together[place] = ready + depth[0], delayed + depth[1]
        depths = self._of(self.depths, key.queue, self._asked[0])
        if depths is not None:
            depths[at] = _deeper(depths.get(at), depth)

    def _of(self, known: "dict[str, dict[int, T]]", name: str, asked: Set[str] | None) -> "dict[int, T] | None":
        """The steps of a queue or type; None if it is not asked for, or if there are enough."""
        if (steps := known.get(name)) is not None:
            return steps
        if asked is None and len(known) >= self._most:
            self.crowded = True
        elif asked is None or name in asked:
            return known.setdefault(name, {})
        return None

    @property
    def deepest(self) -> Depths:
        largest = Depths()
        for (_, at), depth in self._together.items():
            step = begin_of(at, self._step)
            largest[step] = _deeper(largest.get(step), depth)
        return largest


def _deeper(one: ReadyAndDelayed | None, other: ReadyAndDelayed) -> ReadyAndDelayed:
    return other if one is None else (max(one[0], other[0]), max(one[1], other[1]))


class Ranking:
    """Takes the windows of a stretch, in any order, and ranks queues and types by their runs; a queue also by its depth.

    It knows some ten thousand names at a time, and forgets the smallest if there are more. A name with many runs stays.
    """

    def begin(self, now: datetime) -> None:
        """Forget what was taken before: all windows follow."""
        self.queues, self.types = dict[str, int](), dict[str, int]()

    def take(self, key: Key, tally: Tally) -> bool:
        """Count a window. Returns whether it needs more, as it always does."""
        runs = tally.completed + tally.failed + tally.retried + tally.cancelled
        if key.type:
            _rank(self.types, key.type, self.types.get(key.type, 0) + runs)
            _rank(self.queues, key.queue, self.queues.get(key.queue, 0) + runs)
        else:
            _rank(self.queues, key.queue, max(self.queues.get(key.queue, 0), tally.ready + tally.waiting))
        return True


def _rank(sizes: dict[str, int], name: str, size: int) -> None:
    sizes[name] = size
    if len(sizes) > 2 * MOST_RANKED:
        for least in sorted(sizes, key=sizes.__getitem__)[:MOST_RANKED]:
            del sizes[least]


def largest(sizes: Mapping[str, int], most: int) -> list[str]:
    """Return the names with the largest sizes, the largest first."""
    return nsmallest(most, sizes, key=lambda name: (-sizes[name], name))


# Percentiles


class Percentiles(msgspec.Struct, frozen=True):
    """The distribution of some times, in milliseconds: how many there are, and None for the rest if there are none."""

    count: int
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


def percentiles(counts: BinCounts, largest: int) -> Percentiles:
    """Return the distribution of a histogram whose largest value, in microseconds, is known."""
    total = sum(counts.values())
    if not total:
        return Percentiles(0)
    ranks, found, below = [ceil(total * part) for part in (0.5, 0.95, 0.99)], list[float](), 0
    for number in sorted(counts):
        below += counts[number]
        while len(found) < len(ranks) and below >= ranks[len(found)]:
            found.append(min(middle(number), largest) / 1000)
    p50, p95, p99 = found
    return Percentiles(total, p50, p95, p99, largest / 1000)


def middle(number: int) -> int:
    """Return the value that stands for all values of a bin, in microseconds."""
    if number == 0:
        return SMALLEST_US // 2
    if number == len(BOUNDS):
        return BOUNDS[-1]
    return round(sqrt(BOUNDS[number - 1] * BOUNDS[number]))

"""Statistics: what became of runs in the last hour, day or week, how late and how long they were, and what a pace did.

All callers of one event loop share a reading. It is reused for a second, or for 20 times as long as it took.

A reading is kept as a `Digest`. Its size is bounded, even with many queues and types: it has the points of all runs, and
those of about a hundred queues and types with the most runs. Others are read when a caller names them.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from ..core.pace import EVERY_QUEUE
from ..core.spans import MILLISECOND, to_ms
from ..core.statistics import (
    MINUTE,
    Depths,
    Percentiles,
    Ranking,
    Series,
    Steps,
    Stretch,
    Tally,
    largest,
    percentiles,
)
from ..core.workers import WorkerRecord
from ..errors import Invalid, StoreError
from ..store.paces import Pacing
from ..store.statistics import Standing
from ..store.store import Store
from .counts import Counts, JobCounts, Stats
from .diagnostics import Diagnostics, Health
from .shared import Shared

USUAL_NAMED, MOST_NAMED = 20, 100  # queues or types in one answer
MOST_SERIES = 100  # queues and types with series that are kept: those with the most runs
MOST_ADDED = 50  # queues that are kept beside them since they have the most jobs, and as many that have a pace
MOST_ASKED = 8  # readings of queues and types by name that are kept
COUNT_FOR = 0.2  # seconds that a call may spend on counting the jobs added in earlier minutes


class Flow(msgspec.Struct, frozen=True, rename="camel"):
    """The runs that were settled in a stretch of time, and their times in milliseconds.

    `completed`, `failed`, `retried` and `cancelled` count runs by what became of their jobs, `returned` those that were no
    attempts. `lateness` is from the due time to the start, `runTime` from the start to the end.
    """

    completed: int
    failed: int
    retried: int
    cancelled: int
    returned: int
    lateness: Percentiles
    run_time: Percentiles


class FlowPoint(msgspec.Struct, frozen=True, rename="camel"):
    """One step of a series. Times are milliseconds, and null if no run was settled.

    `ready` and `delayed` are the largest counts of waiting jobs in the step, null if they were not counted: they are counted
    once a minute. `added` is null if it was not counted.
    """

    at: datetime
    completed: int
    failed: int
    retried: int
    cancelled: int
    lateness_p50: float | None
    lateness_p99: float | None
    run_time_p50: float | None
    run_time_p99: float | None
    ready: int | None = None
    delayed: int | None = None
    added: int | None = None


class OldestReady(msgspec.Struct, frozen=True, rename="camel"):
    """The job that has been ready longest: its queue, its due time, and the milliseconds since."""

    queue: str
    due_at: datetime
    waits: int


class Slots(msgspec.Struct, frozen=True):
    """The live workers, their slots, and how many slots run a job."""

    workers: int
    slots: int
    busy: int


class MetricsOverview(msgspec.Struct, frozen=True, rename="camel"):
    """The system at one moment, and the runs of the last hour, day or week (`span`).

    `series` has a point for each `step` milliseconds, oldest first. `jobs` were counted at `countedAt`. `line` says whether
    the Redis line hands out the jobs, null if there is none.
    """

    now: datetime
    span: str
    step: int
    jobs: JobCounts
    counted_at: datetime
    total: Flow
    series: list[FlowPoint]
    oldest_ready: OldestReady | None
    slots: Slots
    database: Health
    line: bool | None


class FlowSeries(msgspec.Struct, frozen=True):
    """The runs of the last hour, day or week (`span`): in all, and a point for each `step` milliseconds, oldest first."""

    now: datetime
    span: str
    step: int
    total: Flow
    series: list[FlowPoint]


class QueueMetrics(msgspec.Struct, frozen=True, rename="camel"):
    """A queue: its jobs, and its runs."""

    queue: str
    jobs: JobCounts
    oldest_ready_at: datetime | None
    total: Flow
    series: list[FlowPoint]


class TypeMetrics(msgspec.Struct, frozen=True):
    """The runs of one type of job."""

    type: str
    total: Flow
    series: list[FlowPoint]


class WorkerMetrics(msgspec.Struct, frozen=True, rename="camel"):
    """A live worker: its slots, how many of them run a job, and the milliseconds since its last heartbeat."""

    id: str
    host: str
    pid: int
    slots: int
    busy: int
    queues: tuple[str, ...]
    types: tuple[str, ...]
    started_at: datetime | None
    heartbeat_ago: int


class QueuesMetrics(msgspec.Struct, frozen=True, rename="camel"):
    """The queues with the most runs and jobs; `more` says how many are left out. Beyond 10,000 names it is a lower bound."""

    now: datetime
    span: str
    step: int
    queues: list[QueueMetrics]
    more: int


class TypesMetrics(msgspec.Struct, frozen=True, rename="camel"):
    """The types with the most runs; `more` says how many are left out. Beyond 10,000 names it is a lower bound."""

    now: datetime
    span: str
    step: int
    types: list[TypeMetrics]
    more: int


class WorkersMetrics(msgspec.Struct, frozen=True):
    """The live workers."""

    now: datetime
    workers: list[WorkerMetrics]


class PaceEffect(msgspec.Struct, frozen=True, rename="camel"):
    """What a pace did in a stretch of time, with times in milliseconds: how many jobs it released, how long it had held them
    (`held`), and how late the real-time jobs of the protected queues began meanwhile (`realTimeWait`)."""

    released: int
    held: Percentiles
    real_time_wait: Percentiles


class PaceHistory(msgspec.Struct, frozen=True, rename="camel"):
    """What a pace did in the last hour and in the last day."""

    last_hour: PaceEffect
    last_day: PaceEffect


class Part(msgspec.Struct, frozen=True):
    """The runs of a queue, of a type, or of all: together, and by step."""

    total: Tally
    series: list[FlowPoint]


class Digest(msgspec.Struct, frozen=True):
    """A reading as it is kept: all runs, and those of queues and types. If it lacks some of these, it is `crowded`.
    `queue_names` and `type_names` say how many there are, as far as they were counted."""

    now: datetime
    stretch: Stretch
    crowded: bool
    all: Part
    queues: dict[str, Part]
    types: dict[str, Part]
    queue_names: int
    type_names: int


Asked = tuple[Stretch, frozenset[str], frozenset[str]]  # queues and types


class Statistics:
    """Reads the metrics of one store. Counts of jobs come from `counts`, which `stats` shares."""

    def __init__(self, store: Store, counts: Counts, diagnostics: Diagnostics) -> None:
        self._store, self._counts, self._diagnostics = store, counts, diagnostics
        self._turn = asyncio.Lock()  # one reading at a time
        self._digests = {stretch: Shared(self._reader(stretch)) for stretch in Stretch}
        self._asked: OrderedDict[Asked, Shared[Digest]] = OrderedDict()  # the last ones asked for
        self._standing = Shared(lambda: store.statistics.standing())
        self._added: dict[datetime, int] = {}  # by minute

    async def metrics_overview(self, span: str = "hour") -> MetricsOverview:
        """Return the state of the system, and what became of runs in the last `hour`, `day` or `week`.

        Only the last hour says how many jobs were added. Those are counted from the jobs that still exist; minutes that were
        not counted yet are None.
        """
        stretch = read_stretch(span)
        digest, stats = await self._digests[stretch].get(), await self._counts.stats()
        standing, workers = await self._standing.get(), await self._diagnostics.workers()
        added = await self._added_in(stretch.points(digest.now)) if stretch is Stretch.HOUR else {}
        return MetricsOverview(
            now=digest.now,
            span=stretch.value,
            step=stretch.step // MILLISECOND,
            jobs=stats.total,
            counted_at=stats.counted_at,
            total=_flow(digest.all.total),
            series=[msgspec.structs.replace(point, added=added.get(point.at)) for point in digest.all.series],
            oldest_ready=_oldest(standing),
            slots=_slots(workers, standing),
            database=await self._health(),
            line=self._diagnostics.line_used(),
        )

    async def flow(self, span: str = "hour") -> FlowSeries:
        """Return what became of runs in the last `hour`, `day` or `week`. It counts no jobs."""
        digest = await self._digests[read_stretch(span)].get()
        return _flow_series(digest, digest.all)

    async def flow_of_queues(self, names: Iterable[str], span: str = "hour") -> dict[str, FlowSeries]:
        """Return what became of the runs of these queues, as far as they have any. It counts no jobs."""
        digest, asked = await self._digests[read_stretch(span)].get(), [*names]
        found = await self._parts(digest, queues=asked)
        return {name: _flow_series(digest, found[name]) for name in asked if name in found}

    async def flow_of_queue(self, name: str, span: str = "hour") -> FlowSeries:
        """Return what became of the runs of one queue, also if it has none. It counts no jobs."""
        digest = await self._digests[read_stretch(span)].get()
        return _flow_series(digest, (await self._parts(digest, queues=[name])).get(name, _nothing(digest)))

    async def metrics_queues(
        self, span: str = "hour", *, name: str | None = None, limit: int = USUAL_NAMED
    ) -> QueuesMetrics:
        """Return the runs and the jobs of the queues with the most runs and jobs, or of one queue."""
        stretch = read_stretch(span)
        digest, stats = await self._digests[stretch].get(), await self._counts.stats()
        standing = await self._standing.get()
        found = digest.queues if name is None else await self._parts(digest, queues=[name])
        names = {name} if name is not None else set(found) if digest.crowded else {*found, *stats.queues}
        known = digest.queue_names if name is None and digest.crowded else len(names)
        shown = _most(names, lambda queue: _size(found.get(queue)) + _jobs(stats, queue), limit)

        def show(queue: str) -> QueueMetrics:
            part, jobs = found.get(queue, _nothing(digest)), stats.queues.get(queue, JobCounts())
            return QueueMetrics(queue, jobs, standing.due_since.get(queue), _flow(part.total), part.series)

        step = stretch.step // MILLISECOND
        return QueuesMetrics(digest.now, stretch.value, step, [*map(show, shown)], max(known, len(names)) - len(shown))

    async def metrics_types(self, span: str = "hour", *, name: str | None = None, limit: int = USUAL_NAMED) -> TypesMetrics:
        """Return the runs of the types with the most runs, or of one type."""
        stretch = read_stretch(span)
        digest = await self._digests[stretch].get()
        found = digest.types if name is None else await self._parts(digest, types=[name])
        names = set(found) if name is None else {name}
        shown = _most(names, lambda type: _size(found.get(type)), limit)

        def show(type: str) -> TypeMetrics:
            part = found.get(type, _nothing(digest))
            return TypeMetrics(type, _flow(part.total), part.series)

        more = (digest.type_names if name is None else 1) - len(shown)
        return TypesMetrics(digest.now, stretch.value, stretch.step // MILLISECOND, [*map(show, shown)], max(more, 0))

    async def metrics_workers(self) -> WorkersMetrics:
        """Return the live workers, with how many of their slots run a job."""
        standing = await self._standing.get()
        workers = [_worker(worker, standing) for worker in await self._diagnostics.workers()]
        return WorkersMetrics(standing.now, sorted(workers, key=lambda worker: worker.id))

    async def pace_history(self, pacings: Iterable[Pacing] | None = None) -> dict[str, PaceHistory]:
        """Return what the pace of each queue did in the last hour and day, or of these queues."""
        paced = [one for one in (await self._store.paces.all() if pacings is None else pacings) if one.queue != EVERY_QUEUE]
        if not paced:
            return {}
        queues = sorted({queue for one in paced for queue in (one.queue, *one.pace.protected(one.queue))})
        hour, day = [await self._totals(stretch, queues) for stretch in (Stretch.HOUR, Stretch.DAY)]
        return {pacing.queue: PaceHistory(_effect(pacing, hour), _effect(pacing, day)) for pacing in paced}

    def _reader(self, stretch: Stretch) -> Callable[[], Awaitable[Digest]]:
        """Reads a stretch once if there are few queues and types. Otherwise it ranks them first."""

        async def read() -> Digest:
            async with self._turn:
                series = Series(stretch, most=MOST_SERIES)
                await self._store.statistics.read(stretch, series)
                if not series.crowded:
                    return await asyncio.to_thread(digest_of, series)
                del series
                ranking = Ranking()
                await self._store.statistics.read(stretch, ranking)
                queues = {*largest(ranking.queues, MOST_SERIES), *await self._noted()}
                series = Series(stretch, queues=queues, types=largest(ranking.types, MOST_SERIES))
                await self._store.statistics.read(stretch, series)
                known = len(ranking.queues), len(ranking.types)
                return await asyncio.to_thread(digest_of, series, crowded=True, known=known)

        return read

    async def _noted(self) -> list[str]:
        """The queues that people look at though others have more runs: those with the most jobs, and with a pace."""
        stats, paces = await self._counts.stats(), await self._store.paces.all()
        jobs = largest({queue: _jobs(stats, queue) for queue in stats.queues}, MOST_ADDED)
        return [*jobs, *largest({pacing.queue: pacing.held for pacing in paces}, MOST_ADDED)]

    async def _parts(
        self, digest: Digest, *, queues: Collection[str] = (), types: Collection[str] = ()
    ) -> Mapping[str, Part]:
        """The runs of some queues or types: from the digest, or read anew if it may lack them."""
        known = digest.queues if queues else digest.types
        if not digest.crowded or known.keys() >= {*queues, *types}:
            return known
        asked = (digest.stretch, frozenset(queues), frozenset(types))
        if asked not in self._asked:
            self._asked[asked] = Shared(self._named_reader(asked))
        self._asked.move_to_end(asked)
        if len(self._asked) > MOST_ASKED:
            self._asked.popitem(last=False)
        found = await self._asked[asked].get()
        return found.queues if queues else found.types

    def _named_reader(self, asked: Asked) -> Callable[[], Awaitable[Digest]]:
        stretch, queues, types = asked

        async def read() -> Digest:
            async with self._turn:
                series = Series(stretch, queues=queues, types=types)
                await self._store.statistics.read(stretch, series)
                return await asyncio.to_thread(digest_of, series, crowded=True)

        return read

    async def _totals(self, stretch: Stretch, queues: Sequence[str]) -> dict[str, Tally]:
        """The runs of queues, a hundred at a time."""
        digest, totals = await self._digests[stretch].get(), dict[str, Tally]()
        missing = [queue for queue in queues if queue not in digest.queues] if digest.crowded else []
        pieces = [missing[first : first + MOST_SERIES] for first in range(0, len(missing), MOST_SERIES)]
        for parts in (digest.queues, *[await self._parts(digest, queues=piece) for piece in pieces]):
            totals |= {queue: part.total for queue, part in parts.items()}
        return totals

    async def _health(self) -> Health:
        try:
            return await self._diagnostics.health()
        except StoreError:
            return Health("unhealthy", "the database does not answer or refuses writes", 0)

    async def _added_in(self, minutes: list[datetime]) -> dict[datetime, int]:
        """Count the jobs added in each minute, the newest first, as far as the time reaches. A minute that is over
        is counted once, so a job that was deleted since then still counts."""
        now = asyncio.get_running_loop().time
        until, open_since = now() + COUNT_FOR, minutes[-1] - MINUTE
        for minute in reversed(minutes):
            if minute >= open_since or minute not in self._added:
                [self._added[minute]] = await self._store.statistics.added([minute], MINUTE)
                if now() > until:
                    break
        self._added = {minute: count for minute, count in self._added.items() if minute >= minutes[0]}
        return self._added


def read_stretch(span: str) -> Stretch:
    """Return the stretch of this name; `Invalid` if there is none."""
    try:
        return Stretch(span)
    except ValueError:
        raise Invalid("span", f"must be one of {', '.join(stretch.value for stretch in Stretch)}") from None


def digest_of(series: Series, *, crowded: bool = False, known: tuple[int, int] | None = None) -> Digest:
    """Return the digest of a reading that has ended: points instead of histograms."""
    series.end()

    def part(steps: Steps, depths: Depths) -> Part:
        return Part(_sum(steps.values()), _points(series, steps, depths))

    queues = series.queues.keys() | series.depths.keys()
    counts = known or (len(queues), len(series.types))
    return Digest(
        now=series.now,
        stretch=series.stretch,
        crowded=crowded,
        all=part(series.all, series.deepest),
        queues={queue: part(series.queues.get(queue, {}), series.depths.get(queue, {})) for queue in queues},
        types={type: part(steps, {}) for type, steps in series.types.items()},
        queue_names=counts[0],
        type_names=counts[1],
    )


def _nothing(digest: Digest) -> Part:
    """A queue or type without runs."""
    return Part(Tally(), [_point(at, Tally(), None) for at in digest.stretch.points(digest.now)])


def _most(names: Iterable[str], size: Callable[[str], int], limit: int) -> list[str]:
    if not 1 <= limit <= MOST_NAMED:
        raise Invalid("limit", f"must be from 1 to {MOST_NAMED}")
    return sorted(names, key=lambda name: (-size(name), name))[:limit]


def _size(part: Part | None) -> int:
    return 0 if part is None else part.total.completed + part.total.failed + part.total.retried + part.total.cancelled


def _jobs(stats: Stats, queue: str) -> int:
    return sum(msgspec.structs.astuple(stats.queues.get(queue, JobCounts())))


def _sum(tallies: Iterable[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total.add(tally)
    return total


def _flow(total: Tally) -> Flow:
    ends = (total.completed, total.failed, total.retried, total.cancelled, total.returned)
    return Flow(*ends, percentiles(total.late, total.latest), percentiles(total.run, total.longest))


def _flow_series(digest: Digest, part: Part) -> FlowSeries:
    step = digest.stretch.step // MILLISECOND
    return FlowSeries(digest.now, digest.stretch.value, step, _flow(part.total), part.series)


def _points(series: Series, steps: Steps, depths: Depths) -> list[FlowPoint]:
    """Return a point for each step, also for those without a run."""
    points = [(at, to_ms(at)) for at in series.stretch.points(series.now)]
    return [_point(at, steps.get(ms, Tally()), depths.get(ms)) for at, ms in points]


def _point(at: datetime, tally: Tally, depth: tuple[int, int] | None) -> FlowPoint:
    late, run = percentiles(tally.late, tally.latest), percentiles(tally.run, tally.longest)
    ready, delayed = (None, None) if depth is None else depth
    return FlowPoint(
        *(at, tally.completed, tally.failed, tally.retried, tally.cancelled),
        *(late.p50, late.p99, run.p50, run.p99),
        ready=ready,
        delayed=delayed,
    )


def _oldest(standing: Standing) -> OldestReady | None:
    if not standing.due_since:
        return None
    queue = min(standing.due_since, key=lambda name: (standing.due_since[name], name))
    due_at = standing.due_since[queue]
    return OldestReady(queue, due_at, max(standing.now - due_at, timedelta(0)) // MILLISECOND)


def _slots(workers: list[WorkerRecord], standing: Standing) -> Slots:
    busy = sum(min(standing.running.get(worker.id, 0), worker.slots) for worker in workers)
    return Slots(len(workers), sum(worker.slots for worker in workers), busy)


def _worker(worker: WorkerRecord, standing: Standing) -> WorkerMetrics:
    return WorkerMetrics(
        id=worker.id,
        host=worker.host,
        pid=worker.pid,
        slots=worker.slots,
        busy=min(standing.running.get(worker.id, 0), worker.slots),  # a worker also leases a few jobs ahead
        queues=worker.queues,
        types=worker.types,
        started_at=worker.started_at,
        heartbeat_ago=worker.heartbeat_ago // MILLISECOND,
    )


def _effect(pacing: Pacing, totals: Mapping[str, Tally]) -> PaceEffect:
    mine = totals.get(pacing.queue, Tally())
    protected = pacing.pace.protected(pacing.queue)
    theirs = _sum(totals[queue] for queue in protected if queue in totals)
    held, waits = percentiles(mine.held, mine.longest_held), percentiles(theirs.realtime, theirs.latest_realtime)
    return PaceEffect(mine.released, held, waits)

"""The store on SQLite: one file, any number of processes, one writer at a time."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence, Set
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw

from ...core.access import ApiKey, KeyLimits, NameKind, NewKey, NewSecret
from ...core.job import Job, NewJob
from ...core.retention import Retention
from ...core.spans import span_ms
from ...core.states import Status
from ...store.api_keys import KeyList, KeyLookup
from ...store.audit import Evidence, SqlEvent
from ...store.diagnostics import Activity, JobsOverview
from ...store.jobs import (
    ALL_QUEUES,
    Added,
    Answer,
    Change,
    Claimed,
    HousekeepingResult,
    Lease,
    LeaseStatus,
    Page,
    Query,
    Queue,
    QueueChange,
    QueueQuery,
    Report,
    Settlement,
    Subscription,
    Topic,
    WorkerRecord,
)
from ...store.line_feed import Arrangement, Cursor, Drawn, Entry, LineRecord, Move, Moved, Standing, Walked
from ...system.clock import Clock, SystemClock
from . import additions, changes, claims, connections, diagnostics, line_feed, registry, runs, views, webhooks
from .connections import WAITS, Waits
from .locking import FileWatch, Stall, Turns, WriteProbe
from .notifier import Notifier, Waiter, bells_of
from .releases import PacedVerbs
from .transactions import (
    READING,
    WRITING,
    Batches,
    InlineTransactor,
    QuickReads,
    Searches,
    ThreadTransactor,
    Transaction,
    Transactor,
)

T = TypeVar("T")

MOST_NAMES = 10_000  # queues remembered as named
UNHURRIED = frozenset({Topic.EXPIRY, Topic.PACE})
SCAN = 1000  # the weight of a read that may scan: such go to their thread
APART_CACHE = 2048  # KiB of cache for a connection that only reads now and then
USUAL = 4096  # bytes of a payload or result that weigh as much as a job


class SqliteStore(webhooks.HookVerbs, PacedVerbs):
    """Keeps the port's promises on one SQLite file, or in memory when there is no path.

    With `inline` all runs on the event loop: for simulation. A database in memory always does. With `audit` an event is
    written for each transition, by every process from then on, until `end_audit`. It is `Audited` either way.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        clock: Clock | None = None,
        inline: bool = False,
        connect: Callable[[Path | None], apsw.Connection] = connections.connect,
        bells: Notifier | None = None,
        audit: bool = False,
        waits: Waits = WAITS,
        stall: Stall | None = None,
    ) -> None:
        self.path = path
        self.clock = clock or SystemClock()
        self._inline = inline or path is None
        self._audit = audit
        self._connect = connect
        self._bells = bells if self._inline or path is None else bells or Notifier(path)
        self._sleepers: dict[Waiter, None] = {}  # in the order of their coming
        self._named_queues: set[str] = set()
        self._unplaced: Callable[[], None] = lambda: None
        self._writes: Transactor | None = None
        self._reads: Transactor | None = None
        self._quick: QuickReads | None = None
        self._searches: Searches | None = None
        self._waits, self._stall = waits, stall or Stall()
        self._probe = WriteProbe(lambda: self._write(registry.touch))

    async def open(self) -> None:
        if self._writes is not None:
            return
        self._named_queues.clear()
        make_writer = partial(self._batches, WRITING)
        if self._inline:
            self._writes = self._reads = InlineTransactor(make_writer(), self._woken)
            await self._write(self._begin)
            return
        writes = ThreadTransactor(make_writer, self._woken, "demora-sqlite-writer")
        await writes.start()
        reads = ThreadTransactor(partial(self._batches, READING), self._woken, "demora-sqlite-reader")
        try:
            await reads.start()
            await writes.run(self._begin, 1)
        except BaseException:
            await _close(reads, writes)
            raise
        self._writes, self._reads = writes, reads
        self._quick, self._searches = QuickReads(self._reader), Searches(self._reader)

    async def close(self) -> None:
        writes, reads = self._writes, self._reads
        self._writes = self._reads = None
        quick, searches = self._quick, self._searches
        self._quick = self._searches = None
        for apart in (quick, searches):
            if apart is not None:
                await apart.close()
        await _close(*([writes] if writes is reads else [reads, writes]))
        if self._bells is not None:
            self._bells.close()
        for sleeper in list(self._sleepers):
            sleeper.wake()

    def sibling(self) -> "SqliteStore | None":
        if self._inline:
            return None
        return SqliteStore(self.path, clock=self.clock, waits=self._waits, stall=self._stall)

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        weight = len(jobs) + sum(len(job.payload) for job in jobs) // USUAL
        answers = await self._write(lambda tx: additions.add(tx, jobs, self._named_queues), weight)
        unnamed = {job.queue for job in jobs} - self._named_queues
        if unnamed and len(self._named_queues) < MOST_NAMES and not any(answer.conflict for answer in answers):
            self._named_queues |= unnamed  # only now: what was not committed is not on record
        return answers

    async def claim(
        self,
        worker_id: str,
        limit: int,
        *,
        lease: timedelta,
        queues: Sequence[str] | None = None,
        in_turn: bool = False,
    ) -> Claimed:
        request = claims.ClaimRequest(worker_id, limit, span_ms(lease), queues, in_turn)
        claimed, asked = await self._write(lambda tx: (claims.claim(tx, request), tx.wall_us), limit)
        return claims.as_of_now(claimed, self.clock.wall_us() - asked)

    async def renew(self, reports: Sequence[Report], *, lease: timedelta) -> LeaseStatus:
        return await self._write(lambda tx: runs.renew(tx, reports, span_ms(lease)), len(reports))

    async def listen(self, leases: Sequence[Lease]) -> LeaseStatus:
        return await self._read(lambda tx: runs.listen(tx, leases))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        weight = len(settlements) + sum(len(s.verdict.result or b"") for s in settlements) // USUAL
        return await self._write(lambda tx: runs.settle(tx, settlements), weight)

    async def cancel(self, ids: Sequence[str]) -> list[Answer]:
        return await self._write(lambda tx: [changes.cancel(tx, id) for id in ids], len(ids))

    async def retry(self, ids: Sequence[str]) -> list[Answer]:
        return await self._write(lambda tx: [changes.retry(tx, id) for id in ids], len(ids))

    async def change(self, id: str, change: Change) -> Answer:
        return await self._write(lambda tx: changes.change(tx, id, change))

    async def remove(self, ids: Sequence[str]) -> list[Answer]:
        return await self._write(lambda tx: [changes.remove(tx, id) for id in ids], len(ids))

    async def purge(self, status: Status, *, older_than: timedelta, limit: int, queue: str | None = None) -> int:
        return await self._write(lambda tx: changes.purge(tx, status, span_ms(older_than), limit, queue), limit)

    async def housekeep(self, retention: Retention, *, limit: int) -> HousekeepingResult:
        return await self._write(lambda tx: changes.housekeep(tx, retention, limit), limit)

    async def get(self, id: str) -> Job | None:
        return await self._read(lambda tx: views.get(tx, id), weight=1)

    async def find(self, query: Query) -> Page:
        look = partial(views.find, query=query)
        return await (self._search(look, query.within) if query.reads_many else self._read(look))

    async def queues(self, which: QueueQuery = ALL_QUEUES) -> list[Queue]:
        look = partial(views.queues, which=which)
        return await (self._search(look, which.within) if which.reads_many else self._read(look))

    async def set_queue(self, name: str, change: QueueChange) -> Queue:
        return await self._write(lambda tx: registry.set_queue(tx, name, change))

    async def heartbeat(self, worker: WorkerRecord) -> None:
        await self._write(lambda tx: registry.heartbeat(tx, worker))

    async def retire(self, worker_id: str) -> None:
        await self._write(lambda tx: registry.retire(tx, worker_id))

    async def workers(self) -> list[WorkerRecord]:
        return await self._look(registry.workers)

    @contextlib.contextmanager
    def subscribe(self, topic: Topic) -> Iterator[Subscription]:
        watches = topic not in UNHURRIED and not self._inline  # who waits for those looks by itself often enough
        sleeper = Waiter(topic, self.clock, self._data_version if watches else None)
        if self._bells is not None:
            reachable = self._bells.hang(topic, lambda: self._woken({topic}))
            sleeper.reachable = reachable or not watches
        self._sleepers[sleeper] = None
        try:
            yield sleeper
        finally:
            self._sleepers.pop(sleeper, None)

    # API keys

    async def add_key(self, key: NewKey) -> ApiKey:
        return await self._write(lambda tx: registry.add_key(tx, key))

    async def keys(self) -> KeyList:
        return await self._read(registry.list_keys)

    async def find_key(self, id: str) -> KeyLookup:
        return await self._look(lambda tx: registry.find_key(tx, id))

    async def revoke_key(self, id: str) -> ApiKey | None:
        return await self._write(lambda tx: registry.revoke_key(tx, id))

    async def rotate_key(self, secret: NewSecret) -> ApiKey | None:
        return await self._write(lambda tx: registry.rotate(tx, secret))

    async def limit_key(self, id: str, limits: KeyLimits) -> ApiKey | None:
        return await self._write(lambda tx: registry.limit(tx, id, limits))

    async def forget_key(self, id: str) -> bool:
        return await self._write(lambda tx: registry.forget_key(tx, id))

    async def use_key(self, id: str, *, unless_within: timedelta) -> bool:
        return await self._write(lambda tx: registry.use_key(tx, id, span_ms(unless_within)))

    async def name_for_key(self, id: str, queues: Set[str], types: Set[str], limits: KeyLimits) -> NameKind | None:
        return await self._write(lambda tx: registry.name(tx, id, queues, types, limits))

    async def waiting_for_key(self, id: str, *, most: int) -> int:
        return await self._read(lambda tx: registry.waiting(tx, id, most))

    # What can be shown to a checker

    async def events(self, after: int = 0) -> list[SqlEvent]:
        return await self._read(lambda tx: diagnostics.events(tx, after))

    async def evidence(self, *, integrity: bool = True) -> Evidence:
        return await self._read(lambda tx: diagnostics.evidence(tx, integrity=integrity))

    async def end_audit(self) -> None:
        await self._write(diagnostics.end_audit)

    # What can be told to those who look after it

    async def overview(self) -> JobsOverview:
        return await self._read(diagnostics.overview)

    async def activity(self, mark: int | None = None) -> Activity:
        return await self._read(lambda tx: diagnostics.activity(tx, mark))

    def notes(self) -> tuple[str, ...]:
        return ()

    async def probe(self) -> None:
        await self._probe.ask()

    # What is done for the sake of a line

    def wall_us(self) -> int | None:
        return self.clock.wall_us()

    async def read_clock(self) -> int:
        return self.clock.wall_us()

    def on_unplaced(self, callback: Callable[[], None]) -> None:
        self._unplaced = callback

    async def begin_lining(self) -> LineRecord:
        return await self._write(line_feed.begin)

    async def bump(self, expected: int, *, above: int, run: str) -> LineRecord:
        return await self._write(lambda tx: line_feed.bump(tx, expected, above, run))

    async def draw(self, worker_id: str, entries: Sequence[Entry], *, lease: timedelta) -> Drawn:
        request = claims.ClaimRequest(worker_id, len(entries), span_ms(lease), None, False)
        return await self._write(lambda tx: claims.draw(tx, request, entries), len(entries))

    async def standings(self, ids: Sequence[str]) -> list[Standing]:
        return await self._read(lambda tx: line_feed.standings(tx, ids), len(ids))

    async def position(self) -> str:
        return await self._read(line_feed.position, weight=1)

    async def moved(self, since: str, within: timedelta, limit: int, after: Move | None = None) -> Moved | None:
        return await self._read(lambda tx: line_feed.moved(tx, since, span_ms(within), limit, after))

    async def walk(self, within: timedelta, limit: int, after: Cursor | None = None, *, since: int | None = None) -> Walked:
        return await self._read(lambda tx: line_feed.walk(tx, span_ms(within), limit, after, since))

    async def arrangements(self) -> list[Arrangement]:
        return await self._read(line_feed.arrangements, weight=1)

    def _begin(self, tx: Transaction) -> None:
        if self._audit:
            diagnostics.begin_audit(tx)
        registry.note_boot(tx, self.clock.boot_id())

    def _write(self, call: Callable[[Transaction], T], weight: int = 1) -> "asyncio.Future[T]":
        return connections.opened(self._writes).run(call, weight)

    def _read(self, call: Callable[[Transaction], T], weight: int = SCAN) -> "asyncio.Future[T]":
        return connections.opened(self._reads).run(call, weight)

    async def _look(self, call: Callable[[Transaction], T]) -> T:
        """Read what is found at once, and wait for no other read."""
        return await (self._read(call, weight=1) if self._quick is None else self._quick.run(call))

    async def _search(self, call: Callable[[Transaction], T], within: timedelta | None) -> T:
        """Read what may take long, and let no other read wait for it. On the event loop itself it is not limited."""
        return await (self._read(call) if self._searches is None else self._searches.run(call, within))

    async def _reader(self, name: str) -> ThreadTransactor:
        reader = ThreadTransactor(self._apart, self._woken, name)
        starting = asyncio.ensure_future(reader.start())
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])
            if starting.exception() is None:
                await reader.close()
            raise
        return reader

    def _apart(self) -> Batches:
        batches = self._batches("begin")
        batches.set_cache(APART_CACHE)
        return batches

    def _batches(self, begin: str) -> Batches:
        timer = (lambda: 0.0) if self._inline else time.perf_counter  # inline, nobody waits for the lock
        turns = Turns(None if self._inline or self.path is None else bells_of(self.path), limit=self._waits.turn)
        db = self._connect(self.path)
        try:
            watch = FileWatch(db) if begin == WRITING and not self._inline else None
        except BaseException:
            db.close()
            raise
        if begin == READING:
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # the writer, which goes last, knows whether it may
        return Batches(
            *(db, begin, self._clocks, self._ring, timer, turns),
            watch=watch,
            stall=self._stall,
            waits=self._waits,
            on_unplaced=lambda: self._unplaced(),
        )

    def _clocks(self) -> tuple[int, int]:
        return self.clock.wall_us(), self.clock.boot()

    def _ring(self, topics: set[Topic]) -> None:
        if self._bells is not None:
            self._bells.ring(topics)

    def _woken(self, topics: set[Topic]) -> None:
        for sleeper in list(self._sleepers):
            if sleeper.topic in topics:
                sleeper.wake()

    async def _data_version(self) -> int:
        """Grows when another connection writes; asked on the writer, which does not count its own writes."""
        return await connections.opened(self._writes).bare(_data_version)


async def _close(*transactors: Transactor | None) -> None:
    for transactor in transactors:
        if transactor is not None:
            await transactor.close()


def _data_version(db: apsw.Connection) -> int:
    return int(db.pragma("data_version"))

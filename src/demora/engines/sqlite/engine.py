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
from ...core.pace import USUAL_PACE, Pace
from ...core.pace_request import PaceRequest
from ...core.retention import Retention
from ...core.spans import span_ms
from ...core.states import Status
from ...core.webhook import Secret
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
from ...store.paces import Outlook, PaceChange, Pacing, Released
from ...store.webhooks import Disabled, Signing, StoredSecret
from ...system.clock import Clock, SystemClock
from . import (
    additions,
    changes,
    claims,
    connections,
    diagnostics,
    line_feed,
    paces,
    registry,
    releases,
    runs,
    views,
    webhooks,
)
from .connections import WAITS, Waits
from .locking import FileWatch, Stall, Turns, WriteProbe
from .notifier import Notifier, Waiter, sockets_folder
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

MOST_NAMES = 10_000  # queue names that a store remembers as recorded
UNHURRIED = frozenset({Topic.EXPIRY, Topic.PACE})  # those who wait for these also look by themselves, often enough
SCAN = 1000  # the weight of a read that may scan a table: it always runs on the reader's thread
SPARE_CACHE = 2048  # KiB of cache for a connection that is read from now and then
BYTES_PER_JOB = 4096  # of payload or result: this much weighs as much as one job


class SqliteStore:
    """The store on one SQLite file, or in memory when there is no path.

    With `inline` every call runs on the event loop, as a simulation needs it; a database in memory always runs so. With
    `audit` every process records an event for each transition of a job, from now on until `end_audit`. The class implements
    `AuditStore` with and without it.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        clock: Clock | None = None,
        inline: bool = False,
        connect: Callable[[Path | None], apsw.Connection] = connections.connect,
        notifier: Notifier | None = None,
        audit: bool = False,
        waits: Waits = WAITS,
        stall: Stall | None = None,
    ) -> None:
        self.path = path
        self.clock = clock or SystemClock()
        self._inline = inline or path is None
        self._audit = audit
        self._connect = connect
        self._notifier = notifier if self._inline or path is None else notifier or Notifier(path)
        self._waiters: dict[Waiter, None] = {}  # in the order of their subscriptions
        self._named_queues: set[str] = set()
        self._on_unplaced: Callable[[], None] = lambda: None
        self._writes: Transactor | None = None
        self._reads: Transactor | None = None
        self._quick: QuickReads | None = None
        self._searches: Searches | None = None
        self._sockets = None if self._inline or path is None else sockets_folder(path)
        self._waits, self._stall = waits, stall or Stall(self._sockets and self._sockets / "stalled")
        self._probe = WriteProbe(lambda: self._write(registry.touch))

    async def open(self) -> None:
        if self._writes is not None:
            return
        self._named_queues.clear()
        make_writer = partial(self._batches, WRITING)
        if self._inline:
            self._writes = self._reads = InlineTransactor(make_writer(), self._wake)
            await self._write(self._begin)
            return
        writes = ThreadTransactor(make_writer, self._wake, "demora-sqlite-writer")
        await writes.start()
        reads = ThreadTransactor(partial(self._batches, READING), self._wake, "demora-sqlite-reader")
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
        for readers in (quick, searches):
            if readers is not None:
                await readers.close()
        await _close(*([writes] if writes is reads else [reads, writes]))
        if self._notifier is not None:
            self._notifier.close()
        for waiter in list(self._waiters):
            waiter.wake()

    def sibling(self) -> "SqliteStore | None":
        if self._inline:
            return None
        return SqliteStore(self.path, clock=self.clock, waits=self._waits, stall=self._stall)

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        weight = len(jobs) + sum(len(job.payload) for job in jobs) // BYTES_PER_JOB
        answers = await self._write(lambda tx: additions.add(tx, jobs, self._named_queues), weight)
        unnamed = {job.queue for job in jobs} - self._named_queues
        if unnamed and len(self._named_queues) < MOST_NAMES and not any(answer.conflict for answer in answers):
            self._named_queues |= unnamed  # only now that the names are committed
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
        claimed, read_at = await self._write(lambda tx: (claims.claim(tx, request), tx.wall_us), limit)
        return claims.as_of_now(claimed, self.clock.wall_us() - read_at)

    async def renew(self, reports: Sequence[Report], *, lease: timedelta) -> LeaseStatus:
        return await self._write(lambda tx: runs.renew(tx, reports, span_ms(lease)), len(reports))

    async def listen(self, leases: Sequence[Lease]) -> LeaseStatus:
        return await self._read(lambda tx: runs.listen(tx, leases))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        weight = len(settlements) + sum(len(s.verdict.result or b"") for s in settlements) // BYTES_PER_JOB
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
        find = partial(views.find, query=query)
        return await (self._search(find, query.within) if query.reads_many else self._read(find))

    async def queues(self, which: QueueQuery = ALL_QUEUES) -> list[Queue]:
        count = partial(views.queues, which=which)
        return await (self._search(count, which.within) if which.reads_many else self._read(count))

    async def set_queue(self, name: str, change: QueueChange) -> Queue:
        return await self._write(lambda tx: registry.set_queue(tx, name, change))

    async def heartbeat(self, worker: WorkerRecord) -> None:
        await self._write(lambda tx: registry.heartbeat(tx, worker))

    async def retire(self, worker_id: str) -> None:
        await self._write(lambda tx: registry.retire(tx, worker_id))

    async def workers(self) -> list[WorkerRecord]:
        return await self._read_quickly(registry.workers)

    @contextlib.contextmanager
    def subscribe(self, topic: Topic) -> Iterator[Subscription]:
        watches_file = topic not in UNHURRIED and not self._inline
        waiter = Waiter(topic, self.clock, self._data_version if watches_file else None)
        if self._notifier is not None:
            reachable = self._notifier.listen(topic, lambda: self._wake({topic}))
            waiter.reachable = reachable or not watches_file
        self._waiters[waiter] = None
        try:
            yield waiter
        finally:
            self._waiters.pop(waiter, None)

    # PaceStore

    async def set_pace(
        self, queue: str, request: PaceRequest | None, *, by: str, usual: Pace = USUAL_PACE, setting: str | None = None
    ) -> Pacing | None:
        return await self._write(lambda tx: paces.set_pace(tx, queue, request, by, usual, setting))

    async def release(self, queues: Sequence[str] | None = None, *, wake: bool = True) -> Released:
        return await self._write(lambda tx: releases.release(tx, queues, wake=wake))

    async def pacings(self) -> list[Pacing]:
        return await self._read(paces.pacings)

    async def pace_changes(self, queue: str, *, limit: int) -> list[PaceChange]:
        return await self._read(lambda tx: paces.changes(tx, queue, limit))

    async def outlook(self, id: str) -> Outlook | None:
        return await self._read(lambda tx: releases.outlook(tx, id))

    # ApiKeyStore

    async def add_key(self, key: NewKey) -> ApiKey:
        return await self._write(lambda tx: registry.add_key(tx, key))

    async def keys(self) -> KeyList:
        return await self._read(registry.list_keys)

    async def find_key(self, id: str) -> KeyLookup:
        return await self._read_quickly(lambda tx: registry.find_key(tx, id))

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

    # WebhookStore

    async def deliveries(self, cause: str) -> list[Job]:
        return await self._read(lambda tx: webhooks.deliveries(tx, cause))

    async def add_secret(self, id: str, secret: Secret, *, others_end_in: timedelta | None = None) -> StoredSecret:
        return await self._write(lambda tx: webhooks.add_secret(tx, id, secret, others_end_in))

    async def forget_secret(self, id: str) -> bool:
        return await self._write(lambda tx: webhooks.forget_secret(tx, id))

    async def signing(self, url: str = "") -> Signing:
        return await self._read(lambda tx: webhooks.signing(tx, url), weight=1)

    async def disable(self, url: str, reason: str) -> None:
        await self._write(lambda tx: webhooks.disable(tx, url, reason))

    async def enable(self, url: str) -> bool:
        return await self._write(lambda tx: webhooks.enable(tx, url))

    async def disabled(self) -> list[Disabled]:
        return await self._read(webhooks.disabled)

    # AuditStore

    async def events(self, after: int = 0) -> list[SqlEvent]:
        return await self._read(lambda tx: diagnostics.events(tx, after))

    async def evidence(self, *, integrity: bool = True) -> Evidence:
        return await self._read(lambda tx: diagnostics.evidence(tx, integrity=integrity))

    async def end_audit(self) -> None:
        await self._write(diagnostics.end_audit)

    # DiagnosticsStore and Probed

    async def overview(self) -> JobsOverview:
        return await self._read(diagnostics.overview)

    async def activity(self, mark: int | None = None) -> Activity:
        return await self._read(lambda tx: diagnostics.activity(tx, mark))

    def notes(self) -> tuple[str, ...]:
        return ()

    async def probe(self) -> None:
        await self._probe.ask()

    # LineFeed

    def wall_us(self) -> int | None:
        return self.clock.wall_us()

    def on_unplaced(self, callback: Callable[[], None]) -> None:
        self._on_unplaced = callback

    async def read_clock(self) -> int:
        return self.clock.wall_us()

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

    # How calls reach the database

    def _begin(self, tx: Transaction) -> None:
        if self._audit:
            diagnostics.begin_audit(tx)
        registry.note_boot(tx, self.clock.boot_id())

    def _write(self, call: Callable[[Transaction], T], weight: int = 1) -> "asyncio.Future[T]":
        return connections.opened(self._writes).run(call, weight)

    def _read(self, call: Callable[[Transaction], T], weight: int = SCAN) -> "asyncio.Future[T]":
        return connections.opened(self._reads).run(call, weight)

    async def _read_quickly(self, call: Callable[[Transaction], T]) -> T:
        """Run a read that takes microseconds; it waits for no other read."""
        return await (self._read(call, weight=1) if self._quick is None else self._quick.run(call))

    async def _search(self, call: Callable[[Transaction], T], within: timedelta | None) -> T:
        """Run a read that may take long; no other read waits for it. An inline store ignores the limit of time."""
        return await (self._read(call) if self._searches is None else self._searches.run(call, within))

    async def _reader(self, name: str) -> ThreadTransactor:
        reader = ThreadTransactor(self._spare_batches, self._wake, name)
        starting = asyncio.ensure_future(reader.start())
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])
            if starting.exception() is None:
                await reader.close()
            raise
        return reader

    def _spare_batches(self) -> Batches:
        batches = self._batches(READING)
        batches.set_cache(SPARE_CACHE)
        return batches

    def _batches(self, begin: str) -> Batches:
        timer = (lambda: 0.0) if self._inline else time.perf_counter  # an inline store has no rival for the lock
        turns = Turns(self._sockets, limit=self._waits.turn)
        db = self._connect(self.path)
        try:
            watch = FileWatch(db) if begin == WRITING and not self._inline else None
        except BaseException:
            db.close()
            raise
        if begin == READING:
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # the writer closes last, and decides that
        return Batches(
            *(db, begin, self._clocks, self._notify, timer, turns),
            watch=watch,
            stall=self._stall,
            waits=self._waits,
            on_unplaced=lambda: self._on_unplaced(),
        )

    def _clocks(self) -> tuple[int, int]:
        return self.clock.wall_us(), self.clock.boot()

    def _notify(self, topics: set[Topic]) -> None:
        if self._notifier is not None:
            self._notifier.notify(topics)

    def _wake(self, topics: set[Topic]) -> None:
        for waiter in list(self._waiters):
            if waiter.topic in topics:
                waiter.wake()

    async def _data_version(self) -> int:
        """A number that changes when another connection writes. On the writer it does not count the writer's own writes."""
        return await connections.opened(self._writes).bare(_data_version)


async def _close(*transactors: Transactor | None) -> None:
    for transactor in transactors:
        if transactor is not None:
            await transactor.close()


def _data_version(db: apsw.Connection) -> int:
    return int(db.pragma("data_version"))

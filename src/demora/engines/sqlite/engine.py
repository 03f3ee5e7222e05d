"""The store on SQLite: one file, any number of processes, one writer at a time."""

import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import apsw

from ...core.job import Job, NewJob
from ...core.retention import Retention
from ...core.spans import span_ms
from ...core.states import Status
from ...core.workers import WorkerRecord
from ...store.jobs import (
    ALL_QUEUES,
    Added,
    Answer,
    Change,
    Claimed,
    ClaimedJob,
    ClaimRequest,
    Count,
    HousekeepingResult,
    Lease,
    LeasedJob,
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
)
from ...system.clock import Clock, SystemClock
from ..sql.adding import is_plain
from ..sql.constants import MOST_NAMES, UNHURRIED
from . import registry, rows
from .api_keys import SqliteApiKeys
from .audit import SqliteAudit, begin_audit
from .connection import connections
from .connection.connections import WAITS, Waits
from .connection.file_watch import OpenedFile
from .connection.locking import Stall
from .connection.transactions import Transaction
from .database import Database
from .diagnostics import SqliteDiagnostics
from .events import SqliteEvents
from .jobs import adding, changes, finding, housekeeping, runs
from .line_feed import SqliteLineFeed
from .notifier import Notifier, Waiter, sockets_folder
from .paces import SqlitePaces
from .schedules import SqliteSchedules
from .statistics import SqliteStatistics, Writer
from .webhooks import SqliteWebhooks

BYTES_PER_JOB = 4096  # of payload or result: this much weighs as much as one job


class SqliteStore:
    """The store on one SQLite file, or in memory when there is no path.

    With `inline` every call runs on the event loop, as a simulation needs it; a database in memory always runs so. With
    `audit` every process records an event for each transition of a job, from now on until `store.audit.end`.
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
        file: OpenedFile | None = None,
    ) -> None:
        self.path = path
        self.clock = clock or SystemClock()
        self._inline = inline or path is None
        self._audit = audit
        self._statistics = Writer(secrets.token_hex(8))
        self._notifier = notifier if self._inline or path is None else notifier or Notifier(path)
        self._waiters: dict[Waiter, None] = {}  # in the order of their subscriptions
        self._named_queues: set[str] = set()
        self._database = Database(
            path,
            self.clock,
            inline=self._inline,
            connect=connect,
            waits=waits,
            stall=stall or Stall(None if self._inline or path is None else sockets_folder(path) / "stalled"),
            notify=self._notify,
            wake=self._wake,
            file=file,
        )
        self.paces = SqlitePaces(self._database)
        self.schedules = SqliteSchedules(self._database)
        self.api_keys = SqliteApiKeys(self._database)
        self.webhooks = SqliteWebhooks(self._database)
        self.diagnostics = SqliteDiagnostics(self._database)
        self.statistics = SqliteStatistics(self._database)
        self.audit = SqliteAudit(self._database)
        self.events = SqliteEvents(self._database)
        self.line_feed = SqliteLineFeed(self._database)

    async def open(self) -> None:
        if not self._database.is_open:
            self._named_queues.clear()
            await self._database.open(self._begin)

    async def close(self) -> None:
        await self._database.close()
        if self._notifier is not None:
            self._notifier.close()
        for waiter in list(self._waiters):
            waiter.wake()

    def sibling(self) -> "SqliteStore | None":
        if self._inline:
            return None
        inner = self._database
        return SqliteStore(self.path, clock=self.clock, waits=inner.waits, stall=inner.stall, file=inner.file)

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        weight = len(jobs) + sum([len(job.payload) for job in jobs]) // BYTES_PER_JOB
        if all(map(is_plain, jobs)):
            answers = await self._database.write_jointly(self._add, jobs, weight)
        else:
            answers = await self._database.write(lambda tx: self._add(tx, jobs), weight)
        unnamed = {job.queue for job in jobs} - self._named_queues
        if unnamed and len(self._named_queues) < MOST_NAMES and not any(answer.conflict for answer in answers):
            self._named_queues |= unnamed  # only now that the names are committed
        return answers

    async def claim(self, request: ClaimRequest) -> Claimed:
        claimed, read_at = await self._database.write(lambda tx: (runs.claim(tx, request), tx.wall_us), request.limit)
        return runs.as_of_now(claimed, self.clock.wall_us() - read_at)

    async def claimed(self, worker_id: str, claim_id: str) -> list[ClaimedJob]:
        return await self._database.read(lambda tx: runs.claimed(tx, worker_id, claim_id))

    async def renew(self, reports: Sequence[Report], *, lease: timedelta) -> LeaseStatus:
        return await self._database.write(lambda tx: runs.renew(tx, reports, span_ms(lease)), len(reports))

    async def lease_status(self, leases: Sequence[Lease]) -> LeaseStatus:
        return await self._database.read(lambda tx: runs.lease_status(tx, leases))

    async def leased(self, worker_id: str, leases: Sequence[Lease] | None = None) -> list[LeasedJob]:
        return await self._database.read(lambda tx: runs.leased(tx, worker_id, leases))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        weight = len(settlements) + sum(len(s.verdict.result or b"") for s in settlements) // BYTES_PER_JOB
        return await self._database.write(lambda tx: runs.settle(tx, settlements, self._statistics), weight)

    async def cancel(self, ids: Sequence[str]) -> list[Answer]:
        return await self._database.write(lambda tx: [changes.cancel(tx, id) for id in ids], len(ids))

    async def retry(self, ids: Sequence[str], *, at: datetime | None = None) -> list[Answer]:
        return await self._database.write(lambda tx: [changes.retry(tx, id, at) for id in ids], len(ids))

    async def restore(self, id: str, *, within: timedelta) -> Answer:
        return await self._database.write(lambda tx: changes.restore(tx, id, span_ms(within)))

    async def change(self, id: str, change: Change) -> Answer:
        return await self._database.write(lambda tx: changes.change(tx, id, change))

    async def remove(self, ids: Sequence[str]) -> list[Answer]:
        return await self._database.write(lambda tx: [changes.remove(tx, id) for id in ids], len(ids))

    async def purge(self, status: Status, *, older_than: timedelta, limit: int, queue: str | None = None) -> int:
        return await self._database.write(
            lambda tx: housekeeping.purge(tx, status, span_ms(older_than), limit, queue), limit
        )

    async def housekeep(self, retention: Retention, *, limit: int) -> HousekeepingResult:
        return await self._database.write(lambda tx: housekeeping.housekeep(tx, retention, limit), limit)

    async def get(self, id: str) -> Job | None:
        return await self._database.read(lambda tx: rows.get(tx, id), weight=1)

    async def find(self, query: Query) -> Page:
        find = partial(finding.find, query=query)
        return await (self._database.search(find, query.within) if query.reads_many else self._database.read(find))

    async def count(self, query: Query) -> Count:
        return await self._database.search(partial(finding.count, query=query), query.within)

    async def queues(self, which: QueueQuery = ALL_QUEUES) -> list[Queue]:
        count = partial(registry.queues, which=which)
        return await (self._database.search(count, which.within) if which.reads_many else self._database.read(count))

    async def set_queue(self, name: str, change: QueueChange) -> Queue:
        return await self._database.write(lambda tx: registry.set_queue(tx, name, change))

    async def heartbeat(self, worker: WorkerRecord) -> None:
        await self._database.write(lambda tx: registry.heartbeat(tx, worker))

    async def retire(self, worker_id: str) -> None:
        await self._database.write(lambda tx: registry.retire(tx, worker_id))

    async def workers(self) -> list[WorkerRecord]:
        return await self._database.read_quickly(registry.workers)

    @contextlib.contextmanager
    def subscribe(self, topic: Topic) -> Iterator[Subscription]:
        watches_file = topic not in UNHURRIED and not self._inline
        data_version = self._database.data_version if watches_file else None
        waiter = Waiter(topic, self.clock, data_version, self._database.file_is_there)
        if self._notifier is not None:
            reachable = self._notifier.listen(topic, lambda: self._wake({topic}))
            waiter.reachable = reachable or not watches_file
        self._waiters[waiter] = None
        try:
            yield waiter
        finally:
            self._waiters.pop(waiter, None)

    # Its first write, and wake-ups

    def _add(self, tx: Transaction, jobs: Sequence[NewJob]) -> list[Added]:
        return adding.add(tx, jobs, self._named_queues)

    def _begin(self, tx: Transaction) -> None:
        if self._audit:
            begin_audit(tx)
        registry.note_boot(tx, self.clock.boot_id())

    def _notify(self, topics: set[Topic]) -> None:
        if self._notifier is not None:
            self._notifier.notify(topics)

    def _wake(self, topics: set[Topic]) -> None:
        for waiter in list(self._waiters):
            if waiter.topic in topics:
                waiter.wake()

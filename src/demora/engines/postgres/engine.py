"""The store on PostgreSQL: many machines, any number of processes."""

import asyncio
import contextlib
import secrets
from collections.abc import Iterator, Sequence, Set
from datetime import datetime, timedelta
from functools import partial
from typing import Any

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
from ...system import crash
from ...system.clock import Clock
from ..options import PostgresOptions
from ..sql.adding import is_plain
from ..sql.constants import MOST_NAMES
from . import registry, rows
from .api_keys import PostgresApiKeys
from .audit import PostgresAudit, begin_audit
from .connection.connections import Session
from .connection.transactions import Gathering
from .database import Database, GatheredReads
from .diagnostics import PostgresDiagnostics
from .events import PostgresEvents
from .jobs import adding, changes, finding, housekeeping, runs
from .jobs.joining import Joined, borrow
from .line_feed import PostgresLineFeed
from .notifier import Notifier, Waiter
from .paces import PostgresPaces
from .schedules import PostgresSchedules
from .statistics import PostgresStatistics
from .webhooks import PostgresWebhooks


class PostgresStore:
    """The store in one schema of a PostgreSQL database.

    Time is the database's; tests pass a `clock` to use instead. With `audit` every process records an event for each
    transition of a job, from now on until `store.audit.end`.
    """

    def __init__(
        self,
        url: str,
        options: PostgresOptions | None = None,
        *,
        clock: Clock | None = None,
        audit: bool = False,
    ) -> None:
        self.url, self.options, self.clock = url, (options or PostgresOptions()).checked(), clock
        self._audit = audit
        self._process = secrets.token_hex(8)  # the writer of its statistics
        self._waiters: dict[Waiter, None] = {}  # in the order of their subscriptions
        self._named_queues: set[str] = set()
        self._claim_memory = runs.ClaimMemory()
        self._notifier = Notifier(
            url, self.options, lambda: self._database.wall_us(), self._wake, lambda: self._database.on_unplaced()
        )
        self._database = Database(url, self.options, clock, self._notifier, self._after_commit)
        self._jobs = GatheredReads(self._database, rows.get_many)
        self.paces = PostgresPaces(self._database)
        self.schedules = PostgresSchedules(self._database)
        self.api_keys = PostgresApiKeys(self._database)
        self.webhooks = PostgresWebhooks(self._database)
        self.diagnostics = PostgresDiagnostics(self._database)
        self.statistics = PostgresStatistics(self._database)
        self.audit = PostgresAudit(self._database)
        self.events = PostgresEvents(self._database)
        self.line_feed = PostgresLineFeed(self._database)

    async def open(self) -> None:
        if self._database.is_open:
            return
        self._named_queues.clear()
        await self._database.open()
        self._additions = Gathering(self._database.writes, self._add_new)
        self._settlements = Gathering(self._database.writes, partial(runs.settle, process=self._process), _lease)
        self._loop = asyncio.get_running_loop()
        if self._audit:
            await self._database.write(lambda session: begin_audit(session, self.options.schema))

    async def close(self) -> None:
        if self._database.is_open:
            self._additions.close()
            self._settlements.close()
            await self._database.close()
            for waiter in list(self._waiters):
                waiter.wake()

    def sibling(self) -> "PostgresStore":
        """A store with connections of its own, so that its renewals never wait for this pool."""
        return PostgresStore(self.url, self.options, clock=self.clock)

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        self._database.opened()
        for job in jobs:
            job.payload.decode()  # a payload that is not text fails alone, before it shares a statement
        if all(map(is_plain, jobs)):
            answers = await self._additions.ask(jobs) if jobs else []
        else:
            answers = await self._database.write(lambda session: adding.add(session, jobs, self._named_queues))
        if not any(answer.conflict for answer in answers):
            self._remember(*{job.queue for job in jobs})  # only now that the names are committed
        return answers

    async def claim(self, request: ClaimRequest) -> Claimed:
        await self._notifier.ready()
        numbered = runs.numbered(request)
        return await self._database.write_here(lambda session: runs.claim(session, numbered, self._claim_memory))

    async def claimed(self, worker_id: str, claim_id: str) -> list[ClaimedJob]:
        return await self._database.read(lambda session: runs.claimed(session, worker_id, claim_id))

    async def renew(self, reports: Sequence[Report], *, lease: timedelta) -> LeaseStatus:
        return await self._database.write(lambda session: runs.renew(session, reports, span_ms(lease)))

    async def lease_status(self, leases: Sequence[Lease]) -> LeaseStatus:
        return await self._database.read(lambda session: runs.lease_status(session, leases))

    async def leased(self, worker_id: str, leases: Sequence[Lease] | None = None) -> list[LeasedJob]:
        return await self._database.read(lambda session: runs.leased(session, worker_id, leases))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        self._database.opened()
        return await self._settlements.ask(settlements) if settlements else []

    async def cancel(self, ids: Sequence[str]) -> list[Answer]:
        return await self._database.write_once(lambda session: changes.cancel(session, ids))

    async def retry(self, ids: Sequence[str], *, at: datetime | None = None) -> list[Answer]:
        return await self._database.write_once(lambda session: changes.retry(session, ids, at))

    async def restore(self, id: str, *, within: timedelta) -> Answer:
        return await self._database.write_once(lambda session: changes.restore(session, id, span_ms(within)))

    async def change(self, id: str, change: Change) -> Answer:
        revisions = change.revisions
        if revisions is None:
            return await self._database.write(lambda session: changes.change(session, id, change))
        return await self._database.write_once(lambda session: changes.change_revision(session, id, revisions, change))

    async def remove(self, ids: Sequence[str]) -> list[Answer]:
        return await self._database.write_once(lambda session: changes.remove(session, ids))

    async def purge(self, status: Status, *, older_than: timedelta, limit: int, queue: str | None = None) -> int:
        return await self._database.write(
            lambda session: housekeeping.purge(session, status, span_ms(older_than), limit, queue)
        )

    async def housekeep(self, retention: Retention, *, limit: int) -> HousekeepingResult:
        return await self._database.write(lambda session: housekeeping.housekeep(session, retention, limit))

    async def get(self, id: str) -> Job | None:
        key = rows.id_key(id)
        return None if key is None else await self._jobs.get(key)

    async def find(self, query: Query) -> Page:
        find = partial(finding.find, query=query, schema=self.options.schema)
        return await (self._database.search(find, query.within) if query.reads_many else self._database.read(find))

    async def count(self, query: Query) -> Count:
        count = partial(finding.count, query=query, schema=self.options.schema)
        return await self._database.search(count, query.within)

    async def queues(self, which: QueueQuery = ALL_QUEUES) -> list[Queue]:
        count = partial(registry.queues, which=which)
        return await (self._database.search(count, which.within) if which.reads_many else self._database.read(count))

    async def set_queue(self, name: str, change: QueueChange) -> Queue:
        return await self._database.write(lambda session: registry.set_queue(session, name, change))

    async def heartbeat(self, worker: WorkerRecord) -> None:
        await self._database.write(lambda session: registry.heartbeat(session, worker))

    async def retire(self, worker_id: str) -> None:
        await self._database.write(lambda session: registry.retire(session, worker_id))

    async def workers(self) -> list[WorkerRecord]:
        return await self._database.read_quickly(registry.workers)

    @contextlib.contextmanager
    def subscribe(self, topic: Topic) -> Iterator[Subscription]:
        self._notifier.listen()
        waiter = Waiter(topic, lambda: self._notifier.reachable)
        self._waiters[waiter] = None
        try:
            yield waiter
        finally:
            self._waiters.pop(waiter, None)

    # Transactional

    def within(self, connection: Any) -> Joined:
        pool, borrowed = self._database.opened(), borrow(connection)
        assert pool.numbers is not None
        return Joined(
            borrowed,
            pool.statements,
            wall_us=self._database.wall_us(),
            lined=pool.lined,
            numbers=pool.numbers,
            name_queues=self._name_queues_from_a_thread if borrowed.blocks else self._name_queues,
            notifier=self._notifier,
        )

    # Names of queues, and wake-ups

    async def _add_new(self, session: Session, jobs: Sequence[NewJob]) -> list[Added]:
        return await adding.add_new(session, jobs, self._named_queues)

    async def _name_queues(self, names: Set[str]) -> None:
        new = names - self._named_queues
        if new:
            await self._database.write(lambda session: registry.name_queues(session, new))
            self._remember(*new)

    async def _name_queues_from_a_thread(self, names: Set[str]) -> None:
        if names - self._named_queues:
            asyncio.run_coroutine_threadsafe(self._name_queues(names), self._loop).result()

    def _remember(self, *names: str) -> None:
        if len(self._named_queues) < MOST_NAMES:
            self._named_queues |= set(names)

    async def _after_commit(self, session: Session) -> None:
        """Wake the waiters that a committed call concerns, in this process and in others."""
        if session.unplaced:
            self._database.on_unplaced()
        if session.topics:
            self._wake(session.topics)
            await self._notifier.notify(session.topics, self._database.writes.pool)
            crash.at("batch.notified")

    def _wake(self, topics: set[Topic]) -> None:
        for waiter in list(self._waiters):
            if waiter.topic in topics:
                waiter.wake()


def _lease(settlement: Settlement) -> Lease:
    return settlement.report.lease

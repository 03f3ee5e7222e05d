"""The store on PostgreSQL: many machines, any number of processes."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence, Set
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from ...core.access import ApiKey, KeyLimits, NameKind, NewKey, NewSecret
from ...core.job import Job, NewJob
from ...core.pace import USUAL_PACE, Pace
from ...core.pace_request import PaceRequest
from ...core.retention import Retention
from ...core.spans import span_ms
from ...core.states import Status
from ...core.webhook import Secret
from ...errors import SearchTooSlow, StoreClosed
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
from ...system import crash
from ...system.clock import Clock
from ..options import PostgresOptions
from ..searching import AT_ONCE, SearchTurns
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
from .connections import LazyPool, Pool, Session
from .joining import Joined, borrow
from .notifier import Notifier, Waiter
from .transactions import Call, Gathering, Writes

T = TypeVar("T")

MOST_NAMES = 10_000  # queue names that a store remembers as recorded
READS = 3  # tries of a read whose connection broke


class PostgresStore:
    """The store in one schema of a PostgreSQL database.

    The database's clock counts; tests pass a `clock` to use instead. With `audit` every process records an event for each
    transition of a job, from now on until `end_audit`. The class implements `AuditStore` with and without it.
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
        self._waiters: dict[Waiter, None] = {}  # in the order of their subscriptions
        self._named_queues: set[str] = set()
        self._on_unplaced: Callable[[], None] = lambda: None
        self._notifier = Notifier(url, self.options, self.wall_us, self._wake, lambda: self._on_unplaced())
        self._pool: Pool | None = None
        self._quick: LazyPool | None = None
        self._searches: LazyPool | None = None

    async def open(self) -> None:
        if self._pool is not None:
            return
        self._named_queues.clear()
        pool = Pool(self.url, self.options, self.wall_us)
        try:
            await pool.open()
        except BaseException:
            await pool.close()
            raise
        self._quick = LazyPool(self.url, self.options, self.wall_us, connections=1)
        self._searches = LazyPool(self.url, self.options, self.wall_us, connections=AT_ONCE)
        self._turns = SearchTurns()
        self._writes = Writes(pool, self._after_commit)
        self._additions = Gathering(self._writes, self._add_new)
        self._settlements = Gathering(self._writes, runs.settle, _lease)
        self._pool, self._loop = pool, asyncio.get_running_loop()
        if self._audit:
            await self._write(lambda session: diagnostics.begin_audit(session, self.options.schema))

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            self._additions.close()
            self._settlements.close()
            await self._writes.close()
            await self._notifier.close()
            quick, searches = self._quick, self._searches
            self._quick = self._searches = None
            for apart in (quick, searches):
                if apart is not None:
                    await apart.close()
            await pool.close()
            for waiter in list(self._waiters):
                waiter.wake()

    def sibling(self) -> "PostgresStore":
        """A store with connections of its own, so that its renewals never wait for this pool."""
        return PostgresStore(self.url, self.options, clock=self.clock)

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        self._opened()
        for job in jobs:
            job.payload.decode()  # a payload that is not text fails alone, before it shares a statement
        if all(additions.is_plain(job) for job in jobs):
            answers = await self._additions.ask(jobs) if jobs else []
        else:
            answers = await self._write(lambda session: additions.add(session, jobs, self._named_queues))
        if not any(answer.conflict for answer in answers):
            self._remember(*{job.queue for job in jobs})  # only now that the names are committed
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
        await self._notifier.ready()
        request = claims.ClaimRequest(worker_id, limit, span_ms(lease), queues, in_turn)
        return await self._write_here(lambda session: claims.claim(session, request))

    async def renew(self, reports: Sequence[Report], *, lease: timedelta) -> LeaseStatus:
        return await self._write(lambda session: runs.renew(session, reports, span_ms(lease)))

    async def listen(self, leases: Sequence[Lease]) -> LeaseStatus:
        return await self._read(lambda session: runs.listen(session, leases))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        self._opened()
        return await self._settlements.ask(settlements) if settlements else []

    async def cancel(self, ids: Sequence[str]) -> list[Answer]:
        return await self._write(lambda session: changes.cancel(session, ids))

    async def retry(self, ids: Sequence[str]) -> list[Answer]:
        return await self._write(lambda session: changes.retry(session, ids))

    async def change(self, id: str, change: Change) -> Answer:
        return await self._write(lambda session: changes.change(session, id, change))

    async def remove(self, ids: Sequence[str]) -> list[Answer]:
        return await self._write(lambda session: changes.remove(session, ids))

    async def purge(self, status: Status, *, older_than: timedelta, limit: int, queue: str | None = None) -> int:
        return await self._write(lambda session: changes.purge(session, status, span_ms(older_than), limit, queue))

    async def housekeep(self, retention: Retention, *, limit: int) -> HousekeepingResult:
        return await self._write(lambda session: changes.housekeep(session, retention, limit))

    async def get(self, id: str) -> Job | None:
        return await self._read(lambda session: views.get(session, id))

    async def find(self, query: Query) -> Page:
        find = partial(views.find, query=query, schema=self.options.schema)
        return await (self._search(find, query.within) if query.reads_many else self._read(find))

    async def queues(self, which: QueueQuery = ALL_QUEUES) -> list[Queue]:
        count = partial(views.queues, which=which)
        return await (self._search(count, which.within) if which.reads_many else self._read(count))

    async def set_queue(self, name: str, change: QueueChange) -> Queue:
        return await self._write(lambda session: registry.set_queue(session, name, change))

    async def heartbeat(self, worker: WorkerRecord) -> None:
        await self._write(lambda session: registry.heartbeat(session, worker))

    async def retire(self, worker_id: str) -> None:
        await self._write(lambda session: registry.retire(session, worker_id))

    async def workers(self) -> list[WorkerRecord]:
        return await self._read_quickly(registry.workers)

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
        pool, borrowed = self._opened(), borrow(connection)
        assert pool.place is not None
        return Joined(
            borrowed,
            pool.statements,
            wall_us=self.wall_us(),
            lined=pool.lined,
            place=pool.place,
            name_queues=self._name_queues_from_a_thread if borrowed.blocks else self._name_queues,
            notifier=self._notifier,
        )

    # PaceStore

    async def set_pace(
        self, queue: str, request: PaceRequest | None, *, by: str, usual: Pace = USUAL_PACE, setting: str | None = None
    ) -> Pacing | None:
        return await self._write(lambda session: paces.set_pace(session, queue, request, by, usual, setting))

    async def release(self, queues: Sequence[str] | None = None, *, wake: bool = True) -> Released:
        return await self._write(lambda session: releases.release(session, queues, wake=wake))

    async def pacings(self) -> list[Pacing]:
        return await self._read(paces.pacings)

    async def pace_changes(self, queue: str, *, limit: int) -> list[PaceChange]:
        return await self._read(lambda session: paces.changes(session, queue, limit))

    async def outlook(self, id: str) -> Outlook | None:
        return await self._read(lambda session: releases.outlook(session, id))

    # ApiKeyStore

    async def add_key(self, key: NewKey) -> ApiKey:
        return await self._write(lambda session: registry.add_key(session, key))

    async def keys(self) -> KeyList:
        return await self._read(registry.list_keys)

    async def find_key(self, id: str) -> KeyLookup:
        return await self._read_quickly(lambda session: registry.find_key(session, id))

    async def revoke_key(self, id: str) -> ApiKey | None:
        return await self._write(lambda session: registry.revoke_key(session, id))

    async def rotate_key(self, secret: NewSecret) -> ApiKey | None:
        return await self._write(lambda session: registry.rotate(session, secret))

    async def limit_key(self, id: str, limits: KeyLimits) -> ApiKey | None:
        return await self._write(lambda session: registry.limit(session, id, limits))

    async def forget_key(self, id: str) -> bool:
        return await self._write(lambda session: registry.forget_key(session, id))

    async def use_key(self, id: str, *, unless_within: timedelta) -> bool:
        return await self._write(lambda session: registry.use_key(session, id, span_ms(unless_within)))

    async def name_for_key(self, id: str, queues: Set[str], types: Set[str], limits: KeyLimits) -> NameKind | None:
        return await self._write(lambda session: registry.name(session, id, queues, types, limits))

    async def waiting_for_key(self, id: str, *, most: int) -> int:
        return await self._read(lambda session: registry.waiting(session, id, most))

    # WebhookStore

    async def deliveries(self, cause: str) -> list[Job]:
        return await self._read(lambda session: webhooks.deliveries(session, cause))

    async def add_secret(self, id: str, secret: Secret, *, others_end_in: timedelta | None = None) -> StoredSecret:
        return await self._write(lambda session: webhooks.add_secret(session, id, secret, others_end_in))

    async def forget_secret(self, id: str) -> bool:
        return await self._write(lambda session: webhooks.forget_secret(session, id))

    async def signing(self, url: str = "") -> Signing:
        return await self._read(lambda session: webhooks.signing(session, url))

    async def disable(self, url: str, reason: str) -> None:
        await self._write(lambda session: webhooks.disable(session, url, reason))

    async def enable(self, url: str) -> bool:
        return await self._write(lambda session: webhooks.enable(session, url))

    async def disabled(self) -> list[Disabled]:
        return await self._read(webhooks.disabled)

    # AuditStore

    async def events(self, after: int = 0) -> list[SqlEvent]:
        return await self._read(lambda session: diagnostics.events(session, after))

    async def evidence(self, *, integrity: bool = True) -> Evidence:
        return await self._read(lambda session: diagnostics.evidence(session, self.options.schema, integrity=integrity))

    async def end_audit(self) -> None:
        await self._write(lambda session: diagnostics.end_audit(session, self.options.schema))

    # DiagnosticsStore

    async def overview(self) -> JobsOverview:
        return await self._read(diagnostics.overview)

    async def activity(self, mark: int | None = None) -> Activity:
        return await self._read(lambda session: diagnostics.activity(session, mark))

    def notes(self) -> tuple[str, ...]:
        note = self._notifier.note()
        return () if note is None else (note,)

    # LineFeed

    def wall_us(self) -> int | None:
        return None if self.clock is None else self.clock.wall_us()

    def on_unplaced(self, callback: Callable[[], None]) -> None:
        self._on_unplaced = callback

    async def read_clock(self) -> int:
        us: int = (await self._read(lambda session: session.row("now")))["us"]
        return us

    async def begin_lining(self) -> LineRecord:
        self._opened().lined = True
        return await self._write(line_feed.begin)

    async def bump(self, expected: int, *, above: int, run: str) -> LineRecord:
        return await self._write(lambda session: line_feed.bump(session, expected, above, run))

    async def draw(self, worker_id: str, entries: Sequence[Entry], *, lease: timedelta) -> Drawn:
        request = claims.ClaimRequest(worker_id, len(entries), span_ms(lease), None, False)
        return await self._write_here(lambda session: claims.draw(session, request, entries))

    async def standings(self, ids: Sequence[str]) -> list[Standing]:
        return await self._read(lambda session: line_feed.standings(session, ids))

    async def position(self) -> str:
        return await self._read(line_feed.position)

    async def moved(self, since: str, within: timedelta, limit: int, after: Move | None = None) -> Moved | None:
        return await self._read(lambda session: line_feed.moved(session, since, span_ms(within), limit, after))

    async def walk(self, within: timedelta, limit: int, after: Cursor | None = None, *, since: int | None = None) -> Walked:
        return await self._read(lambda session: line_feed.walk(session, span_ms(within), limit, after, since))

    async def arrangements(self) -> list[Arrangement]:
        return await self._read(line_feed.arrangements)

    # How calls reach the database

    async def _write(self, call: Call[T]) -> T:
        """Run a write to its end, also if the caller is cancelled meanwhile."""
        self._opened()
        return await self._writes.run(call)

    async def _write_here(self, call: Call[T]) -> T:
        """Run a write in the caller's task, which ends with it if it is cancelled."""
        self._opened()
        return await self._writes.run_here(call)

    async def _add_new(self, session: Session, jobs: Sequence[NewJob]) -> list[Added]:
        return await additions.add_new(session, jobs, self._named_queues)

    async def _name_queues(self, names: Set[str]) -> None:
        new = names - self._named_queues
        if new:
            await self._write(lambda session: registry.name_queues(session, new))
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
            self._on_unplaced()
        if session.topics:
            self._wake(session.topics)
            await self._notifier.notify(session.topics, self._writes.pool)
            crash.at("batch.rung")

    async def _read(self, call: Call[T]) -> T:
        """Run a read, and run it again if the connection breaks meanwhile."""
        await self._notifier.ready()
        return await self._read_in(self._opened(), call)

    async def _read_quickly(self, call: Call[T]) -> T:
        """Run a read that takes milliseconds; it waits for no other call."""
        return await self._read_in(await opened(self._quick), call)

    async def _search(self, call: Call[T], within: timedelta | None) -> T:
        """Run a read that may take long; no other call waits for it."""
        self._opened()
        await self._notifier.ready()
        async with self._turns.turn(within):
            return await self._read_in(await opened(self._searches), call, within)

    async def _read_in(self, pool: Pool, call: Call[T], within: timedelta | None = None) -> T:
        for left in reversed(range(READS)):
            self._opened()
            try:
                async with pool.session() as session:
                    session.limit = None if within is None else within.total_seconds()
                    return await call(session)
            except TimeoutError as problem:
                if within is not None:
                    raise SearchTooSlow(within.total_seconds()) from problem
                if not left:
                    raise connections.translate(problem) from problem
            except connections.DRIVER as problem:
                if left and connections.is_lost(problem):
                    continue
                raise connections.translate(problem) from problem
        raise AssertionError("the last try returns or raises")

    def _opened(self) -> Pool:
        if self._pool is None:
            raise StoreClosed
        return self._pool

    def _wall_us(self) -> int | None:
        return None if self.clock is None else self.clock.wall_us()

    def _wake(self, topics: set[Topic]) -> None:
        for waiter in list(self._waiters):
            if waiter.topic in topics:
                waiter.wake()


async def opened(pool: LazyPool | None) -> Pool:
    if pool is None:
        raise StoreClosed
    return await pool.opened()


def _lease(settlement: Settlement) -> Lease:
    return settlement.report.lease

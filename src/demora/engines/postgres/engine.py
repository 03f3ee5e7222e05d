"""The store on PostgreSQL: many machines, any number of processes."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence, Set
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from ...core.access import ApiKey, KeyLimits, NameKind, NewKey, NewSecret
from ...core.job import Job, NewJob
from ...core.retention import Retention
from ...core.spans import span_ms
from ...core.states import Status
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
from ...system import crash
from ...system.clock import Clock
from ..options import PostgresOptions
from ..searching import AT_ONCE, SearchTurns
from . import additions, changes, claims, connections, diagnostics, registry, runs, views, webhooks
from .connections import Lane, Pool, Session
from .joining import Joined, borrow
from .line_feed import Lining
from .notifier import Notifier, Waiter
from .releases import PacedVerbs
from .transactions import Gathering, Writes

T = TypeVar("T")

MOST_NAMES = 10_000  # queues remembered as named
READS = 3  # tries of a read whose connection broke


class PostgresStore(webhooks.HookVerbs, PacedVerbs, Lining):
    """Keeps the port's promises in one schema of a PostgreSQL database.

    Time is the database's; tests give a `clock` to use in its place. With `audit` an event is written for each transition,
    by every process from then on, until `end_audit`. It is `Audited` either way.
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
        self._sleepers: dict[Waiter, None] = {}  # in the order of their coming
        self._named_queues: set[str] = set()
        self._unplaced: Callable[[], None] = lambda: None
        self._bells = Notifier(url, self.options, self._wall_us, self._woken, lambda: self._unplaced())
        self._pool: Pool | None = None
        self._quick: Lane | None = None
        self._searches: Lane | None = None

    async def open(self) -> None:
        if self._pool is not None:
            return
        self._named_queues.clear()
        pool = Pool(self.url, self.options, self._wall_us)
        try:
            await pool.open()
        except BaseException:
            await pool.close()
            raise
        self._quick = Lane(self.url, self.options, self._wall_us, connections=1)
        self._searches = Lane(self.url, self.options, self._wall_us, connections=AT_ONCE)
        self._turns = SearchTurns()
        self._writes = Writes(pool)
        self._additions = Gathering(self._writes, self._add_plain)
        self._settlements = Gathering(self._writes, self._settle, _lease)
        self._pool, self._loop = pool, asyncio.get_running_loop()
        if self._audit:
            await self._write(lambda session, again: diagnostics.begin_audit(session, self.options.schema))

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            self._additions.close()
            self._settlements.close()
            await self._writes.close()
            await self._bells.close()
            quick, searches = self._quick, self._searches
            self._quick = self._searches = None
            for lane in (quick, searches):
                if lane is not None:
                    await lane.close()
            await pool.close()
            for sleeper in list(self._sleepers):
                sleeper.wake()

    def sibling(self) -> "PostgresStore":
        """A store with connections of its own: what is renewed there never waits for this pool."""
        return PostgresStore(self.url, self.options, clock=self.clock)

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        self._opened()
        for job in jobs:
            job.payload.decode()  # what is no text fails before it meets others
        if all(additions.is_plain(job) for job in jobs):
            answers = await self._additions.ask(jobs) if jobs else []
        else:
            answers = await self._ringing(
                lambda session, topics, again: additions.add(session, jobs, self._named_queues, topics, again)
            )
        if not any(answer.conflict for answer in answers):
            self._remember(*{job.queue for job in jobs})  # only now: what was not committed is not on record
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
        await self._bells.hung()
        request = claims.ClaimRequest(worker_id, limit, span_ms(lease), queues, in_turn)
        return await self._taking(lambda session, topics, again: claims.claim(session, request, topics, again))

    async def renew(self, reports: Sequence[Report], *, lease: timedelta) -> LeaseStatus:
        return await self._write(lambda session, again: runs.renew(session, reports, span_ms(lease), again))

    async def listen(self, leases: Sequence[Lease]) -> LeaseStatus:
        return await self._read(lambda session: runs.listen(session, leases))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        self._opened()
        return await self._settlements.ask(settlements) if settlements else []

    async def cancel(self, ids: Sequence[str]) -> list[Answer]:
        return await self._ringing(lambda session, topics, again: changes.cancel(session, ids, topics, again))

    async def retry(self, ids: Sequence[str]) -> list[Answer]:
        return await self._ringing(lambda session, topics, again: changes.retry(session, ids, topics, again))

    async def change(self, id: str, change: Change) -> Answer:
        return await self._ringing(lambda session, topics, again: changes.change(session, id, change, topics))

    async def remove(self, ids: Sequence[str]) -> list[Answer]:
        return await self._write(lambda session, again: changes.remove(session, ids))

    async def purge(self, status: Status, *, older_than: timedelta, limit: int, queue: str | None = None) -> int:
        return await self._write(lambda session, again: changes.purge(session, status, span_ms(older_than), limit, queue))

    async def housekeep(self, retention: Retention, *, limit: int) -> HousekeepingResult:
        return await self._ringing(lambda session, topics, again: changes.housekeep(session, retention, limit, topics))

    async def get(self, id: str) -> Job | None:
        return await self._read(lambda session: views.get(session, id))

    async def find(self, query: Query) -> Page:
        look = partial(views.find, query=query, schema=self.options.schema)
        return await (self._search(look, query.within) if query.reads_many else self._read(look))

    async def queues(self, which: QueueQuery = ALL_QUEUES) -> list[Queue]:
        look = partial(views.queues, which=which)
        return await (self._search(look, which.within) if which.reads_many else self._read(look))

    async def set_queue(self, name: str, change: QueueChange) -> Queue:
        return await self._ringing(lambda session, topics, again: registry.set_queue(session, name, change, topics))

    async def heartbeat(self, worker: WorkerRecord) -> None:
        await self._write(lambda session, again: registry.heartbeat(session, worker))

    async def retire(self, worker_id: str) -> None:
        await self._write(lambda session, again: registry.retire(session, worker_id))

    async def workers(self) -> list[WorkerRecord]:
        return await self._look(registry.workers)

    @contextlib.contextmanager
    def subscribe(self, topic: Topic) -> Iterator[Subscription]:
        self._bells.hang()
        sleeper = Waiter(topic, lambda: self._bells.reachable)
        self._sleepers[sleeper] = None
        try:
            yield sleeper
        finally:
            self._sleepers.pop(sleeper, None)

    # What can be done in the caller's transaction

    def within(self, connection: Any) -> Joined:
        pool, borrowed = self._opened(), borrow(connection)
        assert pool.place is not None
        return Joined(
            borrowed,
            pool.statements,
            wall_us=self._wall_us(),
            lined=pool.lined,
            home=pool.place,
            name_queues=self._name_queues_from_a_thread if borrowed.blocks else self._name_queues,
            bells=self._bells,
        )

    async def _name_queues(self, names: Set[str]) -> None:
        new = names - self._named_queues
        if new:
            await self._write(lambda session, again: registry.name_queues(session, new))
            self._remember(*new)

    async def _name_queues_from_a_thread(self, names: Set[str]) -> None:
        if names - self._named_queues:
            asyncio.run_coroutine_threadsafe(self._name_queues(names), self._loop).result()

    def _remember(self, *names: str) -> None:
        if len(self._named_queues) < MOST_NAMES:
            self._named_queues |= set(names)

    # API keys

    async def add_key(self, key: NewKey) -> ApiKey:
        return await self._write(lambda session, again: registry.add_key(session, key, again))

    async def keys(self) -> KeyList:
        return await self._read(registry.list_keys)

    async def find_key(self, id: str) -> KeyLookup:
        return await self._look(lambda session: registry.find_key(session, id))

    async def revoke_key(self, id: str) -> ApiKey | None:
        return await self._write(lambda session, again: registry.revoke_key(session, id))

    async def rotate_key(self, secret: NewSecret) -> ApiKey | None:
        return await self._write(lambda session, again: registry.rotate(session, secret))

    async def limit_key(self, id: str, limits: KeyLimits) -> ApiKey | None:
        return await self._write(lambda session, again: registry.limit(session, id, limits))

    async def forget_key(self, id: str) -> bool:
        return await self._write(lambda session, again: registry.forget_key(session, id, again))

    async def use_key(self, id: str, *, unless_within: timedelta) -> bool:
        return await self._write(lambda session, again: registry.use_key(session, id, span_ms(unless_within)))

    async def name_for_key(self, id: str, queues: Set[str], types: Set[str], limits: KeyLimits) -> NameKind | None:
        return await self._write(lambda session, again: registry.name(session, id, queues, types, limits))

    async def waiting_for_key(self, id: str, *, most: int) -> int:
        return await self._read(lambda session: registry.waiting(session, id, most))

    # What can be shown to a checker

    async def events(self, after: int = 0) -> list[SqlEvent]:
        return await self._read(lambda session: diagnostics.events(session, after))

    async def evidence(self, *, integrity: bool = True) -> Evidence:
        return await self._read(lambda session: diagnostics.evidence(session, self.options.schema, integrity=integrity))

    async def end_audit(self) -> None:
        await self._write(lambda session, again: diagnostics.end_audit(session, self.options.schema))

    # What those who look after it may ask

    async def overview(self) -> JobsOverview:
        return await self._read(diagnostics.overview)

    async def activity(self, mark: int | None = None) -> Activity:
        return await self._read(lambda session: diagnostics.activity(session, mark))

    def notes(self) -> tuple[str, ...]:
        note = self._bells.note()
        return () if note is None else (note,)

    # How it is done

    async def _add_plain(self, jobs: Sequence[NewJob], again: bool) -> list[Added]:
        named = self._named_queues
        return await self._told(lambda session, topics, again: additions.add_new(session, jobs, named, topics, again), again)

    async def _settle(self, settlements: Sequence[Settlement], again: bool) -> list[Status | None]:
        return await self._told(lambda session, topics, again: runs.settle(session, settlements, topics, again), again)

    async def _told(self, verb: Callable[[Session, set[Topic], bool], Awaitable[T]], again: bool = False) -> T:
        """Finish a verb, and then wake those whom it concerns."""
        topics: set[Topic] = set()
        pool, unplaced = self._writes.pool, False

        async def once(session: Session, again: bool) -> T:
            nonlocal unplaced
            topics.clear()
            answer = await verb(session, topics, again)
            unplaced = session.unplaced
            return answer

        answer = await self._writes.finish(once, again=again)
        crash.at("batch.committed")
        if unplaced:
            self._unplaced()
        if topics:
            self._woken(topics)
            await self._bells.ring(topics, pool)
            crash.at("batch.rung")
        return answer

    async def _ringing(self, verb: Callable[[Session, set[Topic], bool], Awaitable[T]]) -> T:
        self._opened()
        return await asyncio.shield(self._writes.start(self._told(verb)))

    async def _taking(self, verb: Callable[[Session, set[Topic], bool], Awaitable[T]]) -> T:
        """Run a verb in the task of whoever asked: a hand-over takes as long as a part of it. If that is cancelled, nobody
        waits for what it took, which comes back by its lease."""
        self._opened()
        with self._writes.under_way():
            return await self._told(verb)

    async def _write(self, verb: Callable[[Session, bool], Awaitable[T]]) -> T:
        self._opened()
        return await self._writes.run(verb)

    async def _read(self, look: Callable[[Session], Awaitable[T]]) -> T:
        """Look, and look again if the connection breaks meanwhile."""
        await self._bells.hung()
        return await self._read_in(self._opened(), look)

    async def _look(self, look: Callable[[Session], Awaitable[T]]) -> T:
        """Read what is found at once, and wait for no other call."""
        return await self._read_in(await connected(self._quick).opened(), look)

    async def _search(self, look: Callable[[Session], Awaitable[T]], within: timedelta | None) -> T:
        """Read what may take long, and let no other call wait for it."""
        await self._bells.hung()
        lane = connected(self._searches)
        async with self._turns.turn(within):
            return await self._read_in(await lane.opened(), look, within)

    async def _read_in(self, pool: Pool, look: Callable[[Session], Awaitable[T]], within: timedelta | None = None) -> T:
        for left in reversed(range(READS)):
            self._opened()
            try:
                async with pool.session() as session:
                    session.limit = None if within is None else within.total_seconds()
                    return await look(session)
            except TimeoutError as problem:
                if within is not None:
                    raise SearchTooSlow(within.total_seconds()) from problem
                if not left:
                    raise connections.translate(problem) from problem
            except connections.DRIVER as problem:
                if left and connections.is_lost(problem):
                    continue
                raise connections.translate(problem) from problem
        raise AssertionError("the last try answers or raises")

    def _opened(self) -> Pool:
        if self._pool is None:
            raise StoreClosed
        return self._pool

    def _wall_us(self) -> int | None:
        return None if self.clock is None else self.clock.wall_us()

    def _woken(self, topics: set[Topic]) -> None:
        for sleeper in list(self._sleepers):
            if sleeper.topic in topics:
                sleeper.wake()


def connected(lane: Lane | None) -> Lane:
    if lane is None:
        raise StoreClosed
    return lane


def _lease(settlement: Settlement) -> Lease:
    return settlement.report.lease

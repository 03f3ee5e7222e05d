"""Renews the leases of a worker's jobs, asks the store for requests to cancel them, and sends the worker's heartbeats.

This happens on a thread and a connection of its own, so that a handler that blocks the worker's loop cannot delay it. The
thread notices when a handler does so.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import msgspec

from ..core import workers
from ..core.workers import RENEWALS_IN_A_LEASE, WorkerRecord
from ..errors import StoreError, WorkerRefused
from ..handlers.context import Context
from ..store.jobs import Lease, LeaseStatus, Report
from ..store.store import Store
from ..system import crash, notices

TICK = 0.45  # seconds between checks, so that a cancel reaches its run within one second
YOUNG = 0.5  # ticks that a job is held before its first check: most jobs have ended by then
HEARTBEAT_EVERY = workers.HEARTBEAT_EVERY.total_seconds()
BLOCKED = 1.0  # seconds without an answer of the worker's loop, after which it counts as blocked
LATE = 0.5  # seconds by which a check may be late: if it is later, the whole process stood still, not only the loop


class RenewedLease(msgspec.Struct, eq=False, gc=False):
    """The lease of one job: held `since` a time, `renewed` last at another, and renewed until its deadline, which is unknown
    until the job starts."""

    lease: Lease
    since: float
    renewed: float
    context: Context | None = None
    deadline: float | None = None

    def start(self, context: Context, longest: float) -> None:
        """Note that the job runs now, for at most this many seconds."""
        self.deadline = context.began + longest
        self.context = context

    def report(self) -> Report:
        """Return the report that goes with the renewal: empty unless the job has started."""
        return Report(self.lease, timedelta(0)) if self.context is None else self.context.report()


class Keeper:
    """Renews the leases that it holds, and sends a heartbeat with the current `record` every 10 s, until it is stopped.

    It calls `on_status` with lost leases and requests to cancel, and `on_failure` with the error if it dies, both on the
    worker's loop. It survives the errors of a store in trouble, and dies of any other. A job that has started is renewed
    until its deadline and never after. A job in the backlog is renewed only while the worker's loop is alive, so that a
    handler that blocks the loop for ever does not keep it from other workers. If the loop is blocked for a second while jobs
    run, it calls `on_blocked` once, on its own thread, with the seconds so far.
    """

    def __init__(
        self,
        store: Store,
        lease: timedelta,
        *,
        on_status: Callable[[LeaseStatus], None],
        on_failure: Callable[[BaseException], None],
        on_blocked: Callable[[float], None],
        record: Callable[[], WorkerRecord],
        monotonic: Callable[[], float],
    ) -> None:
        self._store, self._lease, self._monotonic = store, lease, monotonic
        self._on_status, self._on_failure, self._on_blocked, self._record = on_status, on_failure, on_blocked, record
        self._tick = min(TICK, lease.total_seconds() / 4)
        self._held: dict[Lease, RenewedLease] = {}
        self._reporting = threading.Lock()  # held while reports are taken from runs, and while a lease is dropped
        self._recording: Future[None] = Future()  # done when the renewal has ended that is under way
        self._recorded: frozenset[Lease] = frozenset()  # leases of the log lines that it records
        self._loop_alive = self._monotonic()  # when the worker's loop last ran a callback
        self._watched_at = self._asked_at = self._loop_alive  # when the loop was asked to run one
        self._answered, self._blocked = True, False
        self._stopped = threading.Event()
        self._asleep = False
        self._wake: Callable[[], object] = lambda: None
        self._running: asyncio.Future[None] | None = None

    def hold(self, leases: Sequence[Lease]) -> list[RenewedLease]:
        """Renew these leases from now on."""
        now = self._monotonic()
        held = [RenewedLease(lease, now, now) for lease in leases]
        self._held.update(zip(leases, held, strict=True))
        if self._asleep and held:
            self._asleep = False
            self._wake()
        return held

    def drop(self, lease: Lease) -> "Future[None] | None":
        """Stop renewing this lease. Returns the renewal that is recording log lines of the job at this moment, if there is
        one. A job that is settled before that renewal has ended would lose these lines."""
        with self._reporting:
            self._held.pop(lease, None)
            return self._recording if lease in self._recorded else None

    async def start(self) -> None:
        """Begin to renew: on a thread with a sibling of the store, or on this loop if the store has no sibling."""
        self._worker_loop = asyncio.get_running_loop()
        sibling = self._store.sibling()
        if sibling is None:
            self._running = asyncio.ensure_future(self._keep(self._store))
        else:
            self._running = run_on_thread(self._keep_with(sibling), "demora-keeper")
        self._running.add_done_callback(self._on_end)

    async def stop(self, within: float | None = None) -> None:
        """Stop renewing. Returns when the thread has ended, or after this many seconds if its store does not answer; then
        the thread ends by itself."""
        self._stopped.set()
        with contextlib.suppress(RuntimeError):  # the thread has died, and its loop is closed
            self._wake()
        if self._running is not None:
            await asyncio.wait([self._running], timeout=within)

    def _on_end(self, running: "asyncio.Future[None]") -> None:
        """Report a failure: a worker must not continue when nothing renews its leases."""
        if not running.cancelled() and (problem := running.exception()) is not None:
            self._on_failure(problem)

    async def _keep_with(self, store: Store) -> None:
        await self._open(store)
        try:
            await self._keep(store)
        finally:
            await store.close()

    async def _open(self, store: Store) -> None:
        while not self._stopped.is_set():
            try:
                await store.open()
                return
            except StoreError as problem:
                notices.store_trouble("opening a connection for renewals", problem, self._tick)
                await asyncio.sleep(self._tick)

    async def _keep(self, store: Store) -> None:
        """Check the leases at every tick; sleep while there are none. Send heartbeats meanwhile."""
        duties = [asyncio.ensure_future(duty) for duty in (self._send_heartbeats(store), self._keep_leases(store))]
        try:
            await asyncio.wait(duties, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for duty in duties:
                duty.cancel()
            ended = await asyncio.gather(*duties, return_exceptions=True)
        for problem in ended:
            if isinstance(problem, Exception):
                raise problem

    async def _send_heartbeats(self, store: Store) -> None:
        while True:
            try:
                await store.heartbeat(self._record())
                notices.store_well("the heartbeat")
            except WorkerRefused:
                raise
            except StoreError as problem:
                notices.store_trouble("the heartbeat", problem, HEARTBEAT_EVERY)
            await asyncio.sleep(HEARTBEAT_EVERY)

    async def _keep_leases(self, store: Store) -> None:
        tick = self._tick
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(woken.set)
        while not self._stopped.is_set():
            self._asleep = True
            if self._held:  # read after the flag is set, so that `hold` is either seen here or wakes this loop
                self._asleep = False
                loop.call_later(tick, woken.set)
            await woken.wait()
            woken.clear()
            try:
                await self._check(store)
                notices.store_well("renewing leases")
            except WorkerRefused:
                raise
            except StoreError as problem:
                notices.store_trouble("renewing leases", problem, tick)

    async def _check(self, store: Store) -> None:
        now = self._monotonic()
        self._watch_loop(now)
        held = [h for h in list(self._held.values()) if now - h.since > YOUNG * self._tick]
        due = [h for h in held if self._is_due(h, now)]
        statuses = []
        if due:
            statuses.append(await self._renew(store, due))
            for h in due:
                h.renewed = now
        rest = [h.lease for h in held if h.renewed != now]
        if rest:
            statuses.append(await store.lease_status(rest))
        self._pass_on(statuses)

    async def _renew(self, store: Store, held: Sequence[RenewedLease]) -> LeaseStatus:
        with self._reporting:
            held = [h for h in held if h.lease in self._held]
            reports = [h.report() for h in held]
            self._recording = recording = Future[None]()
            self._recorded = frozenset(report.lease for report in reports if report.log)
        if not reports:
            return LeaseStatus(frozenset(), frozenset())
        try:
            status = await store.renew(reports, lease=self._lease)
        except StoreError:
            for h, report in zip(held, reports, strict=True):
                if h.context is not None:
                    h.context.restore(report)
            raise
        finally:
            self._recorded = frozenset()
            recording.set_result(None)
        crash.at("worker.renewed")
        return status

    def _is_due(self, held: RenewedLease, now: float) -> bool:
        third = self._lease.total_seconds() / RENEWALS_IN_A_LEASE
        if held.deadline is None or held.context is None:
            return now - held.renewed >= third and now - self._loop_alive < self._lease.total_seconds()
        unreported = held.renewed < held.context.began
        return now < held.deadline and (unreported or held.context.has_news or now - held.renewed >= third)

    def _pass_on(self, statuses: Iterable[LeaseStatus]) -> None:
        for status in statuses:
            if status.lost or status.cancel_requested:
                self._worker_loop.call_soon_threadsafe(self._on_status, status)

    def _watch_loop(self, now: float) -> None:
        """Ask the worker's loop to run a callback, and report it if it has not done so for a second."""
        late, self._watched_at = now - self._watched_at > self._tick + LATE, now
        if self._answered:
            self._asked_at, self._answered, self._blocked = now, False, False
            self._worker_loop.call_soon_threadsafe(self._note_loop_alive)
        elif late:
            self._asked_at = now
        elif now - self._asked_at >= BLOCKED and not self._blocked:
            self._blocked = True
            self._on_blocked(now - self._asked_at)

    def _note_loop_alive(self) -> None:
        self._loop_alive = self._monotonic()
        if self._blocked:
            notices.loop_free(self._loop_alive - self._asked_at)
        self._answered = True


def run_on_thread(main: Coroutine[Any, Any, None], name: str) -> "asyncio.Future[None]":
    """Run a coroutine on a new thread with a loop of its own. Returns a future of the calling loop that is done when the
    coroutine is, with the same error if it failed."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish(problem: BaseException | None) -> None:
        if done.done():
            return
        if problem is None:
            done.set_result(None)
        else:
            done.set_exception(problem)

    def run() -> None:
        problem: BaseException | None = None
        try:
            asyncio.run(main)
        except BaseException as raised:
            problem = raised
        with contextlib.suppress(RuntimeError):  # the calling loop is closed
            loop.call_soon_threadsafe(finish, problem)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done

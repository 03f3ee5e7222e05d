"""Keeps the leases of what a worker holds, on a thread and a connection of its own, so that no handler can starve it."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import timedelta
from typing import Any

from ..errors import StoreError
from ..handlers.context import Context
from ..store.jobs import Lease, LeaseStatus, Report, Store
from ..system import crash, notices

TICK = 0.45  # seconds: a cancel is heard within one second
YOUNG = 0.5  # of a tick: what ends sooner is not worth a look


class HeldLease:
    """A leased job: renewed until its deadline, which is unknown until it starts."""

    __slots__ = ("context", "deadline", "lease", "renewed", "since")

    def __init__(self, lease: Lease, now: float) -> None:
        self.lease = lease
        self.since = self.renewed = now
        self.context: Context | None = None
        self.deadline: float | None = None

    def start(self, context: Context, longest: float) -> None:
        self.deadline = context.began + longest
        self.context = context

    def report(self) -> Report:
        return Report(self.lease, timedelta(0)) if self.context is None else self.context.report()


class Keeper:
    """Renews leases and listens for requests until it is stopped. `tell` is called on the worker's loop.

    Jobs that have not started are renewed only while that loop is alive, so that a handler that blocks it for ever cannot
    keep them; started ones until their deadline and never after.
    """

    def __init__(
        self,
        store: Store,
        lease: timedelta,
        *,
        tell: Callable[[LeaseStatus], None],
        died: Callable[[], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._store, self._lease, self._tell, self._died, self._monotonic = store, lease, tell, died, monotonic
        self._tick = min(TICK, lease.total_seconds() / 4)
        self._held: dict[Lease, HeldLease] = {}
        self._loop_alive = self._monotonic()
        self._stopped = threading.Event()
        self._dormant = False
        self._wake: Callable[[], object] = lambda: None
        self._running: asyncio.Future[None] | None = None

    def hold(self, lease: Lease) -> HeldLease:
        held = self._held[lease] = HeldLease(lease, self._monotonic())
        if self._dormant:
            self._dormant = False
            self._wake()
        return held

    def drop(self, lease: Lease) -> None:
        self._held.pop(lease, None)

    async def start(self) -> None:
        """Begin keeping: on a thread with a sibling of the store, or on this loop if the store has none."""
        self._worker_loop = asyncio.get_running_loop()
        sibling = self._store.sibling()
        if sibling is None:
            self._running = asyncio.ensure_future(self._keep(self._store))
        else:
            self._running = run_on_thread(self._keep_with(sibling), "demora-keeper")
        self._running.add_done_callback(self._ended)

    async def stop(self, within: float | None = None) -> None:
        """Renew no more. Returns once the thread has ended, or after so many seconds if its store does not answer: then it
        ends by itself."""
        self._stopped.set()
        with contextlib.suppress(RuntimeError):  # it died, and its loop with it
            self._wake()
        if self._running is not None:
            await asyncio.wait([self._running], timeout=within)

    def _ended(self, running: "asyncio.Future[None]") -> None:
        """Without its keeper a worker must not go on: nobody would renew its leases."""
        if not running.cancelled() and (problem := running.exception()) is not None:
            notices.keeper_died(problem)
            self._died()

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
        """Look after what is held at every tick, and sleep while nothing is."""
        tick = self._tick
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(woken.set)
        while not self._stopped.is_set():
            self._dormant = True
            if self._held:  # looked at only now, so that whoever holds first either is seen or wakes us
                self._dormant = False
                loop.call_later(tick, woken.set)
            await woken.wait()
            woken.clear()
            try:
                await self._look_after(store)
                notices.store_well("renewing leases")
            except StoreError as problem:
                notices.store_trouble("renewing leases", problem, tick)

    async def _look_after(self, store: Store) -> None:
        now = self._monotonic()
        self._worker_loop.call_soon_threadsafe(self._show_life)
        held = [h for h in list(self._held.values()) if now - h.since > YOUNG * self._tick]
        due = [h for h in held if self._is_due(h, now)]
        heard = []
        if due:
            heard.append(await self._renew(store, due))
            for h in due:
                h.renewed = now
        rest = [h.lease for h in held if h.renewed != now]
        if rest:
            heard.append(await store.listen(rest))
        self._report(heard)

    async def _renew(self, store: Store, held: Sequence[HeldLease]) -> LeaseStatus:
        reports = [h.report() for h in held]
        try:
            heard = await store.renew(reports, lease=self._lease)
        except StoreError:
            for h, report in zip(held, reports, strict=True):
                if h.context is not None:
                    h.context.unsay(report)
            raise
        crash.at("worker.renewed")
        return heard

    def _is_due(self, held: HeldLease, now: float) -> bool:
        third = self._lease.total_seconds() / 3
        if held.deadline is None or held.context is None:
            return now - held.renewed >= third and now - self._loop_alive < self._lease.total_seconds()
        unreported = held.renewed < held.context.began
        return now < held.deadline and (unreported or held.context.has_news or now - held.renewed >= third)

    def _report(self, heard: Iterable[LeaseStatus]) -> None:
        for news in heard:
            if news.lost or news.wished:
                self._worker_loop.call_soon_threadsafe(self._tell, news)

    def _show_life(self) -> None:
        self._loop_alive = self._monotonic()


# Running a coroutine on a thread and a loop of its own, so that no handler can keep it from running.


def run_on_thread(main: Coroutine[Any, Any, None], name: str) -> "asyncio.Future[None]":
    """Start it; the future, on the calling loop, ends as it does."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def tell(problem: BaseException | None) -> None:
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
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell, problem)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done

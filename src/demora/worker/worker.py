"""The worker's loop: claim, run, settle, and sleep until there is something to do."""

import asyncio
import contextlib
import inspect
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..core.shares import QueueShares
from ..core.states import Status
from ..core.verdict import GaveUp, HandedBack, NoHandler, Outcome
from ..errors import Invalid, StoreClosed, StoreError
from ..handlers.context import Context, current_job, stamp_records
from ..scheduler import housekeeping
from ..scheduler.housekeeping import ReleaseLog, Scheduler
from ..store.jobs import (
    ClaimedJob,
    LapsedJob,
    Lease,
    LeaseStatus,
    Report,
    Settlement,
    Store,
    Subscription,
    Topic,
    WorkerRecord,
    lapse,
)
from ..store.jobs import WorkerRecord as Record
from ..system import crash, error_texts, forks, notices
from ..system.seams import Seams
from .leases import HeldLease, Keeper
from .outcomes import Ending, verdict_on
from .prefetch import Prefetch
from .processes.application import expect_worker
from .processes.pool import Processes
from .run import Run
from .settling import Settler
from .timeouts import Timeouts

if TYPE_CHECKING:
    from ..app import Demora


SAFETY_LOOK = 60.0  # seconds that a worker sleeps at most
UNWIND = 5.0  # seconds that a run has to end after it was told to
RESERVE = 3.0  # seconds of the grace, at most half of it, that are kept for closing a store that does not answer
LAST_CALL = 0.5  # seconds that the store has at least for what a worker that stops asks of it
RETIRING = 2.0  # seconds to say farewell: a worker that does not is forgotten all the same
THREAD_GRACE = 2.0  # seconds that a thread may outlast its settled run before it counts as one that does not end
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between claims while the store is in trouble
_BY_ID = attrgetter("id", "token")


class Worker:
    """Runs the jobs of an application until it is stopped.

    `queues` None means all, also those named later. With weights, `{"mail": 3, "reports": 1}`, each is served first so
    often; with `strict` always in the order named; otherwise they are one line. `lease` is how long others wait before they
    take over what a dead worker held; `grace` how long running jobs may go on after `stop`. What is not given is as the
    settings say, and what could not be a setting is `Invalid`.
    """

    def __init__(
        self,
        app: "Demora",
        *,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        strict: bool = False,
        concurrency: int | None = None,
        lease: timedelta | str | None = None,
        grace: timedelta | str | None = None,
        seams: Seams | None = None,
    ) -> None:
        expect_worker()
        if concurrency is not None and type(concurrency) is not int:
            raise Invalid("concurrency", f"must be a whole number, not {type(concurrency).__name__}")
        settings = app.settings_with(concurrency=concurrency, lease=lease, grace=grace)
        self._seams = seams or Seams()
        self.id = self._seams.name()
        self.slots = settings.concurrency
        self._app, self._chance = app, self._seams.chance
        self._share = QueueShares(queues, strict=strict)
        self._retention = settings.retention
        self._lease, self._grace = settings.lease, settings.grace.total_seconds()
        self._longest, self._log_errors = settings.max_timeout, settings.log_errors
        self._backlog: deque[tuple[ClaimedJob, HeldLease]] = deque()
        self._runs: dict[Lease, Run] = {}
        self._stuck = 0
        self._prefetch = Prefetch()
        self._timeouts = Timeouts(self._time_out)
        self._processes = Processes(app, self._seams, began=self._restart_timeout)
        self._processes.check()
        self._more = False
        self._claimed_at = 0.0
        self._stopping = False
        self._stopped_at: float | None = None
        self._wound_down = False
        self.started = asyncio.Event()
        self.trouble: str | None = None
        self._handed_back = 0
        self._let_go = ReleaseLog()
        self._bell: Subscription | None = None
        self._told: asyncio.Future[None] | None = None

    async def run(self) -> int:
        """Work until stopped; 0, or 1 if there was `trouble`: half of the slots were held by runs that would not end, the
        store was closed, or leases could no longer be renewed."""
        client, self._loop = await self._app.open(), asyncio.get_running_loop()
        await self._app.apply_paces()
        self._app.sender.leave_room(self.slots)
        self._store: Store = client.store
        self._ledger = Settler(self._store, self._recorded, self._lease, chance=self._chance)
        died = partial(self._give_up, "renewing its leases has failed for good")
        self._keeper = Keeper(self._store, self._lease, tell=self._heard, died=died, monotonic=self._seams.monotonic)
        self._pool = ThreadPoolExecutor(self.slots, thread_name_prefix="demora-job")
        stamp_records()
        error_texts.configure(self._log_errors)
        await run_hooks("startup", self._app.startup_hooks)
        await self._keeper.start()
        await self._app.switch_builtins()
        types = self._app.registry.types()
        beating = asyncio.ensure_future(beat(self._store, self._record))
        tidying = asyncio.ensure_future(Scheduler(self._store, self._retention, seams=self._seams).run())
        notices.worker_started(self.id, self.slots, str(self._share), len(types))
        self.started.set()
        try:
            with forks.running_jobs(current_job), self._store.subscribe(Topic.READY) as self._bell:
                working = asyncio.ensure_future(self._work(self._bell))
                try:
                    await self._until_worked(working)
                finally:
                    recorded = await self._wind_down()
        finally:
            beating.cancel()
            tidying.cancel()
            self._let_go.close()
            await self._keeper.stop(within=self._left(LAST_CALL))
            self._pool.shutdown(wait=False, cancel_futures=True)
            await self._processes.close()
            await run_hooks("shutdown", self._app.shutdown_hooks)
        if recorded:
            with contextlib.suppress(StoreError, TimeoutError):
                await asyncio.wait_for(self._store.retire(self.id), min(self._left(LAST_CALL), RETIRING))
        working.cancel()
        notices.worker_stopped(self.id, self._handed_back)
        return 0 if self.trouble is None else 1

    def stop(self) -> None:
        """Claim no more, let what runs end within the grace, hand back the rest without counting an attempt."""
        self._stopping = True
        self._wake()
        if self._told is not None and not self._told.done():
            self._told.set_result(None)

    async def _record(self) -> Record:
        """This worker as it registers itself now: a slot held by a run that does not end is no slot."""
        await self._app.switch_builtins()
        slots, queues, types = self.slots - self._stuck, self._share.queues or (), self._app.registry.types()
        return Record(self.id, socket.gethostname(), os.getpid(), slots, queues, types)

    # Claiming

    async def _until_worked(self, working: "asyncio.Future[None]") -> None:
        """Return when the worker has been stopped, and its last claim has come back, or does not: its store is stuck."""
        self._told = self._loop.create_future()
        if not self._stopping:
            await asyncio.wait([working, self._told], return_when=asyncio.FIRST_COMPLETED)
        self._stopped_at = self._loop.time()
        await asyncio.wait([working], timeout=self._left(0.0, reserve=min(RESERVE, self._grace / 2)))
        if working.done():
            working.result()

    def _left(self, least: float, *, reserve: float = 0.0) -> float:
        """Seconds until the grace is over, less a reserve."""
        since = self._loop.time() if self._stopped_at is None else self._stopped_at
        return max(since + self._grace - reserve - self._loop.time(), least)

    async def _work(self, bell: Subscription) -> None:
        pause = FIRST_PAUSE
        while not self._stopping:
            bell.clear()
            try:
                wait = await self._claim()
                pause = FIRST_PAUSE
                notices.store_well("claiming")
            except StoreClosed:
                if not self._stopping:
                    notices.worker_store_closed(self.id)
                self._give_up("its store was closed")
                continue
            except StoreError as problem:
                trouble = pause * (0.5 + self._chance() / 2)
                notices.store_trouble("claiming", problem, trouble)
                pause = min(pause * 2, LONGEST_PAUSE)
                await housekeeping.wait_before_retry(bell, trouble)
                continue
            await asyncio.sleep(0)  # what was claimed starts before anything else is asked of the store
            left = SAFETY_LOOK if wait is None else min(self._claimed_at + wait - self._seams.monotonic(), SAFETY_LOOK)
            if left > 0:
                await bell.wait(left)

    async def _claim(self) -> float | None:
        """Claim what there is room for; answers with the seconds from then until the next look, None if only a wake-up can
        help."""
        if not self._runs:
            self._prefetch.looks(self._loop.time())
        room = self._room()
        if room <= 0:
            self._more = True  # perhaps: whoever makes room looks
            return None
        queues = self._share.turn(self._chance)
        claimed = await self._store.claim(self.id, room, lease=self._lease, queues=queues, in_turn=self._share.in_turn)
        self._claimed_at = self._seams.monotonic()
        crash.at("worker.claimed")
        self._take(claimed.jobs)
        self._let_go.add(claimed.released)
        self._more = len(claimed.jobs) == room
        if claimed.lapsed:
            crash.at("worker.lapsed")
            await self._store.settle([self._lapse(lapsed) for lapsed in claimed.lapsed])
            return 0.0
        if self._more:
            return 0.0 if self._room() > 0 else None
        return None if claimed.next_in is None else claimed.next_in.total_seconds()

    def _room(self) -> int:
        """How many to claim: none while there is still half of what should be held, so that claims come in batches."""
        full = self.slots - self._stuck + self._prefetch.jobs
        held = len(self._runs) + len(self._backlog)
        return full - held if held <= full // 2 or not self._backlog else 0

    def _lapse(self, lapsed: LapsedJob) -> Settlement:
        notices.job_lapsed(lapsed.lease.id, lapsed.worker_id)
        return lapse(lapsed, self._chance(), self._app.registry.standing)

    def _take(self, jobs: Sequence[ClaimedJob]) -> None:
        if self._wound_down:  # a claim that was no longer waited for
            for job in jobs:
                self._enter(job, HandedBack())
            return
        for job in jobs:
            self._backlog.append((job, self._keeper.hold(job.lease)))
        self._start_waiting()

    # Running

    def _start_waiting(self) -> None:
        while self._backlog and len(self._runs) + self._stuck < self.slots and not self._stopping:
            self._start(*self._backlog.popleft())

    def _start(self, job: ClaimedJob, held: HeldLease) -> None:
        handler = self._app.registry.get(job.type)
        ctx, around = Context(job, self.id, self._seams.monotonic), self._app.middlewares
        run = Run(ctx, handler, middlewares=around, pool=self._pool, processes=self._processes, longest=self._longest)
        held.start(run.ctx, run.limit + UNWIND)
        if not self._runs:
            self._prefetch.resumes(self._loop.time())
        self._runs[job.lease] = run
        run.task = self._loop.create_task(self._execute(run))
        self._timeouts.watch(run, run.limit)

    async def _execute(self, run: Run) -> None:
        outcome = await run.perform()
        crash.at("worker.ran")
        self._timeouts.forget(run, run.limit)
        if run.occupied is not None and not run.occupied.done():
            self._keep_slot(run, run.occupied, 0.0 if self._stopping else THREAD_GRACE)
        self._conclude(run, outcome)

    def _restart_timeout(self, run: Run) -> None:
        """Count a run's time from now: so far its process was starting."""
        self._timeouts.forget(run, run.limit)
        run.limit = run.timeout
        self._timeouts.watch(run, run.limit)

    def _conclude(self, run: Run, outcome: Outcome) -> None:
        """Give up the lease and the slot, and enter the verdict; once for each run."""
        if run.settled:
            return
        run.settled = True
        job = run.ctx.job
        self._runs.pop(job.lease, None)
        self._keeper.drop(job.lease)
        self._prefetch.finished(self._loop.time())
        if run.ending is not Ending.LOST:
            self._enter(job, outcome, run)
        self._start_waiting()
        if not self._runs:
            self._prefetch.rests(self._loop.time())
        if self._more and self._room() > 0:
            self._wake()

    def _enter(self, job: ClaimedJob, outcome: Outcome, run: Run | None = None) -> None:
        standing = job.standing if run is None else run.standing()
        verdict = verdict_on(outcome, standing, self._chance())
        report = Report(job.lease, timedelta(0)) if run is None else run.ctx.report()
        if isinstance(outcome, HandedBack):
            self._handed_back += 1
        if isinstance(outcome, NoHandler):
            notices.job_unknown(job.lease.id, job.type, verdict.error)
        elif verdict.error is not None:
            status = (verdict.after_cancel_request() if run is not None and run.ending is Ending.CANCEL else verdict).status
            notices.run_ended_badly(job.lease.id, job.type, job.queue, status, standing.attempt, verdict.error)
        self._ledger.enter(Settlement(report, verdict))

    # Ending runs from outside

    def _time_out(self, run: Run) -> None:
        notices.run_timed_out(run.ctx.id, run.ctx.job.type, run.timeout)
        run.end(Ending.TIMEOUT)
        self._loop.call_later(UNWIND, self._abandon, run)

    def _abandon(self, run: Run) -> None:
        """Settle a run that does not end although it was told to; its slot stays taken until it does."""
        if run.task is not None and not run.task.done():
            self._keep_slot(run, run.task, 0.0)
            self._conclude(run, run.timed_out())

    def _keep_slot(self, run: Run, until: "asyncio.Future[Any]", patience: float) -> None:
        self._stuck += 1
        until.add_done_callback(self._free_slot)
        if patience:
            self._loop.call_later(patience, self._judge_stuck, run, until)
        else:
            self._judge_stuck(run, until)

    def _judge_stuck(self, run: Run, until: "asyncio.Future[Any]") -> None:
        if until.done():
            return
        notices.run_ignores_end(run.ctx.id, run.ctx.job.type)
        if self._stuck * 2 >= self.slots and not self._stopping:
            notices.worker_stuck(self.id, self._stuck, self.slots)
            self._give_up(f"{self._stuck} of {self.slots} slots are held by runs that did not end")

    def _free_slot(self, ended: "asyncio.Future[Any]") -> None:
        if not ended.cancelled():
            ended.exception()  # seen: it was settled long ago
        self._stuck -= 1
        self._start_waiting()
        self._wake()

    def _heard(self, news: LeaseStatus) -> None:
        for lease in sorted(news.lost, key=_BY_ID):
            self._lose(lease)
        for lease in sorted(news.wished, key=_BY_ID):
            if (run := self._runs.get(lease)) is not None and run.ending is None:
                run.end(Ending.CANCEL)
            elif (job := self._withdraw(lease)) is not None:
                self._enter(job, GaveUp("cancelled before it started"))

    def _lose(self, lease: Lease) -> None:
        self._withdraw(lease)
        run = self._runs.get(lease)
        if run is not None and run.ending is not Ending.LOST:
            notices.lease_lost(lease.id, run.ctx.job.type)
            run.end(Ending.LOST)

    def _withdraw(self, lease: Lease) -> ClaimedJob | None:
        """Take a job that has not started out of the backlog."""
        for claimed in self._backlog:
            if claimed[0].lease == lease:
                self._backlog.remove(claimed)
                self._keeper.drop(lease)
                return claimed[0]
        return None

    def _recorded(self, settlement: Settlement, status: Status | None) -> None:
        if status is None:
            notices.settled_too_late(settlement.report.lease.id)

    # Stopping and staying in touch

    def _give_up(self, trouble: str) -> None:
        """Stop because of this, unless that was under way anyway."""
        if not self._stopping:
            self.trouble = trouble
        self.stop()

    async def _wind_down(self) -> bool:
        """Let what runs end and record it; False if the store records nothing and there was no time left to wait for it."""
        self._stopping = self._wound_down = True
        notices.worker_stopping(self.id, len(self._runs), self._grace)
        crash.at("worker.stopping")
        while self._backlog:
            job, _ = self._backlog.popleft()
            self._keeper.drop(job.lease)
            self._enter(job, HandedBack())
        await self._let_end(self._left(0.0))
        for run in list(self._runs.values()):
            run.end(Ending.STOP)
        await self._let_end(0.5)
        for run in list(self._runs.values()):
            self._conclude(run, HandedBack())
        return await self._ledger.drain(self._loop.time() + self._left(0.0, reserve=min(RESERVE, self._grace / 2)))

    async def _let_end(self, seconds: float) -> None:
        tasks = [run.task for run in self._runs.values() if run.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    def _wake(self) -> None:
        if self._bell is not None:
            self._bell.wake()


# A worker's heartbeat: its record among the workers, written again and again while it lives.


EVERY = 10.0  # seconds


async def beat(store: Store, record: Callable[[], Awaitable[WorkerRecord]]) -> None:
    """Go on until cancelled, with a record made anew for each beat; trouble of the store is told and outlived."""
    while True:
        try:
            await store.heartbeat(await record())
            notices.store_well("the heartbeat")
        except StoreError as problem:
            notices.store_trouble("the heartbeat", problem, EVERY)
        await asyncio.sleep(EVERY)


# What an application asked to be called when a worker starts and stops.


async def run_hooks(which: str, hooks: Sequence[Callable[[], Awaitable[None] | None]]) -> None:
    """Call the hooks in order. One that fails keeps a worker from starting, but not from stopping."""
    for hook in hooks:
        try:
            called = hook()
            if inspect.isawaitable(called):
                await called
        except Exception as problem:
            notices.hook_failed(which, problem)
            if which == "startup":
                raise

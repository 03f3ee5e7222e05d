"""The worker: claims jobs, runs their handlers, settles the outcomes, and sleeps until there is more to do.

Everything here happens on the worker's event loop. On another thread, the `Keeper` renews leases and sends heartbeats.
"""

import asyncio
import contextlib
import inspect
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import Any

from ..core import workers
from ..core.states import Status
from ..core.verdict import (
    BEFORE_START,
    Cancelled,
    HandedBack,
    NoHandler,
    Outcome,
    Raised,
    Snoozed,
    Succeeded,
    Verdict,
    decide,
)
from ..core.workers import QueueShares, WorkerRecord
from ..errors import Invalid, StoreClosed, StoreError, WorkerRefused
from ..handlers.context import Context, current_job, stamp_records
from ..handlers.control import Retry
from ..handlers.registry import Hook
from ..scheduler.pace_log import ReleaseLog
from ..scheduler.scheduler import Scheduler, wait_before_retry
from ..store.jobs import (
    ClaimedJob,
    ClaimRequest,
    LapsedJob,
    Lease,
    LeaseStatus,
    Report,
    Settlement,
    Subscription,
    Topic,
    lapse,
)
from ..store.store import Store
from ..system import crash, error_texts, forks, notices, traces
from ..system.log_limit import Burst
from ..system.seams import Seams
from ..system.traces import RunSpan, Traces
from .application import Application
from .leases import Keeper, RenewedLease
from .measures import Measures
from .prefetch import Prefetch
from .processes.location import expect_worker
from .processes.pool import Processes
from .run import Ending, Resources, Run, Timeouts, verdict_on
from .settling import Settler
from .switching import keep_switching

SAFETY_LOOK = 60.0  # seconds between two claims at most; the notifier's own checks come sooner
UNWIND = workers.UNWIND.total_seconds()
RESERVE = 3.0  # seconds of the grace, at most half of it, kept for closing a store that does not answer
LEAST_LEFT = 0.5  # seconds that the store has at least to answer a worker that stops
RETIRING = 2.0  # seconds to deregister; a worker that fails to is forgotten when its heartbeats stop
THREAD_GRACE = 2.0  # seconds that a thread may outlast its settled run before the worker reports it as stuck
RECORDED_WITHIN = 1.0  # seconds that a settlement waits for a renewal that records log lines of its run
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between claims while the store is in trouble
_BY_ID = attrgetter("id", "token")


class Worker:
    """Runs the jobs of an application until it is stopped.

    `queues` None means all queues, including those created later. With weights, `{"mail": 3, "reports": 1}`, the worker
    serves each queue first in proportion to its weight. With `strict` it serves queues in the given order. Otherwise it
    treats them as one queue. `lease` is how long other workers wait before they take over the jobs of a dead worker.
    `grace` is how long running jobs may continue after `stop`. Arguments that are not given come from the settings; a value
    that the setting would not accept raises `Invalid`. The worker reports what it does to `measures`.
    """

    def __init__(
        self,
        app: Application,
        *,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        strict: bool = False,
        concurrency: int | None = None,
        lease: timedelta | str | None = None,
        grace: timedelta | str | None = None,
        seams: Seams | None = None,
        measures: Measures | None = None,
    ) -> None:
        expect_worker()
        if concurrency is not None and type(concurrency) is not int:
            raise Invalid("concurrency", f"must be a whole number, not {type(concurrency).__name__}")
        settings = app.settings_with(concurrency=concurrency, lease=lease, grace=grace)
        self._seams = seams or Seams()
        self.id = self._seams.name()
        self.slots = settings.concurrency
        self._app, self._chance = app, self._seams.chance
        self._measures = measures or Measures()
        self._traces = traces.configured()
        self._spans: dict[Lease, RunSpan] = {}  # of runs that are traced and not settled
        self._share = QueueShares(queues, strict=strict)
        self._retention = settings.retention
        self._lease, self._grace = settings.lease, settings.grace.total_seconds()
        self._longest, self._log_errors = settings.max_timeout, settings.log_errors
        self._paces = settings.asked_paces
        self._backlog: deque[tuple[ClaimedJob, RenewedLease]] = deque()
        self._runs: dict[Lease, Run] = {}
        self._stuck = 0
        self._prefetch = Prefetch()
        self._processes = Processes(app, self._seams, began=self._restart_timeout)
        self._processes.check()
        self._more_ready = False  # the store may have more jobs than the last claim had room for
        self._claimed_at = 0.0
        self._stopping = False
        self._stop_requested: asyncio.Future[None] | None = None
        self._stopped_at: float | None = None
        self._wound_down = False
        self._handed_back = 0
        self._outlasting: list[str] = []  # the types of runs that did not end when the worker stopped
        self._completed = Burst(notices.runs_completed)
        self._subscription: Subscription | None = None
        self.started = asyncio.Event()
        self.trouble: str | None = None
        self.refused = False

    async def run(self) -> int:
        """Work until stopped. Returns 0, or 1 if the worker stopped because of `trouble`: runs that did not end held half of
        its slots, its store was closed, it could no longer renew its leases, or its service refused it (`refused`)."""
        await self._open()
        switching = asyncio.ensure_future(keep_switching(self._app))
        scheduling = asyncio.ensure_future(self._scheduler().run())
        notices.worker_started(self.id, self.slots, str(self._share), len(self._app.registry.types()))
        self._measures.working(self.slots, self._busy_slots)
        self.started.set()
        try:
            with forks.running_jobs(current_job), self._store.subscribe(Topic.READY) as self._subscription:
                working = asyncio.ensure_future(self._work(self._subscription))
                try:
                    await self._until_stopped(working)
                finally:
                    recorded = await self._wind_down()
        finally:
            switching.cancel()
            scheduling.cancel()
            await self._close()
        if recorded:
            with contextlib.suppress(StoreError, TimeoutError):
                await asyncio.wait_for(self._store.retire(self.id), min(self._left(LEAST_LEFT), RETIRING))
        working.cancel()
        notices.worker_stopped(self.id, self._handed_back)
        return 0 if self.trouble is None else 1

    def stop(self) -> None:
        """Claim no more jobs, give running ones the grace to end, and hand back the rest without counting an attempt."""
        self._stopping = True
        self._wake()
        if self._stop_requested is not None and not self._stop_requested.done():
            self._stop_requested.set_result(None)

    def _scheduler(self) -> Scheduler:
        define = partial(self._app.define_schedules, self.id) if self._define_again else None
        return Scheduler(self._store, self._retention, seams=self._seams, process_id=self.id, define=define)

    # Opening and closing

    async def _open(self) -> None:
        client, self._loop = await self._app.open(), asyncio.get_running_loop()
        self._timeouts = Timeouts(self._loop, self._time_out)
        await self._app.apply_paces()
        self._app.sender.leave_room(self.slots)
        self._store: Store = client.store
        self._release_log = ReleaseLog(self._store.paces)
        self._settler = Settler(
            self._store,
            self._lease,
            on_settled=self._on_settled,
            on_recorded=self._measures.recorded,
            chance=self._chance,
        )
        self._keeper = Keeper(
            self._store,
            self._lease,
            on_status=self._apply_lease_status,
            on_failure=self._on_keeper_death,
            on_blocked=self._report_blocked,
            record=self._record,
            monotonic=self._seams.monotonic,
        )
        self._thread = threading.get_ident()
        self._pool = ThreadPoolExecutor(self.slots, thread_name_prefix="demora-job")
        self._resources = Resources(self._app.middlewares, self._pool, self._processes, self._longest)
        stamp_records()
        error_texts.configure(self._log_errors)
        await run_hooks("startup", self._app.startup_hooks)
        await self._keeper.start()
        await self._app.switch_builtins()
        self._define_again = await self._app.define_schedules(self.id)

    async def _close(self) -> None:
        self._release_log.close()
        self._completed.close()
        await self._keeper.stop(within=self._left(LEAST_LEFT))
        self._pool.shutdown(wait=False, cancel_futures=True)
        await self._processes.close()
        await run_hooks("shutdown", self._app.shutdown_hooks)

    def _record(self) -> WorkerRecord:
        """Describe this worker for its heartbeat. Slots held by runs that do not end are not counted."""
        slots, queues, types = self.slots - self._stuck, self._share.queues or (), self._app.registry.types()
        return WorkerRecord(self.id, socket.gethostname(), os.getpid(), slots, queues, types, paces=self._paces)

    # Claiming

    async def _work(self, subscription: Subscription) -> None:
        pause = FIRST_PAUSE
        while not self._stopping:
            subscription.clear()
            try:
                wait = await self._claim()
                pause = FIRST_PAUSE
                notices.store_well("claiming")
            except StoreClosed:
                if not self._stopping:
                    notices.worker_store_closed(self.id)
                self._give_up("its store was closed")
                continue
            except WorkerRefused as problem:
                self._stop_refused(problem)
                continue
            except StoreError as problem:
                retry_in = pause * (0.5 + self._chance() / 2)
                notices.store_trouble("claiming", problem, retry_in)
                pause = min(pause * 2, LONGEST_PAUSE)
                await wait_before_retry(subscription, retry_in)
                continue
            await asyncio.sleep(0)  # claimed jobs start before the next call to the store
            left = SAFETY_LOOK if wait is None else min(self._claimed_at + wait - self._seams.monotonic(), SAFETY_LOOK)
            if left > 0:
                await subscription.wait(left)

    async def _claim(self) -> float | None:
        """Claim as many jobs as there is room for. Returns the seconds from then until the next claim, or None to wait for a
        notification."""
        if not self._runs:
            self._prefetch.before_claim(self._loop.time())
        room = self._room()
        if room <= 0:
            self._more_ready = True  # perhaps: the run that makes room wakes the worker
            return None
        queues, asked_at = self._share.turn(self._chance), self._seams.monotonic()
        known, in_turn = self._app.registry.known, self._share.in_turn
        request = ClaimRequest(self.id, room, lease=self._lease, queues=queues, in_turn=in_turn, types=known)
        claimed = await self._store.claim(request)
        self._claimed_at = self._seams.monotonic()
        self._measures.claimed(self._claimed_at - asked_at)
        crash.at("worker.claimed")
        self._take(claimed.jobs)
        self._release_log.add(claimed.released)
        if claimed.parked:
            await self._report_unknown(claimed.parked)
        self._more_ready = len(claimed.jobs) == room
        if claimed.lapsed:
            crash.at("worker.lapsed")
            answers = await self._store.settle([self._lapse(lapsed) for lapsed in claimed.lapsed])
            self._measures.lapsed(sum(status is not None for status in answers))
            return 0.0
        if self._more_ready:
            return 0.0 if self._room() > 0 else None
        return None if claimed.next_in is None else claimed.next_in.total_seconds()

    async def _report_unknown(self, types: frozenset[str]) -> None:
        """Log the types of jobs that this worker cannot run if no other live worker can either."""
        live = [worker for worker in await self._store.workers() if worker.live]
        elsewhere = frozenset(type for worker in live for type in worker.types)
        for type in sorted(types - elsewhere):
            notices.type_unknown(type)

    def _room(self) -> int:
        """Return how many jobs to claim: 0 until the backlog is half empty, so that claims come in batches."""
        full = self.slots - self._stuck + self._prefetch.jobs
        held = len(self._runs) + len(self._backlog)
        return full - held if held <= full // 2 or not self._backlog else 0

    def _busy_slots(self) -> int:
        """Return how many slots are taken, also those of runs that did not end."""
        return len(self._runs) + self._stuck

    def _lapse(self, lapsed: LapsedJob) -> Settlement:
        settlement = lapse(lapsed, self._chance(), self._app.registry.retry_state)
        notices.job_lapsed(lapsed.lease.id, lapsed.type, lapsed.worker_id, settlement.verdict.status)
        return settlement

    def _take(self, jobs: Sequence[ClaimedJob]) -> None:
        if self._wound_down:  # a claim that returned too late
            for job in jobs:
                self._settle(job, HandedBack())
            return
        self._backlog.extend(zip(jobs, self._keeper.hold([job.lease for job in jobs]), strict=True))
        self._start_backlog()

    # Running

    def _start_backlog(self) -> None:
        while self._backlog and len(self._runs) + self._stuck < self.slots and not self._stopping:
            self._start(*self._backlog.popleft())

    def _start(self, job: ClaimedJob, held: RenewedLease) -> None:
        handler = self._app.registry.get(job.type)
        run = Run(Context(job, self.id, self._seams.monotonic), handler, self._resources)
        held.start(run.ctx, run.limit + UNWIND)
        if not self._runs:
            self._prefetch.busy(self._loop.time())
        self._runs[job.lease] = run
        self._measures.started(job, waited=run.ctx.began - held.since, now=self._seams.wall())
        notices.run_started(job.lease.id, job.type, job.queue, job.retry_state.attempt)
        run.task = self._loop.create_task(self._execute(run))
        self._timeouts.watch(run, run.limit)

    async def _execute(self, run: Run) -> None:
        outcome = await (run.perform() if self._traces is None else self._trace(self._traces, run))
        crash.at("worker.ran")
        self._timeouts.forget(run, run.limit)
        if run.occupied is not None and not run.occupied.done():
            self._keep_slot(run, run.occupied, 0.0 if self._stopping else THREAD_GRACE)
        recording = self._keeper.drop(run.ctx.job.lease)
        if recording is not None:
            with contextlib.suppress(asyncio.CancelledError):  # the run has its outcome, which stands
                await asyncio.wait([asyncio.wrap_future(recording)], timeout=RECORDED_WITHIN)
        self._conclude(run, outcome)

    async def _trace(self, traces: Traces, run: Run) -> Outcome:
        job = run.ctx.job
        with traces.running(
            job.traceparent,
            queue=job.queue,
            type=job.type,
            id=job.lease.id,
            attempt=job.retry_state.attempt,
            worker_id=self.id,
        ) as span:
            self._spans[job.lease] = span
            outcome = await run.perform()
            span.end(outcome.error if isinstance(outcome, Raised) else None)
        return outcome

    def _restart_timeout(self, run: Run) -> None:
        """Count a run's timeout from now on, since its process has only now called the handler."""
        self._timeouts.forget(run, run.limit)
        run.limit = run.timeout
        self._timeouts.watch(run, run.limit)

    def _conclude(self, run: Run, outcome: Outcome) -> None:
        """Free the slot and settle the job, once for each run. The keeper has dropped its lease before."""
        if run.settled:
            return
        run.settled = True
        job = run.ctx.job
        self._runs.pop(job.lease, None)
        self._prefetch.job_ended(self._loop.time())
        if run.ending is not Ending.LOST:
            self._settle(job, outcome, run)
        elif self._spans:
            self._spans.pop(job.lease, None)
        self._start_backlog()
        if not self._runs:
            self._prefetch.idle(self._loop.time())
        if self._more_ready and self._room() > 0:
            self._more_ready = False  # until the next claim has looked
            self._wake()

    def _settle(self, job: ClaimedJob, outcome: Outcome, run: Run | None = None) -> None:
        report = Report(job.lease, timedelta(0)) if run is None else run.ctx.report()
        if isinstance(outcome, Succeeded):  # most runs: they need no retry rules and no random number
            verdict = decide(outcome, job.retry_state, 0.0)
            attempt = job.retry_state.attempt
            notices.run_completed(job.lease.id, job.type, job.queue, attempt, report.ran, self._completed)
        else:
            verdict = verdict_on(outcome, job.retry_state if run is None else run.retry_state(), self._chance())
            self._log_end(job, outcome, verdict, run)
        self._measures.ended(job, None if run is None else report.ran)
        self._settler.add(Settlement(report, outcome, verdict))

    def _log_end(self, job: ClaimedJob, outcome: Outcome, verdict: Verdict, run: Run | None) -> None:
        """Log a run that did not succeed."""
        facts, attempt = (job.lease.id, job.type, job.queue), job.retry_state.attempt
        ending, problem = (None, None) if run is None else (run.ending, run.problem)
        if ending is Ending.CANCEL:
            verdict = verdict.after_cancel_request()
        match outcome:
            case _ if verdict.status is Status.CANCELLED:
                notices.run_cancelled(*facts, attempt, verdict.error or "")
            case NoHandler():
                notices.job_unknown(job.lease.id, job.type, verdict.error)
            case Snoozed():
                notices.run_put_back(*facts, verdict.status, "its handler snoozed it")
            case HandedBack():
                self._handed_back += 1
                notices.run_put_back(*facts, verdict.status, "the worker stops")
            case _:
                expected = isinstance(problem, Retry)
                notices.run_failed(*facts, verdict.status, attempt, verdict.error or "", problem, expected=expected)
        if run is not None:
            run.problem = None  # it refers to the run through its traceback

    # Ending runs from outside

    def _time_out(self, run: Run) -> None:
        notices.run_timed_out(run.ctx.id, run.ctx.job.type, run.timeout)
        run.end(Ending.TIMEOUT)
        self._loop.call_later(UNWIND, self._abandon, run)

    def _abandon(self, run: Run) -> None:
        """Settle a run that ignores its timeout. Its slot stays taken until the run ends."""
        if run.task is not None and not run.task.done():
            self._keep_slot(run, run.task, 0.0)
            self._keeper.drop(run.ctx.job.lease)
            self._conclude(run, run.timed_out())

    def _keep_slot(self, run: Run, until: "asyncio.Future[Any]", grace: float) -> None:
        """Take a slot until this future is done, and report the run as stuck if that takes longer than the grace."""
        self._stuck += 1
        until.add_done_callback(self._free_slot)
        if grace:
            self._loop.call_later(grace, self._report_stuck, run, until)
        else:
            self._report_stuck(run, until)

    def _report_stuck(self, run: Run, until: "asyncio.Future[Any]") -> None:
        if until.done():
            return
        if self._stopping:
            self._outlasting.append(run.ctx.job.type)
            return
        notices.run_ignores_end(run.ctx.id, run.ctx.job.type)
        if self._stuck * 2 >= self.slots:
            notices.worker_stuck(self.id, self._stuck, self.slots)
            self._give_up(f"{self._stuck} of {self.slots} slots are held by runs that did not end")

    def _report_blocked(self, seconds: float) -> None:
        """Name the run that blocks the loop, and the place. The keeper calls this on its own thread."""
        task, frame = asyncio.current_task(self._loop), sys._current_frames().get(self._thread)
        run = next((run for run in list(self._runs.values()) if run.task is task), None)
        notices.loop_blocked(None if run is None else (run.ctx.id, run.ctx.job.type), seconds, frame)

    def _free_slot(self, ended: "asyncio.Future[Any]") -> None:
        if not ended.cancelled():
            ended.exception()  # retrieved, so that asyncio does not log it: the job is settled
        self._stuck -= 1
        self._start_backlog()
        self._wake()

    def _apply_lease_status(self, status: LeaseStatus) -> None:
        """End the runs whose leases are lost and those that a caller wants cancelled."""
        for lease in sorted(status.lost, key=_BY_ID):
            self._lose(lease)
        for lease in sorted(status.cancel_requested, key=_BY_ID):
            if (run := self._runs.get(lease)) is not None and run.ending is None:
                run.end(Ending.CANCEL)
            elif (job := self._withdraw(lease)) is not None:
                self._settle(job, Cancelled(BEFORE_START))

    def _lose(self, lease: Lease) -> None:
        if self._withdraw(lease) is not None:
            self._measures.lost(lease)
        run = self._runs.get(lease)
        if run is not None and run.ending is not Ending.LOST:
            self._measures.lost(lease)
            notices.lease_lost(lease.id, run.ctx.job.type)
            run.end(Ending.LOST)

    def _withdraw(self, lease: Lease) -> ClaimedJob | None:
        """Remove a job from the backlog; None if it is not there."""
        for claimed in self._backlog:
            if claimed[0].lease == lease:
                self._backlog.remove(claimed)
                self._keeper.drop(lease)
                return claimed[0]
        return None

    def _on_settled(self, settlement: Settlement, status: Status | None) -> None:
        self._measures.settled(settlement, status)
        if self._spans and (span := self._spans.pop(settlement.report.lease, None)) is not None:
            span.settled(status)
        if status is None:
            notices.settled_too_late(settlement.report.lease.id)

    # Stopping

    async def _until_stopped(self, working: "asyncio.Future[None]") -> None:
        """Return when the worker was stopped and its last claim has returned, or the store does not answer in time."""
        self._stop_requested = self._loop.create_future()
        if not self._stopping:
            await asyncio.wait([working, self._stop_requested], return_when=asyncio.FIRST_COMPLETED)
        self._stopped_at = self._loop.time()
        await asyncio.wait([working], timeout=self._left(0.0, reserve=min(RESERVE, self._grace / 2)))
        if working.done():
            working.result()

    def _left(self, least: float, *, reserve: float = 0.0) -> float:
        """Return the seconds until the grace is over, less a reserve."""
        since = self._loop.time() if self._stopped_at is None else self._stopped_at
        return max(since + self._grace - reserve - self._loop.time(), least)

    def _give_up(self, trouble: str) -> None:
        """Stop because of this trouble, unless the worker is stopping anyway."""
        if not self._stopping:
            self.trouble = trouble
        self.stop()

    def _on_keeper_death(self, problem: BaseException) -> None:
        if isinstance(problem, WorkerRefused):
            self._stop_refused(problem)
        else:
            notices.keeper_died(problem)
            self._give_up("renewing its leases has failed for good")

    def _stop_refused(self, problem: WorkerRefused) -> None:
        if not self._stopping:
            self.refused = True
            notices.worker_refused(self.id, problem)
        self._give_up(str(problem))

    async def _wind_down(self) -> bool:
        """Wait for runs to end, and settle all jobs. Returns False if the store did not record them within the grace."""
        self._stopping = self._wound_down = True
        notices.worker_stopping(self.id, len(self._runs), self._grace)
        crash.at("worker.stopping")
        while self._backlog:
            job, _ = self._backlog.popleft()
            self._keeper.drop(job.lease)
            self._settle(job, HandedBack())
        await self._await_runs(self._left(0.0))
        for run in list(self._runs.values()):
            run.end(Ending.STOP)
        await self._await_runs(0.5)
        for run in list(self._runs.values()):
            self._keeper.drop(run.ctx.job.lease)
            self._conclude(run, HandedBack())
        if self._outlasting:
            notices.runs_left(self.id, self._outlasting)
        return await self._settler.drain(self._loop.time() + self._left(0.0, reserve=min(RESERVE, self._grace / 2)))

    async def _await_runs(self, seconds: float) -> None:
        tasks = [run.task for run in self._runs.values() if run.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    def _wake(self) -> None:
        if self._subscription is not None:
            self._subscription.wake()


async def run_hooks(which: str, hooks: Sequence[Hook]) -> None:
    """Call the startup or shutdown hooks of the application in order. A startup hook that fails prevents the start of the
    worker; the failure of a shutdown hook is only logged."""
    for hook in hooks:
        try:
            called = hook()
            if inspect.isawaitable(called):
                await called
        except Exception as problem:
            notices.hook_failed(which, problem)
            if which == "startup":
                raise

"""Leases: kept while a job runs, taken over when a worker is gone, handed back when it stops."""

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from demora import Context, Demora, Job, Status
from demora.core.verdict import Raised, RetryState, decide
from demora.core.workers import WorkerRecord
from demora.engines.sqlite import SqliteStore
from demora.errors import StoreClosed, StoreError
from demora.store.jobs import ClaimRequest, Lease, LeaseStatus, Report, Settlement
from demora.store.store import Store
from demora.system import notices
from demora.system.log_limit import Limit
from demora.worker import Worker, leases, worker
from demora.worker.leases import Keeper
from tests.copies import jobs_file
from tests.facts import eventually
from tests.worker.conftest import Gate, ended

SHORT = timedelta(seconds=1)


async def test_a_long_job_keeps_its_lease(app: Demora) -> None:
    @app.job("long")
    async def long() -> str:
        await asyncio.sleep(SHORT.total_seconds() * 2.5)
        return "ok"

    async with app.worker(lease=SHORT), app.worker(lease=SHORT):
        found = await ended(app, await long.enqueue())
    assert (found.status, found.token) == (Status.COMPLETED, 1)


async def test_a_handler_that_blocks_the_loop_keeps_its_lease(app: Demora) -> None:
    @app.job("rude")
    async def rude() -> str:
        threading.Event().wait(SHORT.total_seconds() * 2.5)
        return "ok"

    async with app.worker(lease=SHORT):
        found = await ended(app, await rude.enqueue())
    assert (found.status, found.token) == (Status.COMPLETED, 1)


class HeldRenewals(SqliteStore):
    """A store whose renewals with log lines wait until the test lets them go."""

    def __init__(self, path: Path, *, broken: bool = False) -> None:
        super().__init__(path)
        self.arrived, self.go_on, self.broken, self.settlements = threading.Event(), threading.Event(), broken, 0

    def sibling(self) -> SqliteStore:
        sibling, renew = SqliteStore(self.path), SqliteStore.renew

        async def held(reports: Sequence[Report], *, lease: timedelta) -> LeaseStatus:
            if any(report.log for report in reports):
                self.arrived.set()
                await asyncio.to_thread(self.go_on.wait, 60)
                if self.broken:
                    raise StoreError("gone")
            return await renew(sibling, reports, lease=lease)

        sibling.renew = held  # type: ignore[method-assign]
        return sibling

    async def settle(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        self.settlements += len(settlements)
        return await super().settle(settlements)


@pytest.mark.parametrize("broken", [False, True])
async def test_a_run_that_ends_while_its_log_is_recorded_loses_no_line(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch, *, broken: bool
) -> None:
    monkeypatch.setattr(worker, "RECORDED_WITHIN", 60.0)
    store = HeldRenewals(jobs_file(tmp_path), broken=broken)
    app = Demora(store=store)

    @app.job("talk")
    async def talk(ctx: Context) -> None:
        ctx.log("one")
        await gate.arrive()
        ctx.log("two")

    async with app, app.worker():
        job = await talk.enqueue()
        assert await asyncio.to_thread(store.arrived.wait, 60)
        gate.open()
        for _ in range(5):  # the run ends meanwhile, and is not settled
            await app.get(job.id)
        assert store.settlements == 0
        store.go_on.set()
        found = await ended(app, job)
    assert [line.line for line in found.log] == ["one", "two"]


async def test_a_lapsed_lease_is_settled_by_whoever_claims(app: Demora) -> None:
    job = await app.enqueue("demo.echo", {"hi": 1}, retry_delay="10ms")
    store = (await app.open()).store
    await store.claim(ClaimRequest("a worker that dies", 1, lease=timedelta(milliseconds=50)))
    async with app.worker():
        found = await ended(app, job)
    assert (found.status, found.retry_count, found.token) == (Status.COMPLETED, 1, 2)
    assert "WorkerLost: worker a worker that dies" in (found.attempts[0].error or "")


async def test_a_job_that_kills_its_workers_ends_among_the_dead_letters(app: Demora) -> None:
    job = await app.enqueue("demo.echo", max_retries=0)
    store = (await app.open()).store
    await store.claim(ClaimRequest("a worker that dies", 1, lease=timedelta(milliseconds=20)))
    async with app.worker():
        found = await ended(app, job)
    assert (found.status, len(found.attempts)) == (Status.FAILED, 1)
    assert "WorkerLost" in (found.error or "")


async def test_a_worker_that_lost_a_lease_records_nothing_of_that_run(app: Demora, gate: Gate) -> None:
    @app.job("long")
    async def long() -> str:
        await gate.arrive()
        return "too late"

    async with app.worker():
        job = await long.enqueue()
        await gate.reached()
        await _take_away(app, job.id)
        gate.open()
        found = await eventually(lambda: app.get(job.id), lambda job: job.token > 1)
        assert found.attempts[0].error == "WorkerLost: taken away"


async def test_stopping_hands_back_what_does_not_end_in_time_without_counting_it(app: Demora, gate: Gate) -> None:
    @app.job("long")
    async def long() -> None:
        await gate.arrive()

    async with app.worker(concurrency=2, grace=timedelta(milliseconds=20)):
        jobs = await app.enqueue_many([("long", {})] * 4)
        await gate.reached()
    for job in jobs:
        found = await app.get(job.id)
        assert (found.status, found.attempt, found.attempts) == (Status.QUEUED, 0, ())
        assert found.due_at == job.due_at


async def test_stopping_hands_back_at_once_what_was_claimed_ahead(app: Demora, gate: Gate) -> None:
    @app.job("long")
    async def long() -> None:
        await gate.arrive()

    async with app.worker(concurrency=1, grace=timedelta(milliseconds=20)) as working:
        working._prefetch.jobs = 3
        working._prefetch.idle(asyncio.get_running_loop().time())
        jobs = await app.enqueue_many([("long", {})] * 4)
        await gate.reached()
        assert len(working._backlog) == 3
    assert [(await app.get(job.id)).status for job in jobs] == [Status.QUEUED] * 4


async def test_stopping_lets_running_jobs_end_within_the_grace(app: Demora, gate: Gate) -> None:
    @app.job("long")
    async def long() -> str:
        await gate.arrive()
        return "ok"

    async with app.worker() as working:
        job = await long.enqueue()
        await gate.reached()
        working.stop()
        gate.open()
    assert (await app.get(job.id)).status is Status.COMPLETED


async def test_a_worker_registers_itself_and_leaves_when_it_stops(app: Demora) -> None:
    client = await app.open()
    async with app.worker(queues=["mail"], concurrency=3) as working:
        found = await eventually(client.workers)
        assert [(w.id, w.queues, w.slots) for w in found] == [(working.id, ("mail",), 3)]
        assert "demo.echo" in found[0].types
    assert await client.workers() == []


async def test_a_worker_of_some_queues_leaves_the_others_alone(app: Demora) -> None:
    other = await app.enqueue("demo.echo", queue="other")
    async with app.worker(queues=["mine"]):
        await ended(app, await app.enqueue("demo.echo", queue="mine"))
    assert (await app.get(other.id)).status is Status.QUEUED


async def test_what_was_claimed_ahead_keeps_its_lease_while_it_waits(app: Demora, gate: Gate) -> None:
    @app.job("long")
    async def long() -> None:
        await gate.arrive()

    async with app.worker(concurrency=1, lease=SHORT) as working:
        jobs = await claimed_ahead(app, working)
        await gate.reached()
        [held, *_] = [(await app.get(job.id)).lease_until for job in jobs[1:]]
        assert held is not None
        for job in jobs[1:]:
            await eventually(lambda id=job.id: app.get(id), lambda job: job.lease_until > held + SHORT)  # type: ignore[misc]
        gate.open()
        assert [(await ended(app, job)).token for job in jobs] == [1] * 3


async def test_a_job_claimed_ahead_can_be_cancelled_and_never_starts(app: Demora, gate: Gate) -> None:
    begun: list[str] = []

    @app.job("long")
    async def long(ctx: Context) -> None:
        begun.append(ctx.id)
        await gate.arrive()

    async with app.worker(concurrency=1) as working:
        first, second, third = await claimed_ahead(app, working)
        await gate.reached()
        await app.cancel(second.id)
        found = await ended(app, second)
        assert (found.status, found.error) == (Status.CANCELLED, "cancelled before it started")
        gate.open()
        assert (await ended(app, third)).status is Status.COMPLETED
    assert begun == [first.id, third.id]


async def test_a_job_claimed_ahead_whose_lease_was_lost_never_starts_here(app: Demora, gate: Gate) -> None:
    begun: list[tuple[str, int]] = []

    @app.job("long")
    async def long(ctx: Context) -> None:
        begun.append((ctx.id, ctx.job.lease.token))
        await gate.arrive()

    async with app.worker(concurrency=1) as working:
        first, second, third = await claimed_ahead(app, working)
        await gate.reached()
        await _take_away(app, second.id)
        await eventually(lambda: asyncio.sleep(0, working._backlog), lambda backlog: len(backlog) == 1)
        gate.open()
        assert (await ended(app, second)).token == 2
        assert (await ended(app, third)).token == 1
    assert sorted(begun) == sorted([(first.id, 1), (second.id, 2), (third.id, 1)])


async def claimed_ahead(app: Demora, working: Worker) -> list[Job]:
    """Three jobs, of which a worker with one slot runs one and holds two."""
    working._prefetch.jobs = 2
    working._prefetch.idle(asyncio.get_running_loop().time())
    jobs = await app.enqueue_many([("long", {})] * 3)
    await eventually(lambda: asyncio.sleep(0, working._backlog), lambda backlog: len(backlog) == 2)
    return jobs


async def test_a_run_whose_lease_is_lost_is_ended_where_it_was(app: Demora, caplog: pytest.LogCaptureFixture) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @app.job("long")
    async def long(ctx: Context) -> str:
        if ctx.job.lease.token > 1:
            return "elsewhere"
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "never"

    async with app.worker(concurrency=1):
        job = await long.enqueue()
        await begun.wait()
        await _take_away(app, job.id)
        found = await ended(app, job)
        assert cancelled.is_set()
    assert (found.result, found.token, len(found.attempts)) == ("elsewhere", 2, 2)
    assert f"job {job.id} (long): its lease was lost" in caplog.text


async def test_a_worker_goes_on_when_the_store_is_back(app: Demora) -> None:
    """Claims and settlements fail for a while, as they do when a disk is full; nothing is lost."""
    store = (await app.open()).store
    job = await app.enqueue("demo.echo", {"hi": 1})
    troubled = Troubled(store, claim=3, settle=3)
    (await app.open()).store = troubled  # type: ignore[assignment]
    working = asyncio.ensure_future(Worker(app).run())
    await eventually(lambda: store.get(job.id), lambda job: job is not None and job.status is Status.COMPLETED)
    await eventually(lambda: asyncio.sleep(0, troubled.failures), lambda failures: not any(failures.values()))
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def test_what_a_handler_said_is_said_again_when_it_could_not_be_recorded(app: Demora, gate: Gate) -> None:
    @app.job("long")
    async def long(ctx: Context) -> None:
        ctx.progress(0.5, "half")
        ctx.log("a line")
        await gate.arrive()

    store = (await app.open()).store
    troubled = Troubled(store, renew=2, heartbeat=1)
    (await app.open()).store = troubled  # type: ignore[assignment]
    async with app.worker(lease=SHORT):
        job = await long.enqueue()
        await gate.reached()
        shown = await eventually(lambda: app.get(job.id), lambda job: job.progress is not None)
        assert (shown.progress_message, [line.line for line in shown.log]) == ("half", ["a line"])
        gate.open()
        assert (await ended(app, job)).token == 1
    assert troubled.failures == {"renew": 0, "heartbeat": 0}


async def test_a_worker_whose_store_is_closed_ends_badly_and_says_so(app: Demora, caplog: pytest.LogCaptureFixture) -> None:
    (await app.open()).store = Closed((await app.open()).store)  # type: ignore[assignment]
    async with asyncio.timeout(60):
        assert await Worker(app).run() == 1
    assert ["its store was closed" in record.message for record in caplog.records if record.levelname == "ERROR"] == [True]


async def test_a_worker_that_sleeps_hears_at_once_that_its_store_is_closed() -> None:
    app = Demora("sqlite://")
    worker = Worker(app)
    working = asyncio.ensure_future(worker.run())
    await eventually((await app.open()).workers)
    await app.close()
    async with asyncio.timeout(30):  # well before it would look by itself
        assert await working == 1


async def test_a_worker_that_stops_anyway_may_find_its_store_closed(app: Demora, caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker(app)
    (await app.open()).store = Closed((await app.open()).store, worker.stop)  # type: ignore[assignment]
    async with asyncio.timeout(60):
        assert await worker.run() == 0
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


class Troubled:
    """A store some of whose verbs fail so many times first: before they are carried out, but the last settlement after."""

    def __init__(self, store: Store, **failures: int) -> None:
        self._store, self.failures = store, failures

    def __getattr__(self, name: str) -> object:
        verb = getattr(self._store, name)
        return functools.partial(self._troubled, name, verb) if self.failures.get(name) else verb

    def sibling(self) -> None:
        """None: leases are kept with this one."""

    async def _troubled(self, name: str, verb: Callable[..., Awaitable[object]], *args: object, **options: object) -> None:
        self.failures[name] -= 1
        if name == "settle" and self.failures[name] == 0:
            await verb(*args, **options)
        raise StoreError("the disk is full")


class Closed:
    """A store that somebody closed, with something that happens at the next claim."""

    def __init__(self, store: Store, happens: Callable[[], None] = lambda: None) -> None:
        self._store, self._happens = store, happens

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def claim(self, *args: object, **options: object) -> None:
        self._happens()
        raise StoreClosed


async def _take_away(app: Demora, id: str) -> None:
    """Settle a running job as lapsed under its token, as another worker would after the lease ran out."""
    outcome = Raised("WorkerLost: taken away")
    verdict = decide(outcome, RetryState(1, retry_delay=timedelta(hours=1)), 0)
    store = (await app.open()).store
    [status] = await store.settle([Settlement(Report(Lease(id, 1), timedelta(0)), outcome, verdict)])
    assert status is Status.RETRYING
    job = await app.get(id)
    assert job.token == 1
    await app.reschedule(id, delay="0s")


def keeper_of(store: Store, monotonic: Callable[[], float]) -> Keeper:
    return Keeper(
        store,
        timedelta(seconds=30),
        on_status=lambda _: None,
        on_failure=lambda: None,
        on_blocked=lambda _: None,
        record=lambda: WorkerRecord("w", "host", 1, 1, (), ()),
        monotonic=monotonic,
    )


def test_jobs_that_have_not_started_are_renewed_only_while_the_loop_of_their_worker_is_alive() -> None:
    """A handler that blocks the loop for ever cannot keep what waits behind it."""
    now = [0.0]
    store = SqliteStore()
    keeper = keeper_of(store, lambda: now[0])
    [held] = keeper.hold([Lease("job", 1)])
    assert keeper._is_due(held, 10.0)
    assert not keeper._is_due(held, 30.0)
    now[0] = 25.0
    keeper._note_loop_alive()
    assert keeper._is_due(held, 30.0)


async def test_a_handler_that_blocks_the_loop_is_named_with_the_place_and_its_worker_stays_alive(
    app: Demora, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, alive = threading.Event(), threading.Event()
    monkeypatch.setattr(leases, "HEARTBEAT_EVERY", 0.02)
    monkeypatch.setattr(notices, "_blocking", Limit())
    heartbeat = SqliteStore.heartbeat

    async def counted(store: SqliteStore, record: WorkerRecord) -> None:
        in_the_block = named.is_set()
        await heartbeat(store, record)
        if in_the_block:
            alive.set()

    monkeypatch.setattr(SqliteStore, "heartbeat", counted)
    loop_blocked = notices.loop_blocked

    def note(*facts: Any) -> None:
        loop_blocked(*facts)
        named.set()

    monkeypatch.setattr(notices, "loop_blocked", note)

    @app.job("rude")
    async def rude() -> bool:
        return named.wait(60) and alive.wait(60)

    async with app.worker():
        found = await ended(app, await rude.enqueue())
    assert found.result is True
    blocked, free = [record for record in caplog.records if getattr(record, "event", "").startswith("worker.loop")]
    assert (blocked.levelname, free.levelname) == ("WARNING", "WARNING")
    assert blocked.getMessage().startswith(f"job {found.id} (rude) blocks the event loop, for 1.")
    assert "test_leases.py" in blocked.getMessage()
    assert " in rude > " in blocked.getMessage()
    assert free.__dict__["event"] == "worker.loop_free"
    assert free.__dict__["facts"]["blocked_s"] >= leases.BLOCKED


class Loop:
    """The loop of a worker that runs its callbacks when the test says so."""

    def __init__(self) -> None:
        self._callbacks = list[Callable[[], None]]()

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def run(self) -> None:
        while self._callbacks:
            self._callbacks.pop()()


def test_only_a_loop_that_does_not_answer_while_time_passes_is_blocked() -> None:
    now, blocked = [0.0], list[float]()
    keeper = keeper_of(SqliteStore(), lambda: now[0])
    loop = keeper._worker_loop = Loop()  # type: ignore[assignment]
    keeper._on_blocked = blocked.append

    def check(*times: float, answers: bool = False) -> None:
        for time in times:
            now[0] = time
            keeper._watch_loop(time)
            if answers:
                loop.run()

    check(0.4, 0.8, 1.2, 1.6, answers=True)
    assert blocked == []
    check(2.0, 2.4, 2.8)
    assert blocked == []
    check(3.2, 3.6)
    assert blocked == [pytest.approx(1.2)]
    loop.run()
    check(4.0)
    check(60.0, 60.4, 60.8)  # the whole process stood still
    assert len(blocked) == 1
    check(61.2)
    assert len(blocked) == 2

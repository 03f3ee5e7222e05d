"""Leases: kept while a job runs, taken over when a worker is gone, handed back when it stops."""

import asyncio
import threading
from datetime import timedelta

from demora import Demora, Status
from demora.core.outcome import Raised
from demora.core.verdict import Standing, decide
from demora.engines.sqlite import SqliteStore
from demora.errors import StoreError
from demora.store import Lease, Report, Settlement
from demora.worker import Worker
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


async def test_a_lapsed_lease_is_settled_by_whoever_claims(app: Demora) -> None:
    job = await app.enqueue("demo.echo", {"hi": 1}, retry_delay="10ms")
    store = (await app.open()).store
    await store.claim("a worker that dies", 1, lease=timedelta(milliseconds=50))
    async with app.worker():
        found = await ended(app, job)
    assert (found.status, found.retry_count, found.token) == (Status.COMPLETED, 1, 2)
    assert "WorkerLost: worker a worker that dies" in (found.attempts[0].error or "")


async def test_a_job_that_kills_its_workers_ends_among_the_dead_letters(app: Demora) -> None:
    job = await app.enqueue("demo.echo", max_retries=0)
    store = (await app.open()).store
    await store.claim("a worker that dies", 1, lease=timedelta(milliseconds=20))
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
        working._prefetch.rests(asyncio.get_running_loop().time())
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


async def test_a_worker_goes_on_when_the_store_is_back(app: Demora, gate: Gate) -> None:
    """Claims and settlements fail for a while, as they do when a disk is full; nothing is lost."""
    store = (await app.open()).store
    assert isinstance(store, SqliteStore)
    job = await app.enqueue("demo.echo", {"hi": 1})
    troubled = Troubled(store, failures=3)
    (await app.open()).store = troubled  # type: ignore[assignment]
    working = asyncio.ensure_future(Worker(app).run())
    await eventually(lambda: store.get(job.id), lambda job: job is not None and job.status is Status.COMPLETED)
    assert troubled.failed == {"claim": 3, "settle": 3}
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


class Troubled:
    """A store whose claims and settlements fail so many times first, after they were carried out or before."""

    def __init__(self, store: SqliteStore, failures: int) -> None:
        self._store, self._failures = store, failures
        self.failed = {"claim": 0, "settle": 0}

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def claim(self, *args: object, **options: object) -> object:
        self._fail("claim")
        return await self._store.claim(*args, **options)  # type: ignore[arg-type]

    async def settle(self, settlements: list[object]) -> object:
        answers = await self._store.settle(settlements) if self.failed["settle"] == self._failures - 1 else None  # type: ignore[arg-type]
        self._fail("settle")
        return answers or await self._store.settle(settlements)  # type: ignore[arg-type]

    def _fail(self, verb: str) -> None:
        if self.failed[verb] < self._failures:
            self.failed[verb] += 1
            raise StoreError("the disk is full")


async def _take_away(app: Demora, id: str) -> None:
    """Settle a running job as lapsed under its token, as another worker would after the lease ran out."""
    verdict = decide(Raised("WorkerLost: taken away"), Standing(1, retry_delay=timedelta(hours=1)), 0)
    store = (await app.open()).store
    [status] = await store.settle([Settlement(Report(Lease(id, 1), timedelta(0)), verdict)])
    assert status is Status.RETRYING
    job = await app.get(id)
    assert job.token == 1
    await app.reschedule(id, delay="0s")

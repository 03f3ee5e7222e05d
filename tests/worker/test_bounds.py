"""The deadlines and bounds of running jobs that the docs and docstrings name, each held by one end-to-end test.

The tests here run the real worker in virtual time, so they hold the exact figure. `tests/test_bounds.py` lists which test
holds which bound.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from demora import Context, Demora, Fail, Job, Status
from demora.core.job import Lane
from demora.core.pace import Pace, request_of
from demora.core.retention import Retention
from demora.core.workers import LIVE_WITHIN
from demora.engines.sqlite import SqliteStore
from demora.errors import StoreBusy
from demora.scheduler.scheduler import Scheduler
from demora.store.jobs import ClaimRequest
from demora.system.seams import Seams
from demora.worker import Worker, worker
from tests.builders import add_one, job_of, new_job, seconds
from tests.facts import eventually
from tests.sim.world import World
from tests.worker.conftest import ended


class Virtual:
    """An application, its store and its workers in virtual time."""

    def __init__(self) -> None:
        self.world = World(1)
        self.store: Any = None

    def live(self, main: Callable[[], Awaitable[object]]) -> None:
        """Run a story to its end."""

        async def story() -> None:
            self.store = self.world.store()
            await self.store.open()
            self.app = Demora(store=self.store)
            await main()
            await self.app.close()

        try:
            self.world.loop.run_until_complete(story())
        finally:
            self.world.close()

    @property
    def now(self) -> float:
        return self.world.loop.time()

    def options(self, name: str = "w", **options: Any) -> dict[str, Any]:
        seams = Seams(monotonic=self.world.loop.time, chance=lambda: 0.0, name=lambda: name)
        return {"seams": seams, **options}

    def working(self, **options: Any) -> Any:
        return self.app.worker(**self.options(**options))

    async def until(self, look: Callable[[], Awaitable[Any]]) -> float:
        """The time at which this first holds, to a hundredth of a second."""
        while not await look():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return self.now


@pytest.fixture
def virtual() -> Virtual:
    return Virtual()


# A running job


def test_a_cancel_reaches_its_run_within_a_second(virtual: Virtual) -> None:
    async def main() -> None:
        told = asyncio.Event()

        @virtual.app.job("long")
        async def long() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                told.set()

        async with virtual.working():
            job = await virtual.app.enqueue("long")
            await asyncio.sleep(100.3)
            await virtual.app.cancel(job.id)
            asked = virtual.now
            await told.wait()
            assert virtual.now - asked <= 1
            assert (await virtual.app.wait(job.id)).status is Status.CANCELLED

    virtual.live(main)


def test_progress_and_start_are_visible_within_a_second(virtual: Virtual) -> None:
    async def main() -> None:
        @virtual.app.job("long")
        async def long(ctx: Context) -> None:
            ctx.progress(0.25, "begun")
            await asyncio.sleep(100)
            ctx.progress(0.5, "half")
            await asyncio.sleep(100)

        async with virtual.working():
            job = await virtual.app.enqueue("long")

            async def shows(progress: float) -> bool:
                found = await virtual.app.get(job.id)
                return found.progress == progress and found.started_at is not None

            assert await virtual.until(lambda: shows(0.25)) <= 1
            await asyncio.sleep(99)
            assert 100 <= await virtual.until(lambda: shows(0.5)) <= 101

    virtual.live(main)


@pytest.mark.timed
@pytest.mark.parametrize(("after", "status"), [(0.5, Status.COMPLETED), (4.0, Status.CANCELLED)])
async def test_a_plain_function_has_two_seconds_after_a_cancel(app: Demora, after: float, status: Status) -> None:
    """In real time, since a thread knows no other."""
    begun, told, stop = threading.Event(), threading.Event(), threading.Event()

    @app.job("plain")
    def plain(ctx: Context) -> str:
        begun.set()
        while not ctx.cancel_requested:
            stop.wait(0.01)
        told.set()
        stop.wait(after)
        return "tidied up"

    async with app.worker():
        job = await app.enqueue("plain")
        await asyncio.to_thread(begun.wait, 60)
        await app.cancel(job.id)
        await asyncio.to_thread(told.wait, 60)
        assert (await ended(app, job)).status is status
        stop.set()


def test_a_run_that_ignores_its_timeout_is_settled_five_seconds_later(virtual: Virtual) -> None:
    async def main() -> None:
        @virtual.app.job("stubborn", timeout="10s", max_retries=0)
        async def stubborn() -> None:
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if virtual.now > 100:
                        raise

        async with virtual.working(concurrency=10, grace="0s"):
            job = await virtual.app.enqueue("stubborn")
            job = await virtual.app.wait(job.id)
            assert (job.status, job.error) == (Status.FAILED, "TimedOut: the run took longer than its timeout")
            assert 15 <= virtual.now < 15.1
            await asyncio.sleep(100)

    virtual.live(main)


def test_a_job_without_a_timeout_has_an_hour(virtual: Virtual) -> None:
    async def main() -> None:
        @virtual.app.job("endless", max_retries=0)
        async def endless() -> None:
            await asyncio.Event().wait()

        async with virtual.working():
            job = await virtual.app.enqueue("endless")
            job = await virtual.app.wait(job.id)
            assert (job.status, job.token) == (Status.FAILED, 1)
            assert 3600 <= virtual.now < 3600.1

    virtual.live(main)


async def test_a_handler_that_blocks_the_loop_for_ever_keeps_its_job_until_its_deadline_only(
    app: Demora, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In real time, with the worker on a loop and a thread of its own, since its loop stands still."""
    monkeypatch.setattr(worker, "UNWIND", 0.5)
    let_go, begun = threading.Event(), threading.Event()
    path = (await app.open()).store.path  # type: ignore[attr-defined]

    def work() -> None:
        rude = Demora(store=SqliteStore(path))

        @rude.job("rude", timeout="500ms", max_retries=0)
        async def block() -> None:
            begun.set()
            let_go.wait(60)

        async def run() -> None:
            async with rude, rude.worker(lease="500ms"):
                await asyncio.to_thread(let_go.wait, 60)

        asyncio.run(run())

    working = threading.Thread(target=work)
    working.start()
    try:
        job = await app.enqueue("rude", timeout="500ms", max_retries=0)
        await asyncio.to_thread(begun.wait, 60)
        async with app.worker(queues=["another"]):  # any claim settles a lapse
            found = await eventually(lambda: app.get(job.id), lambda job: job.status.ended, within=30)
        assert "WorkerLost" in (found.error or "")
    finally:
        let_go.set()
        await asyncio.to_thread(working.join, 60)


# Attempts


def test_a_failing_job_is_tried_again_after_one_two_and_four_seconds(virtual: Virtual) -> None:
    async def main() -> None:
        began: list[float] = []

        @virtual.app.job("fails")
        async def fails() -> None:
            began.append(virtual.now)
            raise LookupError

        async with virtual.working():
            job = await virtual.app.wait((await virtual.app.enqueue("fails")).id)
        assert job.status is Status.FAILED
        waits = [after - before for before, after in pairwise(began)]
        assert waits == [pytest.approx(wait, abs=0.02) for wait in (1, 2, 4)]
        assert all(wait >= least for wait, least in zip(waits, (1, 2, 4), strict=True))

    virtual.live(main)


def test_a_job_of_an_unknown_type_fails_after_an_hour(virtual: Virtual) -> None:
    async def main() -> None:
        added = await add_one(virtual.store, type="nobody.knows")
        async with virtual.working():
            job = await virtual.app.wait(added.id)
        assert job.status is Status.FAILED
        assert (job.error or "").startswith("UnknownType")
        assert 3600 <= virtual.now <= 3660

    virtual.live(main)


async def test_what_a_run_leaves_is_bounded(app: Demora) -> None:
    @app.job("talks", max_retries=0)
    async def talks(ctx: Context, fails: bool) -> None:
        for _ in range(300):
            ctx.log("l" * 5000)
        if fails:
            raise Fail("e" * 50_000, detail="d" * 50_000)
        raise LookupError("e" * 50_000)

    async with app.worker():
        found = [await ended(app, await talks.enqueue(fails=fails)) for fails in (True, False)]
    for job in found:
        assert len(job.log) == 201  # and one that says so
        assert max(len(line.line) for line in job.log) == 1000
        assert len(job.error or "") == 2000
        assert len(job.attempts[0].traceback or "") == 16_000


# Workers


def test_the_job_of_a_dead_worker_is_taken_over_when_its_lease_ends(virtual: Virtual) -> None:
    async def main() -> None:
        job = await virtual.app.enqueue("demo.echo", retry_delay="1ms")
        await virtual.store.claim(ClaimRequest("a worker that dies", 1, lease=seconds(30)))
        async with virtual.working():
            found = await virtual.app.wait(job.id)
        assert (found.status, found.token) == (Status.COMPLETED, 2)
        assert 30 <= virtual.now < 30.1

    virtual.live(main)


def test_a_worker_sends_heartbeats_and_is_alive_for_thirty_seconds(virtual: Virtual) -> None:
    async def main() -> None:
        client = await virtual.app.open()
        async with virtual.working():
            for _ in range(100):
                await asyncio.sleep(1)
                [alive] = await client.workers()
                assert alive.heartbeat_ago <= seconds(10)
        options = virtual.options("dies")
        dying = virtual.world.loop.spawn("dies", Worker(virtual.app, **options).run())
        await asyncio.sleep(0.5)
        virtual.world.loop.kill("dies")
        killed = virtual.now
        assert len(await client.workers()) == 1

        async def forgotten() -> bool:
            return await client.workers() == []

        assert await virtual.until(forgotten) == pytest.approx(killed - 0.5 + LIVE_WITHIN.total_seconds(), abs=0.1)
        assert timedelta(seconds=30) == LIVE_WITHIN
        assert not dying.done()

    virtual.live(main)


def test_a_stopping_worker_waits_for_its_grace_and_no_longer(virtual: Virtual) -> None:
    async def main() -> None:
        @virtual.app.job("takes")
        async def takes(seconds: float) -> None:
            await asyncio.sleep(seconds)

        async with virtual.working():
            short = await virtual.app.enqueue("takes", {"seconds": 7.5})
            long = await virtual.app.enqueue("takes", {"seconds": 60})
            await asyncio.sleep(0.1)
            stopped = virtual.now
        assert 8 <= virtual.now - stopped <= 9
        found = [await virtual.app.get(job.id) for job in (short, long)]
        assert [(job.status, job.attempt) for job in found] == [(Status.COMPLETED, 1), (Status.QUEUED, 0)]

    virtual.live(main)


def test_a_worker_stops_within_its_grace_although_its_store_does_not_answer(virtual: Virtual) -> None:
    async def main() -> None:
        async with virtual.working(concurrency=1):
            await asyncio.sleep(1)
            silent: Any = lambda *_, **__: asyncio.Event().wait()  # noqa: E731
            virtual.store.claim = virtual.store.settle = virtual.store.renew = virtual.store.lease_status = silent
            virtual.store.retire = virtual.store.heartbeat = silent
            await add_one(virtual.store)
            await asyncio.sleep(1)
            stopped = virtual.now
        assert virtual.now - stopped <= 8 + 1

    virtual.live(main)


def test_a_stopping_worker_names_the_jobs_whose_outcome_it_could_not_record(
    virtual: Virtual, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with virtual.working():
            silent: Any = lambda *_: asyncio.Event().wait()  # noqa: E731
            virtual.store.settle = silent
            first = await virtual.app.enqueue("demo.echo")
            await asyncio.sleep(1)
            second = await virtual.app.enqueue("demo.echo")
            await asyncio.sleep(10)
            stopped = virtual.now
        assert virtual.now - stopped <= 8 + 1
        dropped = [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "job.not_settled"]
        assert [message.split(":")[0] for message in dropped] == [f"job {first.id}", f"job {second.id}"]

    virtual.live(main)


def test_a_worker_looks_after_a_minute_by_itself(virtual: Virtual) -> None:
    async def main() -> None:
        async with virtual.working():
            await asyncio.sleep(1)
            virtual.world.lost_notifications = 1.0
            job, elsewhere = new_job(), virtual.world.store()
            await elsewhere.open()
            await elsewhere.add([job])
            added = virtual.now

            async def done() -> bool:
                return (await job_of(virtual.store, job.id)).status.ended

            assert await virtual.until(done) - added <= 60

    virtual.live(main)


def test_a_worker_tries_again_within_five_seconds(virtual: Virtual) -> None:
    async def main() -> None:
        claim, tried = virtual.store.claim, list[float]()

        async def fail(*args: Any, **options: Any) -> Any:
            tried.append(virtual.now)
            if virtual.now < 600:
                raise StoreBusy("away")
            return await claim(*args, **options)

        virtual.store.claim = fail
        job = await virtual.app.enqueue("demo.echo")
        async with virtual.working():
            await virtual.app.wait(job.id)
        assert virtual.now < 606
        assert max(after - before for before, after in pairwise(tried)) <= 5

    virtual.live(main)


def test_the_log_says_which_work_failed_and_when_it_went_on(virtual: Virtual, caplog: pytest.LogCaptureFixture) -> None:
    def away(verb: Any, until: float) -> Any:
        async def call(*args: Any, **options: Any) -> Any:
            if virtual.now < until:
                raise StoreBusy("away")
            return await verb(*args, **options)

        return call

    async def main() -> None:
        @virtual.app.job("long")
        async def long() -> None:
            await asyncio.sleep(30)

        store, job = virtual.store, await virtual.app.enqueue("long")
        store.claim, store.heartbeat = away(store.claim, 1), away(store.heartbeat, 1)
        store.renew, store.settle = away(store.renew, 15), away(store.settle, 40)
        async with virtual.working(lease="30s"):
            await virtual.app.wait(job.id)
        said = [(record.event, record.facts.get("what")) for record in caplog.records if hasattr(record, "facts")]
        for what in ("claiming", "the heartbeat", "renewing leases", "settling"):
            assert [event for event, about in said if about == what] == ["store.trouble", "store.well"]

    caplog.set_level(logging.INFO, "demora")
    virtual.live(main)


def test_a_verdict_is_tried_for_as_long_as_the_lease(virtual: Virtual) -> None:
    async def main() -> None:
        settle, tried = virtual.store.settle, list[float]()

        async def fail(settlements: Any) -> Any:
            tried.append(virtual.now)
            if virtual.now < 25:
                raise StoreBusy("away")
            return await settle(settlements)

        virtual.store.settle = fail
        job = await virtual.app.enqueue("demo.echo")
        async with virtual.working(lease="30s"):
            found = await virtual.app.wait(job.id)
        assert (found.status, found.token) == (Status.COMPLETED, 1)
        assert virtual.now < 25 + 2.1
        assert max(after - before for before, after in pairwise(tried)) <= 2

    virtual.live(main)


# Waiting jobs


def test_a_job_that_no_worker_takes_expires_at_its_time(virtual: Virtual) -> None:
    async def main() -> None:
        async with virtual.working(queues=["another"]):
            await asyncio.sleep(1)
            job: Job = await virtual.app.enqueue("demo.echo", expires_in="10s")
            found = await virtual.app.wait(job.id)
        assert found.status is Status.CANCELLED
        assert 11 <= virtual.now < 11.1

    virtual.live(main)


@pytest.mark.parametrize("drawn", [0.0, 0.999])
def test_the_housekeeping_looks_at_least_every_minute(virtual: Virtual, drawn: float) -> None:
    async def main() -> None:
        housekeep, looks = virtual.store.housekeep, list[float]()

        async def noted(*args: Any, **options: Any) -> Any:
            looks.append(virtual.now)
            return await housekeep(*args, **options)

        virtual.store.housekeep = noted
        scheduler = Scheduler(virtual.store, Retention(), seams=Seams(chance=lambda: drawn))
        running = asyncio.ensure_future(scheduler.run())
        await asyncio.sleep(600)
        scheduler.stop()
        await running
        assert all(after - before <= 60 for before, after in pairwise([*looks, 600.0]))
        assert len(looks) <= 22  # and nothing ticks without a reason

    virtual.live(main)


def test_a_delayed_job_is_released_within_half_a_second_although_no_worker_claims(virtual: Virtual) -> None:
    async def main() -> None:
        await virtual.store.paces.set("default", request_of(Pace(rapid=None)), by="ann")
        scheduler = Scheduler(virtual.store, Retention(), seams=Seams(chance=lambda: 0.0))
        running = asyncio.ensure_future(scheduler.run())
        await asyncio.sleep(40)
        job = await virtual.app.enqueue("demo.echo", delay="10s")

        async def released() -> bool:
            return (await virtual.app.get(job.id)).lane is Lane.RELEASED

        assert 50 <= await virtual.until(released) <= 50.5
        scheduler.stop()
        await running

    virtual.live(main)


def test_a_caller_waits_for_as_long_as_it_said(virtual: Virtual) -> None:
    async def main() -> None:
        job = await virtual.app.enqueue("demo.echo", delay="1h")
        with_others = asyncio.ensure_future(virtual.app.wait(job.id, "10s"))
        for _ in range(5):
            await asyncio.sleep(1)
            await virtual.app.cancel((await virtual.app.enqueue("demo.echo", delay="1h")).id)
        assert not (await with_others).status.ended
        assert 10 <= virtual.now < 10.01

    virtual.live(main)

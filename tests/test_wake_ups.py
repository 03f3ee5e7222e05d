"""No wake-up is lost: an event between a look at the store and the sleep ends the sleep at once.

Each place in the source that subscribes, looks and waits is in `PLACES`, with the tests that hold it. The tests let the
event happen after the store has answered the look and before the waiter has the answer. Without the wake-up each waiter
would sleep for a minute, or for ever.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import demora
from demora import Demora, Status
from demora.client import events
from demora.core.filters import JobFilter
from demora.core.job import Lane
from demora.core.pace import Pace, request_of
from demora.core.retention import Retention
from demora.core.schedules.schedule import Schedule
from demora.core.workers import WorkerRecord
from demora.engines.sqlite import SqliteStore
from demora.errors import StoreBusy
from demora.scheduler import scheduler
from demora.scheduler.scheduler import Scheduler
from demora.scheduler.schedules import ScheduleLoop
from demora.store.jobs import Lease, LeaseStatus, Query
from demora.store.schedules import Origin
from demora.store.store import Store
from demora.worker import Worker, prefetch, worker
from demora.worker.leases import Keeper
from tests.builders import add_one, job_of, ms, new_job, seconds
from tests.facts import eventually
from tests.worker.conftest import Gate, ended

AT_ONCE = 20.0  # seconds: much for a busy machine, and well before the minute after which each waiter looks by itself

# (file, what it waits for) -> tests. The line has its own, and so have the notifiers: tests/conformance/test_subscribe.py.
PLACES = {
    ("worker/worker.py", "Topic.READY"): "test_a_worker_*",
    ("client/client.py", "Topic.ENDED"): "test_a_caller_*",
    ("scheduler/scheduler.py", "Topic.EXPIRY"): "test_the_housekeeping_*",
    ("scheduler/scheduler.py", "topic"): "test_the_release_*",
    ("scheduler/scheduler.py", "Topic.PACE"): "test_the_log_*",
    ("scheduler/schedules.py", "topic"): "test_the_firing_*",
    ("line/store.py", "topic"): "tests/line",
    ("client/workers/waiting_claims.py", "Topic.READY"): "test_a_remote_worker_*",
    ("client/events.py", "Topic.ENDED"): "test_a_listener_*",
}


def test_every_place_that_subscribes_is_listed() -> None:
    package = Path(demora.__file__).parent
    found = {
        (file.relative_to(package).as_posix(), topic)
        for file in package.rglob("*.py")
        for topic in re.findall(r"tore\.subscribe\((.+?)\)|inner\.subscribe\((.+?)\)", file.read_text())
        for topic in topic
        if topic
    }
    assert found == set(PLACES)


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    store = SqliteStore()
    await store.open()
    yield store
    await store.close()


Event = Callable[[], Awaitable[object]]


class Between:
    """Lets events happen when a verb has been carried out and its caller has not yet heard of it: one event at each call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: object, verb: str, *events: Event) -> None:
        self._verb, self._events = getattr(store, verb), list(events)
        self.happened = asyncio.Event()
        monkeypatch.setattr(store, verb, self._called)

    async def _called(self, *args: Any, **options: Any) -> Any:
        answer = await self._verb(*args, **options)
        if self._events:
            event = self._events.pop(0)
            try:
                await event()
            finally:
                if not self._events:
                    self.happened.set()
        return answer


async def nothing() -> None: ...


# The worker


async def test_a_worker_hears_of_a_job_that_comes_between_its_claim_and_its_sleep(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, job = Demora(store=store), new_job()
    between = Between(monkeypatch, store, "claim", lambda: store.add([job]))
    async with app, app.worker(), asyncio.timeout(AT_ONCE):
        await between.happened.wait()
        assert (await eventually(lambda: job_of(store, job.id), lambda job: job.status.ended)).status is Status.COMPLETED


async def test_a_worker_hears_that_it_is_stopped_between_its_claim_and_its_sleep(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Demora(store=store)
    stopped = Worker(app, grace=seconds(120))

    async def stop() -> None:
        stopped.stop()

    Between(monkeypatch, store, "claim", stop)
    async with app, asyncio.timeout(AT_ONCE):
        assert await stopped.run() == 0


async def test_a_worker_hears_of_a_slot_that_is_free_between_its_claim_and_its_sleep(store: SqliteStore) -> None:
    """The handler ends in its first step, which runs when the claim has returned with more jobs in the store."""
    app = Demora(store=store)
    async with app, app.worker(concurrency=1), asyncio.timeout(AT_ONCE):
        for job in await app.enqueue_many([("demo.echo", {})] * 3):
            await ended(app, job)


async def test_a_worker_fills_a_slot_that_becomes_free_during_its_claim(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that ended could not know that the claim leaves a job behind, so it woke no one. A store on a file would look
    at it after some seconds, and hide the fault; and a job that is claimed ahead makes room for more than the slot."""
    monkeypatch.setattr(prefetch, "AHEAD", 0.0)
    app, first, second = Demora(store=store), Gate(), Gate()

    @app.job("gated")
    async def gated(number: int) -> None:
        await (first, second)[number].arrive()

    async def end_the_first() -> None:
        first.open()
        await ended(app, running)

    async with app, app.worker(concurrency=2), asyncio.timeout(AT_ONCE):
        running = await gated.enqueue(number=0)
        await first.reached()
        Between(monkeypatch, store, "claim", end_the_first)
        _, behind = await app.enqueue_many([("gated", {"number": 1}), ("demo.echo", {})])
        assert (await ended(app, behind)).status is Status.COMPLETED
        second.open()


async def test_a_worker_in_trouble_hears_of_a_job_that_comes_with_its_failed_claim(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "FIRST_PAUSE", 120.0)
    app, job = Demora(store=store), new_job()

    async def fail() -> None:
        await store.add([job])
        raise StoreBusy("the answer is lost")

    between = Between(monkeypatch, store, "claim", fail)
    async with app, app.worker(), asyncio.timeout(AT_ONCE):
        await between.happened.wait()
        await eventually(lambda: job_of(store, job.id), lambda job: job.status.ended)


async def test_the_keeper_of_leases_hears_of_a_job_that_is_held_between_its_look_and_its_sleep() -> None:
    class Renewing(SqliteStore):
        renewed = asyncio.Event()

        async def renew(self, reports: Any, *, lease: Any) -> LeaseStatus:
            self.renewed.set()
            return LeaseStatus(frozenset(), frozenset())

        async def lease_status(self, leases: Any) -> LeaseStatus:
            return await self.renew(leases, lease=None)

    class Held(dict[Lease, Any]):
        """Is found empty, and has an entry right after."""

        looks = 0

        def __bool__(self) -> bool:
            self.looks += 1
            found = len(self) > 0
            if self.looks == 1:
                keeper.hold([Lease("job", 1)])
            return found

    renewing = Renewing()
    await renewing.open()
    keeper = Keeper(
        renewing,
        ms(400),
        on_status=lambda _: None,
        on_failure=lambda: None,
        on_blocked=lambda _: None,
        record=lambda: WorkerRecord("w", "host", 1, 1),
        monotonic=asyncio.get_running_loop().time,
    )
    keeper._held = Held()
    await keeper.start()
    await asyncio.wait_for(renewing.renewed.wait(), AT_ONCE)
    await keeper.stop()
    await renewing.close()


# Callers that wait for the end of a job


async def test_a_caller_hears_of_an_end_between_its_look_and_its_sleep(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Demora(store=store)
    async with app:
        job = await app.enqueue("demo.echo", delay="1h")
        Between(monkeypatch, store, "get", lambda: store.cancel([job.id]))
        async with asyncio.timeout(AT_ONCE):
            assert (await app.wait(job.id)).status is Status.CANCELLED


async def test_a_caller_hears_of_an_end_between_its_second_look_and_its_sleep(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first sleep ends with the end of another job."""
    app = Demora(store=store)
    async with app:
        job, other = await app.enqueue("demo.echo", delay="1h"), await app.enqueue("demo.echo", delay="1h")
        Between(monkeypatch, store, "get", lambda: store.cancel([other.id]), lambda: store.cancel([job.id]))
        async with asyncio.timeout(AT_ONCE):
            assert (await app.wait(job.id)).status is Status.CANCELLED


# Remote workers and listeners to events


async def test_a_remote_worker_hears_of_a_job_that_comes_between_its_claim_and_its_sleep(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, job = Demora(store=store), new_job()
    async with app:
        workers = (await app.open()).remote_workers
        node = await workers.register("node", [job.type], slots=1)
        Between(monkeypatch, store, "claim", lambda: store.add([job]))
        async with asyncio.timeout(AT_ONCE):
            [handed] = await workers.claim(node, 1, wait=seconds(60), ended=asyncio.Event())
        assert handed.job.lease.id == job.id


async def test_a_listener_hears_of_an_end_between_the_look_and_the_sleep_of_the_reader(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LOOK", 60.0)
    async with Demora(store=store) as app:
        job = await app.enqueue("demo.echo", delay="1h")
        async with (await app.open()).events(job=job.id) as heard, asyncio.timeout(AT_ONCE):
            Between(monkeypatch, store.events, "settled", lambda: store.cancel([job.id]))
            await app.enqueue("demo.echo", delay="1h")
            await store.cancel([(await app.enqueue("demo.echo", delay="1h")).id])
            assert (await anext(aiter(heard))).kind == "job.cancelled"


# The housekeeping and the release of delayed jobs


@asynccontextmanager
async def scheduling(store: Store) -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(store, Retention())
    running = asyncio.ensure_future(scheduler.run())
    try:
        yield scheduler
    finally:
        scheduler.stop()
        async with asyncio.timeout(AT_ONCE):
            await running


async def test_the_housekeeping_hears_of_a_job_that_expires_before_its_sleep_is_over(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = new_job(delay=seconds(3600), expires_in=ms(50))
    between = Between(monkeypatch, store, "housekeep", lambda: store.add([job]))
    async with scheduling(store), asyncio.timeout(AT_ONCE):
        await between.happened.wait()
        found = await eventually(lambda: job_of(store, job.id), lambda job: job.status.ended)
    assert found.status is Status.CANCELLED


async def test_the_housekeeping_hears_that_it_is_stopped_before_its_sleep(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = Scheduler(store, Retention())

    async def stop() -> None:
        scheduler.stop()

    Between(monkeypatch, store, "housekeep", stop)
    async with asyncio.timeout(AT_ONCE):
        await scheduler.run()


async def test_the_release_hears_of_a_pace_that_is_set_between_its_look_and_its_sleep(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    delayed = await add_one(store, delay=ms(1))
    Between(monkeypatch, store.paces, "release", lambda: store.paces.set("default", request_of(Pace(rapid=None)), by="ann"))
    async with scheduling(store), asyncio.timeout(AT_ONCE):
        await eventually(lambda: job_of(store, delayed.id), lambda job: job.lane is Lane.RELEASED)


@pytest.mark.parametrize("look", [1, 2])
async def test_the_release_hears_of_a_job_that_comes_between_its_look_and_its_sleep(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    """After the first look it waits for another topic, since a queue has a pace; after the second it sleeps."""
    await store.paces.set("default", request_of(Pace(rapid=None)), by="ann")
    job = new_job(delay=ms(1))
    between = Between(monkeypatch, store.paces, "release", *[nothing] * (look - 1), lambda: store.add([job]))
    async with scheduling(store), asyncio.timeout(AT_ONCE):
        await between.happened.wait()
        await eventually(lambda: job_of(store, job.id), lambda job: job.lane is Lane.RELEASED)


async def test_the_release_in_trouble_hears_of_a_pace_that_comes_with_its_failed_look(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "FIRST_PAUSE", 120.0)
    delayed = await add_one(store, delay=ms(1))

    async def fail() -> None:
        await store.paces.set("default", request_of(Pace(rapid=None)), by="ann")
        raise StoreBusy("the answer is lost")

    Between(monkeypatch, store.paces, "release", fail)
    async with scheduling(store), asyncio.timeout(AT_ONCE):
        await eventually(lambda: job_of(store, delayed.id), lambda job: job.lane is Lane.RELEASED)


@pytest.mark.parametrize("look", [1, 2])
async def test_the_log_hears_of_a_pace_that_is_set_between_its_look_and_its_sleep(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, look: int
) -> None:
    caplog.set_level("INFO")

    async def change() -> None:
        await store.paces.set("default", request_of(Pace(gap=seconds(len(caplog.records) + 7))), by="ann")

    async def said() -> list[str]:
        return [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "pace.set"]

    between = Between(monkeypatch, store.events, "queue_signs", *[change] * look)
    async with scheduling(store), asyncio.timeout(AT_ONCE):
        await between.happened.wait()
        assert len(await eventually(said, lambda lines: len(lines) == look)) == look


async def test_the_log_in_trouble_hears_of_a_pace_that_comes_with_its_failed_look(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(scheduler, "FIRST_PAUSE", 120.0)

    async def said() -> bool:
        return any(getattr(record, "event", "") == "pace.in_force" for record in caplog.records)

    async def fail() -> None:
        await store.paces.set("default", request_of(Pace(rapid=None)), by="ann")
        raise StoreBusy("the answer is lost")

    Between(monkeypatch, store.events, "queue_signs", fail)
    async with scheduling(store), asyncio.timeout(AT_ONCE):
        await eventually(said)


async def test_the_firing_hears_of_a_schedule_that_comes_between_its_look_and_its_sleep(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = datetime.now(UTC) + timedelta(milliseconds=300)
    schedule = Schedule(name="once", type="demo.echo", payload=b"{}", recorded_at=soon - timedelta(seconds=1), at=(soon,))
    Between(monkeypatch, store.schedules, "due", lambda: store.schedules.add(schedule, origin=Origin.CODE, by="ann"))
    firing = asyncio.ensure_future(ScheduleLoop(store).run())
    try:
        async with asyncio.timeout(AT_ONCE):
            await eventually(lambda: store.find(Query(JobFilter(schedule="once"))), lambda page: page.jobs)
    finally:
        firing.cancel()
        await asyncio.wait([firing])

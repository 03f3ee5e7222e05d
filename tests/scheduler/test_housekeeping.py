"""The scheduler role: tidies, sleeps until there is something to do, and backs off when the store is in trouble."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from demora import Demora
from demora.core.job import Lane
from demora.core.pace import Pace, request_of
from demora.core.retention import Keep, Retention
from demora.core.states import Status
from demora.engines.sqlite import SqliteStore
from demora.engines.sqlite.database import Database
from demora.engines.sqlite.paces import SqlitePaces
from demora.errors import StoreBusy
from demora.scheduler import scheduler
from demora.scheduler.scheduler import Scheduler
from demora.store.jobs import HousekeepingResult, QueueChange
from demora.store.paces import Released
from demora.store.store import Store
from tests.builders import add_one, ended_one, job_of, ms, seconds, windows_of
from tests.clock import TestClock
from tests.facts import eventually


class WatchedPaces(SqlitePaces):
    """Paces that count the releases, and fail as often as they are told."""

    failures = released = 0

    async def looks(self) -> int:
        return self.released

    async def release(self, queues: Sequence[str] | None = None, *, wake: bool = True) -> Released:
        self.released += 1
        if self.failures > 0:
            self.failures -= 1
            raise StoreBusy("told to")
        return await super().release(queues, wake=wake)


class Watched(SqliteStore):
    """A store that counts each housekeeping and each release, and fails as often as it is told."""

    failures = housekeepings = 0

    def __init__(self, clock: TestClock) -> None:
        super().__init__(clock=clock)
        self.paces: WatchedPaces = WatchedPaces(self._database)

    async def looks(self) -> int:
        return self.housekeepings

    async def housekeep(self, retention: Retention, *, limit: int) -> HousekeepingResult:
        self.housekeepings += 1
        if self.failures > 0:
            self.failures -= 1
            raise StoreBusy("told to")
        return await super().housekeep(retention, limit=limit)


@pytest.fixture
async def store(clock: TestClock) -> AsyncIterator[Watched]:
    store = Watched(clock)
    await store.open()
    yield store
    await store.close()


@asynccontextmanager
async def scheduling(store: Store, **kept: Any) -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(store, Retention(**kept))
    running = asyncio.ensure_future(scheduler.run())
    try:
        yield scheduler
    finally:
        scheduler.stop()
        await running


async def test_it_cancels_what_expired_and_deletes_what_need_not_be_kept(store: Watched, clock: TestClock) -> None:
    expiring = await add_one(store, expires_in=seconds(5), delay=seconds(1))
    await ended_one(store, Status.COMPLETED)
    clock.turn(5)
    async with scheduling(store, completed=Keep(seconds(5))):
        await eventually(lambda: job_of(store, expiring.id), lambda job: job.status is Status.CANCELLED)
        assert await store.purge(Status.COMPLETED, older_than=seconds(0), limit=9) == 0


async def test_it_goes_on_piece_by_piece(store: Watched, clock: TestClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "PIECE", 2)
    for _ in range(5):
        await ended_one(store, Status.COMPLETED)
    async with scheduling(store, completed=Keep(count=0)):
        await eventually(store.looks, lambda looks: looks >= 3)
    assert await store.purge(Status.COMPLETED, older_than=seconds(0), limit=9) == 0


async def test_it_merges_statistics_and_samples_the_depth_of_queues(store: Watched, clock: TestClock) -> None:
    await ended_one(store, Status.COMPLETED)
    clock.turn(60)
    await add_one(store, queue="mail")
    async with scheduling(store):
        windows = await eventually(lambda: windows_of(store), lambda found: any(not key.type for key, _ in found))
    assert {key.queue: tally.ready for key, tally in windows if not key.type} == {"mail": 1}
    merged = await store._database.read(lambda tx: list(tx.db.execute("select count(*) from tallies")))
    assert merged == [(0,)]


async def test_it_sleeps_while_there_is_nothing_to_do(store: Watched) -> None:
    async with scheduling(store):
        await eventually(store.looks, lambda looks: looks == 1)
        for _ in range(50):
            await store.queues()
        assert store.housekeepings == 1


async def test_a_job_that_expires_sooner_wakes_it(store: Watched) -> None:
    async with scheduling(store):
        await eventually(store.looks, lambda looks: looks == 1)
        await add_one(store, expires_in=seconds(30), delay=seconds(20))
        await eventually(store.looks, lambda looks: looks == 2)


async def test_it_backs_off_on_errors_and_goes_on(store: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "FIRST_PAUSE", 0.001)
    store.failures = 3
    async with scheduling(store):
        await eventually(store.looks, lambda looks: looks == 4)


async def test_it_says_that_it_works_again(store: Watched, caplog: pytest.LogCaptureFixture) -> None:
    store.failures = 1
    with caplog.at_level("INFO", logger="demora"):
        async with scheduling(store):
            await eventually(store.looks, lambda looks: looks >= 2)
            await eventually(lambda: _said(caplog), lambda said: "the housekeeping works again" in said)


async def _said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return caplog.messages


async def test_it_backs_off_on_errors_of_a_release_and_goes_on(store: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "FIRST_PAUSE", 0.001)
    store.paces.failures = 3
    async with scheduling(store):
        await eventually(store.paces.looks, lambda looks: looks == 4)


async def test_it_ends_when_the_store_is_closed(store: Watched) -> None:
    await store.close()
    await Scheduler(store, Retention()).run()


async def test_every_worker_tidies(store: Watched, clock: TestClock) -> None:
    app = Demora(store=store)
    await store.set_queue("default", QueueChange(paused=True))
    expiring = await add_one(store, expires_in=seconds(1))
    clock.turn(1)
    async with app, app.worker():
        job = await app.wait(expiring.id, "20s")
    assert job.status is Status.CANCELLED


class LookedPaces(SqlitePaces):
    """Paces that set an event once a caller has released jobs."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.looked = asyncio.Event()

    async def release(self, queues: Sequence[str] | None = None, *, wake: bool = True) -> Released:
        released = await super().release(queues, wake=wake)
        self.looked.set()
        return released


class Looked(SqliteStore):
    """A store in real time with such paces."""

    def __init__(self) -> None:
        super().__init__()
        self.paces: LookedPaces = LookedPaces(self._database)


async def test_what_comes_due_under_a_pace_is_let_go_also_while_no_worker_claims() -> None:
    """It comes after a look at which nothing was in sight, and no clock is turned that could wake anybody."""
    store = Looked()
    await store.open()
    await store.paces.set("default", request_of(Pace(rapid=None)), by="ann")
    async with scheduling(store):
        await asyncio.wait_for(store.paces.looked.wait(), 30)
        added = await add_one(store, delay=ms(20))
        await eventually(lambda: job_of(store, added.id), lambda job: job.lane is Lane.RELEASED, within=20)
    await store.close()

"""The loop that fires schedules: at their times, by one process, and again after trouble."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from demora.core.filters import JobFilter
from demora.core.schedules.firing import first_to_look
from demora.core.schedules.schedule import Overlap, Schedule
from demora.core.spans import from_ms
from demora.core.states import Status
from demora.core.workers import WorkerRecord
from demora.engines.sqlite import SqliteStore
from demora.engines.sqlite import notifier as sqlite_notifier
from demora.engines.sqlite.schedules import SqliteSchedules
from demora.errors import StoreBusy
from demora.scheduler import attending as attending_module
from demora.scheduler import schedules
from demora.scheduler.attending import attending
from demora.scheduler.schedules import OTHERS_LATER, ScheduleLoop
from demora.store.jobs import Query
from demora.store.schedules import DueSchedules, Fired, Firing, Origin
from tests.builders import DONE, claim_one, settle
from tests.clock import TestClock
from tests.facts import eventually
from tests.zones import PLACE, own_zones

MINUTE = timedelta(minutes=1)
START = from_ms(1_800_000_000_000)


class WatchedSchedules(SqliteSchedules):
    """Schedules that count the looks, and fail as often as they are told."""

    failures = looks = 0
    found: DueSchedules | None = None

    async def due(self, *, limit: int) -> DueSchedules:
        self.looks += 1
        if self.found is not None:
            return self.found
        return await super().due(limit=limit)

    async def fire(self, firings: Sequence[Firing]) -> list[Fired]:
        if self.failures > 0:
            self.failures -= 1
            raise StoreBusy("told to")
        return await super().fire(firings)


class Watched(SqliteStore):
    """A store with such schedules."""

    def __init__(self, clock: TestClock) -> None:
        super().__init__(clock=clock)
        self.schedules: WatchedSchedules = WatchedSchedules(self._database)

    async def looks(self) -> int:
        return self.schedules.looks

    async def fire_times(self) -> list[int]:
        page = await self.find(Query(JobFilter(schedule="tick"), limit=100))
        return sorted((job.slot_at - START) // MINUTE for job in page.jobs if job.slot_at is not None)


@pytest.fixture
async def store(clock: TestClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    monkeypatch.setattr(sqlite_notifier, "CLOCK_LOOK", 0.01)
    store = Watched(clock)
    await store.open()
    yield store
    await store.close()


async def added(store: Watched, name: str = "tick", **changes: Any) -> None:
    kind = {} if {"cron", "at"} & changes.keys() else {"every": MINUTE}
    new = Schedule(name=name, type="demo.echo", payload=b"{}", recorded_at=START, **{**kind, **changes})
    assert await store.schedules.add(new, origin=Origin.API, by="ann") is not None


@asynccontextmanager
async def running(*loops: ScheduleLoop) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(loop.run()) for loop in loops]
    try:
        yield
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_fire_times_fire_as_the_clock_reaches_them_and_each_once(store: Watched, clock: TestClock) -> None:
    await added(store)
    async with running(ScheduleLoop(store), ScheduleLoop(store), ScheduleLoop(store)):
        for n in range(1, 4):
            clock.turn(60)
            assert await eventually(store.fire_times, lambda fire_times, n=n: len(fire_times) >= n) == list(range(1, n + 1))


async def test_a_new_schedule_wakes_a_loop_that_had_nothing_to_wait_for(store: Watched, clock: TestClock) -> None:
    async with running(ScheduleLoop(store)):
        await eventually(store.looks, lambda looks: looks > 0)
        await added(store, at=(START,))
        clock.turn(1)
        await added(store, "other")
        clock.turn(60)
        page = await eventually(lambda: store.find(Query(JobFilter(schedule="other"))), lambda page: page.jobs)
        assert len(page.jobs) == 1


async def test_an_idle_loop_does_not_look_again(store: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_notifier, "CLOCK_LOOK", 60.0)
    await added(store)
    async with running(ScheduleLoop(store)):
        await eventually(store.looks, lambda looks: looks == 1)
        for _ in range(100):
            await asyncio.sleep(0)
        assert store.schedules.looks == 1


async def test_a_fire_time_that_waits_fires_when_the_earlier_job_ends(store: Watched, clock: TestClock) -> None:
    await added(store, overlap=Overlap.QUEUE)
    async with running(ScheduleLoop(store)):
        clock.turn(60)
        await eventually(store.fire_times, lambda fire_times: fire_times == [1])
        running_job = await claim_one(store, lease=timedelta(hours=1))
        clock.turn(60)

        async def kept() -> bool:
            return (await store.schedules.due(limit=1)).keeps

        await eventually(kept, bool)
        await settle(store, running_job, DONE)
        await eventually(store.fire_times, lambda fire_times: fire_times == [1, 2])


async def test_after_trouble_the_loop_fires_what_is_due(
    store: Watched, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "FIRST_PAUSE", 0.01)
    await added(store)
    store.schedules.failures = 3
    async with running(ScheduleLoop(store)):
        clock.turn(60)
        await eventually(store.fire_times, lambda fire_times: fire_times == [1])


async def test_a_schedule_that_cannot_be_decided_keeps_no_other_from_firing(store: Watched, clock: TestClock) -> None:
    await added(store, "broken")
    await added(store)
    clock.turn(60)
    due = await store.schedules.due(limit=9)
    [broken, well] = [one.schedule for one in due.schedules]
    await store.schedules.remove("broken")
    unreadable = msgspec.structs.replace(due.schedules[0], schedule=msgspec.structs.replace(broken, every=None, cron="?"))
    store.schedules.found = msgspec.structs.replace(due, schedules=[unreadable, due.schedules[1]])
    await ScheduleLoop(store).look()
    assert (well.name, await store.fire_times()) == ("tick", [1])


async def test_a_loop_that_can_decide_nothing_does_not_spin(
    store: Watched, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_notifier, "CLOCK_LOOK", 60.0)
    await added(store)
    clock.turn(60)
    due = await store.schedules.due(limit=9)
    unreadable = msgspec.structs.replace(due.schedules[0].schedule, every=None, cron="?")
    store.schedules.found = msgspec.structs.replace(
        due, schedules=[msgspec.structs.replace(due.schedules[0], schedule=unreadable)]
    )
    store.schedules.looks = 0
    async with running(ScheduleLoop(store)):
        await eventually(store.looks, lambda looks: looks > 0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert store.schedules.looks == 1


async def test_a_schedule_in_an_unknown_zone_makes_no_other_late(
    store: Watched, clock: TestClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_zones(tmp_path) as zones:
        zones.set(timedelta(0))
        await added(store, "broken", cron="* * * * *", timezone=PLACE)
        await added(store)
        zones.take_away()
        clock.turn(60)
        loop = ScheduleLoop(store)
        await loop.look()
        clock.turn(58)
        assert await loop._wait(await loop.look()) == 2.0
        clock.turn(2)
        await loop.look()
        assert await store.fire_times() == [1, 2]
        assert await loop._wait(await loop.look()) == schedules.STUCK_LOOK


async def test_a_loop_with_a_schedule_in_an_unknown_zone_fires_the_others(
    store: Watched, clock: TestClock, tmp_path: Path
) -> None:
    with own_zones(tmp_path) as zones:
        zones.set(timedelta(0))
        await added(store, "broken", cron="* * * * *", timezone=PLACE)
        await added(store)
        zones.take_away()
        async with running(ScheduleLoop(store)):
            for n in range(1, 4):
                clock.turn(60)
                assert await eventually(store.fire_times, lambda fire_times, n=n: len(fire_times) >= n) == list(
                    range(1, n + 1)
                )


async def test_schedules_that_cannot_be_decided_on_do_not_fill_the_piece_of_a_look(
    store: Watched, clock: TestClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "PIECE", 2)
    with own_zones(tmp_path) as zones:
        zones.set(timedelta(0))
        for n in range(5):
            await added(store, f"broken-{n}", cron="* * * * *", timezone=PLACE)
        await added(store)
        zones.take_away()
        clock.turn(60)
        loop = ScheduleLoop(store)
        for _ in range(3):
            assert await loop._wait(await loop.look()) < schedules.STUCK_LOOK
        assert await store.fire_times() == [1]
        assert await loop._wait(await loop.look()) == schedules.STUCK_LOOK


async def test_the_loop_ends_when_its_store_is_closed(store: Watched) -> None:
    loop = asyncio.ensure_future(ScheduleLoop(store).run())
    await eventually(store.looks, lambda looks: looks > 0)
    await store.close()
    await asyncio.wait_for(loop, 10)


async def test_of_live_workers_one_looks_at_a_fire_time_and_the_others_a_little_later(
    store: Watched, clock: TestClock
) -> None:
    await added(store)
    clock.turn(30)
    names = ["one", "two", "three"]
    for name in names:
        await store.heartbeat(WorkerRecord(name, "host", 1, 1))
    first = first_to_look(START + MINUTE, names)
    due = await store.schedules.due(limit=1)
    waits = {name: await ScheduleLoop(store, name)._wait(due) for name in names}
    assert waits == {name: 30.0 if name == first else 30.0 + OTHERS_LATER for name in names}
    assert await ScheduleLoop(store)._wait(due) == 30.0 + OTHERS_LATER


async def test_a_process_looks_at_the_first_of_the_coming_fire_times_that_is_its_own(
    store: Watched, clock: TestClock
) -> None:
    starts = [START + MINUTE / 2 + timedelta(milliseconds=20 * n) for n in range(8)]
    for n, start in enumerate(starts):
        await added(store, f"tick-{n}", start_at=start)
    names = ["one", "two", "three"]
    for name in names:
        await store.heartbeat(WorkerRecord(name, "host", 1, 1))
    due = await store.schedules.due(limit=1)
    own = {name: min(fire_time for fire_time in starts if first_to_look(fire_time, names) == name) for name in names}
    waits = {name: await ScheduleLoop(store, name)._wait(due) for name in names}
    assert waits == {name: (fire_time - START).total_seconds() for name, fire_time in own.items()}


async def test_a_process_that_is_beaten_twice_leaves_the_fire_times_to_the_other_for_a_moment(
    store: Watched, clock: TestClock
) -> None:
    await added(store)
    clock.turn(60)
    due = await store.schedules.due(limit=1)
    await ScheduleLoop(store).look()
    store.schedules.found = due
    late = ScheduleLoop(store)
    waits = [await late._wait(await late.look()) for _ in range(3)]
    assert waits == [0.0, OTHERS_LATER, OTHERS_LATER]


async def test_a_process_without_a_worker_is_the_first_to_look_at_its_share_of_fire_times(
    store: Watched, clock: TestClock
) -> None:
    await added(store)
    clock.turn(30)
    await store.heartbeat(WorkerRecord("worker", "host", 1, 1))
    names = ["worker", *(f"scheduler-{n}" for n in range(3))]
    async with contextlib.AsyncExitStack() as stack:
        for name in names[1:]:
            await stack.enter_async_context(attending(store.schedules, name))
        due = await store.schedules.due(limit=1)
        firsts = [name for name in names if await ScheduleLoop(store, name)._wait(due) == 30.0]
        assert firsts == [first_to_look(START + MINUTE, names)]
        assert await store.schedules.live() == sorted(names)
    assert await store.schedules.live() == ["worker"]


async def test_a_process_attends_as_long_as_it_runs(
    store: Watched, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attending_module, "ATTEND_EVERY", 0.01)
    async with attending(store.schedules, "scheduler"):
        for _ in range(3):
            clock.turn(60)
            await eventually(store.schedules.live, lambda live: live == ["scheduler"])


async def test_a_defect_does_not_end_the_heartbeat_of_a_scheduler(
    store: Watched, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attending_module, "ATTEND_EVERY", 0.01)
    attend, failed = store.schedules.attend, asyncio.Event()

    async def failing(process_id: str, *, paces: str = "") -> None:
        if not failed.is_set():
            failed.set()
            raise AttributeError("a defect of a driver")
        await attend(process_id, paces=paces)

    async with attending(store.schedules, "scheduler"):
        monkeypatch.setattr(store.schedules, "attend", failing)
        await asyncio.wait_for(failed.wait(), 10)
        clock.turn(60)
        await eventually(store.schedules.live, lambda live: live == ["scheduler"])


async def test_without_a_live_worker_every_scheduler_looks_at_the_fire_time(store: Watched, clock: TestClock) -> None:
    await added(store)
    clock.turn(30)
    assert await ScheduleLoop(store)._wait(await store.schedules.due(limit=1)) == 30.0


async def test_a_cancelled_job_of_a_schedule_ends_its_wait(store: Watched, clock: TestClock) -> None:
    await added(store, overlap=Overlap.QUEUE)
    async with running(ScheduleLoop(store)):
        clock.turn(60)
        await eventually(store.fire_times, lambda fire_times: fire_times == [1])
        clock.turn(60)
        [job] = (await store.find(Query(JobFilter(schedule="tick")))).jobs

        async def kept() -> bool:
            return (await store.schedules.due(limit=1)).keeps

        await eventually(kept, bool)
        await store.cancel([job.id])
        await eventually(store.fire_times, lambda fire_times: fire_times == [1, 2])
        assert (await store.get(job.id)).status is Status.CANCELLED  # type: ignore[union-attr]

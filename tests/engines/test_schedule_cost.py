"""What many schedules cost a scheduler that has little to do: counted, not timed."""

from datetime import timedelta
from pathlib import Path

import pytest

from bench.counting import statements
from demora.core.schedules.definitions import Definition
from demora.core.schedules.schedule import Schedule
from demora.scheduler.schedules import LONGEST, ScheduleLoop
from demora.store.store import Store
from tests.clock import TestClock
from tests.setups import SETUPS, Setup

MANY = {"sqlite-memory": 10_000, "postgres": 2_000}  # PostgreSQL takes long to store more, and has as many statements
FIRING = 3
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
COUNTED = [setup for setup in SETUPS if setup.name in MANY]


async def define(store: Store, clock: TestClock, count: int) -> None:
    """Define so many schedules, a few of which fire in a minute, and the others on the days after."""
    now = clock.now()
    schedules = [
        Schedule(
            name=f"s-{n:05}",
            type="demo.echo",
            payload=b"{}",
            recorded_at=now,
            at=(now + MINUTE if n < FIRING else now + DAY + n * MINUTE,),
        )
        for n in range(count)
    ]
    await store.schedules.define(Definition("shop", "one", tuple(schedules)))


@pytest.mark.parametrize("setup", COUNTED, ids=lambda setup: setup.name)
async def test_schedules_that_do_not_fire_cost_no_statement(setup: Setup, tmp_path: Path) -> None:
    costs = []
    for count in (FIRING, MANY[setup.name]):
        clock, folder = TestClock(), tmp_path / str(count)
        folder.mkdir()
        with statements() as counted:
            store = setup.make(folder, clock)
            await store.open()
            await define(store, clock, count)
            loop = ScheduleLoop(store)
            assert await loop._wait(await loop.look()) == MINUTE.total_seconds()
            counted.clear()
            await loop.look()
            idle = counted["statements"]
            clock.turn(60)
            counted.clear()
            assert len((await loop.look()).schedules) == FIRING
            fired = counted["statements"]
            assert await loop._wait(await loop.look()) == LONGEST
            await store.close()
        costs.append((idle, fired))
    few, many = costs
    assert many == few

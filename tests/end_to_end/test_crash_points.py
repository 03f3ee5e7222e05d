"""A process dies in each gap between two durable effects; those that are left finish everything."""

from pathlib import Path

import pytest

from demora.system.crash import POINTS
from tests.chaos import tools
from tests.chaos.crashes import AT_THE_START, OF_THE_LINE, crash_at
from tests.chaos.lines import LineServer
from tests.chaos.processes import strace
from tests.chaos.world import World

pytestmark = pytest.mark.slow

JOBS = 30
WITHOUT_STRACE = tools.missing("strace")


@pytest.mark.parametrize("point", sorted(POINTS))
async def test_a_process_dies_at_a_point_and_the_others_finish(point: str, tmp_path: Path) -> None:
    world = World(point, tmp_path / "world", point, line=LineServer() if point in OF_THE_LINE else None)
    async with world.alive():
        await add_jobs(world)
        if point == "worker.lapsed":
            world.wanted.update(worker=1, producer=1)  # somebody must die for the lapse, and die at work
        assert point == AT_THE_START or await crash_at(world, point, 1)
        await check_all_ends_well(world, f"crash at {point}")


@pytest.mark.skipif(WITHOUT_STRACE is not None, reason=str(WITHOUT_STRACE))
@pytest.mark.parametrize(
    ("calls", "nth"),
    [("pwrite64,write", 5), ("pwrite64,write", 40), ("pwrite64,write", 90), ("fsync,fdatasync", 2), ("fsync,fdatasync", 12)],
)
async def test_a_worker_dies_at_any_write_or_fsync_and_the_others_finish(calls: str, nth: int, tmp_path: Path) -> None:
    world = World(f"{calls} {nth}", tmp_path / "world", f"{calls} {nth}")
    async with world.alive():
        await add_jobs(world)
        under = strace(world.new_trace(), calls, f"signal=KILL:when={nth}", quick=False)
        assert await world.start_worker(under=under).ended(20) == -9
        world.happened("died")
        await check_all_ends_well(world, "died")


async def add_jobs(world: World) -> None:
    assert await world.start_producer(jobs=JOBS).ended(20) == 0


async def check_all_ends_well(world: World, fault: str) -> None:
    await world.heal()
    result = await world.judge()
    assert result.violations == []
    assert result.fired[fault] > 0
    assert result.counts["acknowledged"] >= JOBS

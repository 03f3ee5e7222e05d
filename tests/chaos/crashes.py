"""Crash points for real: a process with `DEMORA_CRASH=name:n`, and what it takes to make it get there."""

import time

from demora.system.crash import POINTS
from tests.chaos.processes import Process
from tests.chaos.world import World

AT_THE_START = "schema.migrated"  # every world begins with it
TO_WALK = tuple(sorted(point for point in POINTS - {AT_THE_START} if not point.startswith("line.")))
OF_THE_LINE = tuple(sorted(point for point in POINTS if point.startswith("line.")))
WHEN_LOST = ("line.bumped", "line.filling", "line.sweeping")  # passed by whoever looks after a line that was lost
DEEPEST = {"batch.applied": 30, "batch.committed": 30, "batch.notified": 15, "client.added": 20}  # the others: 3
REACHED = 15.0  # seconds within which a point is passed


async def crash_at(world: World, point: str, nth: int) -> bool:
    """Start a process that kills itself at a point, and see it die there."""
    process = _start(world, f"{point}:{nth}")
    process.doomed = True
    await _help(world, process, point)
    died = await process.ended(REACHED) == -9
    process.kill()
    if died:
        world.happened(f"crash at {point}")
    return died


def _start(world: World, crash: str) -> Process:
    if crash.startswith(("client.", *world.chance.sample(("line.recorded", "line.updated"), 1))):
        return world.start_producer(30, DEMORA_CRASH=crash)
    if world.postgres and crash.startswith("batch.applied"):  # there a worker's writes are one statement each
        return world.start_producer(DEMORA_CRASH=crash)
    return world.start_worker(DEMORA_CRASH=crash)


async def _help(world: World, process: Process, point: str) -> None:
    """Most points are passed by working; for some of them something must happen."""
    until = time.monotonic() + REACHED
    while point == "worker.stopping" and process.code is None and time.monotonic() < until:
        if world.watch.runs(process.pid):
            process.terminate()
        await process.ended(0.1)
    while point == "worker.lapsed" and process.code is None and time.monotonic() < until:
        victim = await world.busy("worker", within=1)
        if victim is not None and world.watch.has_run(process.pid):
            world.kill(victim)
        await process.ended(0.4 + world.lease / 1000)
    while point in WHEN_LOST and process.code is None and time.monotonic() < until:
        assert world.line is not None
        async with world.line.undisturbed():
            await world.line.count("flush")
        await process.ended(world.chance.uniform(0.5, 2))

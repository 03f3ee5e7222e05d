"""The faults: what is done to a world, each counted under its name only if it came about."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from tests.chaos import lines, outages, tools
from tests.chaos.crashes import DEEPEST, OF_THE_LINE, TO_WALK, crash_at
from tests.chaos.processes import Process, injected, strace
from tests.chaos.watch import boot_ms
from tests.chaos.world import STUCK, World

HERD = 32  # processes on one file
OVERTAKEN = "zombie: stopped, overtaken, continued"
JUMPS = (-7200, 7200, -600, 600)  # seconds
Do = Callable[[World], Awaitable[bool]]


class Fault(msgspec.Struct, frozen=True):
    """A fault: what it does, False if it came to nothing; what it needs; and in which worlds it occurs, the first a must."""

    name: str
    do: Do
    tool: str | None = None
    worlds: tuple[str, ...] = ("plain",)


async def kill_worker(world: World) -> bool:
    """Counted later, if it left a lease behind."""
    victim = await world.busy("worker")
    if victim is None:
        return False
    world.happened("kill -9 of a worker", counted=False)
    world.watch.victims.add(victim.pid)
    world.kill(victim)
    return True


async def kill_service(world: World) -> bool:
    return await _kill(world, "service")


async def kill_scheduler(world: World) -> bool:
    return await _kill(world, "scheduler")


async def kill_producer(world: World) -> bool:
    return await _kill(world, "producer")


async def _kill(world: World, kind: str) -> bool:
    await asyncio.sleep(world.chance.uniform(0.5, 1.5))  # until it is at work
    victims = world.of(kind)
    if not victims:
        return False
    world.kill(victims[0])
    world.happened(f"kill -9 of a {kind}")
    return True


async def zombie(world: World) -> bool:
    """Stop a worker until another took over what it ran, then let it go on as if nothing had been."""
    victim = await world.busy("worker", "service")
    if victim is None:
        return False
    victim.taken = True
    victim.stop()
    try:
        what = await _outsleep_the_lease(world, victim)
    finally:
        victim.resume()
    world.happened(what)
    await asyncio.sleep(0.2)
    victim.taken = False
    return what == OVERTAKEN


async def _outsleep_the_lease(world: World, victim: Process) -> str:
    """Wait until another settled a lapse of the stopped process. If it holds the write lock, nobody can until it goes on."""
    pid, stopped = victim.pid, boot_ms()
    before = len(world.watch.lapses[pid])
    while len(world.watch.lapses[pid]) == before and boot_ms() - stopped < 2000 + world.lease:
        if world.is_locked_by(victim):  # at any time: a thread that waits for a core ends its system call before it stops
            await asyncio.sleep(world.lease / 1000 + 0.1)
            return "stopped beyond the lease with the database's lock"
        await asyncio.sleep(0.02)
    await asyncio.sleep(world.chance.random() * 0.3)
    return OVERTAKEN if len(world.watch.lapses[pid]) > before else "stopped, and not overtaken within 2 s of the lease"


async def schedulers(world: World) -> bool:
    """Two that delete what has ended while it is still looked at, retried and settled; one of them dies in the middle."""
    first, second = world.start_brief_scheduler(), world.start_brief_scheduler()
    await asyncio.sleep(world.chance.uniform(1.5, 3))
    first.kill()
    await asyncio.sleep(world.chance.uniform(0.5, 1.5))
    second.terminate()
    if await second.ended(10) != 0 and "started" in second.said:  # before that a signal ends any process
        world.troubles.append(f"a scheduler that was told to stop ended with {second.code}")
        second.kill()
    world.happened("two schedulers, one killed")
    return True


async def rolling_restart(world: World) -> bool:
    """SIGTERM to each worker that is at work, one after the other; whoever minds the world starts the next."""
    restarted = False
    for worker in world.of("worker"):
        if not worker.free or not world.watch.has_run(worker.pid):
            continue
        worker.terminate()
        code = await worker.ended(10)
        if code != 0 and STUCK not in worker.said:
            world.troubles.append(f"a worker that was told to stop ended with {code}")
        world.happened("rolling restart: SIGTERM")
        restarted = True
    return restarted


async def herd(world: World) -> bool:
    """32 processes that write to one file."""
    writers = [world.start_producer(jobs=world.chance.randint(5, 15)) for _ in range(HERD)]
    codes = await asyncio.gather(*(writer.ended(60) for writer in writers))
    if any(codes):
        world.troubles.append(f"of {HERD} processes on one file some ended with {set(codes)}")
    world.happened(f"{HERD} processes on one file")
    return True


async def slow_fsync(world: World) -> bool:
    delay = world.chance.randint(30, 300)
    return await _traced(world, "slow fsync", "fsync,fdatasync", f"delay_enter={delay * 1000}")


async def failing_fsync(world: World) -> bool:
    when = f"{world.chance.randint(2, 12)}+{world.chance.randint(2, 9)}"
    return await _traced(world, "failing fsync", "fsync,fdatasync", f"error=EIO:when={when}")


async def failing_write(world: World) -> bool:
    when, error = f"{world.chance.randint(20, 80)}+{world.chance.randint(15, 60)}", world.chance.choice(("EIO", "ENOSPC"))
    return await _traced(world, "failing write", "pwrite64", f"error={error}:when={when}")


async def _traced(world: World, name: str, calls: str, inject: str) -> bool:
    """A worker for a few seconds under strace; each call that strace meddled with counts."""
    trace = world.new_trace()
    world.happened(f"{name} begins", counted=False)
    worker = world.start_worker(under=strace(trace, calls, inject))
    for _ in range(10):
        if await worker.ended(world.chance.uniform(0.8, 1.5)) is not None or injected(trace) > 2:
            break
    if world.chance.random() < 0.5:
        worker.terminate()
        await worker.ended(3)
    world.kill(worker)
    world.fired[name] += injected(trace)
    return injected(trace) > 0


async def die_at_write(world: World) -> bool:
    return await _die(world, "pwrite64,write", world.chance.randint(1, 150), "die at the n-th write")


async def die_at_fsync(world: World) -> bool:
    return await _die(world, "fsync,fdatasync", world.chance.randint(1, 40), "die at the n-th fsync")


async def _die(world: World, calls: str, nth: int, name: str) -> bool:
    worker = world.start_worker(under=strace(world.new_trace(), calls, f"signal=KILL:when={nth}", quick=False))
    died = await worker.ended(10) == -9
    worker.kill()
    if died:
        world.happened(name)
    return died


def crash(point: str) -> Do:
    async def do(world: World) -> bool:
        return await crash_at(world, point, world.chance.randint(1, DEEPEST.get(point, 3)))

    return do


async def full_disk(world: World) -> bool:
    """Fill the disk up, keep it full for a while, in half of the cases kill a worker meanwhile, and make room again."""
    assert world.disk is not None
    ballast = world.disk / "ballast"
    try:
        _fill(ballast)
        world.happened("full disk")
        if world.chance.random() < 0.5:
            await kill_worker(world)
        await asyncio.sleep(world.chance.uniform(0.3, 2))
    finally:
        ballast.unlink(missing_ok=True)
    await asyncio.sleep(world.chance.uniform(0.5, 1.5))
    return True


def _fill(ballast: Path) -> None:
    """Write until there is no room for another byte."""
    file = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    size = 1 << 20
    try:
        while size:
            try:
                os.write(file, bytes(size))
            except OSError as problem:
                if problem.errno != errno.ENOSPC:
                    raise
                size //= 4
    finally:
        os.close(file)


async def clock_jump(world: World) -> bool:
    """Set the clock of all processes of the world forth or back, then right again."""
    stamp = Path(world.environment["FAKETIME_TIMESTAMP_FILE"])
    try:
        for jump in world.chance.sample(JUMPS, world.chance.randint(1, 2)):
            set_clock(stamp, jump)
            world.happened("clock jump")
            await asyncio.sleep(world.chance.uniform(1.5, 3))  # the processes hear of it within a second, one by one
    finally:
        set_clock(stamp, 0)
    await asyncio.sleep(world.chance.uniform(1.2, 2))
    return True


def faked_clock(shared: Path, folder: Path) -> dict[str, str]:
    """The environment of processes whose clock `set_clock` turns, by the stamp that it names."""
    stamp = folder / "clock"
    set_clock(stamp, 0)
    return {
        "LD_PRELOAD": str(tools.faketime(shared)),
        "FAKETIME_TIMESTAMP_FILE": str(stamp),
        "FAKETIME_CACHE_DURATION": "1",  # seconds; to read the file at each call would take all the time there is
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


def set_clock(stamp: Path, seconds: int) -> None:
    """Put it in place at once, for it is read at any moment."""
    new = stamp.with_suffix(".new")
    new.write_text(f"{seconds:+d}\n")
    new.replace(stamp)


BOTH = ("plain", "postgres")
POSTGRES = ("postgres",)
LINED = ("lined", "lined postgres")
SERVERS = ("postgres", "lined postgres")
FAULTS = (
    Fault("kill", kill_worker, worlds=("plain", "full", "clock", "postgres", *LINED)),
    Fault("zombie", zombie, worlds=("plain", "clock", "postgres", *LINED)),
    Fault("service", kill_service, worlds=(*BOTH, *LINED)),
    Fault("kill-scheduler", kill_scheduler, worlds=(*BOTH, *LINED)),
    Fault("producer", kill_producer, worlds=(*BOTH, *LINED)),
    Fault("restart", rolling_restart, worlds=("plain", "clock", "postgres", *LINED)),
    Fault("schedulers", schedulers, worlds=(*BOTH, *LINED)),
    Fault("herd", herd),
    Fault("slow-fsync", slow_fsync, "strace"),
    Fault("failing-fsync", failing_fsync, "strace"),
    Fault("failing-write", failing_write, "strace"),
    Fault("die-write", die_at_write, "strace"),
    Fault("die-fsync", die_at_fsync, "strace"),
    *(Fault(f"crash-{point}", crash(point), worlds=BOTH) for point in TO_WALK),
    Fault("full-disk", full_disk, "mount", ("full",)),
    Fault("clock", clock_jump, "libfaketime", ("clock",)),
    Fault("server", outages.restart, worlds=SERVERS),
    Fault("kill-backend", outages.kill_backend, worlds=POSTGRES),
    Fault("end-backends", outages.end_backends, worlds=POSTGRES),
    Fault("cut", outages.cut_commit, worlds=SERVERS),
    Fault("partition", outages.partition, worlds=SERVERS),
    Fault("fill-up", outages.fill_up, worlds=POSTGRES),
    Fault("flush", lines.flush, worlds=LINED),
    Fault("line-kill", lines.kill, worlds=LINED),
    Fault("line-copy", lines.old_copy, worlds=LINED),
    Fault("line-stop", lines.stop, worlds=LINED),
    Fault("line-pause", lines.pause, worlds=LINED),
    Fault("line-full", lines.fill_up, worlds=LINED),
    Fault("line-cut", lines.cut_off, worlds=LINED),
    *(Fault(f"crash-{point}", crash(point), worlds=LINED) for point in OF_THE_LINE),
)

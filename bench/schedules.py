"""(k) Schedules: many that fire at one instant, many that fire all the time, and how late a fire time gets its job.

The schedules are defined in code, and two processes fire them.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from bench.databases import Databases
from bench.stage import Wait, complain, environment, producer, workers
from demora import Demora, Job

TOGETHER = 10_000  # schedules that fire at one instant
STEADY, CYCLE = 1_000, 10  # fire times per second, and the seconds from one of a schedule to its next
LASTS = 2 * CYCLE
FEW, EACH = 300, 0.04  # fire times that come one by one, and the seconds from one to the next
STARTING = 10.0  # seconds until the first fire time, for the start of the schedulers
DEFINING = 15.0  # seconds besides, for all the definitions
PATIENCE = 60.0  # seconds after the last fire time in which its job must come
SCHEDULERS = WORKERS = 2
PAGE = 200


class Fired(NamedTuple):
    """What became of fire times: the wait from each to the adding of its job, and how many had two jobs or none."""

    waits: list[Wait]
    doubled: int
    lost: int


async def together(on: Databases, share: float) -> tuple[float, Fired]:
    """Seconds from an instant at which many schedules fire until all their jobs are there; and what became of it."""
    at, number = _first(share), round(TOGETHER * share)
    async with producer(on) as app:
        times = await _define(app, {f"together-{n:05}": at for n in range(number)}, every="1h")
        async with _schedulers(app, at):
            took = await _all_added(app, number) - at.timestamp()
            await asyncio.sleep(1)  # in which a second job of a fire time would come
        return took, _judge(times, await _jobs(app))


async def steady(on: Databases, share: float) -> tuple[float, Fired]:
    """Fire times per second of schedules that fire all the time, one each millisecond; and what became of them."""
    at, rate = _first(share), round(STEADY * share)
    async with producer(on) as app:
        apart = timedelta(seconds=1) / rate
        starts = {f"steady-{n:05}": at + n * apart for n in range(rate * CYCLE)}
        times = await _define(app, starts, every=f"{CYCLE}s", end_at=at + timedelta(seconds=LASTS) - apart)
        times |= {(name, first + timedelta(seconds=CYCLE)) for name, first in times}
        async with _schedulers(app, at):
            took = await _all_added(app, rate * LASTS) - at.timestamp()
        return len(times) / took, _judge(times, await _jobs(app))


async def one_by_one(on: Databases) -> tuple[list[Wait], Fired]:
    """From each fire time to the first line of its handler, with idle worker processes; and what became of them."""
    async with producer(on) as app, workers(app, WORKERS):
        at = datetime.now(UTC) + timedelta(seconds=STARTING / 2)
        times = await _define(app, {f"single-{n:03}": at + timedelta(seconds=n * EACH) for n in range(FEW)}, every="1h")
        await asyncio.sleep((at - datetime.now(UTC)).total_seconds() + FEW * EACH + 1)
        jobs = await _jobs(app)
        stamps = [await app.result(job.id, "60s") for job in jobs]
        return [(stamp["due"], stamp["now"]) for stamp in stamps], _judge(times, jobs)


FireTime = tuple[str, datetime]  # of the schedule with this name


def _first(share: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=STARTING + DEFINING * share)


async def _define(app: Demora, starts: dict[str, datetime], **timing: object) -> set[FireTime]:
    """Define a schedule for each start, and return the first fire times."""
    for name, start in starts.items():
        app.schedule(name, "bench.stamp", start_at=start, **timing)
    await app.define_schedules("bench")
    if datetime.now(UTC) > min(starts.values()):
        raise RuntimeError("the first fire time passed before all schedules were defined: this machine is too busy")
    return {(one.schedule.name, one.schedule.anchor_at) for one in await (await app.open()).schedules()}


@asynccontextmanager
async def _schedulers(app: Demora, at: datetime) -> AsyncIterator[None]:
    """Scheduler processes that run before the first fire time."""
    command = [sys.executable, "-m", "demora", "scheduler"]
    with tempfile.NamedTemporaryFile("w+") as said:
        processes = [subprocess.Popen(command, env=environment(app), stderr=said, text=True) for _ in range(SCHEDULERS)]
        try:
            while _read(said.name).count("started") < SCHEDULERS:
                await asyncio.sleep(0.05)
            if datetime.now(UTC) > at:
                raise RuntimeError("the first fire time passed before the schedulers ran: this machine is too busy")
            yield
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()
            complain(_read(said.name))


def _read(file: str) -> str:
    with open(file) as text:
        return text.read()


async def _all_added(app: Demora, number: int) -> float:
    """Wait until so many jobs wait, and return the time."""
    client, until = await app.open(), time.time() + STARTING + DEFINING + LASTS + PATIENCE
    while sum(queue.ready + queue.delayed for queue in await client.queues()) < number:
        if time.time() > until:
            raise RuntimeError(f"not all of {number:,} fire times had their jobs {PATIENCE:.0f} s after the last one")
        await asyncio.sleep(0.02)
    return time.time()


async def _jobs(app: Demora) -> list[Job]:
    jobs, after = list[Job](), None
    while True:
        page = await app.find(type="bench.stamp", limit=PAGE, after=after)
        jobs += page.jobs
        after = page.next
        if after is None:
            return jobs


def _judge(times: set[FireTime], jobs: Sequence[Job]) -> Fired:
    fired = [(job.schedule_name, job.slot_at) for job in jobs]
    waits = [(job.slot_at.timestamp(), job.created_at.timestamp()) for job in jobs if job.slot_at is not None]
    return Fired(waits, len(fired) - len(set(fired)), len(times - set(fired)))

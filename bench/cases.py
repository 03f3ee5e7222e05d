"""The cases: each runs demora through its public API with default settings, on a new database."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench import counting
from bench.databases import Databases
from bench.stage import PAYLOAD, Wait, all_ended, enqueue, producer, workers
from demora import Demora

SINGLES, TURN = 1000, 50
TASKS = 64


async def enqueue_single(on: Databases) -> tuple[float, float]:
    """(a) Jobs per second, enqueued one after the other, and bare rows in between: a disk has other moods each second."""
    bare = on.floor()
    await bare.open()
    ours, theirs = 0.0, 0.0
    async with producer(on) as app:
        for _ in range(SINGLES // TURN):
            began = time.perf_counter()
            for _ in range(TURN):
                await app.enqueue("bench.noop", PAYLOAD)
            halfway = time.perf_counter()
            for _ in range(TURN):
                await bare.insert(1)
            ours, theirs = ours + halfway - began, theirs + time.perf_counter() - halfway
    await bare.close()
    return SINGLES / ours, SINGLES / theirs


async def enqueue_from_tasks(on: Databases, jobs: int) -> float:
    """(a2) Jobs per second, enqueued one by one by many tasks of one process at once, each durable when its call returns."""
    async with producer(on) as app:

        async def enqueue_in_turn() -> None:
            for _ in range(jobs // TASKS):
                await app.enqueue("bench.noop", PAYLOAD)

        await asyncio.gather(*(app.enqueue("bench.noop", PAYLOAD) for _ in range(TASKS)))  # opens its connections
        began = time.perf_counter()
        await asyncio.gather(*(enqueue_in_turn() for _ in range(TASKS)))
        return jobs // TASKS * TASKS / (time.perf_counter() - began)


async def enqueue_many(on: Databases, jobs: int) -> float:
    """(b) Jobs per second, enqueued in batches."""
    async with producer(on) as app:
        began = time.perf_counter()
        await enqueue(app, jobs)
        return jobs / (time.perf_counter() - began)


async def drain(on: Databases, jobs: int, processes: int = 1) -> float:
    """(c) Jobs per second, from the moment that a full queue is resumed until all have ended."""
    async with producer(on) as app:
        client = await app.open()
        await client.pause("default")
        await enqueue(app, jobs)
        async with workers(app, processes):
            began = time.perf_counter()
            await client.resume("default")
            while not await all_ended(app):
                await asyncio.sleep(0.03)  # counting takes a core for a moment
            return jobs / (time.perf_counter() - began)


async def pick_up_in_process(on: Databases, jobs: int) -> list[Wait]:
    """(d) From the return of enqueue to the handler's first line, with a worker in the same process, idle."""
    async with producer(on) as app, app.worker():
        return await _pick_up(app, jobs)


async def pick_up_across(on: Databases, jobs: int) -> list[Wait]:
    """(d) The same with the worker in another process."""
    async with producer(on) as app, workers(app, 1):
        return await _pick_up(app, jobs)


async def bare_commits(on: Databases, times: int) -> list[Wait]:
    """(d) What one durable row takes, as often: what the disk alone adds to a pick-up, whose claim is a write."""
    floor, took = on.floor(), list[Wait]()
    await floor.open()
    for _ in range(times):
        await asyncio.sleep(0.01)
        began = time.time()
        await floor.insert(1)
        took.append((began, time.time()))
    await floor.close()
    return took


async def lateness(on: Databases, jobs: int, seconds: float, *, handlers: str = "bench.jobs:app") -> list[Wait]:
    """(e) From the due time to the handler's first line, for jobs due at random over so many seconds."""
    async with producer(on) as app, workers(app, 1, handlers=handlers):
        start = datetime.now(UTC) + timedelta(seconds=2)
        dues = [start + timedelta(seconds=random.uniform(0, seconds)) for _ in range(jobs)]
        added = await app.enqueue_many([("bench.stamp", {}, {"at": due}) for due in dues])
        stamps = [await app.result(job.id, "60s") for job in added]
        return [(stamp["due"], stamp["now"]) for stamp in stamps]


async def counts(on: Databases, jobs: int) -> dict[str, float]:
    """What one job takes of the database: to enqueue one, to enqueue in batches, and to drain."""
    found: dict[str, float] = {}
    async with _counted(on) as (app, counted):
        async with counted(found, "single enqueue", 100):
            for _ in range(100):
                await app.enqueue("bench.noop", PAYLOAD)
        async with counted(found, "job of enqueue_many", jobs):
            await enqueue(app, jobs)
        async with counted(found, "job drained", jobs + 100), app.worker():
            while not await all_ended(app):
                await asyncio.sleep(0.05)
    return found


@asynccontextmanager
async def _counted(on: Databases) -> AsyncIterator[tuple[Demora, Any]]:
    """An application, and a context that records what is asked and written within, for each of so many jobs."""
    with counting.statements() as asked:
        async with producer(on) as app:

            @asynccontextmanager
            async def counted(found: dict[str, float], each: str, jobs: int) -> AsyncIterator[None]:
                before = await on.written(app.settings.database_url)
                asked.clear()
                yield
                spent = Counter(asked)
                spent += await on.written(app.settings.database_url) - before
                found |= {f"{what} per {each}": number / jobs for what, number in spent.items()}

            yield app, counted


async def idle_statements(on: Databases, seconds: float) -> float:
    """(d) Statements per second of an idle worker."""
    with counting.statements() as counted:
        async with producer(on) as app, app.worker():
            await app.result((await app.enqueue("bench.stamp")).id)
            await asyncio.sleep(1)
            counted.clear()
            await asyncio.sleep(seconds)
            return counted["statements"] / seconds


async def idle_share(on: Databases, seconds: float) -> float:
    """(h) The share of one core that an idle worker process takes."""
    async with producer(on) as app, workers(app, 1) as [process]:
        await app.result((await app.enqueue("bench.stamp")).id)
        await asyncio.sleep(2)
        before = _cpu_seconds(process.pid)
        await asyncio.sleep(seconds)
        return (_cpu_seconds(process.pid) - before) / seconds


def _cpu_seconds(pid: int) -> float:
    """What all threads of a process have taken so far, to the nanosecond: ticks would miss short bursts."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


async def _pick_up(app: Demora, jobs: int) -> list[Wait]:
    await app.result((await app.enqueue("bench.stamp")).id, "20s")
    waits = list[Wait]()
    for _ in range(jobs):
        await asyncio.sleep(0.01)  # idle again
        job = await app.enqueue("bench.stamp")
        returned = time.time()
        waits.append((returned, (await app.result(job.id, "20s"))["now"]))
    return waits

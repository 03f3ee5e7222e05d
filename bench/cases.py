"""The cases: each runs demora through its public API with default settings, on a new database file."""

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench import counting
from bench.jobs import app as jobs_app
from demora import Demora

PAYLOAD = {"to": "user@example.com", "subject": "hello there", "body": "x" * 48}
SINGLES, BATCH = 1000, 500


async def enqueue_single() -> float:
    """(a) Jobs per second, enqueued one after the other."""
    async with _producer() as app:
        began = time.perf_counter()
        for _ in range(SINGLES):
            await app.enqueue("bench.noop", PAYLOAD)
        return SINGLES / (time.perf_counter() - began)


async def enqueue_many(jobs: int) -> float:
    """(b) Jobs per second, enqueued in batches."""
    async with _producer() as app:
        began = time.perf_counter()
        for _ in range(jobs // BATCH):
            await app.enqueue_many([("bench.noop", PAYLOAD)] * BATCH)
        return jobs // BATCH * BATCH / (time.perf_counter() - began)


async def drain(jobs: int, workers: int = 1) -> float:
    """(c) Jobs per second, from the moment that a full queue is resumed until all have ended."""
    async with _producer() as app:
        client = await app.open()
        await client.pause("default")
        for _ in range(jobs // BATCH):
            await app.enqueue_many([("bench.noop", PAYLOAD)] * BATCH)
        async with _workers(app, workers):
            began = time.perf_counter()
            await client.resume("default")
            while not await _all_ended(app):
                await asyncio.sleep(0.03)  # counting takes a core for a moment
            return jobs / (time.perf_counter() - began)


async def pick_up_in_process(jobs: int) -> list[float]:
    """(d) Seconds from the return of enqueue to the handler's first line, with a worker in the same process, idle."""
    async with _producer() as app, app.worker():
        return await _pick_up(app, jobs)


async def pick_up_across(jobs: int) -> list[float]:
    """(d) The same with the worker in another process."""
    async with _producer() as app, _workers(app, 1):
        return await _pick_up(app, jobs)


async def lateness(jobs: int, seconds: float) -> list[float]:
    """(e) Seconds from the due time to the handler's first line, for jobs due at random over so many seconds."""
    async with _producer() as app, _workers(app, 1):
        start = datetime.now(UTC) + timedelta(seconds=2)
        dues = [start + timedelta(seconds=random.uniform(0, seconds)) for _ in range(jobs)]
        added = await app.enqueue_many([("bench.stamp", {}, {"at": due}) for due in dues])
        stamps = [await app.result(job.id, "60s") for job in added]
        return [stamp["now"] - stamp["due"] for stamp in stamps]


async def counts(jobs: int) -> dict[str, float]:
    """Statements and commits per job: to enqueue one, to enqueue in batches, and to drain."""
    found = {}
    with counting.statements() as counted:
        async with _producer() as app:
            counted.clear()
            for _ in range(100):
                await app.enqueue("bench.noop", PAYLOAD)
            found |= {f"{what} per single enqueue": number / 100 for what, number in counted.items()}
            counted.clear()
            for _ in range(jobs // BATCH):
                await app.enqueue_many([("bench.noop", PAYLOAD)] * BATCH)
            found |= {f"{what} per job of enqueue_many": number / jobs for what, number in counted.items()}
            counted.clear()
            async with app.worker():
                while not await _all_ended(app):
                    await asyncio.sleep(0.05)
            found |= {f"{what} per job drained": number / (jobs + 100) for what, number in counted.items()}
    return found


async def idle_statements(seconds: float) -> float:
    """(d) Statements per second of an idle worker."""
    with counting.statements() as counted:
        async with _producer() as app, app.worker():
            await app.result((await app.enqueue("bench.stamp")).id)
            await asyncio.sleep(1)
            counted.clear()
            await asyncio.sleep(seconds)
            return counted["statements"] / seconds


async def _pick_up(app: Demora, jobs: int) -> list[float]:
    await app.result((await app.enqueue("bench.stamp")).id, "20s")
    waits = []
    for _ in range(jobs):
        await asyncio.sleep(0.01)  # idle again
        job = await app.enqueue("bench.stamp")
        returned = time.time()
        waits.append((await app.result(job.id, "20s"))["now"] - returned)
    return waits


async def _all_ended(app: Demora) -> bool:
    [queue] = await (await app.open()).queues()
    return queue.ready + queue.processing == 0


@asynccontextmanager
async def _producer() -> AsyncIterator[Demora]:
    with tempfile.TemporaryDirectory() as folder:
        app = Demora(f"sqlite:///{Path(folder) / 'bench.db'}")
        for handler in jobs_app.registry:
            app.registry.register(handler)
        async with app:
            yield app


@asynccontextmanager
async def _workers(app: Demora, number: int) -> AsyncIterator[None]:
    """So many worker processes at default concurrency, registered and waiting."""
    environment = os.environ | {"DEMORA_DATABASE_URL": app.settings.database_url}
    command = [sys.executable, "-m", "demora", "worker", "--app", "bench.jobs:app"]
    processes = [subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) for _ in range(number)]
    client = await app.open()
    try:
        while len(await client.workers()) < number:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()

"""The stage of every case: a producer on a new database, and worker processes beside it, all with default settings."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.databases import Databases
from bench.jobs import app as jobs_app
from demora import Demora

PAYLOAD = {"to": "user@example.com", "subject": "hello there", "body": "x" * 48}
BATCH = 500


@asynccontextmanager
async def producer(databases: Databases) -> AsyncIterator[Demora]:
    """An open application on a new database, which knows the handlers."""
    async with databases.new() as url, application(url) as app:
        yield app


@asynccontextmanager
async def application(url: str) -> AsyncIterator[Demora]:
    app = Demora(url)
    for handler in jobs_app.registry:
        app.registry.register(handler)
    async with app:
        yield app


@asynccontextmanager
async def workers(app: Demora, number: int) -> AsyncIterator[list[subprocess.Popen[str]]]:
    """So many worker processes at default concurrency, registered and waiting."""
    command = [sys.executable, "-m", "demora", "worker", "--app", "bench.jobs:app"]
    with tempfile.TemporaryFile("w+") as said:
        processes = [subprocess.Popen(command, env=environment(app), stderr=said, text=True) for _ in range(number)]
        try:
            while len(await (await app.open()).workers()) < number:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.3)
            yield processes
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()
            complain(said.seek(0) or said.read())


def environment(app: Demora) -> dict[str, str]:
    return os.environ | {"DEMORA_DATABASE_URL": app.settings.database_url}


def complain(said: str) -> None:
    """Refuse a measurement during which a worker met trouble."""
    trouble = [line for line in said.splitlines() if "ERROR" in line or "WARNING" in line or "Traceback" in line]
    if trouble:
        raise RuntimeError("a worker met trouble:\n" + "\n".join(trouble[:5]))


async def enqueue(app: Demora, jobs: int) -> None:
    """So many jobs that do nothing, in batches."""
    for _ in range(jobs // BATCH):
        await app.enqueue_many([("bench.noop", PAYLOAD)] * BATCH)


async def all_ended(app: Demora) -> bool:
    [queue] = await (await app.open()).queues()
    return queue.ready + queue.processing == 0

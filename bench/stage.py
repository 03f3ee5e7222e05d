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
Wait = tuple[float, float]  # when it began and ended, in seconds since 1970


@asynccontextmanager
async def producer(databases: Databases) -> AsyncIterator[Demora]:
    """An open application on a new database, which knows the handlers."""
    async with databases.new() as url, application(url, databases.redis_url) as app:
        yield app


@asynccontextmanager
async def application(url: str, redis_url: str | None = None) -> AsyncIterator[Demora]:
    app = Demora(url, redis_url)
    for handler in jobs_app.registry:
        if app.registry.get(handler.type) is None:  # what is built in, each application has already
            app.registry.register(handler)
    async with app:
        yield app


@asynccontextmanager
async def workers(
    app: Demora, number: int, *, expected: str | None = None, handlers: str = "bench.jobs:app"
) -> AsyncIterator[list[subprocess.Popen[str]]]:
    """So many worker processes at default concurrency, registered and waiting. They may complain of what is expected."""
    command = [sys.executable, "-m", "demora", "worker", "--app", handlers]
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
            complain(said.seek(0) or said.read(), expected)


def environment(app: Demora) -> dict[str, str]:
    line = {} if app.settings.redis_url is None else {"DEMORA_REDIS_URL": app.settings.redis_url}
    return os.environ | {"DEMORA_DATABASE_URL": app.settings.database_url} | line


def complain(said: str, expected: str | None = None) -> None:
    """Refuse a measurement during which a worker met trouble other than what was expected."""
    trouble = [line for line in said.splitlines() if "ERROR" in line or "WARNING" in line or "Traceback" in line]
    trouble = [line for line in trouble if expected is None or expected not in line]
    if trouble:
        raise RuntimeError("a worker met trouble:\n" + "\n".join(trouble[:5]))


async def enqueue(app: Demora, jobs: int) -> None:
    """So many jobs that do nothing, in batches."""
    for _ in range(jobs // BATCH):
        await app.enqueue_many([("bench.noop", PAYLOAD)] * BATCH)


async def all_ended(app: Demora) -> bool:
    [queue] = await (await app.open()).queues()
    return queue.ready + queue.processing == 0

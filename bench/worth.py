"""(v) What a line buys over PostgreSQL alone: the server's time for each job under load, and how often it is asked when
there is nothing to do."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg

from bench import counting
from bench.databases import Databases, LinedServers
from bench.stage import application, enqueue, producer, workers

WORKERS, IDLE = 4, 32
LOOK = 0.05  # seconds between two looks at whether all has ended
_LEFT = "select exists (select from demora.jobs where status < 3) or exists (select from demora.jobs where status = 3)"
_TICKS = os.sysconf("SC_CLK_TCK")


async def worth(on: LinedServers, jobs: int, seconds: float) -> dict[str, float]:
    """Everything with the line and without."""
    found: dict[str, float] = {}
    for where, databases in (("with the line", on), ("without", on.without_line())):
        rate, enqueued, drained, whole = await _load(databases, on.server.process.pid, jobs)
        found[f"drain, {WORKERS} workers, {where}"] = rate
        found[f"PostgreSQL CPU µs per job enqueued, {where}"] = 1e6 * enqueued / jobs
        found[f"PostgreSQL CPU µs per job drained, {where}"] = 1e6 * drained / jobs
        found[f"PostgreSQL CPU µs per job in all, {where}"] = 1e6 * whole / jobs
        found[f"statements per second, {IDLE} idle workers, {where}"] = await _idle(databases, seconds)
    return found


async def _load(on: Databases, server: int, jobs: int) -> tuple[float, float, float, float]:
    """Jobs per second, and the seconds of a core that the server takes to enqueue all, to drain all, and from the first
    to the last."""
    async with producer(on) as app:
        client = await app.open()
        await client.pause("default")
        before = cpu_seconds(server)
        await enqueue(app, jobs)
        enqueued = cpu_seconds(server)
        async with workers(app, WORKERS):
            began, ready = time.perf_counter(), cpu_seconds(server)
            await client.resume("default")
            await _until_ended(app.settings.database_url)
            rate, ended = jobs / (time.perf_counter() - began), cpu_seconds(server)
            return rate, enqueued - before, ended - ready, ended - before


async def _until_ended(url: str) -> None:
    """Wait for the end of all jobs: asked so that it takes next to nothing of the server's time."""
    connection = await asyncpg.connect(url)
    try:
        while await connection.fetchval(_LEFT):
            await asyncio.sleep(LOOK)
    finally:
        await connection.close()


async def _idle(on: Databases, seconds: float) -> float:
    """Statements per second of so many idle workers, each with a store of its own as in a process of its own."""
    with counting.statements() as counted:
        async with on.new() as url, AsyncExitStack() as stack:
            for _ in range(IDLE):
                app = await stack.enter_async_context(application(url, on.redis_url))
                await stack.enter_async_context(app.worker())
            await app.result((await app.enqueue("bench.stamp")).id, "60s")
            await asyncio.sleep(3)
            counted.clear()
            await asyncio.sleep(seconds)
            return counted["statements"] / seconds


def cpu_seconds(server: int) -> float:
    """What a server and all processes that it started have taken so far, also those that have ended."""
    of_ended = sum(_times(server)[2:])
    alive = [_times(pid) for pid in (server, *_children(server))]
    return (of_ended + sum(sum(times[:2]) for times in alive)) / _TICKS


def _children(server: int) -> Iterator[int]:
    for task in Path(f"/proc/{server}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())


def _times(pid: int) -> list[int]:
    """User and system time of a process, and of its children that have ended, in ticks."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11:15]]
    except (FileNotFoundError, ProcessLookupError):
        return [0, 0, 0, 0]

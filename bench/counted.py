"""(s) What statistics cost: drains with and without them in turns, so that both meet the same moods of the machine.

What disturbs a drain only makes it slower, so the best of each counts. What else runs on the machine disturbs the time that
the worker and the server take of the cores less than it disturbs the rate.
"""

import asyncio
import time
from pathlib import Path

import asyncpg

from bench.databases import Databases
from bench.stage import all_ended, enqueue, producer, workers
from bench.worth import cpu_seconds
from demora import Demora

TURNS = 3
WITH, WITHOUT = "bench.jobs:app", "bench.uncounted:app"


async def cost(on: Databases, jobs: int) -> dict[str, float]:
    rates, taken = await in_turns(on, jobs, WITH, WITHOUT)
    return {
        "drain, counted": rates[WITH],
        "drain, uncounted": rates[WITHOUT],
        "drain, counted / uncounted": rates[WITH] / rates[WITHOUT],
        "CPU µs per job, counted": 1e6 * taken[WITH] / jobs,
        "CPU µs per job, uncounted": 1e6 * taken[WITHOUT] / jobs,
        "CPU, uncounted / counted": taken[WITHOUT] / taken[WITH],
    }


async def in_turns(on: Databases, jobs: int, one: str, other: str) -> tuple[dict[str, float], dict[str, float]]:
    """The best rate of a drain by workers with each of two applications, and the fewest seconds of a core that it took."""
    rates, taken = dict.fromkeys((one, other), 0.0), dict.fromkeys((one, other), float("inf"))
    for turn in range(TURNS):
        for handlers in (one, other) if turn % 2 else (other, one):
            rate, seconds = await _drain(on, jobs, handlers)
            rates[handlers], taken[handlers] = max(rates[handlers], rate), min(taken[handlers], seconds)
    return rates, taken


async def _drain(on: Databases, jobs: int, handlers: str) -> tuple[float, float]:
    """Jobs per second, and the seconds of a core that the worker and the server took."""
    async with producer(on) as app:
        await (await app.open()).pause("default")
        await enqueue(app, jobs)
        return await drained(app, jobs, handlers)


async def drained(app: Demora, jobs: int, handlers: str) -> tuple[float, float]:
    """The same for a queue that is full and paused."""
    async with workers(app, 1, handlers=handlers) as [worker]:
        pids = [worker.pid, *await _server(app.settings.database_url)]
        began, before = time.perf_counter(), sum(map(cpu_seconds, pids))
        await (await app.open()).resume("default")
        while not await all_ended(app):
            await asyncio.sleep(0.1)
        return jobs / (time.perf_counter() - began), sum(map(cpu_seconds, pids)) - before


async def _server(url: str) -> list[int]:
    """The first process of the PostgreSQL server, if there is one on this machine: the parent of every session's process."""
    if not url.startswith("postgresql"):
        return []
    connection = await asyncpg.connect(url)
    try:
        return [_parent_of(await connection.fetchval("select pg_backend_pid()"))]
    finally:
        await connection.close()


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition("PPid:")[2].split()[0])

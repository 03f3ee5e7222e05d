"""What only a line has: how soon it is filled again, what it takes of Redis's memory, and what is left without it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import redis.asyncio

from bench.databases import Databases, LinedServers
from bench.stage import BATCH, PAYLOAD, application, producer, workers
from demora import Demora
from demora.core.job import Lane
from demora.core.states import Status

HOUR, DAY = 3_600_000, 86_400_000  # milliseconds
BACKLOG = 10 * BATCH  # jobs that wait at most while throughput is measured
PATIENCE = 120.0  # seconds to wait for a line to be filled
AWAY = "the Redis line is unavailable"  # what a worker complains of while Redis is away
# Waiting jobs, evenly over some milliseconds; ids in the order of adding, as those of demora are.
_ROWS = """
insert into demora.jobs (id, type, queue, status, lane, rank, due_at, created_at, scheduled_at, max_retries, retry_delay,
                         token, payload)
select ($2::text || '000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'bench.noop', 'default', $5, $6, 2,
    due, due, due, 3, 1000, 0, '{"body":"x"}'
from (
    select n, (extract(epoch from now()) * 1000)::bigint + $3::bigint + n * $4::bigint / $1::int as due
    from generate_series(1, $1::int) as n
) as made
"""


async def refill(on: LinedServers, jobs: int) -> float:
    """(r) Seconds from FLUSHALL until so many due jobs stand in the line again."""
    async with on.new() as url:
        async with application(url):
            pass
        await add_rows(url, jobs, "01", after=-HOUR, over=HOUR, lane=Lane.REALTIME)
        async with application(url, on.redis_url), _asked(on) as client:
            await _filled(client, jobs)
            await client.flushall()
            began = time.perf_counter()
            await _filled(client, jobs)
            return time.perf_counter() - began


async def memory(on: LinedServers, jobs: int) -> dict[str, float]:
    """(m) What the line takes of Redis's memory for so many jobs due over 24 hours, and with as many more beyond."""
    async with on.new() as url, application(url, on.redis_url), _asked(on) as client:
        await _filled(client, 0)
        empty = await _used(client)
        await add_rows(url, jobs, "01", after=0, over=DAY, lane=Lane.SCHEDULED)
        first = await _refilled_memory(client)
        await add_rows(url, jobs, "02", after=HOUR, over=DAY, lane=Lane.SCHEDULED)
        second = await _refilled_memory(client)
    return {
        f"Redis MB for {jobs:,} jobs over 24 h": (first - empty) / 1e6,
        f"Redis MB with another {jobs:,} beyond the horizon": (second - empty) / 1e6,
    }


async def away(on: LinedServers, seconds: float) -> dict[str, float]:
    """(o) Jobs per second that are enqueued in batches and run, on PostgreSQL alone and while Redis answers nothing;
    PostgreSQL alone both before and after, since a machine has other moods each minute."""
    before = await _through(on.without_line(), seconds / 2)
    without = await _through(on, seconds, stop=on)
    alone = (before + await _through(on.without_line(), seconds / 2)) / 2
    return {
        "through PostgreSQL alone": alone,
        f"through with Redis away for {seconds:g} s": without,
        "through with Redis away / alone": without / alone,
    }


async def _through(on: Databases, seconds: float, stop: LinedServers | None = None) -> float:
    async with producer(on) as app, workers(app, 1, expected=AWAY if stop else None):
        warm, until = await _feed(app, time.perf_counter() + 2), time.perf_counter() + seconds
        before = warm - await _waiting(app)
        began = time.perf_counter()
        if stop:
            stop.line.pause()
        try:
            fed = warm + await _feed(app, until)
            ended = fed - await _waiting(app)
            return (ended - before) / (time.perf_counter() - began)
        finally:
            if stop:
                stop.line.go_on()


async def _feed(app: Demora, until: float) -> int:
    """Enqueue in batches, and never have more than a backlog wait; answers with how many."""
    fed = 0
    while time.perf_counter() < until:
        if await _waiting(app) < BACKLOG:
            await app.enqueue_many([("bench.noop", PAYLOAD)] * BATCH)
            fed += BATCH
        else:
            await asyncio.sleep(0.02)
    return fed


async def _waiting(app: Demora) -> int:
    queues = await (await app.open()).queues()
    return sum(queue.ready + queue.processing for queue in queues)


async def add_rows(url: str, jobs: int, prefix: str, *, after: int, over: int, lane: Lane) -> None:
    """Make waiting jobs in the database: it is the line that is measured, not how they came."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("insert into demora.queues (name) values ('default') on conflict do nothing")
        await connection.execute(_ROWS, jobs, prefix, after, over, Status.QUEUED.value, lane.value)
        await connection.execute("vacuum analyze demora.jobs")
    finally:
        await connection.close()


async def _refilled_memory(client: redis.asyncio.Redis) -> int:
    await client.flushall()
    await _filled(client, 1)
    return await _used(client)


async def _filled(client: redis.asyncio.Redis, jobs: int) -> None:
    """Wait until the line says that it is filled, and so many jobs stand in it."""
    until = time.perf_counter() + PATIENCE
    while not (await _says_filled(client) and await _standing(client) >= jobs):
        if time.perf_counter() > until:
            raise RuntimeError(f"the line was not filled within {PATIENCE:g} s")
        await asyncio.sleep(0.02)


async def _says_filled(client: redis.asyncio.Redis) -> bool:
    states = [await client.hmget(key, "epoch", "filled") for key in await client.keys("demora:*:state")]
    return any(epoch is not None and epoch == filled for epoch, filled in states)


async def _standing(client: redis.asyncio.Redis) -> int:
    keys = [key async for key in client.scan_iter("demora:*", _type="zset")]
    return sum([await client.zcard(key) for key in keys])


async def _used(client: redis.asyncio.Redis) -> int:
    return int((await client.info("memory"))["used_memory"])


@asynccontextmanager
async def _asked(on: LinedServers) -> AsyncIterator[redis.asyncio.Redis]:
    async with redis.asyncio.from_url(on.line.url, decode_responses=True) as client:
        yield client

"""(y) What a claim costs beside jobs that its worker cannot run, and beside many queue names; what it costs to claim by
type; and how long `GET /api/v1/stats` takes beside the same jobs."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

from bench import counted, http
from bench.databases import Databases
from bench.million import CLAIMS, HUNDRED_BYTES, ROOM
from bench.stage import producer
from demora import Demora
from demora.store.jobs import ClaimRequest

UNKNOWN, FOREIGN, NAMES = 100_000, 1_000_000, 100_000  # jobs of unknown types, of other workers' types, and queue names
PIECE = 5000
FRESH, SHARED = 20, 1000  # requests for a count of the jobs: for a new one, and for the one that callers share
TYPED, UNTYPED = "bench.jobs:app", "bench.untyped:app"
_KNOWN, _OTHERS = frozenset({"bench.bytes"}), frozenset({"bench.other"})
_LEASE = timedelta(seconds=30)


async def strangers(on: Databases, share: float) -> dict[str, float]:
    """The median of directly timed claims of 100 ready jobs, on an empty database and beside each kind of burden, turn by
    turn. Jobs of other types stand at the head when the first claim meets them; how fast claims park them is a figure too.
    """
    async with AsyncExitStack() as stack:
        alone, unknown, foreign, named = [await stack.enter_async_context(producer(on)) for _ in range(4)]
        await _fill(unknown, int(UNKNOWN * share), lambda n: ("nobody.knows", HUNDRED_BYTES))
        await _fill(foreign, int(FOREIGN * share), lambda n: ("bench.other", HUNDRED_BYTES))
        await _fill(named, int(NAMES * share), lambda n: ("bench.bytes", HUNDRED_BYTES, {"queue": f"q{n}", "delay": "1d"}))
        parked = [await _park(app) for app in (unknown, foreign)]
        apps = (alone, unknown, foreign, named)
        rounds = [[await _claim(app, _KNOWN) for app in apps] for _ in range(CLAIMS)]
        theirs = [await _claim(foreign, _OTHERS, add=False) for _ in range(min(CLAIMS, int(FOREIGN * share) // ROOM))]
        counting = await _count(foreign)
    usual, beside_unknown, beside_foreign, beside_names = (statistics.median(times) for times in zip(*rounds, strict=True))
    return {
        "claim of 100, ms": 1000 * usual,
        "claim beside unknown types / none": beside_unknown / usual,
        "claim beside others' types / none": beside_foreign / usual,
        "claim of parked jobs / none": statistics.median(theirs) / usual,
        "claim beside many queue names / none": beside_names / usual,
        "parked per second": int((UNKNOWN + FOREIGN) * share) / sum(parked),
        **counting,
    }


async def cost(on: Databases, jobs: int) -> dict[str, float]:
    """What it costs a drain that its worker names its types, as each worker does."""
    rates, taken = await counted.in_turns(on, jobs, TYPED, UNTYPED)
    return {
        "drain, with types / without": rates[TYPED] / rates[UNTYPED],
        "CPU, without types / with": taken[UNTYPED] / taken[TYPED],
    }


async def _count(app: Demora) -> dict[str, float]:
    """The milliseconds that a service takes to answer how many jobs there are: counted for the request (the median),
    and from the count that callers share (p99)."""
    async with http.service(app.settings.database_url, app.settings.redis_url) as port:
        fresh = await http.answer_times(port, "/api/v1/stats?fresh=true", FRESH)
        shared = await http.answer_times(port, "/api/v1/stats", SHARED)
    return {
        "stats, fresh, ms": 1000 * statistics.median(fresh),
        "stats, shared, p99 ms": 1000 * shared[SHARED * 99 // 100],
    }


async def _fill(app: Demora, jobs: int, make: Any) -> None:
    for begin in range(0, jobs, PIECE):
        piece: Sequence[Any] = [make(n) for n in range(begin, min(begin + PIECE, jobs))]
        await app.enqueue_many(piece)


async def _park(app: Demora) -> float:
    """Seconds that claims take until they have parked all jobs of other types."""
    store, began = (await app.open()).store, time.perf_counter()
    while (await store.claim(ClaimRequest("bench", ROOM, lease=_LEASE, types=_KNOWN))).parked:
        pass
    return time.perf_counter() - began


async def _claim(app: Demora, types: frozenset[str], *, add: bool = True) -> float:
    """Seconds that one claim of 100 takes, as a worker calls it."""
    if add:
        await app.enqueue_many([("bench.bytes", HUNDRED_BYTES)] * ROOM)
    store = (await app.open()).store
    await asyncio.sleep(0)
    began = time.perf_counter()
    claimed = await store.claim(ClaimRequest("bench", ROOM, lease=_LEASE, types=types))
    took = time.perf_counter() - began
    assert len(claimed.jobs) == ROOM
    return took

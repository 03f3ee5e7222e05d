"""(y) What a claim costs beside jobs that its worker cannot run, and beside many queue names."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

from bench.databases import Databases
from bench.million import CLAIMS, HUNDRED_BYTES, ROOM
from bench.stage import producer
from demora import Demora
from demora.store.jobs import ClaimRequest

UNKNOWN, FOREIGN, NAMES = 100_000, 1_000_000, 100_000  # jobs of unknown types, of other workers' types, and queue names
PIECE = 5000
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
    usual, beside_unknown, beside_foreign, beside_names = (statistics.median(times) for times in zip(*rounds, strict=True))
    return {
        "claim of 100, ms": 1000 * usual,
        "claim beside unknown types / none": beside_unknown / usual,
        "claim beside others' types / none": beside_foreign / usual,
        "claim of parked jobs / none": statistics.median(theirs) / usual,
        "claim beside many queue names / none": beside_names / usual,
        "parked per second": int((UNKNOWN + FOREIGN) * share) / sum(parked),
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

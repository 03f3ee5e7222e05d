"""(g) A million delayed jobs: what they cost the claim, and what they cost on disk."""

import asyncio
import random
import statistics
import tempfile
import time
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path

from bench.stage import application
from demora import Demora
from demora.store.jobs import ClaimRequest

ROOM, CLAIMS = 100, 40
HUNDRED_BYTES = {"body": "x" * 89}  # as JSON
_LEASE = timedelta(seconds=30)


async def million(delayed: int) -> dict[str, float]:
    """The median of directly timed claims of 100 ready jobs, with none waiting and beside so many delayed ones, turn by
    turn; and the bytes of the file for each delayed job, without those of an empty file."""
    with tempfile.TemporaryDirectory() as folder:
        empty, full = Path(folder) / "empty.db", Path(folder) / "full.db"
        await _fill(empty, 0)
        await _fill(full, delayed)
        size = (full.stat().st_size - empty.stat().st_size) / delayed
        async with _application(empty) as alone, _application(full) as beside:
            pairs = [(await claim(alone), await claim(beside)) for _ in range(CLAIMS)]
    usual, laden = (1000 * statistics.median(times) for times in zip(*pairs, strict=True))
    return {
        "claim of 100, none waiting, ms": usual,
        "claim of 100 beside a million, ms": laden,
        "claim beside a million / none": laden / usual,
        "file bytes per job": size,
    }


async def _fill(file: Path, delayed: int) -> None:
    """Enqueue jobs due in a day and later, and close the file, which moves everything from the log into it."""
    async with _application(file) as app:
        for _ in range(delayed // 5000):
            later = [{"delay": timedelta(days=1, seconds=random.uniform(0, 86_400))} for _ in range(5000)]
            await app.enqueue_many([("bench.bytes", HUNDRED_BYTES, options) for options in later])


def _application(file: Path) -> AbstractAsyncContextManager[Demora]:
    return application(f"sqlite:///{file}")


async def claim(app: Demora) -> float:
    """Seconds that one claim of 100 takes, as a worker calls it."""
    await app.enqueue_many([("bench.bytes", HUNDRED_BYTES)] * ROOM)
    store = (await app.open()).store
    await asyncio.sleep(0)
    began = time.perf_counter()
    claimed = await store.claim(ClaimRequest("bench", ROOM, lease=_LEASE))
    took = time.perf_counter() - began
    assert len(claimed.jobs) == ROOM
    return took

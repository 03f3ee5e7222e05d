"""(f) A flood: many jobs due at one instant, and real-time jobs that come one by one while it drains.

Both are in the queue `default`, with the same priority, and one worker process runs them all.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta

from bench.databases import Databases
from bench.stage import BATCH, PAYLOAD, Wait, producer, workers
from demora import Demora

EACH = 0.005  # seconds from one real-time job to the next
ENOUGH = 1000  # real-time jobs that must be sent before the flood has ended


async def flood(on: Databases, jobs: int) -> tuple[float, list[Wait]]:
    """Jobs per second of the flood, from its due time to its last end; and of each real-time job that was sent while it
    drained the wait from the return of enqueue to the handler's first line."""
    async with producer(on) as app, workers(app, 1):
        first, last, due = await _gather(app, jobs)
        while (await app.get(first)).status.waiting:
            await asyncio.sleep(0.005)
        sent = await _trickle(app, last[-1])
        ended = max([(await app.wait(id)).completed_at or due for id in last])
        counted = [(id, returned) for id, returned in sent if returned < ended.timestamp()]
        waits = [(returned, (await app.result(id, "60s"))["now"]) for id, returned in counted]
        if len(waits) < ENOUGH:
            raise RuntimeError(f"only {len(waits)} real-time jobs were sent before the flood's end; it must be larger")
        return jobs / (ended - due).total_seconds(), waits


async def _gather(app: Demora, jobs: int) -> tuple[str, list[str], datetime]:
    """Enqueue the flood; answers with its first job, its last ones and its due time, which is still to come."""
    began = time.perf_counter()
    await _enqueue(app, 4 * BATCH, datetime.now(UTC) + timedelta(days=1))
    takes = (time.perf_counter() - began) * jobs / (4 * BATCH)
    due = datetime.now(UTC) + timedelta(seconds=1 + 2 * takes)
    ids = await _enqueue(app, jobs, due)
    if datetime.now(UTC) > due:
        raise RuntimeError("the flood was due before it was gathered: this machine is too busy to measure it")
    return ids[0], ids[-100:], due


async def _enqueue(app: Demora, jobs: int, due: datetime) -> list[str]:
    batches = [await app.enqueue_many([("bench.noop", PAYLOAD, {"at": due})] * BATCH) for _ in range(jobs // BATCH)]
    return [job.id for batch in batches for job in batch]


async def _trickle(app: Demora, last: str) -> list[tuple[str, float]]:
    """Send a real-time job every so often until the flood has ended; answers with each and when its enqueue returned."""
    sent: list[tuple[str, float]] = []
    began = time.perf_counter()
    async with asyncio.TaskGroup() as sending:
        for n in range(1, 2**31):
            sending.create_task(_send(app, sent))
            if n % 10 == 0 and (await app.get(last)).status.ended:
                break
            await asyncio.sleep(began + n * EACH - time.perf_counter())
    return sent


async def _send(app: Demora, sent: list[tuple[str, float]]) -> None:
    job = await app.enqueue("bench.stamp")
    sent.append((job.id, time.time()))

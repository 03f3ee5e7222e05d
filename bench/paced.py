"""(p) A paced flood: many jobs due at one instant in a paced queue, and real-time jobs that come one by one meanwhile.

All are in the queue `default`, with the same priority; one worker process runs them. Beside it the same without a pace.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta

from bench.databases import Databases
from bench.stage import BATCH, PAYLOAD, Wait, producer, workers
from demora import Demora
from demora.core.job import Lane
from demora.core.pace import Pace
from demora.core.spans import to_ms

FLOOD = 20_000
PACE = Pace(gap=timedelta(seconds=1), burst=100, stagger=timedelta(milliseconds=10), rapid=None)
EACH, LASTS = 0.005, 10.0  # seconds from one real-time job to the next, and for which they come


async def paced_flood(on: Databases, pace: Pace | None) -> tuple[list[Wait], list[int]]:
    """Of each real-time job the wait from the return of enqueue to the handler's first line; and of each delayed job that
    was let go the milliseconds from the due time to its slot."""
    async with producer(on) as app:
        if pace is not None:
            await (await app.open()).set_pace("default", pace)
        due = datetime.now(UTC) + timedelta(seconds=6)
        for _ in range(FLOOD // BATCH):
            await app.enqueue_many([("bench.noop", PAYLOAD, {"at": due})] * BATCH)
        async with workers(app, 1):
            left = (due - datetime.now(UTC)).total_seconds()
            if left < 0:
                raise RuntimeError("the flood was due before it was gathered: this machine is too busy to measure it")
            await asyncio.sleep(left)
            sent = await _trickle(app)
            waits = [(returned, (await app.result(id, "120s"))["now"]) for id, returned in sent]
        return waits, await _slots(app, to_ms(due)) if pace is not None else []


def judged(slots: list[int]) -> tuple[int, int]:
    """How many slots were used, and how many differ from those of the pace: left out, used twice, or none of its own."""
    stagger, gap = PACE.rate(quiet=False).apart // timedelta(milliseconds=1), PACE.gap // timedelta(milliseconds=1)
    oracle = [n // PACE.burst * gap + n % PACE.burst * stagger for n in range(len(slots))]
    return len(slots), sum(slot != right for slot, right in zip(sorted(slots), oracle, strict=True))


async def _trickle(app: Demora) -> list[tuple[str, float]]:
    """Send a real-time job every so often; answers with each and when its enqueue returned."""
    sent: list[tuple[str, float]] = []
    began = time.perf_counter()
    async with asyncio.TaskGroup() as sending:
        for n in range(1, int(LASTS / EACH) + 1):
            sending.create_task(_send(app, sent))
            await asyncio.sleep(began + n * EACH - time.perf_counter())
    return sent


async def _send(app: Demora, sent: list[tuple[str, float]]) -> None:
    job = await app.enqueue("bench.stamp")
    sent.append((job.id, time.time()))


async def _slots(app: Demora, due: int) -> list[int]:
    slots, after = list[int](), None
    while True:
        page = await app.find(type="bench.noop", limit=200, after=after)
        slots += [to_ms(job.due_at) - due for job in page.jobs if job.lane is Lane.RELEASED]
        after = page.next
        if after is None:
            return slots

"""SAQ on Redis. It takes due times in whole seconds."""

import math
import os
from collections.abc import Sequence
from typing import Any

from saq import Queue

from bench.rivals import notes, sending

queue = Queue.from_url(os.environ["DEMORA_BENCH_PLACE"])


async def noop(ctx: Any, *, to: str, subject: str, body: str) -> dict[str, bool]:
    notes.ran()
    return {"ok": True}


async def stamp(ctx: Any, *, due: float) -> None:
    notes.ran_late(due)


settings = {"queue": queue, "functions": [noop, stamp]}


async def now(jobs: int) -> None:
    for _ in range(jobs):
        await queue.enqueue("noop", **sending.PAYLOAD)
    await queue.disconnect()


async def later(dues: Sequence[float]) -> None:
    for due in map(math.ceil, dues):
        await queue.enqueue("stamp", due=due, scheduled=due)
    await queue.disconnect()

"""Dramatiq with Redis as its broker and no result backend, as it is by default."""

import os
import time
from collections.abc import Sequence

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.rivals import notes, sending

dramatiq.set_broker(RedisBroker(url=os.environ["DEMORA_BENCH_PLACE"]))


@dramatiq.actor
def noop(to: str, subject: str, body: str) -> None:
    notes.ran()


@dramatiq.actor
def stamp(due: float) -> None:
    notes.ran_late(due)


async def now(jobs: int) -> None:
    for _ in range(jobs):
        noop.send(**sending.PAYLOAD)


async def later(dues: Sequence[float]) -> None:
    for due in dues:
        stamp.send_with_options(args=(due,), delay=round(1000 * (due - time.time())))

"""Celery with Redis as its broker and no result backend, as it is by default."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime

from celery import Celery

from bench.rivals import notes, sending

app = Celery("bench.rivals.celery", broker=os.environ["DEMORA_BENCH_PLACE"])


@app.task(name="noop")
def noop(to: str, subject: str, body: str) -> dict[str, bool]:
    notes.ran()
    return {"ok": True}


@app.task(name="stamp")
def stamp(due: float) -> None:
    notes.ran_late(due)


async def now(jobs: int) -> None:
    for _ in range(jobs):
        noop.delay(**sending.PAYLOAD)


async def later(dues: Sequence[float]) -> None:
    for due in dues:
        stamp.apply_async((due,), eta=datetime.fromtimestamp(due, UTC))

"""Huey on a SQLite file with durable writes, or on Redis; results are stored, as they are by default."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime

from huey import RedisHuey, SqliteHuey

from bench.rivals import notes, sending

_place = os.environ["DEMORA_BENCH_PLACE"]
huey = RedisHuey(url=_place) if _place.startswith("redis://") else SqliteHuey(filename=_place, fsync=True)


@huey.task()
def noop(to: str, subject: str, body: str) -> dict[str, bool]:
    notes.ran()
    return {"ok": True}


@huey.task()
def stamp(due: float) -> None:
    notes.ran_late(due)


async def now(jobs: int) -> None:
    for _ in range(jobs):
        noop(**sending.PAYLOAD)


async def later(dues: Sequence[float]) -> None:
    for due in dues:
        stamp.schedule((due,), eta=datetime.fromtimestamp(due, UTC))

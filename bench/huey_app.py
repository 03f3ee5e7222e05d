"""Huey's side of the comparison; its file, or its Redis, is named by the environment."""

import os
import time

from huey import RedisHuey, SqliteHuey

PLACE = "DEMORA_BENCH_HUEY"
_place = os.environ[PLACE]
huey = RedisHuey(url=_place) if _place.startswith("redis://") else SqliteHuey(filename=_place, fsync=True)


@huey.task()
def noop(to: str, subject: str, body: str) -> dict[str, bool]:
    return {"ok": True}


@huey.task()
def stamp() -> float:
    return time.time()

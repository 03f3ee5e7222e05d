"""Huey's side of the comparison; its file is named by the environment."""

import os
import time

from huey import SqliteHuey

FILE = "DEMORA_BENCH_HUEY"
huey = SqliteHuey(filename=os.environ[FILE], fsync=True)


@huey.task()
def noop(to: str, subject: str, body: str) -> dict[str, bool]:
    return {"ok": True}


@huey.task()
def stamp() -> float:
    return time.time()

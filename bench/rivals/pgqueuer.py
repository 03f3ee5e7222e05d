"""PgQueuer on PostgreSQL, with asyncpg. `python -m bench.rivals.pgqueuer [BATCH_SIZE]` is its worker.

The worker is started with `pgqueuer.run`: the command `pgq run` of 1.6.0 fails at its log level with Typer 0.29.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
from pgqueuer import AsyncpgDriver, Job, PgQueuer, Queries, run

from bench.rivals import notes, sending

_PAYLOAD = json.dumps(sending.PAYLOAD).encode()


@asynccontextmanager
async def worker() -> AsyncIterator[PgQueuer]:
    async with _connected() as driver:
        queuer = PgQueuer(driver)

        @queuer.entrypoint("noop")
        async def noop(job: Job) -> None:
            json.loads(job.payload or b"")
            notes.ran()

        @queuer.entrypoint("stamp")
        async def stamp(job: Job) -> None:
            notes.ran_late(json.loads(job.payload or b""))

        yield queuer


async def now(jobs: int) -> None:
    async with _connected() as driver:
        await Queries(driver).enqueue(["noop"] * jobs, [_PAYLOAD] * jobs, [0] * jobs)


async def later(dues: Sequence[float]) -> None:
    async with _connected() as driver:
        after = [timedelta(seconds=due - time.time()) for due in dues]
        await Queries(driver).enqueue(["stamp"] * len(dues), [b"%f" % due for due in dues], [0] * len(dues), after)


@asynccontextmanager
async def _connected() -> AsyncIterator[AsyncpgDriver]:
    connection = await asyncpg.connect(os.environ["DEMORA_BENCH_PLACE"])
    try:
        yield AsyncpgDriver(connection)
    finally:
        await connection.close()


if __name__ == "__main__":
    asked = {"batch_size": int(sys.argv[1])} if len(sys.argv) > 1 else {}
    asyncio.run(run(worker, **asked))

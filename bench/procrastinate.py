"""A rival on PostgreSQL: Procrastinate, run as its own documentation says, on the same server and in the same run.

python -m bench.procrastinate JOBS   enqueues so many jobs, starts its worker, prints the jobs per second

Its worker runs one job at a time unless told otherwise; here it is told to run as many as demora's worker does.
"""

import asyncio
import sys
import time

from bench import rivals
from bench.databases import Databases
from bench.stage import PAYLOAD

_WORKER = ("procrastinate", "--app", "bench.procrastinate_app.app", "worker", "--concurrency", "20")


async def drain(on: Databases, jobs: int) -> float:
    """Jobs per second of one worker process, from its first finished job to its last."""
    async with on.new() as url:
        return float(await asyncio.to_thread(rivals.asked, "procrastinate", "DEMORA_BENCH_PROCRASTINATE", url, str(jobs)))


async def _drain(jobs: int) -> float:
    from bench.procrastinate_app import app, noop

    async def done() -> int:
        return sum(queue["succeeded"] for queue in await app.job_manager.list_queues_async())

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await noop.batch_defer_async(*[PAYLOAD] * jobs)
        with rivals.worker(*_WORKER):
            while not (first := await done()):
                await asyncio.sleep(0.005)
            began = time.perf_counter()
            while await done() < jobs:
                await asyncio.sleep(0.03)
            return (jobs - first) / (time.perf_counter() - began)


if __name__ == "__main__":
    print(asyncio.run(_drain(int(sys.argv[1]))))

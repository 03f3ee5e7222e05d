"""(i) Many processes on one file: half of them enqueue, one job after the other, the other half are workers.

python -m bench.crowd JOBS     enqueues so many jobs after a line on stdin, in the file that DEMORA_DATABASE_URL names
"""

import asyncio
import sys
import time
from subprocess import PIPE
from typing import Any

from bench.databases import Databases
from bench.stage import PAYLOAD, all_ended, environment, producer, workers
from demora import Demora


async def crowd(on: Databases, jobs: int, pairs: int) -> float:
    """Jobs per second through so many producers and as many workers, from the first enqueue to the last end.

    Refuses a run in which anybody met a locked file.
    """
    async with producer(on) as app, workers(app, pairs):
        producers = [await _producer(app, jobs // pairs) for _ in range(pairs)]
        for process in producers:
            await process.stdout.readline()
        began = time.perf_counter()
        said = await asyncio.gather(*(process.communicate(b"go\n") for process in producers))
        if any(process.returncode for process in producers):
            raise RuntimeError("a producer met trouble: " + b"".join(error for _, error in said).decode()[-500:])
        while not await all_ended(app):
            await asyncio.sleep(0.03)
        return jobs / (time.perf_counter() - began)


async def _producer(app: Demora, jobs: int) -> Any:
    command = [sys.executable, "-m", "bench.crowd", str(jobs)]
    pipes = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}
    return await asyncio.create_subprocess_exec(*command, env=environment(app), **pipes)


async def _produce(jobs: int) -> None:
    async with Demora() as app:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for _ in range(jobs):
            await app.enqueue("bench.noop", PAYLOAD)


if __name__ == "__main__":
    asyncio.run(_produce(int(sys.argv[1])))

"""A rival on Redis: SAQ, run as its own documentation says, on the same server and in the same run.

python -m bench.saq JOBS   enqueues so many jobs, starts its worker, prints the jobs per second
"""

import asyncio
import sys
import time

from bench import rivals
from bench.stage import PAYLOAD


def drain(url: str, jobs: int) -> float:
    """Jobs per second of one worker process, from its first finished jobs to its last."""
    return float(rivals.asked("saq", "DEMORA_BENCH_SAQ", url, str(jobs)))


async def _drain(jobs: int) -> float:
    from bench.saq_app import queue

    for _ in range(jobs):
        await queue.enqueue("noop", **PAYLOAD)
    with rivals.worker("saq", "bench.saq_app.settings"):
        while (left := await queue.count("incomplete")) == jobs:
            await asyncio.sleep(0.001)
        began = time.perf_counter()
        while await queue.count("incomplete"):
            await asyncio.sleep(0.005)
        took = time.perf_counter() - began
    await queue.disconnect()
    return left / took


if __name__ == "__main__":
    print(asyncio.run(_drain(int(sys.argv[1]))))

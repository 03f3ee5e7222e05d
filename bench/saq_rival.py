"""A rival on Redis: SAQ, run as its own documentation says, on the same server and in the same run.

python -m bench.saq_rival JOBS   enqueues so many jobs, starts its worker, prints the jobs per second
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator

from bench.stage import PAYLOAD


def drain(url: str, jobs: int) -> float:
    """Jobs per second of one worker process, from its first finished jobs to its last."""
    run = [sys.executable, "-m", "bench.saq_rival", str(jobs)]
    ended = subprocess.run(run, env=os.environ | {"DEMORA_BENCH_SAQ": url}, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError("SAQ failed: " + ended.stderr.strip().rpartition("\n")[2])
    return float(ended.stdout)


async def _drain(jobs: int) -> float:
    from bench.saq_app import queue

    for _ in range(jobs):
        await queue.enqueue("noop", **PAYLOAD)
    with _worker():
        while (left := await queue.count("incomplete")) == jobs:
            await asyncio.sleep(0.001)
        began = time.perf_counter()
        while await queue.count("incomplete"):
            await asyncio.sleep(0.005)
        took = time.perf_counter() - began
    await queue.disconnect()
    return left / took


@contextlib.contextmanager
def _worker() -> Iterator[None]:
    worker = subprocess.Popen([sys.executable, "-m", "saq", "bench.saq_app.settings"], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        worker.terminate()
        worker.wait()


if __name__ == "__main__":
    print(asyncio.run(_drain(int(sys.argv[1]))))

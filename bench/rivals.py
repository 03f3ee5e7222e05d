"""Rivals, run as their own documentation says, on the same disk and in the same run.

python -m bench.rivals JOBS      enqueues so many jobs to Huey, starts its consumer, prints the jobs per second
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def huey_drain(jobs: int) -> float:
    """Jobs per second of one Huey consumer on SQLite, with durable writes and results stored."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"DEMORA_BENCH_HUEY": str(Path(folder) / "huey.db")}
        run = [sys.executable, "-m", "bench.rivals", str(jobs)]
        return float(subprocess.run(run, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main() -> None:
    from bench.huey_app import huey, noop

    jobs = int(sys.argv[1])
    for _ in range(jobs):
        noop(to="user@example.com", subject="hello there", body="x" * 48)
    consumer = subprocess.Popen([sys.executable, "-m", "huey.bin.huey_consumer", "bench.huey_app.huey", "-w", "1", "-q"])
    try:
        while huey.pending_count() == jobs:
            time.sleep(0.001)
        began, left = time.perf_counter(), huey.pending_count()
        while huey.pending_count():
            time.sleep(0.005)
        print(left / (time.perf_counter() - began))
    finally:
        consumer.terminate()
        consumer.wait()


if __name__ == "__main__":
    main()

"""Huey, run as its own documentation says, on the same disk or Redis and in the same run.

python -m bench.huey drain JOBS    enqueues so many jobs to Huey, starts its consumer, prints the jobs per second
python -m bench.huey flood JOBS    as (f) for demora: prints the seconds that each real-time task waited
"""

import json
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench import rivals
from bench.stage import PAYLOAD

_PLACE = "DEMORA_BENCH_HUEY"
_WORKER = ("huey.bin.huey_consumer", "bench.huey_app.huey", "-w", "1", "-q")
_EACH = 0.05  # seconds from one real-time task to the next: as many as this consumer can run beside the flood


def drain(jobs: int) -> float:
    """Jobs per second of one Huey consumer on SQLite, with durable writes and results stored."""
    return float(_ask("drain", jobs))


def drain_on_redis(url: str, jobs: int) -> float:
    """Jobs per second of one Huey consumer on Redis, with results stored."""
    return float(rivals.asked("huey", _PLACE, url, "drain", str(jobs)))


def flood(jobs: int) -> list[float]:
    """Seconds from the return of enqueue to the task's first line, for tasks sent while a flood of scheduled ones drains."""
    waits: list[float] = _ask("flood", jobs)
    return waits


def _ask(what: str, jobs: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return rivals.asked("huey", _PLACE, str(Path(folder) / "huey.db"), what, str(jobs))


def _drain(jobs: int) -> float:
    from bench.huey_app import huey, noop

    for _ in range(jobs):
        noop(**PAYLOAD)
    with rivals.worker(*_WORKER):
        while huey.pending_count() == jobs:
            time.sleep(0.001)
        began, left = time.perf_counter(), huey.pending_count()
        while huey.pending_count():
            time.sleep(0.005)
        return left / (time.perf_counter() - began)


def _flood(jobs: int) -> list[float]:
    from bench.huey_app import huey, noop, stamp

    due = datetime.now(UTC) + timedelta(seconds=1 + jobs / 100)
    for _ in range(jobs):
        last = noop.schedule(kwargs=PAYLOAD, eta=due.replace(tzinfo=None))
    with rivals.worker(*_WORKER):
        while huey.scheduled_count():
            time.sleep(0.01)
        sent = []
        while last.get(preserve=True) is None:
            sent.append((stamp(), time.time()))
            time.sleep(_EACH)
        return [task.get(blocking=True) - returned for task, returned in sent]


if __name__ == "__main__":
    print(json.dumps({"drain": _drain, "flood": _flood}[sys.argv[1]](int(sys.argv[2]))))

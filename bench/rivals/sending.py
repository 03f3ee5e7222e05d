"""How every contestant in Python is asked to enqueue: `python -m bench.rivals.sending NAME drain JOBS`, or
`… NAME late JOBS SECONDS`.

Its module has two functions: `now` enqueues so many jobs that do nothing, `later` jobs that are due at these times, in
seconds since 1970.
"""

import asyncio
import importlib
import random
import sys
import time

PAYLOAD = {"to": "user@example.com", "subject": "hello there", "body": "x" * 48}
LEAD = 5.0  # seconds until the first delayed job is due: all are enqueued by then


def main(name: str, what: str, jobs: int, seconds: float = 0.0) -> None:
    side = importlib.import_module(f"bench.rivals.{name}")
    if what == "drain":
        asyncio.run(side.now(jobs))
    else:
        first = time.time() + LEAD
        asyncio.run(side.later([first + random.uniform(0, seconds) for _ in range(jobs)]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *map(float, sys.argv[4:]))

"""`python -m tests.fuzz --requests 1000000`: random requests, right and wrong, against a real service, which must answer
each with less than 500, stay healthy and not grow. `--database postgres+line` starts the servers that it needs.

Requests are drawn with a seed, which is printed; what is answered first depends on the machine, so a seed repeats the kind
of requests and not each of them. `--schema 3600` draws from the OpenAPI document for an hour, with schemathesis.
"""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.run import DATABASES, fuzz, served
from tests.fuzz.schema import explore

EXAMPLES = 50  # requests of each kind to each route, before others are drawn


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument(
        "--schema", type=float, metavar="SECONDS", help="draw from the OpenAPI document instead, for so many seconds"
    )
    parser.add_argument("--database", choices=DATABASES, default="sqlite")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    args = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="demora-fuzz-"))
    print(f"seed {args.seed}, {args.database}, in {folder}", flush=True)
    if args.schema is not None:
        return asyncio.run(_explore(args.database, args.schema, args.seed, folder))
    result = asyncio.run(fuzz(args.database, args.requests, args.seed, folder))
    for trouble in result.troubles:
        print(f"\n{trouble}")
    print(f"\n{result.told()}", flush=True)
    if result.troubles:
        return 1
    shutil.rmtree(folder)
    return 0


async def _explore(database: str, seconds: float, seed: int, folder: Path) -> int:
    async with served(database, folder) as service:
        urls = [f"http://127.0.0.1:{service.port}"]
        found = await asyncio.to_thread(explore, urls, examples=EXAMPLES, seconds=seconds, seed=seed)
    for trouble in found.troubles:
        print(f"\n{trouble}")
    print(f"\n{found.statuses.total():,} requests to {len(found.routes)} routes: {dict(found.statuses)}", flush=True)
    return 1 if found.troubles else 0


if __name__ == "__main__":
    sys.exit(main())

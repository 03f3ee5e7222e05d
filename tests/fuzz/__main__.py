"""`python -m tests.fuzz --requests 1000000`: random requests, right and wrong, against a real service, which must answer
each with less than 500, stay healthy and not grow. `--database postgres+line` starts the servers that it needs.

Requests are drawn with a seed, which is printed; what is answered first depends on the machine, so a seed repeats the kind
of requests and not each of them.
"""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.run import DATABASES, fuzz


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--database", choices=DATABASES, default="sqlite")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    args = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="demora-fuzz-"))
    print(f"seed {args.seed}, {args.database}, in {folder}", flush=True)
    result = asyncio.run(fuzz(args.database, args.requests, args.seed, folder))
    for trouble in result.troubles:
        print(f"\n{trouble}")
    print(f"\n{result.told()}", flush=True)
    if result.troubles:
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`make bench`: demora beside the floor of this machine and beside a rival, in one run.

    python -m bench [--rounds 5] [--jobs 20000] [--only a,a2,b,c,c2,d,e,f,g,h,i,k,l,n,p,s,t,w,x,y,z] [--json FILE]
    python -m bench --database sqlite+line [--only a,a2,b,c,c2,d,e,f,k,l,p,s,t,w,x,y,z]
    python -m bench --database postgres [--only a,a2,b,c,c2,d,e,f,h,j,k,l,n,p,s,t,w,x,y,z] [--share 0.1]
    python -m bench --database postgres+line [--only a,a2,b,c,c2,d,e,f,h,k,l,n,o,r,m,v,p,s,t,w,x,y,z] [--share 0.1]
    python -m bench --rivals [--rounds 3] [--jobs 5000] [--only huey,saq] [--write docs/explanation/comparison.md]

A figure is the median of the rounds in which it was taken, each on a new database; ratios compare what ran in the same
round. A wait in which the machine itself stood still, as watches on each core and on the disk have seen, tells of the host:
the percentiles leave it out, and beside them stand those of all waits, and how many were left out.

`--database postgres` starts a durable PostgreSQL of its own, with the settings it comes with; `--database postgresql://…`
uses a running one, on which it makes and drops databases; with `+line` a Valkey is started too.

`--rivals` compares demora with other queues instead; `bench/rivals/contest.py` says how.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import table
from bench.databases import Databases, LinedFiles, LinedServers, PostgresServer, SqliteFiles
from bench.figures import CASES, Round
from bench.rivals import contest
from bench.table import GOALS
from tests.servers import postgres, valkey
from tests.stalls import Stalls, watching


def main() -> None:
    args = _arguments()
    if args.rivals:
        contest.main(args.rounds, args.jobs, args.only, args.write)
        return
    with (
        _databases(args.database) as databases,
        tempfile.TemporaryDirectory() as folder,
        watching(Path(folder), disk=True) as stalls,
    ):
        _measure(args, databases, stalls)


def _measure(args: argparse.Namespace, databases: Databases, stalls: Stalls) -> None:
    rounds: dict[str, list[float]] = defaultdict(list)
    troubles: list[str] = []
    for number in range(1, args.rounds + 1):
        for what, value in _round(args, databases, stalls, number, troubles).items():
            rounds[what].append(value)
    report = {what: statistics.median(values) for what, values in rounds.items()}
    table.show(report, GOALS[args.kind])
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=1, default=float))
    sys.exit("\n".join(troubles) or None)


def _round(
    args: argparse.Namespace, databases: Databases, stalls: Stalls, number: int, troubles: list[str]
) -> dict[str, float]:
    here = Round(databases, args.jobs, args.share, stalls)
    for name, case in CASES[args.kind].items():
        if name not in args.only or number > case.rounds:
            continue
        print(f"{time.strftime('%X')} round {number} of {args.rounds}: ({name}) {case.title}", file=sys.stderr)
        try:
            case.measure(here)
        except RuntimeError as problem:
            troubles.append(f"({name}) could not be measured: {problem}")
    return here.figures


@contextmanager
def _databases(wanted: str) -> Iterator[Databases]:
    if wanted == "sqlite":
        yield SqliteFiles()
    elif wanted == "sqlite+line":
        with valkey.running() as line:
            yield LinedFiles(line)
    elif wanted == "postgres":
        with postgres.running() as server:
            yield PostgresServer(server.url)
    elif wanted == "postgres+line":
        with postgres.running() as server, valkey.running() as line:
            yield LinedServers(server, line)
    else:
        yield PostgresServer(wanted)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="of the quick cases; slow ones take fewer")
    parser.add_argument("--jobs", type=int, default=20_000, help="to enqueue in batches and to drain")
    parser.add_argument(
        "--database",
        default="sqlite",
        help="sqlite, sqlite+line, postgres or postgres+line (with servers of their own), or postgresql://…",
    )
    parser.add_argument("--only", help="cases, by letter")
    parser.add_argument(
        "--share",
        type=float,
        default=1.0,
        help="of the rows that (j), (l), (r), (m), (y), (z) make, of the schedules in (k), and of the minute in (o)",
    )
    parser.add_argument("--json", help="write the figures to this file too")
    parser.add_argument("--rivals", action="store_true", help="demora beside other queues; --only names some of them")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="with --rivals: put the table into this page")
    args = parser.parse_args()
    if args.rivals:
        return args
    kinds = {"sqlite": "sqlite", "sqlite+line": "lined file", "postgres+line": "line"}
    args.kind = kinds.get(args.database, "postgres")
    known = CASES[args.kind]
    args.only = set(args.only.split(",")) if args.only else set(known)
    if unknown := args.only - set(known):
        parser.error(f"there is no case {min(unknown)!r}; there are {', '.join(known)}")
    return args


if __name__ == "__main__":
    main()

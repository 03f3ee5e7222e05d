"""`make bench`: demora beside the floor of this machine and beside a rival, in one run.

    python -m bench [--rounds 5] [--jobs 20000] [--only a,b,c,c2,d,e,f,g,h,i,n] [--json FILE]

A figure is the median of the rounds in which it was taken, each on a new file; ratios compare what ran in the same round.
"""

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path

from bench import table
from bench.figures import CASES, Round


def main() -> None:
    args = _arguments()
    rounds: dict[str, list[float]] = defaultdict(list)
    troubles: list[str] = []
    for number in range(1, args.rounds + 1):
        for what, value in _round(args, number, troubles).items():
            rounds[what].append(value)
    report = {what: statistics.median(values) for what, values in rounds.items()}
    table.show(report)
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=1))
    sys.exit("\n".join(troubles) or None)


def _round(args: argparse.Namespace, number: int, troubles: list[str]) -> dict[str, float]:
    here = Round(args.jobs)
    for name, case in CASES.items():
        if name not in args.only or number > case.rounds:
            continue
        print(f"{time.strftime('%X')} round {number} of {args.rounds}: ({name}) {case.title}", file=sys.stderr)
        try:
            case.measure(here)
        except RuntimeError as problem:
            troubles.append(f"({name}) could not be measured: {problem}")
    return here.figures


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="of the quick cases; slow ones take fewer")
    parser.add_argument("--jobs", type=int, default=20_000, help="to enqueue in batches and to drain")
    parser.add_argument("--only", default=",".join(CASES), help="cases, by letter")
    parser.add_argument("--json", help="write the figures to this file too")
    args = parser.parse_args()
    args.only = set(args.only.split(","))
    if unknown := args.only - set(CASES):
        parser.error(f"there is no case {min(unknown)!r}; there are {', '.join(CASES)}")
    return args


if __name__ == "__main__":
    main()

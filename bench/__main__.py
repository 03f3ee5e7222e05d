"""`make bench`: demora beside the floor of this machine and beside a rival, in one run.

    python -m bench [--rounds 5] [--jobs 20000] [--only a,b,c,d,e] [--json FILE]

Every figure is the median of interleaved rounds, each on a new file; ratios compare what ran in the same round.
"""

import argparse
import asyncio
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench import cases, floor, rivals

HUEY_JOBS = 2000


def main() -> None:
    args = _arguments()
    rounds: dict[str, list[float]] = defaultdict(list)
    for number in range(1, args.rounds + 1):
        print(f"round {number} of {args.rounds}", file=sys.stderr)
        for name, value in _round(args).items():
            rounds[name].append(value)
    report = {name: statistics.median(values) for name, values in rounds.items()} | _once(args)
    _print(report)
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--only", default="a,b,c,d,e", help="cases, by letter")
    parser.add_argument("--json", help="write the figures to this file too")
    args = parser.parse_args()
    args.only = set(args.only.split(","))
    return args


def _round(args: argparse.Namespace) -> dict[str, float]:
    """One round of what is compared with the floor, the floor first."""
    found: dict[str, float] = {}
    if args.only & set("abc"):
        bare = asyncio.run(floor.measure(floor.Sqlite(), args.jobs))
        found = {f"floor {name}": value for name, value in bare.items()}
    if "a" in args.only:
        found["enqueue"] = asyncio.run(cases.enqueue_single())
        found["enqueue / floor"] = found["enqueue"] / found["floor single_insert"]
    if "b" in args.only:
        found["enqueue_many"] = asyncio.run(cases.enqueue_many(args.jobs))
        found["enqueue_many / floor"] = found["enqueue_many"] / found["floor batch_insert"]
    if "c" in args.only:
        found["drain"] = asyncio.run(cases.drain(args.jobs))
        found["drain / floor"] = found["drain"] / found["floor drain"]
        found["huey drain"] = rivals.huey_drain(HUEY_JOBS)
        found["drain / huey"] = found["drain"] / found["huey drain"]
    return found


def _once(args: argparse.Namespace) -> dict[str, float]:
    """What is not compared with the floor."""
    found: dict[str, float] = {}
    if "d" in args.only:
        found |= _spread("pick-up in process", asyncio.run(cases.pick_up_in_process(500)))
        found |= _spread("pick-up across processes", asyncio.run(cases.pick_up_across(500)))
        found["idle statements per second"] = asyncio.run(cases.idle_statements(30))
    if "e" in args.only:
        late = asyncio.run(cases.lateness(1000, 10))
        found |= _spread("lateness", late)
        found["early"] = float(sum(one < 0 for one in late))
    if args.only & set("abc"):
        found |= asyncio.run(cases.counts(5000))
    return found


def _spread(name: str, seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {f"{name} p50 ms": 1000 * ordered[len(ordered) // 2], f"{name} p99 ms": 1000 * ordered[len(ordered) * 99 // 100]}


GOALS: dict[str, tuple[str, float]] = {
    "enqueue / floor": ("≥", 0.70),
    "enqueue_many / floor": ("≥", 0.35),
    "drain / floor": ("≥", 0.35),
    "drain / huey": ("≥", 8),
    "pick-up in process p99 ms": ("≤", 5),
    "pick-up across processes p99 ms": ("≤", 30),
    "idle statements per second": ("≤", 1),
    "lateness p50 ms": ("≤", 2),
    "lateness p99 ms": ("≤", 8),
    "early": ("≤", 0),
}


def _print(report: dict[str, float]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("what", "figure", "goal", "")
    table.columns[1].justify = "right"
    for name, value in report.items():
        sign, goal = GOALS.get(name, ("", 0.0))
        table.add_row(name, _figure(value), f"{sign} {goal:g}" if sign else "", _mark(value, sign, goal))
    Console().print(table)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _mark(value: float, sign: Any, goal: float) -> str:
    if not sign:
        return ""
    return "met" if (value >= goal if sign == "≥" else value <= goal) else "missed"


if __name__ == "__main__":
    main()

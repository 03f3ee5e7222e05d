"""`python -m tests.schedules --zones all --years 2000-2050`: compares the fire times of cron expressions with those of an
oracle that walks the clock, in every zone and around every change of its clock. It takes about an hour on one core for all
zones; `--share 1/4` takes every fourth zone."""

import argparse
import sys
import time
from collections.abc import Sequence
from zoneinfo import available_timezones

from demora.core.schedules.wall_clock import OF_THE_MACHINE
from tests.schedules.compare import Difference, compare, windows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.schedules", description=__doc__)
    parser.add_argument("--zones", default="all", help="'all', or names with commas")
    parser.add_argument("--years", default="2000-2050", help="the first and the last year")
    parser.add_argument("--seed", type=int, default=0, help="which expressions are tried where")
    parser.add_argument("--share", default="1/1", help="1/4, 2/4, …: every fourth zone, from the first, the second, …")
    args = parser.parse_args(arguments)
    first, last = (int(year) for year in args.years.split("-"))
    part, parts = (int(number) for number in args.share.split("/"))
    zones = sorted(available_timezones() - OF_THE_MACHINE) if args.zones == "all" else args.zones.split(",")
    return run(zones[part - 1 :: parts], first, last, args.seed)


def run(zones: Sequence[str], first: int, last: int, seed: int) -> int:
    began, fire_times, looked, differences = time.monotonic(), 0, 0, 0
    for zone in zones:
        for window in windows(zone, first, last, seed=seed):
            looked += 1
            try:
                fire_times += compare(window)
            except Difference as difference:
                differences += 1
                print(difference, flush=True)
    print(
        f"{fire_times:,} fire times in {looked:,} windows of {len(zones)} zones, {first} to {last}, seed {seed}: "
        f"{differences} differences, {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())

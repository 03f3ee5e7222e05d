"""`make prove`: property tests with new random examples, simulations with new seeds, until the time is up; and all races.

Every command is printed before it runs, with its seed: the same command shows the same failure again. With `--report` a
failure does not fail the run: CI explores so, because a find says nothing about the change that was just tested.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

SEEDS = 20  # of one simulation campaign
JOBS = 100  # in each of them
LONGEST_SEED = 2**31


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.prove", description=__doc__)
    parser.add_argument("--seconds", type=float, default=180, help="begin nothing new after so long")
    parser.add_argument("--seed", type=int, help="the first seed, from which the others follow")
    parser.add_argument("--report", action="store_true", help="answer 0 whatever is found, and begin with any part")
    args = parser.parse_args()
    first = random.SystemRandom().randrange(LONGEST_SEED) if args.seed is None else args.seed
    print(f"seed {first}", flush=True)
    return report(args.seconds, random.Random(first)) if args.report else prove(args.seconds, random.Random(first))


def prove(seconds: float, chance: random.Random) -> int:
    """Run property tests and the simulations in turn, and once all races. The first round is always whole. Stops at the
    first failure."""
    until, rounds = time.monotonic() + seconds, 0
    while not rounds or time.monotonic() < until:
        for make in ROUND if rounds else (*ROUND, races):
            if rounds and time.monotonic() >= until:
                break
            if code := run(make(chance.randrange(LONGEST_SEED))):
                return code
        rounds += 1
    print(f"nothing found in {rounds} rounds", flush=True)
    return 0


def report(seconds: float, chance: random.Random) -> int:
    """Run the parts in a random order, begin none after the time is up, and print the commands that found something."""
    until, found, parts = time.monotonic() + seconds, list[str](), 0
    for make in chance.sample(ROUND, len(ROUND)):
        if time.monotonic() < until:
            command = make(chance.randrange(LONGEST_SEED))
            parts += 1
            if run(command):
                found.append(f"FOUND: DEMORA_TEST_PROFILE=explore python {' '.join(command)}")
    print("\n".join(found or [f"nothing found in {parts} of {len(ROUND)} parts"]), flush=True)
    return 0


def run(command: Sequence[str]) -> int:
    print(f"DEMORA_TEST_PROFILE=explore python {' '.join(command)}", flush=True)
    return subprocess.run(
        [sys.executable, *command], env=os.environ | {"DEMORA_TEST_PROFILE": "explore"}, check=False
    ).returncode


def properties(seed: int) -> list[str]:
    return ["-m", "pytest", "-q", "-m", "hypothesis", "-n", "2", f"--hypothesis-seed={seed}", "tests"]


def races(seed: int) -> list[str]:
    """All pairs of verbs in all situations; a seed changes nothing."""
    return ["-m", "pytest", "-q", "-n", "2", "tests/engines/postgres/test_races.py"]


def simulation(seed: int) -> list[str]:
    return ["-m", "tests.sim", "--small", "--first", str(seed), "--seeds", str(SEEDS), "--jobs", str(JOBS)]


def simulation_with_line(seed: int) -> list[str]:
    return [*simulation(seed), "--line"]


def calm_simulation(seed: int) -> list[str]:
    return [*simulation(seed), "--calm"]


ROUND: tuple[Callable[[int], list[str]], ...] = (properties, simulation, simulation_with_line, calm_simulation)

if __name__ == "__main__":
    sys.exit(main())

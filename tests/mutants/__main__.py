"""`make mutants`: plants each bug in a copy of the source, and says what catches it. Survivors fail the run."""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mutants import generated
from tests.mutants.foreign import FOREIGN
from tests.mutants.locks import LOCKS
from tests.mutants.planted import LINE_SIM, MUTANTS, SIM, Mutant
from tests.mutants.rooms import ROOMS
from tests.mutants.schedules import SCHEDULES

SOURCE = Path(__file__).parents[2] / "src" / "demora"
ROOT = SOURCE.parents[1]
SEEDS = 300


class Verdict(NamedTuple):
    mutant: Mutant
    caught_by: str | None
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    parser.add_argument("--after", type=int, default=0, help="leave out so many")
    generated.add_arguments(parser)
    args = parser.parse_args()
    if args.generated or args.collect:
        return generated.main(args)
    planted = (*MUTANTS, *FOREIGN, *LOCKS, *ROOMS, *SCHEDULES)
    chosen = [mutant for mutant in planted[args.after :] if args.only in mutant.name]
    with ThreadPoolExecutor(2) as pool:
        verdicts = [_show(verdict) for verdict in pool.map(judge, chosen)]
    survivors = [verdict for verdict in verdicts if verdict.caught_by is None]
    print(f"{len(verdicts)} mutants, {len(verdicts) - len(survivors)} caught, {len(survivors)} survived")
    return 1 if survivors else 0


def judge(mutant: Mutant) -> Verdict:
    """Plant the bug in a copy, and run what should catch it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "demora"
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        plant(mutant, copy)
        ways = mutant.caught_by.split(" or ")
        engine = "postgres" if "postgres" in mutant.file else "lined-sqlite" if mutant.name.startswith("line:") else "sqlite"
        caught = next((by for way in ways if (by := _catch(way, folder, engine)) is not None), None)
    return Verdict(mutant, caught, time.monotonic() - began)


def plant(mutant: Mutant, source: Path) -> None:
    path = source / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.name}: its text stands {text.count(mutant.old)} times in {mutant.file}, not once")
    path.write_text(text.replace(mutant.old, mutant.new))


def _catch(way: str, folder: str, engine: str) -> str | None:
    """What caught it, or None if it went unnoticed; the other engine's tests would only take time."""
    if way in (SIM, LINE_SIM):
        command = ["-m", "tests.sim", "--seeds", str(SEEDS), "--jobs", "100", "--processes", "1", "--small", "--first-bad"]
        command += ["--line"] if way == LINE_SIM else []
    else:
        command = [
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-m",
            "not timed and not campaign",
            *shlex.split(way),
        ]
    environment = os.environ | {"PYTHONPATH": folder, "DEMORA_TEST_ENGINE": engine}
    run = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if run.returncode in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
        return None
    marks = ("seed ", "FAILED ", "ERROR tests")
    return next((line[:110] for line in run.stdout.splitlines() if line.startswith(marks)), f"{way}: {run.stderr[-200:]}")


def _show(verdict: Verdict) -> Verdict:
    by = verdict.caught_by or "SURVIVED"
    print(f"{verdict.seconds:6.1f} s  {verdict.mutant.name}\n          {by}", flush=True)
    return verdict


if __name__ == "__main__":
    sys.exit(main())

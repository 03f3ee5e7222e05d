"""Tries bugs, planted and generated alike: each in a fork of a prepared process, against its tests, until one fails.

A run writes each verdict to a file as it is reached, and later runs continue from it.
"""

import argparse
import functools
import hashlib
import itertools
import math
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

from tests.mutants import nursery, verdicts
from tests.mutants.mutations import Mutation, Named
from tests.mutants.surroundings import around
from tests.mutants.verdicts import Verdict

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "demora"


class Stage(NamedTuple):
    """Tests to run at once, and on which set-up."""

    engine: str
    tests: Sequence[str]
    marks: str = nursery.QUICK
    names: str = ""


class Tried(NamedTuple):
    """The verdict on one bug, and how many seconds its tests computed."""

    verdict: Verdict
    seconds: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", help="bugs whose name contains this, also those that have a verdict")
    parser.add_argument("--verdicts", type=Path, help="the file of the verdicts; those in it are not tried again")
    parser.add_argument("--again", action="store_true", help="try those again that were not caught")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no other after this time")
    parser.add_argument("--limit", type=float, default=120, help="seconds of computing for each, then it is undecided (120)")
    parser.add_argument("--processes", type=int, default=2, help="bugs to try at a time (2)")


def verdicts_on(
    bugs: Sequence[Named],
    stages: Callable[[Named, dict[str, Verdict]], Iterable[Stage]],
    file: Path,
    args: argparse.Namespace,
    *,
    everything: Iterable[Named],
) -> dict[str, Verdict]:
    """Try the bugs that have no verdict in the file, and return all verdicts in it that hold, those on `everything`."""
    known = still_valid(verdicts.read(file), everything)
    verdicts.write(file, known)
    tried = {name for name, one in known.items() if one.verdict == "caught" or not args.again}
    waiting = ((one, list(stages(one, known))) for one in bugs if args.only or one.name not in tried)
    for done in _judged(waiting, args):
        known[done.verdict.name] = done.verdict
        print(f"{done.seconds:6.1f} s  {done.verdict.name} {done.verdict.verdict} {done.verdict.by}", flush=True)
        verdicts.note(file, done.verdict)
    verdicts.write(file, known)
    return known


def still_valid(known: dict[str, Verdict], everything: Iterable[Named]) -> dict[str, Verdict]:
    """Drop the verdicts on code that has changed since."""
    there = {named.name: named.mutation for named in everything}
    return {name: one for name, one in known.items() if name in there and one.around == digest(there[name])}


def _judged(waiting: Iterator[tuple[Named, list[Stage]]], args: argparse.Namespace) -> Iterator[Tried]:
    """Judge bugs in forks of this process, which has loaded what all of them need."""
    first = next(waiting, None)
    if first is None:
        return
    nursery.prepare()
    waiting = itertools.chain([first], waiting)
    until, running = time.monotonic() + args.minutes * 60, set[Future[Tried]]()
    forks = multiprocessing.get_context("fork")
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(args.processes, forks, _hatch, (Path(folder),)) as pool,
    ):
        while True:
            for bug, stages in itertools.islice(waiting, args.processes - len(running) if time.monotonic() < until else 0):
                running.add(pool.submit(judge, bug, stages, args.limit))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                yield one.result()


def _hatch(folder: Path) -> None:
    global _nursery
    _nursery = nursery.Nursery(SOURCE.parent, folder)


_nursery: nursery.Nursery


@functools.cache
def read(file: str) -> bytes:
    return (SOURCE / file).read_bytes()


def digest(mutation: Mutation) -> str:
    _, text = around(mutation.file, read(mutation.file).decode(), mutation.line)
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def judge(named: Named, stages: Sequence[Stage], limit: float) -> Tried:
    """Make one bug in a copy of the source, and run its tests until one fails that does not fail without it."""
    mutation = named.mutation
    verdict, by = "survived", f"{mutation.file}:{mutation.line}"
    try:
        _nursery.left = limit
        for stage in stages:
            failed = _failing(stage, mutation)
            if failed is not None:
                verdict, by = "caught", failed
                break
    except nursery.TimeIsUp:
        verdict, _nursery.left = "undecided", 0.0
    return Tried(Verdict(named.name, digest(mutation), verdict, by), limit - _nursery.left)


def _failing(stage: Stage, mutation: Mutation) -> str | None:
    """The test file that fails with the bug and passes without it."""
    while True:
        tests = [*stage.tests, *(f"--deselect={test}" for test in _failing_anyway)]
        with _nursery.changed(mutation.file, mutation.applied(read(mutation.file))):
            failed = _nursery.failing(tests, engine=stage.engine, marks=stage.marks, names=stage.names)
        if failed is None:
            return None
        test = failed.split(" - ")[0]
        file, named, _ = test.partition("::")
        if file in _sound or test in _failing_anyway:
            return file
        alone = [test] if named else [*tests, "--collect-only"]  # a bug may keep tests from being collected
        with _nursery.uncounted():
            passes = _nursery.failing(alone, engine=stage.engine, marks=stage.marks) is None
        if passes:
            _sound.update([file] if named else [])
            return file
        if not named:
            raise SystemExit(f"Without a bug pytest cannot collect {' '.join(stage.tests)[:500]}")
        _failing_anyway.add(test)


_sound: set[str] = set()  # files with a test that passed without a bug
_failing_anyway: set[str] = set()

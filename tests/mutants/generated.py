"""Generated bugs: a sample of them, each planted in a copy of the source, against the tests that cover the changed line.

The tests of a line come from maps that `--collect` makes: of Python with coverage by test, of SQL by the names of the
statements that each test runs. Lines that the maps do not know, and Lua, get the tests of their room, the most promising
first.
"""

import argparse
import hashlib
import itertools
import os
import sqlite3
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.mutants import choice, nursery, trials
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.mutations import Mutation, Named, all_mutations, compiles
from tests.mutants.statements import VARIABLE, StatementMap
from tests.mutants.trials import ROOT, SOURCE, Stage, read
from tests.mutants.verdicts import FILE, Verdict

MAPS = ROOT / "build" / "mutants"  # for each set-up a file of coverage, with a context for each test, and one of statements
FIRST = 60  # tests of a line to try at first: those that cover the least else
NEAREST = 5  # test files to try at first, where no map knows the tests
CONFORMANCE, CORE = "tests/conformance", "tests/core"
VERDICTS = ("caught", "survived", "undecided", "equivalent")
SEARCHES = "tests/hostile/test_searches.py"
CHANGED_OR_HELD = ("tests/hostile/test_changed_files.py", "tests/hostile/test_stopped_holder.py")
BOUNDS, WAKE_UPS, PROCESSES = "tests/test_bounds.py", "tests/test_wake_ups.py", "tests/end_to_end/test_process_handlers.py"

# The tests of a room, nearest first, and the set-ups to run them on. The first folder that matches counts.
ROOM_TESTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("core/", "sqlite-memory", (CORE, BOUNDS, CONFORMANCE, "tests/worker", "tests/outbound", "tests/api", "tests/proof")),
    ("store/", "sqlite-memory", (CONFORMANCE, "tests/worker", "tests/scheduler", "tests/client")),
    ("engines/postgres/", "postgres", (CONFORMANCE, "tests/engines", SEARCHES)),
    ("engines/", "sqlite", (CONFORMANCE, "tests/engines", SEARCHES, *CHANGED_OR_HELD)),
    ("line/", "lined-sqlite", ("tests/line", CONFORMANCE, "tests/hostile/test_forks.py")),
    ("worker/", "sqlite", ("tests/worker", "tests/handlers", "tests/metrics", BOUNDS, WAKE_UPS, PROCESSES)),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("generated bugs")
    group.add_argument("--generated", action="store_true", help="plant generated bugs instead of the written ones")
    group.add_argument("--sample", type=int, default=1000, help="how many of them (1000)")
    group.add_argument("--seed", type=int, default=1, help="which of them (1)")
    group.add_argument("--in", dest="only_in", default="", help="only files whose path contains this")
    group.add_argument(
        "--collect",
        action="store_true",
        help="make the maps of the tests that cover each line, for the rooms that --in names, and stop",
    )


def main(args: argparse.Namespace) -> int:
    if args.collect:
        return collect(args.only_in)
    chosen = sample(args.sample, args.seed, args.only_in)
    known = trials.verdicts_on(
        [one for one in chosen if one.name not in EQUIVALENT and args.only in one.name],
        lambda named, known: Covering(named.mutation.file).stages(named.mutation, _caught_in(named.mutation.file, known)),
        args.verdicts or FILE,
        args,
        everything=all_mutations(SOURCE),
    )
    return report(chosen, known)


def _caught_in(file: str, known: dict[str, Verdict]) -> Counter[str]:
    """How many bugs of a source file each test file has caught."""
    names = {named.name for named in all_mutations(SOURCE) if named.mutation.file == file} & known.keys()
    return Counter(known[name].by for name in names if known[name].verdict == "caught")


def sample(number: int, seed: int, only_in: str = "") -> list[Named]:
    """The same sample for the same seed, also after changes elsewhere in the source."""
    everything = [one for one in all_mutations(SOURCE) if only_in in one.mutation.file]
    everything.sort(key=lambda one: hashlib.sha256(f"{seed} {one.name}".encode()).digest())
    sound = (one for one in everything if compiles(one.mutation, read(one.mutation.file)))
    return [one for _, one in zip(range(number), sound, strict=False)]


class Covering:
    """Which tests cover a line, by the map of its set-up if there is one, else by the room."""

    def __init__(self, file: str) -> None:
        self._engine, self._folders = next((engine, tests) for room, engine, tests in ROOM_TESTS if file.startswith(room))
        maps = _maps(self._engine)
        self._path = maps / "covered" if (maps / "covered").exists() else None
        self._statements = StatementMap(maps / "statements")

    def stages(self, mutation: Mutation, caught: Counter[str]) -> Iterator[Stage]:
        """The tests to run, in turn, until one fails: the most promising first, those that start processes last."""
        engine, files = self._engine, choice.ranked(mutation, read(mutation.file).decode(), self._folders, caught)
        nearest, others = files[:NEAREST], files[NEAREST:]
        starts_processes = "/processes/" in mutation.file  # and so do all tests that reach it
        quick = nursery.QUICK if starts_processes else f"{nursery.QUICK} and not slow"
        known = [] if starts_processes else self._known(mutation.file, mutation.line, nearest)
        if known:
            yield Stage(_set_up(engine), known[:FIRST])
            if known[FIRST:]:
                yield Stage(_set_up(engine), known[FIRST:])
        else:
            first = engine.replace("sqlite", "sqlite-memory") if engine == "sqlite" else engine
            yield Stage(first, nearest, quick, "not audited")
            yield Stage(engine, others, quick, "not audited")
            yield Stage(engine, files, quick, "audited")  # the same again, with the triggers that record histories
        yield Stage(engine, nearest, f"{nursery.QUICK} and slow")

    def _known(self, file: str, line: int, nearest: Sequence[str]) -> list[str]:
        """The tests that run a line, those in the nearest files first, and then those that run the least else."""
        tests = list[str]()
        if file.endswith(".py"):
            tests = self._of_line(file, line)
        elif file.endswith("queries.sql") and self._statements:
            tests = self._statements.tests(file, (SOURCE / file).read_text(), line)
        tests = list(dict.fromkeys(choice.plain(test) for test in tests if choice.is_there(test)))
        place = {file: number for number, file in enumerate(nearest)}
        return sorted(tests, key=lambda test: place.get(test.partition("::")[0], NEAREST))

    def _of_line(self, file: str, line: int) -> list[str]:
        """The tests that ran this line, those first that ran the fewest lines of this file."""
        if self._path is None:
            return []
        with sqlite3.connect(f"file:{self._path}?mode=ro", uri=True) as data:
            found = data.execute(
                "select context.context, numbits from line_bits join file on file.id = file_id"
                " join context on context.id = context_id where file.path like ? and context.context <> ''",
                (f"%/src/demora/{file}",),
            ).fetchall()
        runs = [(_bits(numbits), context.split("|")[0]) for context, numbits in found]
        return [test for _, test in sorted({(count.bit_count(), test) for count, test in runs if count >> line & 1})]


def _bits(numbits: bytes) -> int:
    """The lines of a context as one number: the bit of a line is set if it was run."""
    return int.from_bytes(numbits, "little")


def collect(only_in: str) -> int:
    """Run the tests of each set-up once, and note for each line and each statement which tests ran it."""
    codes, folders = [], defaultdict[str, list[str]](list)
    for _, engine, tests in ROOM_TESTS:
        folders[_set_up(engine)] += tests
    for set_up in dict.fromkeys(_set_up(engine) for room, engine, _ in ROOM_TESTS if only_in in room):
        maps = _maps(set_up)
        maps.mkdir(parents=True, exist_ok=True)
        options = [
            "--cov=src/demora",
            "--cov-context=test",
            "--cov-report=",
            "--cov-config=/dev/null",
            "-q",
            "-o",
            "timeout=0",
        ]
        options += ["-m", f"{nursery.QUICK} and not slow", "-k", "not audited", "-o", "timeout=0"]
        options += ["-p", "tests.mutants.statements"]
        own = {"COVERAGE_FILE": str(maps / "covered"), VARIABLE: str(maps / "statements"), "DEMORA_TEST_ENGINE": set_up}
        tests = dict.fromkeys(folders[set_up])
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, *tests]
        codes.append(subprocess.run(command, cwd=ROOT, env=os.environ | own, check=False).returncode)
    return max(codes, default=0)


def report(chosen: Sequence[Named], known: dict[str, Verdict]) -> int:
    """Print the bugs that were not caught, and the verdicts of each room. Fails if a bug survived."""
    said = {name: verdict.verdict for name, verdict in known.items()} | dict.fromkeys(EQUIVALENT, "equivalent")
    for name, one in sorted(chosen, key=lambda one: one.mutation):
        if said.get(name) in ("survived", "undecided"):
            print(f"{said[name]}: {one.file}:{one.line} {one.kind}, {name}\n    {one.old!r} → {one.new!r}")
    print(f"{'':17}{'sample':>11}" + "".join(f"{verdict:>11}" for verdict in VERDICTS))
    for room in (*(room for room, _, _ in ROOM_TESTS), ""):
        bugs = [one.name for one in chosen if room in ("", _room(one.mutation.file))]
        count = Counter(said.get(name) for name in bugs)
        print(f"{room or 'all':17}{len(bugs):11}" + "".join(f"{count[verdict]:11}" for verdict in VERDICTS))
    first = [said[one.name] for one in itertools.takewhile(lambda one: one.name in said, chosen)]
    real = [verdict for verdict in first if verdict != "equivalent"]
    print(f"The first {len(first)} of the sample, which are a fair part of it, were all tried.")
    print(f"Of the {len(real)} among them that are not equivalent {real.count('caught')} were caught.")
    return int(any(said.get(one.name) == "survived" for one in chosen))


def _room(file: str) -> str:
    return next(room for room, _, _ in ROOM_TESTS if file.startswith(room))


def _maps(engine: str) -> Path:
    return MAPS / _set_up(engine)


def _set_up(engine: str) -> str:
    """The set-up that has a map: the rooms whose tests run on SQLite share one."""
    return engine.removesuffix("-memory")

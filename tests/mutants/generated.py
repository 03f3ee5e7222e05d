"""Generated bugs: a sample of them, each planted in a copy of the source, against the tests that cover the changed line.

The tests of a line come from maps that `--collect` makes once: of Python with coverage by test, of SQL by the names of the
statements that each test runs. Lines that the maps do not know, and Lua, get the tests of their room. A run writes each
verdict to a file as it is reached, and can be resumed from it.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.mutations import Mutation, Named, all_mutations, compiles
from tests.mutants.statements import VARIABLE, StatementMap

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "demora"
MAP = ROOT / "build" / "mutants" / "covered"  # a file of coverage, with a context for each test
STATEMENTS = ROOT / "build" / "mutants" / "statements"
QUICK = "not timed and not campaign"  # a campaign would take the time of hundreds of tests
FIRST = 60  # tests of a line to try at first: those that cover the least else
CONFORMANCE, CORE = "tests/conformance", "tests/core"

# The tests of a room, nearest first, and the set-ups to run them on. The first folder that matches counts.
ROOM_TESTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("core/", "sqlite-memory", (CORE, CONFORMANCE, "tests/worker", "tests/outbound", "tests/api", "tests/proof")),
    ("store/", "sqlite-memory", (CONFORMANCE, "tests/worker", "tests/scheduler", "tests/client")),
    ("engines/postgres/", "postgres", (CONFORMANCE, "tests/engines/postgres", "tests/engines")),
    ("engines/", "sqlite", (CONFORMANCE, "tests/engines/sqlite", "tests/engines", "tests/hostile/test_changed_files.py")),
    ("line/", "lined-sqlite", ("tests/line", CONFORMANCE)),
    ("worker/", "sqlite", ("tests/worker", "tests/handlers", "tests/end_to_end/test_process_handlers.py")),
)


class Verdict(NamedTuple):
    """What became of one mutation: caught, survived, or undecided when its time was up; and what caught it."""

    name: str
    file: str
    line: int
    kind: str
    verdict: str
    by: str
    seconds: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("generated bugs")
    group.add_argument("--generated", action="store_true", help="plant generated bugs instead of the written ones")
    group.add_argument("--sample", type=int, default=1000, help="how many of them (1000)")
    group.add_argument("--seed", type=int, default=1, help="which of them (1)")
    group.add_argument("--resume", type=Path, help="a file for the verdicts; those in it are not tried again")
    group.add_argument("--limit", type=float, default=300, help="seconds for each, after which it is undecided (300)")
    group.add_argument("--processes", type=int, default=2, help="bugs to try at a time (2)")
    group.add_argument("--in", dest="only_in", default="", help="only files whose path contains this")
    group.add_argument("--collect", action="store_true", help="make the map of the tests that cover each line, and stop")


def main(args: argparse.Namespace) -> int:
    if args.collect:
        return collect()
    known = {verdict.name: verdict for verdict in _read(args.resume)}
    chosen = sample(args.sample, args.seed, args.only_in)
    left = [one for one in chosen if one.name not in known and one.name not in EQUIVALENT]
    covering = Covering(MAP)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.processes) as pool:
        source = Path(shutil.copytree(SOURCE, Path(folder) / "demora"))  # so that work on the tree can go on
        for done in as_completed([pool.submit(judge, one, source, covering, args.limit) for one in left]):
            verdict = done.result()
            known[verdict.name] = verdict
            _show(verdict)
            _note(args.resume, verdict)
    return report(chosen, known)


def sample(number: int, seed: int, only_in: str = "") -> list[Named]:
    """The same sample for the same seed, also after changes elsewhere in the source."""
    everything = [one for one in all_mutations(SOURCE) if only_in in one.mutation.file]
    everything.sort(key=lambda one: hashlib.sha256(f"{seed} {one.name}".encode()).digest())
    sound = (one for one in everything if compiles(one.mutation, (SOURCE / one.mutation.file).read_bytes()))
    return [one for _, one in zip(range(number), sound, strict=False)]


def judge(named: Named, source: Path, covering: "Covering", limit: float) -> Verdict:
    """Plant one bug in a copy of the source, and run its tests until one fails."""
    began, mutation = time.monotonic(), named.mutation
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "demora"
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        path = copy / mutation.file
        path.write_bytes(mutation.applied(path.read_bytes()))
        verdict, by = "survived", None
        try:
            for engine, tests in covering.tests(mutation):
                by = _caught(tests, folder, engine, max(began + limit - time.monotonic(), 1))
                if by is not None:
                    verdict = "caught"
                    break
        except subprocess.TimeoutExpired:
            verdict = "undecided"
    seconds = round(time.monotonic() - began, 1)
    return Verdict(named.name, mutation.file, mutation.line, mutation.kind, verdict, by or "", seconds)


def _caught(tests: Sequence[str], folder: str, engine: str, limit: float) -> str | None:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", QUICK, *tests]
    environment = os.environ | {"PYTHONPATH": folder, "DEMORA_TEST_ENGINE": engine}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    run = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **pipes)
    try:
        output, _ = run.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate()
        raise
    if run.returncode in (0, 5):  # 5: no test was chosen
        return None
    marks = ("FAILED ", "ERROR ", "+++ Timeout")
    return next((line[:150] for line in output.splitlines() if line.startswith(marks)), output[-150:])


class Covering:
    """Which tests cover a line, by the maps if there are any, else by the room."""

    def __init__(self, path: Path, statements: Path = STATEMENTS) -> None:
        self._path = path if path.exists() else None
        self._statements = StatementMap(statements)

    def tests(self, mutation: Mutation) -> Iterator[tuple[str, Sequence[str]]]:
        """The set-up and the tests to run, in turn, until one fails."""
        engine, folders = next((engine, tests) for room, engine, tests in ROOM_TESTS if mutation.file.startswith(room))
        known = self._known(mutation.file, mutation.line)
        if known:
            yield engine, known[:FIRST]
            if known[FIRST:]:
                yield engine, known[FIRST:]
        else:
            yield from ((engine, [folder]) for folder in folders)

    def _known(self, file: str, line: int) -> list[str]:
        if file.endswith(".py"):
            return self._of_line(file, line)
        if file.endswith("queries.sql") and self._statements:
            return self._statements.tests(file, (SOURCE / file).read_text(), line)
        return []

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


def collect() -> int:
    """Run the tests of all rooms once, and note for each line and each statement which tests ran it."""
    MAP.parent.mkdir(parents=True, exist_ok=True)
    folders = dict.fromkeys(folder for _, _, tests in ROOM_TESTS for folder in tests)
    options = ["--cov=src/demora", "--cov-context=test", "--cov-report=", "-m", f"{QUICK} and not slow", "-q"]
    options += ["-p", "tests.mutants.statements"]
    environment = os.environ | {"COVERAGE_FILE": str(MAP), VARIABLE: str(STATEMENTS)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, *folders]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def report(chosen: Sequence[Named], known: dict[str, Verdict]) -> int:
    """Print the survivors and the rate. Fails if a bug survived."""
    verdicts = [known[one.name] for one in chosen if one.name in known]
    survivors = sorted(verdict for verdict in verdicts if verdict.verdict == "survived")
    mutations = {one.name: one.mutation for one in chosen}
    for verdict in sorted(survivors, key=lambda one: (one.file, one.line)):
        print(f"survived: {verdict.file}:{verdict.line} {verdict.kind}, {verdict.name}")
        print(f"    {mutations[verdict.name].old!r} → {mutations[verdict.name].new!r}")
    equivalent = sum(one.name in EQUIVALENT for one in chosen)
    count = Counter(verdict.verdict for verdict in verdicts)
    rate = f"{100 * count['caught'] / (count['caught'] + count['survived'] or 1):.1f} % of those that were decided"
    by_room = Counter(verdict.file.split("/")[0] for verdict in survivors)
    print(f"{len(verdicts)} bugs: {dict(count)}; caught {rate}; survivors by room {dict(by_room)}")
    print(f"{equivalent} more are known to be equivalent")
    return 1 if survivors else 0


def _show(verdict: Verdict) -> None:
    print(f"{verdict.seconds:6.1f} s  {verdict.file}:{verdict.line} {verdict.kind}")
    print(f"          {verdict.by or verdict.verdict.upper()}", flush=True)


def _read(path: Path | None) -> list[Verdict]:
    if path is None or not path.exists():
        return []
    return [Verdict(**json.loads(line)) for line in path.read_text().splitlines()]


def _note(path: Path | None, verdict: Verdict) -> None:
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(verdict._asdict()) + "\n")

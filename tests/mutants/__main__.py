"""`make mutants`: plants bugs in the source, one at a time, and says what catches each. Survivors fail the run."""

import argparse
import hashlib
import shlex
import sys
from collections import Counter
from pathlib import Path

from tests.mutants import generated, trials
from tests.mutants.foreign import FOREIGN
from tests.mutants.locks import LOCKS
from tests.mutants.mutations import Mutation, Named
from tests.mutants.planted import MUTANTS, SIM, Mutant
from tests.mutants.rooms import ROOMS
from tests.mutants.schedules import SCHEDULES
from tests.mutants.trials import Stage

# Those that the simulator must catch stand last: it takes minutes where tests take seconds.
PLANTED = sorted((*MUTANTS, *FOREIGN, *LOCKS, *ROOMS, *SCHEDULES), key=lambda mutant: mutant.caught_by.endswith(SIM))
FILE = Path(__file__).parent / "planted.txt"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    trials.add_arguments(parser)
    generated.add_arguments(parser)
    args = parser.parse_args()
    return generated.main(args) if args.generated or args.collect else try_planted(args)


def try_planted(args: argparse.Namespace) -> int:
    """Try the planted bugs, and print those that were not caught."""
    bugs = {named.name: (named, mutant) for named, mutant in zip(map(planted, PLANTED), PLANTED, strict=True)}
    chosen = [named for named, mutant in bugs.values() if args.only in mutant.name]
    known = trials.verdicts_on(
        chosen,
        lambda named, _: stages(bugs[named.name][1]),
        args.verdicts or FILE,
        args,
        everything=[named for named, _ in bugs.values()],
    )
    said = Counter(known[one.name].verdict if one.name in known else "untried" for one in chosen)
    for one in chosen:
        if one.name in known and known[one.name].verdict != "caught":
            print(f"{known[one.name].verdict}: {bugs[one.name][1].name}, {one.name}")
    print(f"{len(chosen)} planted bugs: " + ", ".join(f"{number} {verdict}" for verdict, number in said.most_common()))
    return int(said.keys() > {"caught"})


def planted(mutant: Mutant) -> Named:
    """The change that plants a bug, and a name for its verdict, which stays the same when the file is moved."""
    source = trials.read(mutant.file)
    if source.count(mutant.old.encode()) != 1:
        raise SystemExit(f"{mutant.name}: its text does not stand once in {mutant.file}")
    start = source.index(mutant.old.encode())
    change = Mutation(mutant.file, source.count(b"\n", 0, start) + 1, "planted", mutant.old, mutant.new, start)
    return Named(hashlib.sha256(repr(mutant._replace(file="")).encode()).hexdigest()[:12], change)


def stages(mutant: Mutant) -> list[Stage]:
    """What should catch the bug, one way after another; the tests on another engine would only take time."""
    ways = mutant.caught_by.split(" or ")
    other = "lined-sqlite" if mutant.name.startswith("line:") or "lined-sqlite" in mutant.caught_by else "sqlite"
    return [Stage("postgres" if "postgres" in mutant.file + way else other, shlex.split(way)) for way in ways]


if __name__ == "__main__":
    sys.exit(main())

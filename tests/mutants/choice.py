"""Chooses tests for a change where no map knows them: the files that name what the change is about, most of it first.

A test file counts for a change by the words that both have in common: the changed module, the function or statement around
the change, and the names that it uses. A word that few test files have counts more, and so does a test file that caught
other changes of the same source file.
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.mutants.mutations import Mutation
from tests.mutants.statements import statements_of
from tests.mutants.surroundings import around

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "demora"

# The test files of modules whose names do not say it, nearest first.
NEAREST = {
    "adding": "add add_keys unique subscribe",
    "api_keys": "keys key_limits sessions",
    "changes": "cancel retry restore change remove",
    "child": "child process processes",
    "claiming": "races lost_wakeups joining",
    "connections": "connections limits migrating forks",
    "database": "gathered_reads searches closing open_close",
    "diagnostics": "diagnostics examination write_probe",
    "engine": "open_close subscribe queues",
    "events": "event_store events",
    "file_watch": "changed_files",
    "finding": "find list_plans",
    "heads": "claim claim_many_queues many_heads claim_types",
    "housekeeping": "housekeep purge expiry unknown_types",
    "joining": "within joining",
    "line": "line model",
    "line_feed": "line_feed claim_by_ids moved",
    "location": "home process",
    "locking": "locking turns stall",
    "maintainer": "loss beside_filling",
    "messages": "process child processes",
    "notifier": "notifier subscribe lost_wakeups",
    "paces": "pace outlooks stored_paces",
    "pool": "processes process",
    "prefetch": "prefetch",
    "readers": "searches",
    "registry": "queues workers",
    "rows": "claim get add schedules",
    "run": "ending running process",
    "runs": "claim settle pace claim_types lapse renew",
    "scheduler": "housekeeping release_log",
    "schedules": "schedules model_of_schedules",
    "settling": "running hostile",
    "statistics": "statistics",
    "transactions": "transactor lost_answers stall stopped_holder",
    "transactors": "transactor stall searches",
    "walks": "find",
    "webhooks": "deliveries",
    "worker": "running ending wake_ups prefetch",
}
_WORD = re.compile(r"[a-z]{3,}")
_PLAIN = re.compile(r"[\w/.:-]+(\[[\w.,-]*\])?")
_STEM = 4  # letters that two forms of a word have in common: claim, claimed, claims


def ranked(mutation: Mutation, source: str, folders: Sequence[str], caught: Counter[str]) -> list[str]:
    """The test files of these folders, the most promising first. `caught` counts the changes of the same source file that
    each of them caught."""
    about = words_about(mutation, source)
    other = "/sqlite/" if "postgres" in mutation.file else "/postgres/"
    files = list(dict.fromkeys(file for folder in folders for file in _test_files(folder) if other not in file))
    rarity = {word: math.log(len(files) / (1 + sum(word in _words(file) for file in files))) for word in about}
    module = mutation.file.removesuffix(".py").replace("/", ".")
    own = _module(mutation, source)
    near = [own, *NEAREST.get(own, "").split()]

    def score(file: str) -> float:
        shared = sum(weight * rarity[word] for word, weight in about.items() if word in _words(file))
        named = sum(rarity[word] for word in about if word in file)
        known = 30 - near.index(name) if (name := Path(file).stem.removeprefix("test_")) in near else 0
        imported = 10 if f"demora.{module} " in _text(file) else 0
        return shared + 3 * named + known + imported + 5 * math.log1p(caught[file])

    return sorted(files, key=lambda file: (-score(file) / math.log(2000 + len(_text(file))), file))


def _module(mutation: Mutation, source: str) -> str:
    """The name of the changed module, or of the one that runs the changed statement."""
    path = Path(mutation.file)
    if path.suffix != ".sql":
        return path.stem
    names = [f'"{name}"' for name in sorted(statements_of(source, mutation.line))]
    modules = sorted((SOURCE / path.parent).rglob("*.py"))
    return next((one.stem for one in modules if any(name in one.read_text() for name in names)), path.stem)


def words_about(mutation: Mutation, source: str) -> Counter[str]:
    """The words of what a change is about, with their weights."""
    stem = Path(mutation.file).stem
    words = Counter[str]()
    for weight, text in (
        (1 if stem == "queries" else 3, stem),
        (4, around(mutation.file, source, mutation.line)[0]),
        (1, mutation.old),
    ):
        for word in _stems(text):
            words[word] += weight
    return words


def is_there(test: str) -> bool:
    """Whether a test still has the name that a map knows."""
    file, _, name = test.partition("::")
    return (ROOT / file).exists() and f"def {name.partition('[')[0]}(" in _text(file)


def plain(test: str) -> str:
    """The name of a test for a command line: of all its cases, if the name of this one has more than letters and signs."""
    return test if _PLAIN.fullmatch(test) else test.partition("[")[0]


@functools.cache
def _test_files(folder: str) -> tuple[str, ...]:
    path = ROOT / folder
    found: Iterable[Path] = [path] if path.is_file() else sorted(path.rglob("test_*.py"))
    return tuple(one.relative_to(ROOT).as_posix() for one in found)


@functools.cache
def _text(file: str) -> str:
    return (ROOT / file).read_text()


@functools.cache
def _words(file: str) -> frozenset[str]:
    return frozenset(_stems(_text(file)))


def _stems(text: str) -> list[str]:
    return [word[:_STEM] for word in _WORD.findall(text.lower())]

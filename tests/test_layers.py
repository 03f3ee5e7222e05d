"""The arrows between the parts point one way. A part is a file or folder directly under the package.

core ← store ← engines; core, store ← worker, client; client ← faces. To add a part, add a line to one of the tables.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import demora

PACKAGE = Path(demora.__file__).parent
ROOT = "demora itself"
DRIVERS = {"apsw", "asyncpg", "redis"}
IMPURE = {"asyncio", "io", "multiprocessing", "os", "pathlib", "random", "secrets", "signal", "socket", "subprocess"} | {
    "tempfile",
    "threading",
    "time",
    "uuid",
}

# What a part may import of demora, besides itself.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "crash": set(),
    "clock": set(),
    "alarms": set(),
    "core": {"errors"},
    "store": {"core", "errors"},
    "audit": set(),
    "survey": {"store"},
    "transactions": {"core", "store"},
    "keyring": {"core"},
    "hookstore": {"core"},
    "pacing": {"core", "store"},
    "line": {"core", "errors"},
    "outbox": {"line", "store"},
    "reconciling": set(),
    "lined": {"core", "store", "transactions", "audit", "survey", "keyring", "line", "outbox", "errors", "crash", "notices"}
    | {"hookstore", "pacing", "reconciling", "clock", "alarms"},
    "engines": {"core", "store", "transactions", "audit", "survey", "keyring", "clock", "errors", "crash"}
    | {"hookstore", "pacing", "line", "outbox", "lined", "alarms", "notices"},
    "proof": {"audit"},
    "context": {"core", "store", "errors"},
    "signals": {"core", "errors"},
    "why": {"core", "store", "pacing"},
    "queues": {"core", "store", "errors", "pacer"},
    "pacer": {"core", "store", "errors", "pacing", "why"},
    "notices": {"core", "context", "errors"},
    "handlers": {"core", "context", "errors", "signals"},
    "jobfunction": {"core", "errors", "handlers"},
    "lapses": {"core", "store"},
    "bulk": {"core", "store", "errors"},
    "upkeep": {"core", "store", "errors", "bulk", "lapses", "line", "reconciling", "survey"},
    "worker": {"core", "store", "clock", "errors", "notices", "context", "handlers", "signals", "seams", "crash"}
    | {"lapses", "pauses", "scheduler", "spawned", "tally"},
    "doctor": {"core", "store", "hookstore", "pacing", "survey", "settings", "client", "reconciling", "why"},
    "outbound": {"core", "errors"},
    "webhooks": {"core", "store", "hookstore", "errors"},
    "deliveries": {"core", "errors", "context", "handlers", "outbound", "signals", "calls", "webhooks", "hookstore"},
    "calls": {"core", "errors", "context", "handlers", "outbound", "signals"},
    "spawned": set(),
    "seams": {"spawned"},
    "tally": {"core", "notices"},
    "pauses": {"store"},
    "scheduler": {"core", "store", "pacing", "pauses", "errors", "notices", "seams", "tally"},
    "stopping": set(),
    "addresses": {"errors"},
    "keys": {"core", "store", "keyring", "errors"},
    "supervisor": {"notices"},
    "client": {
        "core",
        "store",
        "transactions",
        "audit",
        "clock",
        "errors",
        "notices",
        "context",
        "handlers",
        "jobfunction",
        "crash",
        "bulk",
        "upkeep",
        "keys",
        "webhooks",
        "pacer",
        "queues",
        "why",
    },
    "blocking": {"app", "client", "core", "errors"},
    "patience": {"app", "errors", "notices"},
    "testing": {"app", "blocking", "clock", "core", "engines", "errors", "jobfunction", "seams", "store", "worker"},
}

# What a face must not import; of the store it may only use the values.
FACES = {"api", "cli", "dashboard"}
NOT_FOR_FACES = {"engines"}
NOT_VALUES = {"Store", "Subscription"}

# Modules that may do what their part may not, each with its reason.
EXCEPTIONS: dict[str, set[str]] = {}


class Import(NamedTuple):
    """One imported name: who imports it, from which part of demora or which other package."""

    module: str
    part: str
    name: str
    ours: bool


def modules() -> Iterator[tuple[str, Path]]:
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports_of(module: str, path: Path) -> Iterator[Import]:
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in runtime_nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield named(module, alias.name.split("."), "")
        elif isinstance(node, ast.ImportFrom):
            near = [part for part in package if part][: len(package) + 1 - node.level] if node.level else []
            base = (["demora", *near] if node.level else []) + (node.module.split(".") if node.module else [])
            for alias in node.names:
                yield named(module, base, alias.name)


def runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only type checkers see."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from runtime_nodes(node)


def named(module: str, base: list[str], name: str) -> Import:
    if base[0] != "demora":
        return Import(module, base[0], name, ours=False)
    inside = [*base[1:], name]
    known = (PACKAGE / inside[0]).is_dir() or (PACKAGE / f"{inside[0]}.py").exists()
    return Import(module, inside[0] if inside[0] and known else ROOT, name, ours=True)


def part_of(module: str) -> str:
    return module.split(".")[0] or ROOT


IMPORTS = [found for module, path in modules() for found in imports_of(module, path)]


def ours(part: str) -> list[Import]:
    """What a part imports of the other parts of demora."""
    return [
        i for i in IMPORTS if i.ours and part_of(i.module) == part != i.part and i.part not in EXCEPTIONS.get(i.module, ())
    ]


def theirs(part: str) -> list[Import]:
    return [i for i in IMPORTS if not i.ours and part_of(i.module) == part]


def test_the_reader_sees_what_is_imported() -> None:
    seen = {(i.module, i.part) for i in IMPORTS}
    assert {("store", "core"), ("engines.sqlite.engine", "clock"), ("engines.sqlite.claims", "engines")} <= seen
    assert {("core.payload", "msgspec"), ("engines.sqlite.batches", "apsw"), ("core.spans", "errors")} <= seen


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_a_part_imports_only_what_the_arrows_allow(part: str) -> None:
    assert [i for i in ours(part) if i.part not in MAY_IMPORT[part]] == []


@pytest.mark.parametrize(
    "part",
    ["core", "store", "transactions", "audit", "survey", "keyring", "hookstore", "pacing", "line", "outbox"],
)
def test_core_and_port_are_pure(part: str) -> None:
    assert [i for i in theirs(part) if i.part in IMPURE] == []
    assert {i.part for i in theirs(part)} - sys.stdlib_module_names <= {"msgspec"}


def test_the_core_asks_no_clock() -> None:
    asked = {"now", "today", "utcnow"}
    for module, path in modules():
        if part_of(module) == "core":
            calls = [n.func for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
            assert [f.attr for f in calls if isinstance(f, ast.Attribute) and f.attr in asked] == [], module


def test_drivers_stay_in_their_engines() -> None:
    users = {i.module for i in IMPORTS if i.part in DRIVERS and i.part not in EXCEPTIONS.get(i.module, ())}
    assert {part_of(module) for module in users} == {"engines"}


def test_engines_do_not_know_each_other() -> None:
    for module, path in modules():
        if module.startswith("engines.") and module.count(".") == 2:
            others = {p.name for p in (PACKAGE / "engines").iterdir() if p.is_dir()} - {module.split(".")[1]}
            assert not any(f".{other}" in path.read_text() for other in others - {"__pycache__"}), module


@pytest.mark.parametrize("face", sorted(FACES))
def test_faces_ask_the_client_and_never_a_store(face: str) -> None:
    assert [i for i in ours(face) if i.part in NOT_FOR_FACES] == []
    assert [i for i in ours(face) if i.part == "store" and i.name in NOT_VALUES] == []


def test_nothing_below_the_faces_imports_a_face() -> None:
    above = FACES | {"service", "__main__"}
    assert [i for i in IMPORTS if i.ours and i.part in FACES and part_of(i.module) not in above] == []


def test_every_exception_is_still_needed() -> None:
    used = {(i.module, i.part) for i in IMPORTS}
    assert {(m, p) for m, parts in EXCEPTIONS.items() for p in parts} <= used

"""The rooms of the package, and which way their imports point. Imports for type checkers count like any other."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import demora

PACKAGE = Path(demora.__file__).parent
DRIVERS = {"apsw": "engines", "asyncpg": "engines", "redis": "line", "prometheus_client": "metrics"} | {
    "opentelemetry": "system"
}
IMPURE = {"asyncio", "io", "multiprocessing", "os", "pathlib", "random", "secrets", "signal", "socket", "subprocess"} | {
    "tempfile",
    "threading",
    "time",
    "uuid",
}
BELOW_APP = {"core", "store", "system", "engines", "line", "handlers", "client", "scheduler", "worker", "outbound"}
ROOT = {"app", "blocking", "settings"}

# Which rooms a room may import; all may import `errors`. They are listed from the lowest layer to the highest: a room
# imports only rooms listed before it.
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "store": {"core"},
    "system": {"core"},
    "line": {"core", "store", "system"},
    "engines": {"core", "store", "system", "line"},
    "handlers": {"core", "store", "system"},
    "client": {"core", "store", "system", "handlers", "line"},
    "scheduler": {"core", "store", "system"},
    "worker": {"core", "store", "system", "handlers", "scheduler"},
    "outbound": {"core", "store", "system", "handlers", "client"},
    "metrics": {"core", "store", "system", "client", "worker"},
    "doctor": {"core", "store", "handlers", "client", "settings", "line"},
    "proof": {"store"},
    "wire": {"core", "store", "client"},
    "api": BELOW_APP - {"engines", "line"} | ROOT | {"wire"},
    "dashboard": BELOW_APP - {"engines", "line"} | ROOT | {"api", "doctor", "wire"},
    "remote": {"core", "store", "system", "handlers", "client", "wire"},
    "worker_kit": {"core", "remote"} | ROOT,
    "runtime": BELOW_APP - {"engines", "line"} | ROOT | {"api", "dashboard", "metrics"},
    "cli": BELOW_APP - {"engines", "line"} | ROOT | {"doctor", "proof", "runtime", "wire"},
    "contrib": {"core", "handlers", "client", "wire", "api", "cli"} | ROOT,
}
FACES = {"api", "cli", "contrib", "dashboard"}
NOT_FOR_FACES = {"Store", "Subscription"}  # faces use the values of a port, never the port itself
MOST_AT_THE_ROOT, MOST_IN_A_ROOM = 10, 16


class Import(NamedTuple):
    """One imported name: the module that imports it, and the room or the other package that it comes from."""

    module: str
    room: str
    name: str
    ours: bool


def modules() -> Iterator[tuple[str, Path]]:
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports_of(module: str, path: Path) -> Iterator[Import]:
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield named(module, alias.name.split("."), "")
        elif isinstance(node, ast.ImportFrom):
            near = [part for part in package if part][: len(package) + 1 - node.level] if node.level else []
            base = (["demora", *near] if node.level else []) + (node.module.split(".") if node.module else [])
            for alias in node.names:
                yield named(module, base, alias.name)


def named(module: str, base: list[str], name: str) -> Import:
    if base[0] != "demora":
        return Import(module, base[0], name, ours=False)
    inside = [*base[1:], name]
    known = (PACKAGE / inside[0]).is_dir() or (PACKAGE / f"{inside[0]}.py").exists()
    return Import(module, inside[0] if inside[0] and known else "demora", name, ours=True)


def room_of(module: str) -> str:
    return module.split(".")[0] or "demora"


@cache
def imports() -> list[Import]:
    """Every import of the package. Read when a test asks, since it takes seconds to collect all tests as it is."""
    return [found for module, path in modules() for found in imports_of(module, path)]


def test_the_reader_sees_what_is_imported() -> None:
    seen = {(i.module, i.room) for i in imports()}
    assert {("store.jobs", "core"), ("engines.sqlite.engine", "system"), ("core.payload", "msgspec")} <= seen


def test_every_room_is_in_the_table_and_the_root_holds_what_users_import() -> None:
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms == set(MAY_IMPORT)
    assert len(list(PACKAGE.glob("*.py"))) <= MOST_AT_THE_ROOT


def test_a_room_and_the_rooms_in_it_say_their_jobs_and_hold_few_modules() -> None:
    for room in {path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE}:
        assert len(list(room.glob("*.py"))) <= MOST_IN_A_ROOM, room
        if "management" not in room.parts:  # Django asks for these folders
            assert ast.get_docstring(ast.parse((room / "__init__.py").read_text())), room


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_the_arrows_allow(room: str) -> None:
    allowed = MAY_IMPORT[room] | {room, "errors"} | ({"demora"} if room in FACES else set())
    assert [i for i in imports() if i.ours and room_of(i.module) == room and i.room not in allowed] == []


def test_the_arrows_make_no_circle() -> None:
    done: set[str] = set(ROOT)
    for room, below in MAY_IMPORT.items():
        assert below <= done, room
        done.add(room)


@pytest.mark.parametrize("room", ["core", "store"])
def test_core_and_ports_are_pure(room: str) -> None:
    theirs = [i for i in imports() if not i.ours and room_of(i.module) == room]
    assert [i for i in theirs if i.room in IMPURE] == []
    others = {"msgspec", "cronsim", "typing_extensions"}  # the last for type checkers only
    assert {i.room for i in theirs} - sys.stdlib_module_names <= others


def test_the_core_asks_no_clock() -> None:
    asked = {"now", "today", "utcnow"}
    for module, path in modules():
        if room_of(module) == "core":
            calls = [n.func for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
            assert [f.attr for f in calls if isinstance(f, ast.Attribute) and f.attr in asked] == [], module


def test_drivers_stay_in_their_rooms() -> None:
    assert {(i.room, room_of(i.module)) for i in imports() if i.room in DRIVERS and not i.ours} == set(DRIVERS.items())


def test_engines_do_not_know_each_other() -> None:
    for module, path in modules():
        if module.startswith(("engines.sqlite", "engines.postgres")):
            others = {".sqlite", ".postgres"} - {"." + module.split(".")[1]}
            assert not any(other in path.read_text() for other in others), module


@pytest.mark.parametrize("face", sorted(FACES))
def test_faces_ask_the_client_and_never_a_store(face: str) -> None:
    assert [i for i in imports() if i.ours and room_of(i.module) == face and i.name in NOT_FOR_FACES] == []

"""Notes which tests run which named SQL statement: a plugin of pytest for `--collect`, and the map that it makes.

A line of `queries.sql` belongs to the block above it, and that block to every block that contains it.
"""

import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "DEMORA_MUTANTS_STATEMENTS"  # the file for the map
_BLOCK = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_REFERENCE = re.compile(r"\{(\w+)\}")


class StatementMap:
    """Which tests run a statement of an engine, those first that run the fewest statements."""

    def __init__(self, path: Path) -> None:
        self._tests: dict[str, list[str]] = json.loads(path.read_text()) if path.exists() else {}

    def __bool__(self) -> bool:
        return bool(self._tests)

    def tests(self, file: str, source: str, line: int) -> list[str]:
        """The tests that run the statements of which a line of this file is a part; none if the map does not know them."""
        engine = file.split("/")[1]
        found = {test for name in statements_of(source, line) for test in self._tests.get(f"{engine} {name}", ())}
        return sorted(found, key=lambda test: (self._count[test], test)) if found else []

    @property
    def _count(self) -> dict[str, int]:
        count = defaultdict[str, int](int)
        for tests in self._tests.values():
            for test in tests:
                count[test] += 1
        return count


def statements_of(source: str, line: int) -> set[str]:
    """The block that a line stands in, and all blocks that contain it."""
    parts = _BLOCK.split(source)
    bodies = dict(zip(parts[1::2], parts[2::2], strict=True))
    begins = {found[1]: source.count("\n", 0, found.start()) + 1 for found in _BLOCK.finditer(source)}
    own = [name for name, begin in begins.items() if begin <= line]
    if not own:
        return set()
    names, new = set[str](), {own[-1]}
    while new:
        names |= new
        new = {name for name, body in bodies.items() if names & set(_REFERENCE.findall(body))} - names
    return names


# The plugin


class _Noting(dict[str, str]):
    """The statements of SQLite, which notes those that are asked for."""

    def __init__(self, notes: "_Notes", engine: str, statements: dict[str, str]) -> None:
        super().__init__(statements)
        self._notes, self._engine = notes, engine

    def __getitem__(self, name: str) -> str:
        self._notes.note(self._engine, name)
        return super().__getitem__(name)


class _Notes:
    """What the tests of a run have asked for."""

    def __init__(self, path: Path) -> None:
        self._path, self._test = path, ""
        self._noted = defaultdict[str, set[str]](set)

    def note(self, engine: str, statement: str) -> None:
        if self._test:
            self._noted[f"{engine} {statement}"].add(self._test)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test = item.nodeid
        try:
            return (yield)
        finally:
            self._test = ""

    def pytest_sessionfinish(self) -> None:
        self._path.write_text(json.dumps({name: sorted(tests) for name, tests in sorted(self._noted.items())}))


def pytest_configure(config: pytest.Config) -> None:
    path = os.environ.get(VARIABLE)
    if path:
        notes = _Notes(Path(path))
        config.pluginmanager.register(notes)
        _listen(notes)


def _listen(notes: _Notes) -> None:
    from demora.engines import sqlite
    from demora.engines.postgres.connection.connections import Session
    from demora.engines.sqlite.connection.connections import SQL

    noting = _Noting(notes, "sqlite", SQL)
    for module in [module for name, module in sys.modules.items() if name.startswith(sqlite.__name__)]:
        if getattr(module, "SQL", None) is SQL:
            module.SQL = noting  # type: ignore[attr-defined]
    rows: Any = Session.rows

    async def noted(session: Session, statement: Any, **what: Any) -> list[Any]:
        if isinstance(statement, str):
            notes.note("postgres", statement)
        found: list[Any] = await rows(session, statement, **what)
        return found

    Session.rows = noted  # type: ignore[method-assign]

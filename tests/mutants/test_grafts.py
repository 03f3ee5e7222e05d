"""A graft changes what a new import would change, and refuses the rest."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.trials import ROOT

SOURCES = ROOT / "src"
SOURCE = """
LIMIT = 3


def started():
    return 1


def limited(n, most=LIMIT):
    return n < most


class Box:
    size = 1

    def doubled(self):
        return [one * 2 for one in (1, 2)]


def adder(n):
    def add(m):
        return n + m
    return add


FIRST = started()
plus_two = adder(2)
"""
CHECK = """
import sys
from pathlib import Path
from tests.mutants.grafts import Grafts

folder, old, new, expression = sys.argv[1:]
grafts = Grafts(Path(folder), ["demora.a"])
source = Path(folder, "demora", "a.py").read_bytes()
print(grafts.apply("a.py", source, source.replace(old.encode(), new.encode())))
import demora.a as a
print(eval(expression))
"""


@pytest.mark.parametrize(
    ("old", "new", "expression", "expected"),
    [
        ("n < most", "n <=\\\n most", "a.limited(3), a.Box().doubled()", "True (True, [2, 4])"),
        ("one * 2", "one * 3", "a.Box().doubled()", "True [3, 6]"),
        ("n + m", "n - m", "a.plus_two(5), a.adder(1)(5)", "True (-3, -4)"),
        ("LIMIT = 3", "LIMIT = 4", "a.limited(3)", "False False"),
        ("size = 1", "size = 2", "a.Box.size", "False 1"),
        ("most=LIMIT", "most=9", "a.limited(3)", "False False"),
        ("return 1", "return 2", "a.FIRST, a.started()", "False (1, 1)"),
    ],
)
def test_a_body_that_did_not_run_yet_is_changed_and_nothing_else(
    tmp_path: Path, old: str, new: str, expression: str, expected: str
) -> None:
    (tmp_path / "demora").mkdir()
    (tmp_path / "demora" / "__init__.py").touch()
    (tmp_path / "demora" / "a.py").write_text(SOURCE)
    command = [sys.executable, "-c", CHECK, str(tmp_path), old, new, expression]
    run = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert run.stdout.split("\n", 1) == [expected.split(" ")[0], expected.split(" ", 1)[1] + "\n"], run.stderr


CHECK_TEXTS = """
import sys
from pathlib import Path
from tests.mutants.grafts import Grafts

folder, file, old, new, text = sys.argv[1:]
grafts = Grafts(Path(folder), ["demora.engines.sqlite", "demora.engines.postgres", "demora.line.redis"])
path = Path(folder, "demora", file)
before = path.read_bytes()
assert old.encode() in before
path.write_bytes(before.replace(old.encode(), new.encode(), 1))
print(grafts.apply(file, before, path.read_bytes()))
from demora.engines.postgres.connection.connections import statements
from demora.engines.sqlite.connection.connections import SQL
from demora.line.redis import line
print(new in eval(text))
"""
SQLITE, POSTGRES = "engines/sqlite/queries.sql", "engines/postgres/queries.sql"


@pytest.mark.parametrize(
    ("file", "old", "text", "applied"),
    [
        (SQLITE, "order by claimed_at, rowid", "SQL['leased']", True),
        (POSTGRES, "order by claimed_at, seq", "statements('s')['leased'].sql", True),
        (POSTGRES, "insert into demora.jobs (id, type", "statements('s')['add_new'].sql", False),
        ("line/redis/scripts/take.lua", "return", "line._TAKE.text", True),
    ],
)
def test_a_statement_or_a_script_is_read_again_unless_another_is_made_of_it(
    tmp_path: Path, file: str, old: str, text: str, applied: bool
) -> None:
    copy = shutil.copytree(SOURCES, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-c", CHECK_TEXTS, str(copy), file, old, "changed", text]
    run = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert run.stdout.split() == [str(applied)] * 2, run.stderr

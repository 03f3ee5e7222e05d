"""`make bench ARGS=--rivals`: its table, and the page that it is written to."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.rivals.contest import BEGIN, END, Result, table, written
from bench.rivals.contestants import CONTESTANTS
from bench.rivals.installed import Installed, NotInstalled

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "comparison.md"


def test_the_table_is_written_between_the_marks_and_nowhere_else() -> None:
    page = f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n"
    once = written(page, "| new |")
    assert once == f"before\n\n{BEGIN}\n\n| new |\n\n{END}\n\nafter\n"
    assert written(once, "| new |") == once


@pytest.mark.parametrize("page", ["", BEGIN, END, f"{END}{BEGIN}"])
def test_a_page_without_both_marks_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="the page has no"):
        written(page, "| new |")


def test_the_page_of_the_docs_has_the_marks_once() -> None:
    text = PAGE.read_text()
    assert (text.count(BEGIN), text.count(END)) == (1, 1)
    assert written(text, "| new |").count("| new |") == 1


def test_the_table_has_the_fastest_first_and_names_versions_and_settings() -> None:
    ours, huey = CONTESTANTS[0], next(one for one in CONTESTANTS if one.name == "Huey on SQLite")
    lines = table({huey: Result(1234.5, 512.3, 1040.0), ours: Result(15678.9, 1.04, 3.27)}, {huey: "3.5.4"}).splitlines()
    assert lines[2:] == [
        "| **demora on SQLite** | SQLite | 15,700 | 1 ms and 3.3 ms | defaults |",
        "| Huey on SQLite (3.5.4) | SQLite | 1,230 | 510 ms and 1 s | `fsync=True` |",
    ]


@pytest.mark.parametrize(("call", "noted"), [("ran()", 2), ("ran_late(1.5)", 3)])
def test_handlers_write_their_notes_when_all_jobs_have_run(tmp_path: Path, call: str, noted: int) -> None:
    file = tmp_path / "notes.json"
    told = {"DEMORA_BENCH_JOBS": "3", "DEMORA_BENCH_NOTES": str(file), "PYTHONPATH": str(ROOT)}
    twice = f"from bench.rivals import notes; from pathlib import Path; notes.{call}; notes.{call}"
    program = f"{twice}; assert not Path({str(file)!r}).exists(); notes.{call}"
    subprocess.run([sys.executable, "-c", program], env=os.environ | told, check=True)
    assert len(json.loads(file.read_text())) == noted


def test_a_rival_on_node_is_left_out_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotInstalled, match="there is no node on the PATH"):
        Installed(tmp_path).node("bullmq")


def test_what_cannot_be_installed_says_why(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 'no such package' >&2; exit 1\n")
    python.chmod(0o755)
    with pytest.raises(NotInstalled, match="python failed: no such package"):
        Installed(tmp_path).python("huey")


def test_rivals_are_not_among_our_requirements() -> None:
    pinned = (ROOT / "requirements" / "dev.txt").read_text()
    for package in ("pgqueuer", "celery", "dramatiq"):
        assert f"\n{package}==" not in pinned

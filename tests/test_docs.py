"""The examples in the docs are run: Python blocks for real, lines with `demora …` against the command line.

The Python blocks of a page share one session, in an empty folder, with `await` allowed at the top. A block that begins with
`# name.py` is also saved under that name, and can be imported.
"""

import ast
import asyncio
import contextlib
import inspect
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from demora.cli import root
from demora.core.states import MOVES

PROJECT = Path(__file__).parents[1]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
SHELLS = ("console", "sh")


def blocks(page: Path, *languages: str) -> Iterator[str]:
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.M | re.S):
        if language in languages:
            yield block


def commands(page: Path) -> Iterator[str]:
    """The lines that call `demora`, without prompts, pipes and what else the shell takes for itself."""
    for block in blocks(page, *SHELLS):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r" (?:\||\|\||&&|&|;|>|2>|#) ?", line.removeprefix("$ ")):
                if part.strip().startswith("demora "):
                    yield part.strip()


COMMANDS = [pytest.param(command, id=f"{page.name}: {command}") for page in PAGES for command in commands(page)]
PYTHON = [pytest.param(page, id=str(page.relative_to(PROJECT))) for page in PAGES if any(blocks(page, "python"))]


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("DEMORA_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize("page", PYTHON)
def test_the_python_of_a_page_runs(page: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for number, block in enumerate(blocks(page, "python"), 1):
            save(block)
            code = compile(block, f"{page.name}, block {number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if inspect.iscoroutine(running := eval(code, names)):
                runner.run(running)


def save(block: str) -> None:
    if named := re.match(r"# (\w+\.py)\n", block):
        Path(named[1]).write_text(block)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_line_is_one_that_demora_takes(command: str) -> None:
    words = shlex.split(command)[1:]
    with contextlib.suppress(click.exceptions.Exit):  # --help and --version
        ctx = root.make_context("demora", words)
        name, verb, rest = root.resolve_command(ctx, [*ctx._protected_args, *ctx.args])
        assert verb is not None
        verb.make_context(name, rest, parent=ctx)


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_every_page_of_the_reference_is_linked_from_where_people_begin(page: str) -> None:
    text = (PROJECT / page).read_text()
    for reference in (PROJECT / "docs" / "reference").iterdir():
        assert f"reference/{reference.name})" in text


def test_the_picture_of_the_states_is_the_table_of_moves() -> None:
    text = (PROJECT / "docs" / "explanation" / "states.md").read_text()
    drawn = {(a, b) for a, b in re.findall(r"^    (\w+) --> (\w+)$", text, re.M)}
    assert drawn == {(status.name, then.name) for status, moves in MOVES.items() for then in moves}


def test_every_how_to_and_explanation_is_linked_from_the_readme() -> None:
    text = (PROJECT / "README.md").read_text()
    pages = [*(PROJECT / "docs" / "how-to").iterdir(), *(PROJECT / "docs" / "explanation").iterdir()]
    assert [page.name for page in pages if f"/{page.name})" not in text] == []


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"

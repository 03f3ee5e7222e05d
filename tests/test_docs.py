"""The examples in the docs are run: Python blocks for real, lines with `demora …` against the command line, and the pages of
`SESSIONS` line by line in a shell, where each command must say what is shown below it.

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
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

import click
import pytest

from demora.cli import root
from demora.core.job import Job
from demora.core.states import MOVES
from tests.servers.ports import free_port

PROJECT = Path(__file__).parents[1]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
SHELLS = ("console", "sh")
SESSIONS = [PROJECT / "docs" / "how-to" / name for name in ("open-the-service.md", "monitor.md")]
MARK = "-- that was it --"


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


def mentioned(page: Path) -> Iterator[str]:
    """The commands with options that stand in the text of a page, between backticks."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    yield from re.findall(r"`(demora [^`\n…]* --?[^`\n…]*)`", text)


COMMANDS = [
    pytest.param(command, id=f"{page.name}: {command}") for page in PAGES for command in [*commands(page), *mentioned(page)]
]
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
            if inspect.iscoroutine(running := eval(code_of(block, f"{page.name}, block {number}"), names)):
                runner.run(running)


def code_of(block: str, name: str) -> CodeType:
    """The code of a block, which is saved first if it says where."""
    save(block)
    return compile(block, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def save(block: str) -> None:
    if named := re.match(r"# (\w+\.py)\n", block):
        Path(named[1]).write_text(block)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_line_is_one_that_demora_takes(command: str) -> None:
    take(command)


def take(command: str) -> None:
    """Read a command line as demora does, and run nothing."""
    words = shlex.split(command)[1:]
    with contextlib.suppress(click.exceptions.Exit):  # --help and --version
        ctx = root.make_context("demora", words)
        while isinstance(ctx.command, click.Group):
            name, verb, rest = ctx.command.resolve_command(ctx, [*ctx._protected_args, *ctx.args])
            assert verb is not None
            ctx = verb.make_context(name, rest, parent=ctx)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="the page calls the service with curl")
@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize("page", SESSIONS, ids=lambda page: page.name)
def test_the_commands_of_a_page_say_what_is_shown(page: Path) -> None:
    steps = [step for block in blocks(page, "console") for step in session(block)]
    said = in_a_shell([command for command, _ in steps])
    for (command, shown), seen in zip(steps, said, strict=True):
        assert fits(shown, seen), f"{command}\n{seen}"


@pytest.mark.slow
@pytest.mark.usefixtures("empty_folder")
def test_the_modules_of_the_tutorial_give_a_worker_their_handlers() -> None:
    page = PROJECT / "docs" / "tutorial.md"
    for block in blocks(page, "py"):
        save(block)
    worker = next(command for command in commands(page) if "shop_jobs" in command)
    enqueue = f"""demora enqueue mail.welcome '{{"to": "a@b.c"}}' {worker.partition("worker ")[2]} --wait --json"""
    _, said = in_a_shell([f"{worker} >worker.log 2>&1 &", enqueue])
    assert "welcomed a@b.c" in said, said + Path("worker.log").read_text()


def fits(shown: str, seen: str) -> bool:
    """Whether what is shown is what is seen, but for `…` and the width of blanks."""
    pattern = ".*".join(map(re.escape, " ".join(shown.split()).split("…")))
    return re.fullmatch(pattern, " ".join(seen.split())) is not None


def session(block: str) -> Iterator[tuple[str, str]]:
    """The commands of a block, each with what is shown of its answer."""
    for step in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, shown = step.partition("\n")
        yield command, shown.strip()


def in_a_shell(commands: Sequence[str]) -> list[str]:
    """What each of these commands says, typed one after the other, with `demora` on the path and a free port for 8080."""
    demora = Path("bin/demora")
    demora.parent.mkdir()
    demora.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m demora "$@"\n')
    demora.chmod(0o755)
    script = "".join(f"{command}\necho '{MARK}'\n" for command in commands).replace("8080", str(free_port()))
    environment = os.environ | {"PATH": f"{demora.parent.absolute()}{os.pathsep}{os.environ['PATH']}"}
    typed = ["bash", "-c", f"trap 'kill $(jobs -p); wait' EXIT\nexec 2>&1\n{script}"]
    run = subprocess.run(typed, env=environment, stdout=subprocess.PIPE, text=True, timeout=120, check=False)
    return run.stdout.split(f"{MARK}\n")[: len(commands)]


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


def test_the_reference_lists_the_attributes_of_a_job() -> None:
    text = (PROJECT / "docs" / "reference" / "python.md").read_text()
    section = text.partition("### The attributes of a Job\n")[2].partition("\n#")[0]
    listed = {name for row in re.findall(r"^\| (`[^|]+`) \|", section, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert listed == {*Job.__struct_fields__, "payload", "result"}

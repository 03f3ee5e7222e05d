"""Commands in a folder of their own, called directly or as real processes."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from demora import Demora, Job, Status
from demora.cli import root
from tests.facts import eventually

Run = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, empty; no settings in the environment, and no module of it left behind."""
    for name in [name for name in os.environ if name.startswith("DEMORA_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


@pytest.fixture
def run() -> Run:
    """Call `demora` with these words; `input` is its standard input."""

    def call(*words: str, input: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(root, words, input=input, prog_name="demora")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Start `demora` as a process of its own; what still runs at the end of the test is killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str, **environment: str) -> "subprocess.Popen[str]":
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        words = (sys.executable, "-m", "demora", *words)
        started.append(subprocess.Popen(words, cwd=folder, env=os.environ | environment, **pipes))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def enqueued(run: Run) -> Callable[..., str]:
    """Enqueue a job with these words; answers with its id."""

    def enqueue(*words: str) -> str:
        id: str = answer(run("enqueue", *(words or ("demo.echo",)), "--json"))["id"]
        return id

    return enqueue


def leaves(group: click.Group = root, before: str = "") -> dict[str, click.Command]:
    """Every command by the words that call it, those of groups too: `keys create`."""
    found: dict[str, click.Command] = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found |= leaves(command, f"{before}{name} ") if isinstance(command, click.Group) else {before + name: command}
    return found


def answer(result: Result) -> Any:
    """What a command printed as JSON."""
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def work_off(*ids: str) -> list[Job]:
    """Run a worker in this process until these jobs have ended."""

    async def work() -> list[Job]:
        async with Demora() as app, app.worker():
            return [await app.wait(id, "20s") for id in ids]

    return asyncio.run(work())


def await_start(id: str) -> None:
    """Return once the job runs."""

    async def look() -> None:
        async with Demora() as app:
            await eventually(lambda: app.get(id), lambda job: job.status is Status.PROCESSING)

    asyncio.run(look())


def read_until(process: "subprocess.Popen[str]", words: str, stream: str = "stderr") -> str:
    """Read what a process says until a line contains these words; answers with all of it."""
    said = ""
    lines: Iterator[str] = getattr(process, stream)
    for line in lines:
        said += line
        if words in line:
            return said
    raise AssertionError(f"the process ended without saying {words!r}; it said:\n{said}")

"""Holds docs/explanation/route-of-a-job.md to the source: it names the files that a real job enters, and their number."""

import asyncio
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import demora
from demora import Demora
from demora.engines.sqlite import SqliteStore
from demora.store.jobs import Settlement
from demora.store.store import Store
from tests.setups import lined_store, postgres_store

PACKAGE = Path(demora.__file__).parent
PROJECT = Path(__file__).parents[1]
PAGE = PROJECT / "docs" / "explanation" / "route-of-a-job.md"

# Modules that hold the values which the others pass around: a job does not enter them, it is made of them.
VALUES = {"core/job.py", "core/states.py", "errors.py", "store/jobs.py"}

# A file is on the route if each of these jobs enters it. What a process does every second or so, such as heartbeats and
# renewals, falls into the time of one job, not of all.
JOBS = 8


class Trace:
    """The files of demora whose functions are called while `on` is set, on every thread that starts under `tracing`."""

    def __init__(self) -> None:
        self.on = False
        self.entered = set[str]()

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if self.on and event == "call":
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(PACKAGE):
                self.entered.add(path.relative_to(PACKAGE).as_posix())


@contextmanager
def tracing() -> Iterator[Trace]:
    trace, before = Trace(), sys.getprofile()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


async def traced(store: Store, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The files that every one of a few jobs enters, from the call of `enqueue` to the end of the call of `settle`."""
    app, settle, settled = Demora(store=store), store.settle, asyncio.Event()

    @app.job("sum")
    async def add(a: int, b: int) -> int:
        return a + b

    async def settle_and_say(settlements: Sequence[Settlement]) -> Any:
        statuses = await settle(settlements)
        settled.set()
        return statuses

    monkeypatch.setattr(store, "settle", settle_and_say)
    routes = []
    with tracing() as trace:
        async with app, app.worker(), asyncio.timeout(60):
            for n in range(JOBS):
                settled.clear()
                trace.entered, trace.on = set(), True
                await app.enqueue("sum", {"a": n, "b": 1})
                await settled.wait()
                trace.on = False
                routes.append(trace.entered)
    return set.intersection(*routes) - VALUES


def section(title: str) -> str:
    """The part of the page below a heading, up to the next one."""
    return PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def named(text: str) -> set[str]:
    return set(re.findall(r"`([\w/]+\.py)`", text))


def check(title: str, files: set[str], *, most: int) -> None:
    """Hold a section to the files that were entered: the first column is the route, at most so many files; the others serve
    every call."""
    listed = section(title)
    route = named("\n".join(line.split(" | ")[0] for line in listed.splitlines() if line.startswith("|")))
    assert named(listed) == files
    assert f"passes {len(route)} files; {len(files - route)} more serve every call" in listed
    assert len(route) <= most


async def test_a_job_on_sqlite_enters_the_files_that_the_page_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = await traced(SqliteStore(tmp_path / "jobs.db"), monkeypatch)
    check("On SQLite", files, most=12)


async def test_a_job_on_postgresql_with_a_line_enters_the_files_that_the_page_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = await traced(lined_store(postgres_store(tmp_path)), monkeypatch)
    check("On PostgreSQL with a line", files, most=18)


def test_the_page_names_only_files_that_exist() -> None:
    missing = [file for file in named(PAGE.read_text()) if not ((PACKAGE / file).is_file() or (PROJECT / file).is_file())]
    assert missing == []

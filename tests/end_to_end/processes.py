"""Real worker processes, and the journal that their handlers write."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.end_to_end.jobs import JOURNAL


class Event(NamedTuple):
    """A line of the journal."""

    what: str
    id: str
    attempt: int
    pid: int
    at: float


class World:
    """A database file, a journal, and the worker processes on them."""

    def __init__(self, folder: Path) -> None:
        self.database_url = f"sqlite:///{folder / 'jobs.db'}"
        self.journal = folder / "journal"
        self.journal.touch()
        self.output = folder / "output"
        self.workers: dict[int, subprocess.Popen[bytes]] = {}

    def start_worker(self, *options: str) -> subprocess.Popen[bytes]:
        """Start one, with a process group of its own: what is typed at a terminal goes to a group."""
        return self._start("worker", "--app", "tests.end_to_end.jobs:app", *options)

    def start_scheduler(self) -> subprocess.Popen[bytes]:
        return self._start("scheduler")

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "demora", *words]
        environment = os.environ | {"DEMORA_DATABASE_URL": self.database_url, JOURNAL: str(self.journal)}
        with self.output.open("ab") as output:
            worker = subprocess.Popen(command, env=environment, stdout=output, stderr=output, process_group=0)
        self.workers[worker.pid] = worker
        return worker

    def kill(self, pid: int) -> None:
        """kill -9, and wait until it is gone."""
        worker = self.workers.pop(pid)
        worker.kill()
        worker.wait(60)

    async def terminate(self, worker: subprocess.Popen[bytes]) -> int:
        """SIGTERM; answers with the exit code."""
        self.workers.pop(worker.pid, None)
        worker.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(worker.wait, 60)

    def events(self, what: str | None = None) -> list[Event]:
        lines = (line.split() for line in self.journal.read_text().splitlines())
        events = [Event(name, id, int(attempt), int(pid), float(at)) for name, id, attempt, pid, at in lines]
        return [event for event in events if what is None or event.what == what]


@contextmanager
def world_in(folder: Path) -> Iterator[World]:
    world = World(folder)
    try:
        yield world
    finally:
        for pid in list(world.workers):
            world.kill(pid)

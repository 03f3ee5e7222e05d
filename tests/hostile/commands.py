"""Real `demora` processes in a folder of their own, without settings of the environment but those that are given."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import demora as package

DEADLINE = 60.0  # seconds
PACKAGES = os.pathsep.join([str(Path(package.__file__).parents[1]), str(Path(__file__).parents[2])])  # demora and its tests


def environment(**given: str) -> dict[str, str]:
    usual = {name: value for name, value in os.environ.items() if not name.startswith("DEMORA_")}
    return usual | {"PYTHONPATH": PACKAGES} | given


def demora(folder: Path, *words: str, **given: str) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    command = [sys.executable, "-m", "demora", *words]
    return subprocess.run(command, cwd=folder, env=environment(**given), capture_output=True, text=True, timeout=DEADLINE)


class Process:
    """A started command, and what it has written so far, to both of its streams."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process, self.said, self._ended = process, "", 0
        self._lines: Queue[str | None] = Queue()
        for stream in (process.stdout, process.stderr):
            threading.Thread(target=self._read, args=[stream], daemon=True).start()

    def until(self, words: str) -> str:
        """The first line with these words that was not read yet."""
        while True:
            line = self._lines.get(timeout=DEADLINE)
            self._ended += line is None
            assert self._ended < 2, f"it ended without saying {words!r}; it said:\n{self.said}"
            if line is not None and words in line:
                return line

    def end(self, last: str = " stopped: ") -> str:
        """SIGTERM; all that it wrote, up to the line with the last words: a child of its own may hold its streams open."""
        self.process.terminate()
        self.until(last)
        self.process.wait(DEADLINE)
        return self.said

    def _read(self, stream: "Iterator[str]") -> None:
        for line in stream:
            self.said += line
            self._lines.put(line)
        self._lines.put(None)


@contextmanager
def running(folder: Path, *words: str, **given: str) -> Iterator[Process]:
    command = [sys.executable, "-m", "demora", *words]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=folder, env=environment(**given), text=True, **pipes)
    try:
        yield Process(process)
    finally:
        process.kill()
        process.wait()

"""Real processes: started so that they die with us, killed, stopped, traced, and looked after."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHON = (sys.executable, "-m")
WORKER = (*PYTHON, "demora", "worker", "--app", "tests.chaos.jobs:app")
SCHEDULER = (*PYTHON, "demora", "scheduler")
WRITE_LOCK = 120  # the byte of the -shm file that a writer locks
PRODUCER = (*PYTHON, "tests.chaos.producer")


class Process:
    """One process, in a session of its own. `taken` while a fault is at work on it; `doomed` once we mean it to end."""

    def __init__(
        self, kind: str, command: Sequence[str], environment: Mapping[str, str], output: Path, *, under: Sequence[str] = ()
    ) -> None:
        self.kind, self._traced, self._output = kind, bool(under), output
        self.taken = self.doomed = False
        whole = [*_with_parent(), *under, *(_with_parent() if under else ()), *command]
        with output.open("ab") as out:
            self._popen = subprocess.Popen(whole, env=environment, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)

    @property
    def pid(self) -> int:
        """Of the program itself, also if it runs under strace."""
        if not self._traced:
            return self._popen.pid
        children = Path(f"/proc/{self._popen.pid}/task/{self._popen.pid}/children")
        try:
            return int(children.read_text().split()[0])
        except (OSError, IndexError):
            return self._popen.pid

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._popen.poll()

    @property
    def said(self) -> str:
        """What it wrote so far."""
        return self._output.read_text(errors="replace")

    @property
    def free(self) -> bool:
        return self.code is None and not self.taken and not self.doomed

    def kill(self) -> None:
        """kill -9 of it and all that it started."""
        self.doomed = True
        self._to_all(signal.SIGKILL)

    def terminate(self) -> None:
        self.doomed = True
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    async def ended(self, within: float) -> int | None:
        """The exit code, or None if it does not end in time."""
        until = time.monotonic() + within
        while self.code is None and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return self.code

    def bury(self) -> None:
        """Kill it if need be, and take leave of it."""
        self._to_all(signal.SIGKILL)
        self._popen.wait(10)

    def _signal(self, number: int) -> None:
        if self.code is None:
            os.kill(self.pid, number)

    def _to_all(self, number: int) -> None:
        if self.code is None:
            os.killpg(self._popen.pid, number)


def _with_parent() -> list[str]:
    """What makes the kernel kill a process when its parent dies, whichever way: we, or the strace that it runs under."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []


def strace(trace: Path, calls: str, inject: str, *, quick: bool = True) -> list[str]:
    """A command line that runs another with a fault in some of its system calls; `quick` cannot send signals."""
    filtered = ["--seccomp-bpf"] if quick else []
    return ["strace", "-f", "-qq", *filtered, "-o", str(trace), "-e", f"trace={calls}", "-e", f"inject={calls}:{inject}"]


def injected(trace: Path) -> int:
    """How many calls strace meddled with."""
    text = trace.read_text() if trace.exists() else ""
    return text.count("(INJECTED)") + text.count("(DELAYED)")


def holds_write_lock(pid: int, database: Path) -> bool:
    """Whether a process is in the middle of a write transaction on an SQLite file, by the kernel's list of locks."""
    shm = database.with_name(f"{database.name}-shm").stat().st_ino
    for line in Path("/proc/locks").read_text().splitlines():
        _, kind, _, mode, holder, inode, first, last = line.replace("-> ", "").split()[:8]
        is_its = (kind, mode, holder) == ("POSIX", "WRITE", str(pid)) and int(inode.split(":")[2]) == shm
        if is_its and "->" not in line and int(first) <= WRITE_LOCK and (last == "EOF" or int(last) >= WRITE_LOCK):
            return True
    return False

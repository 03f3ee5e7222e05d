"""Processes that hold the turn or the lock of a database file, stopped or not, at a moment that the test knows."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLDS = """
import fcntl, os, signal, sys
import apsw

what, file, stopped = sys.argv[1:]
if what == "turn":
    os.makedirs(file + "-sockets", exist_ok=True)
    handle = os.open(file + "-sockets", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
else:
    db = apsw.Connection(file)
    db.set_busy_timeout(60_000)
    db.execute("begin immediate")
print("held", flush=True)
if stopped == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
else:
    sys.stdin.readline()
if what != "turn":
    db.execute("rollback")
    db.close()
"""


class Holder:
    """A process that holds something until it is let go."""

    def __init__(self, what: str, file: Path, *, stopped: bool) -> None:
        state = "stopped" if stopped else "awake"
        command = [sys.executable, "-c", _HOLDS, what, str(file), state]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid, self._stopped = self._process.pid, stopped
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"held\n"
        if stopped:
            os.waitpid(self.pid, os.WUNTRACED)  # returns when it has been stopped

    def let_go(self) -> None:
        """Let it end what it holds, and end."""
        if self._stopped:
            os.kill(self.pid, signal.SIGCONT)
        self._process.communicate(b"\n", timeout=60)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=60)


@contextmanager
def holding(what: str, file: Path, *, stopped: bool = True) -> Iterator[Holder]:
    """A process that holds the `turn` or the `lock` of a database file; stopped, unless it is to let go when told."""
    holder = Holder(what, file, stopped=stopped)
    try:
        yield holder
    finally:
        holder.kill()

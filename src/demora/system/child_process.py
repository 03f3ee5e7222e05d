"""Child processes for process handlers: started with a pipe, written to, killed and reaped."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from . import forks

_CHILD = "import sys; sys.path[:] = sys.argv[2:]; from demora.worker.processes.child import main; main(int(sys.argv[1]))"


class ChildProcess(Protocol):
    """A started process. `exited` gives its exit code, negative for a signal, once it is dead and reaped."""

    reader: asyncio.StreamReader
    exited: "asyncio.Future[int]"

    def write(self, data: bytes) -> None:
        """Write to its pipe; returns at once."""
        ...

    def close(self) -> None:
        """Close the pipe."""
        ...

    def kill(self) -> None:
        """Kill the process and every process that it started. Returns at once; does nothing if it was reaped."""
        ...


def interpreter(fd: int) -> "subprocess.Popen[bytes]":
    """Start a fresh interpreter, never a fork, that runs handlers and uses the socket `fd`. It has a session of its own, so
    Ctrl-C at the terminal does not reach it, and killing its group ends every process that it started."""
    command = [sys.executable, "-c", _CHILD, str(fd), *(entry for entry in sys.path if isinstance(entry, str))]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[fd], start_new_session=True)


async def spawn(start: Callable[[int], "subprocess.Popen[bytes]"] = interpreter) -> ChildProcess:
    """Start a process with one end of a socket pair. A start that fails or is cancelled leaves nothing open."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            reader, writer = await asyncio.open_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        try:
            return Child(start(theirs.fileno()), reader, writer)
        except BaseException:
            writer.close()
            raise


class Child:
    """A real process. A thread waits for its exit."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process, self.reader, self._writer = process, reader, writer
        self._loop = asyncio.get_running_loop()
        forks.release_in_child(self, lambda child: forks.descriptors_of(child._writer.transport))
        self._lock, self._reaped = threading.Lock(), False
        self.exited: asyncio.Future[int] = self._loop.create_future()
        threading.Thread(target=self._await_exit, name="demora-process", daemon=True).start()

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def close(self) -> None:
        self._writer.close()

    def kill(self) -> None:
        with self._lock:
            if not self._reaped:
                self._kill_group()

    def _await_exit(self) -> None:
        """On a thread: wait until the process is dead, kill its group before the system can reuse its id, and reap it."""
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        else:  # pragma: no cover - before Python 3.13 macOS has no waitid
            self._process.wait()
        with self._lock:
            self._kill_group()
            code, self._reaped = self._process.wait(), True
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.exited.set_result, code)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

"""What a worker takes from its surroundings: time, chance, a name and processes. A simulation gives its own."""

import os
import random
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import msgspec


def _name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def _spawn(fd: int) -> "subprocess.Popen[bytes]":
    """Start a fresh interpreter, never a fork, that runs handlers and speaks on `fd`. It has a session of its own: what is
    typed at the terminal does not reach it, and a kill of its group ends what it started too."""
    command = [sys.executable, "-c", _CHILD, str(fd), *(entry for entry in sys.path if isinstance(entry, str))]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[fd], start_new_session=True)


_CHILD = "import sys; sys.path[:] = sys.argv[2:]; from demora.worker.child import main; main(int(sys.argv[1]))"


class Seams(msgspec.Struct, frozen=True):
    """The real surroundings, unless told otherwise. `monotonic` counts seconds, `chance` draws from [0, 1),
    `spawn` starts the process of a slot with one end of a socket pair."""

    monotonic: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random
    name: Callable[[], str] = _name
    spawn: Callable[[int], "subprocess.Popen[bytes]"] = _spawn

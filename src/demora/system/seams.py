"""What a worker takes from its surroundings: time, chance, names and child processes. A simulation replaces them."""

import os
import random
import secrets
import socket
import time
from collections.abc import Awaitable, Callable

import msgspec

from .child_process import ChildProcess, spawn
from .ids import new_id


def _name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


class Seams(msgspec.Struct, frozen=True):
    """The real surroundings by default. `monotonic` counts seconds, `wall` counts those since 1970, `chance` draws from
    [0, 1), `name` makes the id of a worker or scheduler, `job_id` that of a job of a schedule, and `spawn` starts a child
    process."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random
    name: Callable[[], str] = _name
    job_id: Callable[[], str] = new_id
    spawn: Callable[[], Awaitable[ChildProcess]] = spawn

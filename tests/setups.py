"""The set-ups that every conformance test runs on. A new engine is added here and nowhere else."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from demora.clock import Clock
from demora.engines.sqlite import SqliteStore
from demora.store import Store


class Setup(NamedTuple):
    """One way to keep jobs. `shared` says that two stores made for the same place see the same jobs."""

    name: str
    make: Callable[[Path, Clock], Store]
    shared: bool = True


SETUPS = [
    Setup("sqlite-memory", lambda _, clock: SqliteStore(clock=clock), shared=False),
    Setup("sqlite-memory-audited", lambda _, clock: SqliteStore(clock=clock, audit=True), shared=False),
    Setup("sqlite-file", lambda folder, clock: SqliteStore(folder / "jobs.db", clock=clock)),
]
SHARED_SETUPS = [setup for setup in SETUPS if setup.shared]

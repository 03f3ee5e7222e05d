"""Clocks that a campaign sets forth and back: that of processes, and that of a PostgreSQL server.

A process reads the machine's clock, so libfaketime stands before it. To fake a whole server would also make its own timeouts
jump, and those of other tests on it. But demora reads PostgreSQL's clock in two statements, by the plain name
`clock_timestamp()`. So the database of a campaign has a function of this name that adds some seconds, in a schema that its
search path names before `pg_catalog`. The server, its sessions and the statements are real, and every session sees the
change with its next statement, as if the server's clock had been set.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import asyncpg

from tests.chaos import tools
from tests.chaos.faults import faked_clock, set_clock

TURNED = """
create schema turned;
create table turned.clock (seconds int not null);
insert into turned.clock values (0);
create function turned.clock_timestamp() returns timestamptz volatile language sql as
    'select pg_catalog.clock_timestamp() + (select pg_catalog.make_interval(secs => seconds) from turned.clock)';
"""


class Clock(Protocol):
    """A clock that can be set. `environment` is what processes need that read it."""

    environment: Mapping[str, str]

    async def set(self, seconds: int) -> None:
        """Set it so many seconds before or behind the true time."""
        ...


class ProcessClock:
    """The clock of all processes that have this environment."""

    def __init__(self, folder: Path) -> None:
        self.environment: Mapping[str, str] = faked_clock(folder, folder)

    async def set(self, seconds: int) -> None:
        set_clock(Path(self.environment["FAKETIME_TIMESTAMP_FILE"]), seconds)


class DatabaseClock:
    """The clock of one database of a PostgreSQL server, at `url`, that `make` creates."""

    environment: Mapping[str, str] = {}

    def __init__(self, url: str) -> None:
        self.url = url

    @staticmethod
    async def make(server: str, name: str) -> "DatabaseClock":
        """Create a database with a clock that can be set, on the server of a URL."""
        await _execute(server, f"create database {name}")
        clock = DatabaseClock(f"{server.rpartition('/')[0]}/{name}")
        await _execute(clock.url, f"{TURNED} alter database {name} set search_path = turned, pg_catalog")
        return clock

    async def set(self, seconds: int) -> None:
        await _execute(self.url, f"update turned.clock set seconds = {seconds}")


def process_clock(folder: Path) -> ProcessClock | None:
    """The clock of processes, None if there is no libfaketime."""
    return None if tools.missing("libfaketime") else ProcessClock(folder)


async def _execute(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()

"""Counts what demora asks of its database, statement by statement, in the driver."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import apsw
import asyncpg


@contextmanager
def statements() -> Iterator[Counter[str]]:
    """Counts `statements` of every connection that is opened within; on SQLite also `commits`, which on PostgreSQL are as
    many as there are statements that write."""
    counted: Counter[str] = Counter()
    with ExitStack() as counting:
        counting.enter_context(_of_sqlite(counted))
        counting.enter_context(_of_postgres(counted))
        yield counted


@contextmanager
def _of_sqlite(counted: Counter[str]) -> Iterator[None]:
    def seen(event: dict[str, Any]) -> None:
        counted["statements"] += 1
        if event["sql"] == "commit":
            counted["commits"] += 1

    def watch(db: apsw.Connection) -> None:
        db.trace_v2(apsw.SQLITE_TRACE_STMT, seen)

    apsw.connection_hooks.append(watch)
    try:
        yield
    finally:
        apsw.connection_hooks.remove(watch)


@contextmanager
def _of_postgres(counted: Counter[str]) -> Iterator[None]:
    make = asyncpg.Connection.__init__

    def seen(query: Any) -> None:
        counted["statements"] += 1

    def watched(connection: asyncpg.Connection, *args: Any, **how: Any) -> None:
        make(connection, *args, **how)
        connection.add_query_logger(seen)

    with patch.object(asyncpg.Connection, "__init__", watched):  # the driver has no hook for new connections
        yield

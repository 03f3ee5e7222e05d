"""Counts what demora asks of SQLite, statement by statement."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw


@contextmanager
def statements() -> Iterator[Counter[str]]:
    """Counts `statements` and `commits` of every connection that is opened within."""
    counted: Counter[str] = Counter()

    def seen(event: dict[str, Any]) -> None:
        counted["statements"] += 1
        if event["sql"] == "commit":
            counted["commits"] += 1

    def watch(db: apsw.Connection) -> None:
        db.trace_v2(apsw.SQLITE_TRACE_STMT, seen)

    apsw.connection_hooks.append(watch)
    try:
        yield counted
    finally:
        apsw.connection_hooks.remove(watch)

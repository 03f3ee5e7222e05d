"""New SQLite databases in memory, copied from one that was migrated before: a copy costs a tenth of the migration."""

from collections.abc import Sequence
from functools import cache

import apsw

from demora.engines.sql.steps import SchemaStep
from demora.engines.sqlite.connection import connections

_migrate = connections.migrate


def migrate(db: apsw.Connection, known: Sequence[SchemaStep] | None = None) -> None:
    """Migrate as `connections.migrate` does. A file, and what has a schema or gets another one, takes every step."""
    if known is None and not db.filename and not connections.schema_version(db) and not _has_tables(db):
        with db.backup("main", _migrated(tuple(connections.schema_steps())), "main") as copying:
            copying.step(-1)
    _migrate(db, known)


def _has_tables(db: apsw.Connection) -> bool:
    return db.execute("select 1 from sqlite_master").fetchone() is not None


@cache
def _migrated(steps: tuple[SchemaStep, ...]) -> apsw.Connection:
    db = apsw.Connection(":memory:")
    _migrate(db, steps)
    return db

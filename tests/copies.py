"""New SQLite databases, copied from one that was migrated before: a copy costs a tenth of the migration."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

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


def jobs_file(folder: Path) -> Path:
    """The path of the file in a folder that all stores of a test share. The first call makes it, migrated and empty, for
    tests of what is in a file. Tests of how a store makes a file name one that is not there."""
    file = folder / "jobs.db"
    if not file.exists():
        file.touch(0o600)
        file.write_bytes(_migrated_file())
    return file


def _has_tables(db: apsw.Connection) -> bool:
    return db.execute("select 1 from sqlite_master").fetchone() is not None


@cache
def _migrated(steps: tuple[SchemaStep, ...]) -> apsw.Connection:
    db = apsw.Connection(":memory:")
    _migrate(db, steps)
    return db


@cache
def _migrated_file() -> bytes:
    with TemporaryDirectory() as folder:
        file = Path(folder, "jobs.db")
        connections.connect(file).close()
        return file.read_bytes()

"""queries.sql: named blocks, each used."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

import demora.engines.postgres as postgres
import demora.engines.sqlite as sqlite
from demora.core.filters import JobFilter, Sort, TimeRange
from demora.core.job import Priority
from demora.core.states import Status
from demora.engines.sql import queries
from demora.engines.sql.walks import Walk, conditions
from demora.store.jobs import Query

NOW = datetime.now(UTC)
ALL_TIMES = TimeRange(NOW, NOW)
OF_EVERYTHING = JobFilter(
    frozenset(Status), "q", "t", frozenset(Priority), ("x",), "E", "text", ALL_TIMES, ALL_TIMES, ALL_TIMES, "s"
)
EVERYTHING = Query(OF_EVERYTHING, older_than=timedelta(1))

each = pytest.mark.parametrize("engine", [sqlite, postgres], ids=lambda engine: engine.__name__.split(".")[-1])


def folder(engine: ModuleType) -> Path:
    return Path(engine.__file__ or "").parent


@each
def test_every_block_of_sql_has_a_name_and_no_comment(engine: ModuleType) -> None:
    blocks = queries.load(engine.__name__)
    assert len(blocks) == (folder(engine) / "queries.sql").read_text().count("-- name: ")
    assert not any("--" in body or body.endswith(";") for body in blocks.values())


@each
def test_every_block_of_sql_is_used(engine: ModuleType) -> None:
    sql = (folder(engine) / "queries.sql").read_text()
    code = "".join(
        path.read_text() for room in (folder(engine), Path(queries.__file__).parent) for path in room.rglob("*.py")
    )
    parts = {name for sort in Sort for name in conditions(msgspec.structs.replace(EVERYTHING, sort=sort))}
    made = {f"walk_{walk.value}" for walk in Walk} | {f"match_{name}" for name in (*parts, "prefix")}
    blocks = queries.load(engine.__name__).keys() - made
    unused = [name for name in blocks if f'"{name}"' not in code and f"{{{name}}}" not in sql]
    assert unused == []

"""queries.sql: named blocks, each used."""

from pathlib import Path
from types import ModuleType

import pytest

import demora.engines.postgres as postgres
import demora.engines.sqlite as sqlite
from demora.engines.sql import queries

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
        path.read_text() for room in (folder(engine), Path(queries.__file__).parent) for path in room.glob("*.py")
    )
    unused = [name for name in queries.load(engine.__name__) if f'"{name}"' not in code and f"{{{name}}}" not in sql]
    assert unused == []

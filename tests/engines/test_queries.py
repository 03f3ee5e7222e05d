"""queries.sql: named blocks, each used."""

from pathlib import Path

import demora.engines.sqlite as sqlite
from demora.engines import queries

FOLDER = Path(sqlite.__file__).parent


def test_every_block_of_sql_has_a_name_and_no_comment() -> None:
    blocks = queries.load(sqlite.__name__)
    assert len(blocks) == (FOLDER / "queries.sql").read_text().count("-- name: ")
    assert not any("--" in body or body.endswith(";") for body in blocks.values())


def test_every_block_of_sql_is_used() -> None:
    code = "".join(path.read_text() for path in FOLDER.glob("*.py"))
    assert [name for name in queries.load(sqlite.__name__) if f'"{name}"' not in code] == []

"""queries.sql: named blocks, each used, in port order."""

import re
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
from demora.store.store import Store

NOW = datetime.now(UTC)
ALL_TIMES = TimeRange(NOW, NOW)
OF_EVERYTHING = JobFilter(
    frozenset(Status), "q", "t", frozenset(Priority), ("x",), "E", "text", ALL_TIMES, ALL_TIMES, ALL_TIMES, "s"
)
EVERYTHING = Query(OF_EVERYTHING, older_than=timedelta(1))

PARTS = [*(name for name, member in vars(Store).items() if isinstance(member, property)), "line_feed"]

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


def sections(engine: ModuleType) -> dict[str, list[str]]:
    """The names of the blocks under each heading."""
    parts = re.split(r"^-- ==== (\w+) ====$", (folder(engine) / "queries.sql").read_text(), flags=re.MULTILINE)[1:]
    return {
        part: re.findall(r"^-- name: (\w+)$", body, re.MULTILINE) for part, body in zip(parts[::2], parts[1::2], strict=True)
    }


@each
def test_the_sql_of_the_parts_stands_in_port_order(engine: ModuleType) -> None:
    assert list(sections(engine)) == ["store", *PARTS]
    assert [name for names in sections(engine).values() for name in names] == list(queries.load(engine.__name__))


@each
def test_the_sql_of_the_verbs_stands_in_port_order(engine: ModuleType) -> None:
    names = sections(engine)["store"]
    verbs = [verb for verb in vars(Store) if verb in names]
    assert {"add", "settle", "find", "workers"} <= set(verbs)
    assert [name for name in names if name in verbs] == verbs


@each
@pytest.mark.parametrize("part", PARTS)
def test_sql_that_only_one_part_uses_stands_with_it(engine: ModuleType, part: str) -> None:
    code = {path: path.read_text() for path in folder(engine).rglob("*.py")}
    users = {name: [path for path, text in code.items() if f'"{name}"' in text] for name in queries.load(engine.__name__)}
    own = {name for name, paths in users.items() if paths == [folder(engine) / f"{part}.py"]}
    assert own
    assert own - set(sections(engine)[part]) == set()

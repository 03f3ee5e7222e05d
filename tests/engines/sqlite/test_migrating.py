"""Online steps of the schema: earlier versions go on, blocks are committed one by one, and a killed migration continues."""

import logging
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from demora.core.filters import JobFilter
from demora.core.retention import Retention
from demora.engines.sql.steps import SchemaStep
from demora.engines.sqlite import SqliteStore, diagnostics
from demora.engines.sqlite.connection import connections
from demora.errors import SchemaTooNew
from demora.store.jobs import Query
from demora.system import crash
from tests.builders import add_one, claim_ids

EARLIER = connections.schema_steps()
NEXT = connections.newest_schema() + 1
ONLINE = SchemaStep(
    NEXT,
    """-- online
-- What the step is for.

alter table jobs add column colour text;

create index jobs_coloured on jobs (colour) where colour is not null;

-- repeat
update jobs set colour = 'red' where rowid in (select rowid from jobs where colour is null limit 2);
""",
)
CLOSING = SchemaStep(NEXT + 1, "alter table jobs add column taste text;")


@pytest.fixture
async def jobs(store: SqliteStore) -> list[str]:
    return [(await add_one(store)).id for _ in range(5)]


def migrate(path: Path, steps: Sequence[SchemaStep]) -> apsw.Connection:
    db = apsw.Connection(str(path))
    connections.migrate(db, steps)
    return db


def columns(db: apsw.Connection) -> set[str]:
    return {row[1] for row in db.execute("pragma table_info(jobs)")}


async def test_a_store_goes_on_during_and_after_an_online_step_and_can_be_opened_again(
    store: SqliteStore, jobs: list[str], path: Path
) -> None:
    migrate(path, [*EARLIER, ONLINE]).close()
    assert await claim_ids(store) == jobs
    restarted = SqliteStore(path, clock=store.clock)
    await restarted.open()
    added = await add_one(restarted)
    assert await claim_ids(restarted) == [added.id]
    await restarted.close()
    assert connections.stored_version(path) == NEXT
    [found] = [one for one in diagnostics.examine(path, integrity=False).findings if one.check == "schema"]
    assert (found.level, connections.is_usable(path)) == ("ok", True)


async def test_after_a_step_that_is_not_online_earlier_versions_are_refused(store: SqliteStore, path: Path) -> None:
    migrate(path, [*EARLIER, ONLINE, CLOSING]).close()
    with pytest.raises(SchemaTooNew, match=f"schema {NEXT + 1}"):
        await SqliteStore(path).open()
    with pytest.raises(SchemaTooNew):
        migrate(path, [*EARLIER, ONLINE])
    assert not connections.is_usable(path)


async def test_a_schema_without_a_record_of_its_oldest_version_is_refused(store: SqliteStore, path: Path) -> None:
    db = migrate(path, [*EARLIER, ONLINE])
    db.execute("delete from meta where name = 'schema.oldest'")
    with pytest.raises(SchemaTooNew):
        connections.migrate(db, EARLIER)


async def test_each_block_is_committed_by_itself_and_a_repeated_one_until_it_changes_nothing(
    store: SqliteStore, jobs: list[str], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[bool, int]] = []
    other = apsw.Connection(str(path))
    red = "select count(*) from jobs where colour = 'red'"

    def look(point: str) -> None:
        seen.append(("colour" in columns(other), *next(other.execute(red))))

    crash.arm(look)
    try:
        with caplog.at_level(logging.INFO, "demora"):
            migrate(path, [*EARLIER, ONLINE])
    finally:
        crash.arm(None)
    assert seen == [(True, 0), (True, 0), (True, 2), (True, 4), (True, 5), (True, 5), (True, 5)]
    said = [record.getMessage() for record in caplog.records]
    assert [line.split(": ")[1].split(";")[0] for line in said] == [
        "jobs, block 1 of 3",
        "jobs_coloured, block 2 of 3",
        "rows, block 3 of 3",
    ]


@pytest.mark.parametrize("blocks", range(1, 5))
async def test_a_migration_that_was_killed_continues_at_the_same_block(
    store: SqliteStore, jobs: list[str], path: Path, blocks: int
) -> None:
    class Killed(BaseException):
        pass

    left = blocks

    def kill(point: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Killed

    crash.arm(kill)
    try:
        with pytest.raises(Killed):
            migrate(path, [*EARLIER, ONLINE])
    finally:
        crash.arm(None)
    assert connections.stored_version(path) == NEXT - 1
    db = migrate(path, [*EARLIER, ONLINE])
    assert connections.schema_version(db) == NEXT
    assert [row[0] for row in db.execute("select colour from jobs")] == ["red"] * 5


async def test_a_new_file_gets_online_steps_too(path: Path) -> None:
    assert "taste" in columns(migrate(path, [*EARLIER, ONLINE, CLOSING]))


async def test_a_step_that_fails_changes_nothing(store: SqliteStore, path: Path) -> None:
    with pytest.raises(apsw.SQLError):
        migrate(path, [*EARLIER, SchemaStep(NEXT, "alter table jobs add column taste text; no sql;")])
    db = apsw.Connection(str(path))
    assert "taste" not in columns(db)
    assert connections.schema_version(db) == NEXT - 1


def test_processes_that_know_the_schema_before_the_lists_may_use_this_one(path: Path) -> None:
    db = migrate(path, EARLIER)
    assert [step.number for step in EARLIER if step.number > 17 and not step.online] == []
    assert db.execute("select value from meta where name = 'schema.oldest'").fetchall() == [("17",)]
    db.close()


async def test_tags_of_jobs_that_an_earlier_version_adds_after_the_migration_are_found(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    before = [step for step in EARLIER if step.number < 18]
    old = migrate(path, before)
    insert_tagged(old, 1)
    migrate(path, EARLIER).close()
    insert_tagged(old, 2)  # by the process that knows no table of tags
    store = SqliteStore(path)
    await store.open()
    tagged = Query(JobFilter(tags=("old",)))
    assert len((await store.find(tagged)).jobs) == 1
    await store.housekeep(Retention(), limit=10)
    assert len((await store.find(tagged)).jobs) == 2
    await store.close()
    old.close()


def insert_tagged(db: apsw.Connection, number: int) -> None:
    values = {"id": number.to_bytes(16), "type": "demo.echo", "queue": "default", "tags": '["old"]', "payload": "{}"}
    required = {row[1] for row in db.execute("pragma table_info(jobs)") if row[3] and row[4] is None} - values.keys()
    row = {**dict.fromkeys(required, 0), **values}
    marks = ", ".join("?" * len(row))
    db.execute(f"insert into jobs ({', '.join(row)}) values ({marks})", list(row.values()))


async def test_a_database_that_was_made_with_the_table_of_tags_is_not_filled(store: SqliteStore, path: Path) -> None:
    await add_one(store, tags=("new",))
    await store.housekeep(Retention(), limit=10)
    db = apsw.Connection(str(path))
    assert db.execute("select value from meta where name = 'tags.filled'").fetchall() == [("0",)]
    db.close()

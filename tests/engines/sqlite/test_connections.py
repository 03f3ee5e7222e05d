"""Opening a file: its mode, its settings, its schema."""

import os
import sys
from pathlib import Path

import apsw
import pytest

from demora.engines.sqlite import SqliteStore
from demora.errors import SchemaTooNew, StoreError
from tests.builders import add_one


async def test_the_file_is_private(store: SqliteStore, path: Path) -> None:
    assert os.stat(path).st_mode & 0o777 == 0o600


async def test_writes_are_durable_and_readers_do_not_wait(store: SqliteStore, path: Path) -> None:
    await add_one(store)
    assert apsw.Connection(str(path)).pragma("journal_mode") == "wal"
    assert await store._database.bare(lambda db: db.pragma("synchronous")) == 2


async def test_a_schema_newer_than_known_is_refused(path: Path) -> None:
    db = apsw.Connection(str(path))
    db.pragma("user_version", 99)
    db.close()
    with pytest.raises(SchemaTooNew, match="schema 99"):
        await SqliteStore(path).open()


async def test_the_file_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    db = apsw.Connection(str(path))
    db.execute("create table jobs (theirs)")
    db.close()
    with pytest.raises(StoreError, match="another program"):
        await SqliteStore(path).open()
    assert list(apsw.Connection(str(path)).execute("select name from sqlite_master")) == [("jobs",)]


def fill(path: Path) -> None:
    path.write_bytes(b"this is no database at all" * 100)


async def test_a_file_that_is_no_database_is_refused_by_a_store_error(path: Path) -> None:
    fill(path)
    with pytest.raises(StoreError):
        await SqliteStore(path).open()


async def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"jobs\.db"):
        await SqliteStore(tmp_path / "nowhere" / "jobs.db").open()


async def test_the_file_is_whole_after_use(store: SqliteStore, path: Path) -> None:
    await add_one(store)
    assert apsw.Connection(str(path)).pragma("integrity_check") == "ok"


async def test_a_queue_is_named_even_if_the_commit_that_named_it_failed(store: SqliteStore) -> None:
    assert store._database.is_open
    await store._database.bare(lambda db: db.set_commit_hook(lambda: True))
    with pytest.raises(StoreError):
        await add_one(store, queue="mail")
    await store._database.bare(lambda db: db.set_commit_hook(None))
    await add_one(store, queue="mail")
    assert [queue.name for queue in await store.queues()] == ["mail"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows who holds which lock")
async def test_a_further_connection_leaves_the_locks_of_the_first_in_place(store: SqliteStore, path: Path) -> None:
    sibling = store.sibling()
    assert sibling is not None
    await sibling.open()
    assert str(os.stat(path).st_ino) in locked_files()
    await sibling.close()


def locked_files() -> set[str]:
    """The inodes of the files on which this process holds a lock."""
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return {line[5].split(":")[2] for line in lines if line[4] == str(os.getpid())}

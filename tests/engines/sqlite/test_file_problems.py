"""Why a file cannot be used, in a sentence that names it."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from demora.engines.sqlite.connection.connections import connect, stored_version
from demora.engines.sqlite.connection.transactions import translate
from demora.errors import StoreError

NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can reach."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Run the block as a user whom permissions concern."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_is_no_database_file(folder: Path) -> None:
    for use in (connect, stored_version):
        with pytest.raises(StoreError) as refused:
            use(folder)
        assert str(refused.value) == (
            f"{folder} is a folder, not a database file; name a file in it, for example sqlite:///{folder}/demora.db"
        )


def test_a_folder_that_does_not_exist_is_named(folder: Path) -> None:
    with pytest.raises(StoreError, match=r"^there is no folder .*/none for the database file jobs\.db; create it"):
        connect(folder / "none" / "jobs.db")


def test_a_file_that_may_not_be_written_is_named(folder: Path) -> None:
    connect(folder / "jobs.db").close()
    (folder / "jobs.db").chmod(0o444)
    with unprivileged(), pytest.raises(StoreError, match=r"^this user may not read and write the database file .*/jobs\.db"):
        connect(folder / "jobs.db")


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_that_may_not_be_written_is_named(folder: Path, exists: bool) -> None:
    if exists:
        connect(folder / "jobs.db").close()
        (folder / "jobs.db").chmod(0o666)
    folder.chmod(0o555)
    with (
        unprivileged(),
        pytest.raises(StoreError, match=f"^this user may not write to the folder {folder}, where"),
    ):
        connect(folder / "jobs.db")
    folder.chmod(0o755)


def test_a_full_disk_is_said_to_be_full(folder: Path) -> None:
    db = connect(folder / "jobs.db")
    db.execute(f"pragma max_page_count = {db.pragma('page_count')}")
    with pytest.raises(apsw.FullError) as full:
        db.execute("create table filler as select zeroblob(1000000) as filling")
    assert str(translate(full.value)).startswith("the disk is full, and nothing was written: make room")
    db.close()


def test_a_file_that_became_read_only_is_said_to_be(folder: Path) -> None:
    connect(folder / "jobs.db").close()
    db = apsw.Connection(str(folder / "jobs.db"), flags=apsw.SQLITE_OPEN_READONLY)
    with pytest.raises(apsw.ReadOnlyError) as refused:
        db.execute("create table more (id)")
    assert str(translate(refused.value)).startswith(
        "the database file is read-only for this process, and nothing was written"
    )
    db.close()

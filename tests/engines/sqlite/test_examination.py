"""What can be said of a database file from outside, without making or changing it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from demora.engines.sqlite import SqliteStore, diagnostics
from demora.engines.sqlite.connection import connections
from demora.store.diagnostics import Finding
from tests.builders import new_job

MIB = 2**20


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A database file with jobs in it, closed."""
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    await store.add([new_job() for _ in range(500)])
    await store.close()
    return tmp_path / "jobs.db"


def found(path: Path, check: str, *, integrity: bool = True) -> Finding:
    [finding] = [one for one in diagnostics.examine(path, integrity=integrity).findings if one.check == check]
    return finding


def test_a_sound_file_has_only_good_findings(path: Path) -> None:
    examined = diagnostics.examine(path, integrity=True)
    assert examined.usable
    assert {one.check: one.level for one in examined.findings if one.check != "disk"} == dict.fromkeys(
        ["database", "permissions", "schema", "sqlite", "file system", "log", "integrity"], "ok"
    )


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    examined = diagnostics.examine(tmp_path / "none.db", integrity=True)
    assert not examined.usable
    assert examined.findings[0].level == "problem"
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert found(tmp_path / "no" / "none.db", "folder").level == "problem"


def test_a_file_that_others_may_read_is_told_with_the_remedy(path: Path) -> None:
    path.chmod(0o640)
    told = found(path, "permissions")
    assert (told.level, told.advice) == ("warning", f"chmod 600 {path}")
    assert "0640" in told.fact


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_this_user_may_not_write_is_a_problem(path: Path) -> None:
    path.parent.chmod(0o500)
    try:
        assert found(path, "folder").level == "problem"
    finally:
        path.parent.chmod(0o700)


def spoil(path: Path) -> None:
    """Overwrite pages in the middle of the file."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xff" * 16384)


def test_a_damaged_file_is_found(path: Path) -> None:
    spoil(path)
    assert found(path, "integrity").level == "problem"


def test_a_file_that_is_locked_for_a_moment_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is let go when the check of it begins to wait."""
    holder = apsw.Connection(str(path))
    holder.pragma("locking_mode", "exclusive")

    class LetGo(connections.BusyHandler):
        def __call__(self, count: int) -> bool:
            holder.close()
            return True

    monkeypatch.setattr(connections, "BusyHandler", LetGo)
    holder.execute("begin exclusive")
    assert diagnostics._whole(path).level == "ok"


def test_without_integrity_the_file_is_not_read_through(path: Path) -> None:
    spoil(path)
    assert "integrity" not in {one.check for one in diagnostics.examine(path, integrity=False).findings}


def with_version(number: int) -> Callable[[Path], Any]:
    def change(path: Path) -> None:
        db = apsw.Connection(str(path))
        db.pragma("user_version", number)
        db.execute("update meta set value = ? where name = 'schema.oldest'", (str(number),))
        db.close()

    return change


SCHEMAS = {
    "newer": (with_version(connections.newest_schema() + 1), "problem"),
    "older": (with_version(1), "warning"),
    "none": (with_version(0), "problem"),
    "no database": (lambda path: path.write_text("dear diary, " * 20), "problem"),
}


@pytest.mark.parametrize(("change", "level"), SCHEMAS.values(), ids=SCHEMAS)
def test_a_schema_that_is_not_ours_is_told_and_left_alone(path: Path, change: Callable[[Path], Any], level: str) -> None:
    change(path)
    before = path.read_bytes()
    assert found(path, "schema").level == level
    assert not diagnostics.examine(path, integrity=True).usable
    assert path.read_bytes() == before


@pytest.mark.parametrize(("size", "level"), [(64 * MIB - 1, "ok"), (64 * MIB, "warning")])
def test_a_large_log_is_told(path: Path, size: int, level: str) -> None:
    log = path.with_name("jobs.db-wal")
    with log.open("wb") as file:
        file.truncate(size)
    assert found(path, "log", integrity=False).level == level


@pytest.mark.parametrize(
    ("free", "level"),
    [(1024 * MIB, "ok"), (1024 * MIB - 1, "warning"), (64 * MIB, "warning"), (64 * MIB - 1, "problem")],
)
def test_a_disk_that_fills_up_is_told(path: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: str) -> None:
    total = shutil.disk_usage(path.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: total._replace(free=free))
    assert found(path, "disk").level == level


MOUNTINFO = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
40 22 0:35 / /srv rw - nfs4 server:/export rw
41 40 0:36 / /srv/my\040disk rw - xfs /dev/vdb rw
broken line
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [("/home/x", "ext4"), ("/srv", "nfs4"), ("/srv/a", "nfs4"), ("/srv/my disk/a", "xfs"), ("/srvx", "ext4")],
)
def test_the_file_system_is_that_of_the_nearest_mount_point(folder: str, kind: str) -> None:
    assert diagnostics.file_system(Path(folder), MOUNTINFO) == kind


def test_a_network_file_system_is_told(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text("22 1 0:35 / / rw - nfs4 server:/export rw\n")
    monkeypatch.setattr(diagnostics, "MOUNTS", mounts)
    assert found(path, "file system").level == "warning"

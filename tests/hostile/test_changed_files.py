"""Another program changes the files of an open database."""

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import apsw
import httpx
import pytest

from demora import Demora
from demora.api import make_api
from demora.engines.sqlite import SqliteStore, notifier
from demora.errors import StoreDamaged, StoreError, StoreGone
from demora.settings import Settings
from demora.store.jobs import Query, Topic
from demora.system import notices
from tests.builders import add_one
from tests.facts import eventually

ADDED = 100


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def log(path: Path) -> Path:
    return path.with_name("jobs.db-wal")


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    for _ in range(ADDED):
        await add_one(store)
    yield store
    await store.close()


# The write-ahead log


@pytest.mark.parametrize("left", [0, 32, 20_000])
async def test_a_log_that_was_cut_is_noticed_before_anything_is_written(
    store: SqliteStore, path: Path, log: Path, left: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_said", {})
    os.truncate(log, left)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=f"was cut to {left} bytes"):
            await add_one(store)
    assert os.stat(log).st_size == left
    [said] = [record for record in caplog.records if getattr(record, "event", "") == "store.damaged"]
    assert said.levelno == logging.ERROR
    await store.close()
    assert apsw.Connection(str(path)).pragma("integrity_check") == "ok"


async def test_what_is_left_of_a_log_is_not_written_to_the_file_at_the_close(
    store: SqliteStore, path: Path, log: Path
) -> None:
    os.truncate(log, os.stat(log).st_size - 4000)  # a part of the last page
    with pytest.raises(StoreDamaged):
        await add_one(store)
    before = os.stat(path)
    await store.close()
    assert os.stat(path).st_mtime_ns == before.st_mtime_ns
    assert apsw.Connection(str(path)).pragma("integrity_check") == "ok"


async def test_every_process_notices_a_log_that_was_cut(store: SqliteStore, path: Path, log: Path) -> None:
    sibling = SqliteStore(path)
    await sibling.open()
    os.truncate(log, 0)
    for each in (store, sibling):
        with pytest.raises(StoreDamaged):
            await add_one(each)
    with pytest.raises(StoreError):
        await SqliteStore(path).open()
    await sibling.close()


async def test_a_log_that_was_deleted_is_noticed(store: SqliteStore, log: Path) -> None:
    os.unlink(log)
    with pytest.raises(StoreDamaged, match="deleted or replaced"):
        await add_one(store)


@pytest.mark.slow
async def test_a_log_that_a_checkpoint_has_emptied_is_well(store: SqliteStore, path: Path, log: Path) -> None:
    """As backup tools do."""
    empty = "import apsw, sys; db = apsw.Connection(sys.argv[1]); print(db.pragma('user_version'))\n"
    empty += "db.pragma('wal_checkpoint', 'truncate')"
    for _ in range(2):
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", empty, str(path)], check=True)
        assert os.stat(log).st_size == 0
        for _ in range(ADDED):
            await add_one(store)
    [queue] = await store.queues()
    assert queue.ready == 3 * ADDED


async def test_the_service_is_not_ready_and_refuses_jobs(path: Path, log: Path) -> None:
    url = f"sqlite:///{path}"
    async with Demora(url) as app:
        transport = httpx.ASGITransport(make_api(app, Settings(database_url=url)))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080") as http:
            assert (await http.post("/api/v1/jobs", json={"type": "demo.echo"})).status_code == 201
            assert (await http.get("/health/ready")).status_code == 200
            os.truncate(log, 0)
            refused = await http.post("/api/v1/jobs", json={"type": "demo.echo"})
            ready = await eventually(lambda: http.get("/health/ready"), lambda answer: answer.status_code == 503)
    assert (refused.status_code, refused.json()["title"]) == (503, "The database is damaged")
    assert ready.json()["status"] == "unhealthy"
    assert "jobs.db" not in refused.text + ready.text


# The database file


READS = [
    lambda store: store.queues(),
    lambda store: store.workers(),
    lambda store: store.api_keys.all(),
    lambda store: store.find(Query(limit=1)),
    lambda store: store.diagnostics.dead_letters(1),
]


async def test_a_file_that_was_taken_away_is_noticed_at_once_and_used_again_when_it_is_back(
    store: SqliteStore, path: Path
) -> None:
    elsewhere = path.with_name("elsewhere.db")
    os.rename(path, elsewhere)
    with pytest.raises(StoreGone) as gone:
        await add_one(store)
    assert not gone.value.replaced
    os.rename(elsewhere, path)
    await add_one(store)


async def test_a_file_that_was_replaced_is_noticed_at_once(store: SqliteStore, path: Path) -> None:
    path.with_name("other.db").touch(0o600)
    path.with_name("other.db").replace(path)
    with pytest.raises(StoreGone) as gone:
        await add_one(store)
    assert gone.value.replaced


async def test_no_job_is_acknowledged_that_was_committed_to_a_file_without_a_name(store: SqliteStore, path: Path) -> None:
    """The file is removed while the batch is under way, after the look at it."""
    remove = partial(os.unlink, path)
    with pytest.raises(StoreGone):
        await store._database.write(lambda tx: remove())


@pytest.mark.parametrize("read", READS)
async def test_no_read_answers_from_a_file_that_is_gone_or_makes_a_new_one(
    store: SqliteStore, path: Path, read: Callable[[SqliteStore], Awaitable[object]]
) -> None:
    os.unlink(path)
    for _ in range(2):
        with pytest.raises(StoreGone):
            await read(store)
    sibling = store.sibling()
    assert sibling is not None
    with pytest.raises(StoreGone):
        await sibling.open()
    assert path.name not in os.listdir(path.parent)


async def test_a_waiter_wakes_within_a_second_when_the_file_is_gone(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "FILE_LOOKS", 1000)  # a read of the file would notice too, but only at each third look
    with store.subscribe(Topic.READY) as subscription:
        os.unlink(path)
        assert await subscription.wait(10)


@pytest.mark.parametrize("folder", [".", "inner"])
async def test_where_a_link_leads_nowhere_yet_the_file_is_made_private(tmp_path: Path, folder: str) -> None:
    (tmp_path / "inner").mkdir()
    link, target = tmp_path / "link.db", tmp_path / folder / "target.db"
    link.symlink_to(target)
    mask = os.umask(0)
    try:
        store = SqliteStore(link)
        await store.open()
        await add_one(store)
        modes = {file.name: os.stat(file).st_mode & 0o777 for file in target.parent.glob("target.db*")}
        await store.close()
    finally:
        os.umask(mask)
    assert modes == {"target.db": 0o600, "target.db-wal": 0o600, "target.db-shm": 0o600}


async def test_a_link_into_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "nowhere" / "target.db")
    with pytest.raises(StoreError, match=r"link\.db"):
        await SqliteStore(link).open()

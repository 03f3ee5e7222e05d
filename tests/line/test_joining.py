"""A job that a caller adds in a transaction of its own gets its place in the line with the commit."""

from pathlib import Path

import asyncpg
import pytest

from demora.core.job import Unique
from demora.line import LinedStore, claiming
from demora.line import maintainer as maintaining
from demora.line.redis import RedisLine
from demora.store.jobs import LOCKED_RETRY, Topic
from tests.builders import add_one, claim, claim_ids, new_job, seconds
from tests.servers.valkey import Server
from tests.setups import postgres_store, postgres_url

SOON = 5.0  # seconds


@pytest.fixture(autouse=True)
def _no_sweep_and_no_safety_net(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintaining, "TICK", 3600.0)
    monkeypatch.setattr(claiming, "SQL_CLAIM_EVERY", 3600.0)


async def test_a_commit_wakes_a_waiter_and_its_claim_finds_the_jobs(server: Server, tmp_path: Path) -> None:
    store = LinedStore(postgres_store(tmp_path), lambda: RedisLine(server.url))
    await store.open()
    connection = await asyncpg.connect(postgres_url())
    try:
        with store.subscribe(Topic.READY) as place:
            assert await claim_ids(store) == []
            place.clear()
            async with connection.transaction():
                soon, later = await store.within(connection).add([new_job(), new_job(delay=seconds(60))])
                assert await claim_ids(store) == []
            assert await place.wait(SOON)
            claimed = await claim(store)
        assert [job.lease.id for job in claimed.jobs] == [soon.id]
        assert claimed.next_in is not None
        places, _ = await (await store._maintainer()).line.places()
        assert [place.id for place in places] == [later.id]
    finally:
        await connection.close()
        await store.close()


async def test_a_job_that_a_transaction_holds_is_tried_now_and_then_and_wakes_no_waiter(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claiming, "LONG_DUE", -1)
    store = LinedStore(postgres_store(tmp_path), lambda: RedisLine(server.url))
    await store.open()
    connection = await asyncpg.connect(postgres_url())
    try:
        added = await add_one(store, unique=Unique("one"))
        with store.subscribe(Topic.READY) as place:
            async with connection.transaction():
                await store.within(connection).add([new_job(unique=Unique("one", replace=True))])
                for _ in range(3):
                    place.clear()
                    claimed = await claim(store)
                    assert (claimed.jobs, claimed.next_in) == ([], LOCKED_RETRY)
                    assert not await place.wait(0)
                assert (await claim(store.inner)).next_in == LOCKED_RETRY
            assert await place.wait(SOON)
        assert await claim_ids(store) == [added.id]
    finally:
        await connection.close()
        await store.close()

"""Positions of events on PostgreSQL, where transactions end in another order than they begin."""

import asyncpg
import pytest

from demora.engines.postgres import PostgresStore, events
from demora.engines.postgres.connection.connections import in_schema
from tests.builders import add_ids, add_one, new_job, run_one

END = "update demora.jobs set status = 6, completed_at = 1, settled = pg_current_xact_id() where id = $1"


@pytest.fixture(autouse=True)
async def listened_to(store: PostgresStore) -> None:
    await store.events.begin()


async def told(store: PostgresStore, position: str) -> tuple[list[str], str]:
    found = await store.events.settled(position, 100)
    assert found is not None
    return [job.id for job in found.jobs], found.position


@pytest.mark.parametrize("most", [events.MOST_RUNNING, 0])
async def test_a_transaction_that_ends_late_is_told_after_it_has_ended(
    store: PostgresStore, url: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MOST_RUNNING", most)
    slow, quick = await add_ids(store, {"queue": "slow"}, {"queue": "quick"})
    position = await store.events.position()
    connection = await asyncpg.connect(url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(in_schema(END, store.options.schema), slow)
        await store.cancel([quick])
        ids, position = await told(store, position)
        assert ids == [quick]
        ids, position = await told(store, position)
        assert ids == ([] if most else [quick])  # a position that cannot name it repeats what came after it
        await transaction.commit()
        ids, position = await told(store, position)
        assert slow in ids
        assert (await told(store, position))[0] == []
    finally:
        await connection.close()


async def test_a_job_of_a_transaction_that_takes_long_is_new_when_that_commits(store: PostgresStore, url: str) -> None:
    mark = (await store.events.added(None, 10)).mark
    connection = await asyncpg.connect(url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        [late] = await store.within(connection).add([new_job()])
        for _ in range(5):
            await add_one(store)
            mark = (await store.events.added(mark, 10)).mark
        await transaction.commit()
        assert late.id in [job.id for job in (await store.events.added(mark, 10)).jobs]
    finally:
        await connection.close()


async def test_numbers_of_another_server_are_old(store: PostgresStore, url: str) -> None:
    """A dump that is restored elsewhere brings numbers of transactions that are ahead of that server."""
    position = await store.events.position()
    added = await add_one(store)
    await run_one(store)
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(
            in_schema("update demora.jobs set settled = '4000000000000' where id = $1", store.options.schema), added.id
        )
    finally:
        await connection.close()
    assert (await told(store, position))[0] == []

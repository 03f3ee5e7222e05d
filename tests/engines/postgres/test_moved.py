"""Transactions end in another order than they began: none falls between two looks of whoever looks after a line."""

import asyncpg

from demora.engines.postgres import PostgresStore
from tests.builders import add_one, new_job, seconds

HORIZON = seconds(600)


async def test_a_transaction_that_began_before_a_look_and_ends_after_it_is_told(url: str, store: PostgresStore) -> None:
    await store.line_feed.begin()
    start = await store.line_feed.position()
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            [slow] = await store.within(connection).add([new_job()])
            quick = await add_one(store)
            first = await store.line_feed.moved(start, HORIZON, 10)
            assert first is not None
            assert [place.id for place in first.places] == [quick.id]
    finally:
        await connection.close()
    second = await store.line_feed.moved(first.position, HORIZON, 10)
    assert second is not None
    assert [place.id for place in second.places] == [slow.id]
    third = await store.line_feed.moved(second.position, HORIZON, 10)
    assert third is not None
    assert third.places == []


async def test_nothing_is_read_again_while_another_transaction_takes_its_time(url: str, store: PostgresStore) -> None:
    await store.line_feed.begin()
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("select pg_current_xact_id()")
            position = await store.line_feed.position()
            for _ in range(3):
                added = await add_one(store)
                found = await store.line_feed.moved(position, HORIZON, 10)
                assert found is not None
                assert [place.id for place in found.places] == [added.id]
                position = found.position
    finally:
        await connection.close()

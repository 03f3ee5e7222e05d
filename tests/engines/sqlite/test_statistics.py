"""Statistics on SQLite: what a store remembers of its last write is never trusted over the row."""

from collections.abc import AsyncIterator

import pytest

from demora.core.statistics import MINUTE, Tally, widened
from demora.engines.sqlite import SqliteStore
from demora.engines.sqlite.connection.transactions import Transaction
from demora.engines.sqlite.jobs import runs
from demora.store.jobs import Settlement
from tests.builders import DONE, add_one, claim_one, ms, settlement, windows_of
from tests.clock import TestClock


@pytest.fixture
async def store(clock: TestClock) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(clock=clock)
    await store.open()
    yield store
    await store.close()


async def only(store: SqliteStore) -> Tally:
    [tally] = widened(await windows_of(store), MINUTE).values()
    return tally


async def next_settlement(store: SqliteStore) -> Settlement:
    await add_one(store)
    return settlement(await claim_one(store), DONE, ran=ms(5))


async def fail_after(store: SqliteStore, made: Settlement) -> None:
    """Settle in a transaction that is rolled back."""

    def write(tx: Transaction) -> None:
        runs.settle(tx, [made], store._statistics)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store._database.write(write)


async def test_what_was_rolled_back_is_not_counted(store: SqliteStore) -> None:
    await store.settle([await next_settlement(store)])
    made = await next_settlement(store)
    await fail_after(store, made)
    assert (await only(store)).completed == 1
    await store.settle([made])
    tally = await only(store)
    assert (tally.completed, sum(tally.run.values()), sum(tally.realtime.values())) == (2, 2, 2)


async def test_a_first_write_that_was_rolled_back_is_not_counted(store: SqliteStore) -> None:
    made = await next_settlement(store)
    await fail_after(store, made)
    await store.settle([made])
    assert (await only(store)).completed == 1


async def test_a_store_goes_on_where_its_row_is(store: SqliteStore, clock: TestClock) -> None:
    """It has forgotten what it wrote: another window was in between, as after a step of the clock."""
    for turned in (0, 10, -10):
        clock.turn(turned)
        await store.settle([await next_settlement(store)])
    assert (await only(store)).completed == 3

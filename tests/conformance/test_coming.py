"""coming: how many waiting jobs come due in each part of a time to come."""

from datetime import timedelta

from demora.store.store import Store
from tests.builders import add_ids, claim_one, seconds
from tests.clock import TestClock

HOUR = seconds(3600)


async def test_waiting_jobs_are_counted_by_when_they_come_due(store: Store, clock: TestClock) -> None:
    delays = (0, 1, 899, 900, 901, 2700, 3599, 3600, 7200)
    await add_ids(store, *({"delay": seconds(delay)} for delay in delays))
    assert await store.diagnostics.coming(HOUR, 4) == [2, 2, 0, 2]
    clock.turn(900)
    assert await store.diagnostics.coming(HOUR, 4) == [1, 0, 2, 1]


async def test_jobs_that_run_or_have_ended_do_not_come_due(store: Store) -> None:
    await add_ids(store, {})
    await claim_one(store)
    [cancelled] = await add_ids(store, {"delay": seconds(60)})
    await store.cancel([cancelled])
    assert await store.diagnostics.coming(timedelta(hours=1), 3) == [0, 0, 0]

"""The rest of the line feed: places of rows, epochs of the line, how queues are arranged, and jobs that no caller places."""

import asyncio
from typing import cast

import pytest

from demora.core.job import Lane, Priority
from demora.core.pace import EVERY_QUEUE, PaceRequest
from demora.line import LinedStore, SqlStore
from demora.store.jobs import QueueChange
from demora.store.store import Store
from tests.builders import DONE, add_one, claim, claim_one, run_one, seconds, settle
from tests.clock import TestClock

NOWHERE = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def sql(store: Store) -> SqlStore:
    """The SQL store, below a line or not."""
    return cast(SqlStore, store.inner if isinstance(store, LinedStore) else store)


async def test_a_row_tells_its_place_and_whether_it_waits(sql: SqlStore) -> None:
    waiting = await add_one(sql, queue="mail", priority=Priority.HIGH, delay=seconds(9))
    await add_one(sql)
    ended = await run_one(sql)
    found = {one.place.id: one for one in await sql.line_feed.row_places([waiting.id, ended, NOWHERE])}
    assert found.keys() == {waiting.id, ended}
    place = found[waiting.id].place
    assert (place.queue, place.lane, place.rank) == ("mail", Lane.SCHEDULED, Priority.HIGH)
    assert [found[id].waiting for id in (waiting.id, ended)] == [True, False]


async def test_one_of_the_callers_that_expect_an_epoch_begins_the_next(sql: SqlStore) -> None:
    before = await sql.line_feed.begin()
    records = await asyncio.gather(
        *[sql.line_feed.bump(before.epoch, above=before.epoch + 5, run=f"run{n}") for n in range(4)]
    )
    assert len({(record.epoch, record.run) for record in records}) == 1
    assert records[0].epoch > before.epoch + 5
    late = await sql.line_feed.bump(before.epoch, above=0, run="late")
    assert (late.epoch, late.run) == (records[0].epoch, records[0].run)


async def test_an_arrangement_has_the_order_the_pause_and_the_held_lanes(sql: SqlStore) -> None:
    await add_one(sql, queue="usual")
    await sql.set_queue("mail", QueueChange(paused=True, step=seconds(7)))
    await sql.set_queue("also", QueueChange(paused=True))
    await sql.paces.set("slow", PaceRequest(gap=seconds(60), burst=1), by="ann")
    found = {one.queue: one for one in await sql.line_feed.arrangements()}
    assert found.keys() == {"mail", "also", "slow"}
    ranks = len(Priority)
    assert found["mail"].paused
    assert found["mail"].offsets[Lane.REALTIME * ranks + Priority.HIGH] == 7000
    assert not found["slow"].paused
    assert found["slow"].offsets[Lane.SCHEDULED * ranks] is None
    assert found["slow"].offsets[Lane.REALTIME * ranks] == 0


async def test_a_new_job_is_not_parked_while_a_line_follows_the_rows(sql: SqlStore) -> None:
    """A worker that knows all types finds it in the line only, whatever claims have parked of its type."""
    await sql.line_feed.begin()
    parked = await add_one(sql, type="report")
    await claim(sql, types=frozenset({"mail"}))
    added = await add_one(sql, type="report")
    waiting = {one.place.id: one.waiting for one in await sql.line_feed.row_places([parked.id, added.id])}
    assert waiting == {parked.id: False, added.id: True}


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_a_walk_passes_each_waiting_job_that_is_due_soon_once(sql: SqlStore, clock: TestClock, limit: int) -> None:
    await add_one(sql)
    await run_one(sql)
    await add_one(sql)
    await claim_one(sql)
    await add_one(sql, delay=seconds(11))
    soon = [
        (await add_one(sql, queue=queue, priority=priority, delay=delay)).id
        for queue in ("a", "b")
        for priority in (Priority.HIGH, Priority.LOW)
        for delay in (None, None, seconds(5), seconds(10))
    ]
    places, after = [], None
    while True:
        walked = await sql.line_feed.walk(seconds(10), limit, after)
        assert len(walked.places) <= limit
        places += walked.places
        after = walked.next
        if after is None:
            break
    rows = [row.place for row in await sql.line_feed.row_places(soon)]
    assert sorted(places, key=lambda place: place.id) == sorted(rows, key=lambda place: place.id)
    late = await sql.line_feed.walk(seconds(10), 100, since=clock.wall() + 10_000)
    assert sorted(place.id for place in late.places) == sorted(soon[3::4])


async def test_a_pace_of_all_queues_holds_the_lanes_of_those_without_one_of_their_own(sql: SqlStore) -> None:
    await sql.set_queue("follows", QueueChange(paused=True))
    await sql.paces.set("own", None, by="ann")
    await sql.paces.set(EVERY_QUEUE, PaceRequest(gap=seconds(60), burst=1), by="ann")
    found = {one.queue: one.offsets[Lane.SCHEDULED * len(Priority)] for one in await sql.line_feed.arrangements()}
    assert (found[EVERY_QUEUE], found["follows"]) == (None, None)
    assert found["own"] is not None


async def test_a_delivery_that_no_caller_places_is_reported_before_the_answer(sql: SqlStore) -> None:
    await sql.line_feed.begin()
    heard: list[str] = []
    sql.line_feed.on_unplaced(lambda: heard.append("unplaced"))
    await add_one(sql)
    await settle(sql, await claim_one(sql), DONE)
    assert heard == []
    await add_one(sql, webhook_url="https://example.com/hook")
    await settle(sql, await claim_one(sql), DONE)
    assert heard == ["unplaced"]

"""moved: the jobs that moved into waiting since a position, for the maintainer of a line."""

from typing import cast

import pytest

from demora.core.pace import Pace, request_of
from demora.core.verdict import Raised
from demora.line import LinedStore, SqlStore
from demora.store.jobs import Change
from demora.store.store import Store
from tests.builders import DONE, add_ids, add_one, claim_ids, claim_one, ms, seconds, settle
from tests.clock import TestClock

HORIZON = seconds(600)


@pytest.fixture
async def outbox(store: Store) -> SqlStore:
    """The SQL store, below a line or not, with its rows telling of their moves."""
    inner = store.inner if isinstance(store, LinedStore) else store
    sql = cast(SqlStore, inner)
    await sql.line_feed.begin()
    return sql


async def moved(outbox: SqlStore, since: str) -> tuple[list[str], str]:
    """The ids that moved since a position, and the position after them."""
    found = await outbox.line_feed.moved(since, HORIZON, 100)
    assert found is not None
    assert found.next is None
    return [place.id for place in found.places], found.position


async def test_the_clock_can_be_asked_for(outbox: SqlStore, clock: TestClock) -> None:
    clock.turn(5)
    assert await outbox.line_feed.read_clock() == clock.wall_us()
    assert outbox.line_feed.wall_us() == clock.wall_us()


async def test_every_move_into_waiting_is_told_once(outbox: SqlStore, clock: TestClock) -> None:
    position = await outbox.line_feed.position()
    ids = await add_ids(outbox, {}, {"delay": seconds(60)})
    told, position = await moved(outbox, position)
    assert told == ids
    assert (await moved(outbox, position))[0] == []
    await settle(outbox, await claim_one(outbox), Raised("no", after=seconds(5)))
    told, position = await moved(outbox, position)
    assert told == [ids[0]]
    await outbox.change(ids[1], Change(delay=seconds(30)))
    told, position = await moved(outbox, position)
    assert told == [ids[1]]
    clock.turn(6)
    await settle(outbox, await claim_one(outbox), Raised("no", permanent=True))
    told, position = await moved(outbox, position)
    assert told == []
    await outbox.retry([ids[0]])
    told, position = await moved(outbox, position)
    assert told == [ids[0]]


async def test_what_a_pace_lets_go_has_moved(outbox: SqlStore, clock: TestClock) -> None:
    await outbox.paces.set("default", request_of(Pace()), by="test")
    added = await add_one(outbox, delay=ms(10))
    position = await outbox.line_feed.position()
    clock.turn(ms=20)
    assert [job.id for job in (await outbox.paces.release()).jobs] == [added.id]
    assert (await moved(outbox, position))[0] == [added.id]


async def test_what_waits_no_longer_is_not_told(outbox: SqlStore) -> None:
    position = await outbox.line_feed.position()
    done, cancelled, waits = await add_ids(outbox, {}, {}, {"delay": seconds(1)})
    await outbox.cancel([cancelled])
    await settle(outbox, await claim_one(outbox), DONE)
    assert (await moved(outbox, position))[0] == [waits]
    assert await claim_ids(outbox) == []
    assert done != waits


async def test_moves_are_told_page_by_page(outbox: SqlStore) -> None:
    position = await outbox.line_feed.position()
    ids = [*await add_ids(outbox, *[{"delay": seconds(1)}] * 5), *await add_ids(outbox, *[{"delay": seconds(2)}] * 2)]
    told: list[str] = []
    page = await outbox.line_feed.moved(position, HORIZON, 3)
    while page is not None:
        told += [place.id for place in page.places]
        page = None if page.next is None else await outbox.line_feed.moved(position, HORIZON, 3, page.next)
    assert told == ids


async def test_what_moves_while_pages_are_told_is_left_to_the_next_time(outbox: SqlStore) -> None:
    start = await outbox.line_feed.position()
    ids = await add_ids(outbox, *[{"delay": seconds(1)}] * 3)
    first = await outbox.line_feed.moved(start, HORIZON, 2)
    assert first is not None
    later = await add_ids(outbox, *[{"delay": seconds(1)}] * 5)
    second = await outbox.line_feed.moved(start, HORIZON, 2, first.next)
    assert second is not None
    assert [place.id for place in first.places] == ids[:2]
    assert ([place.id for place in second.places], second.next) == ([ids[2], later[0]], None)
    assert (await moved(outbox, first.position))[0] == later


async def test_what_is_beyond_the_horizon_is_told_when_the_horizon_has_reached_it(
    outbox: SqlStore, clock: TestClock
) -> None:
    position, until = await outbox.line_feed.position(), clock.wall() + 600_000
    near, far = await add_ids(outbox, {"delay": seconds(599)}, {"delay": seconds(601)})
    told, position = await moved(outbox, position)
    assert told == [near]
    clock.turn(2)
    assert (await moved(outbox, position))[0] == []
    walked = await outbox.line_feed.walk(HORIZON, 100, since=until)
    assert [place.id for place in walked.places] == [far]


async def test_a_position_that_the_database_never_had_is_not_known(outbox: SqlStore) -> None:
    here = await outbox.line_feed.position()
    beyond = f"{int(here.partition(':')[0]) + 10**12}{':' if ':' in here else ''}"
    assert await outbox.line_feed.moved(beyond, HORIZON, 10) is None

"""claim_by_ids: what a line handed out is leased only if its row agrees, whatever the line believes."""

from datetime import timedelta

from demora.core.pace import Pace, request_of
from demora.store.jobs import ClaimRequest, QueueChange
from demora.store.line_feed import Entry
from demora.store.store import Store
from tests.builders import add_ids, claim, seconds
from tests.clock import TestClock


async def claimed(store: Store, *ids: str, queue: str = "default") -> list[str]:
    """What is leased of these."""
    return await leased(store, [Entry(id, queue) for id in ids])


async def leased(store: Store, entries: list[Entry]) -> list[str]:
    below = getattr(store, "inner", store)
    got = await below.line_feed.claim_by_ids(ClaimRequest("ann", len(entries), lease=timedelta(seconds=30)), entries)
    return [job.lease.id for job in got.claimed.jobs]


async def test_nothing_is_leased_a_millisecond_before_it_is_due(store: Store, clock: TestClock) -> None:
    ids = await add_ids(store, {"delay": seconds(1)})
    clock.turn(ms=999)
    assert await claimed(store, *ids) == []
    clock.turn(ms=1)
    assert await claimed(store, *ids) == ids


async def test_nothing_is_leased_twice_or_from_another_queue(store: Store) -> None:
    ids = await add_ids(store, {}, {})
    assert await claimed(store, *ids, queue="other") == []
    assert await claimed(store, *ids) == ids
    assert await claimed(store, *ids) == []


async def test_a_job_that_the_line_hands_out_twice_at_once_is_leased_once(store: Store) -> None:
    one, other = await add_ids(store, {}, {})
    assert sorted(await claimed(store, one, other, one)) == [one, other]


async def test_nothing_is_leased_that_was_cancelled(store: Store) -> None:
    ids = await add_ids(store, {}, {})
    await store.cancel(ids[:1])
    assert await claimed(store, *ids) == ids[1:]


async def test_nothing_is_leased_from_a_paused_queue(store: Store) -> None:
    ids = await add_ids(store, {})
    await store.set_queue("default", QueueChange(paused=True))
    assert await claimed(store, *ids) == []


async def test_a_paused_queue_holds_back_no_job_of_another(store: Store) -> None:
    [paused] = await add_ids(store, {})
    [other] = await add_ids(store, {"queue": "other"})
    await store.set_queue("default", QueueChange(paused=True))
    assert await leased(store, [Entry(paused, "default"), Entry(other, "other")]) == [other]


async def test_nothing_is_leased_that_a_pace_holds(store: Store, clock: TestClock) -> None:
    await store.paces.set("default", request_of(Pace()), by="ann")
    delayed, now = await add_ids(store, {"delay": seconds(1)}, {})
    clock.turn(1)
    assert await claimed(store, delayed, now) == [now]


async def test_nothing_is_leased_that_the_pace_of_all_queues_holds(store: Store, clock: TestClock) -> None:
    await store.paces.set("*", request_of(Pace()), by="ann")
    delayed, now = await add_ids(store, {"delay": seconds(1)}, {})
    free = await add_ids(store, {"delay": seconds(1), "queue": "free"})
    await store.paces.set("free", None, by="ann")
    clock.turn(1)
    assert await claimed(store, delayed, now) == [now]
    assert await claimed(store, *free, queue="free") == free


async def test_a_claim_by_ids_tells_when_the_first_parked_job_that_the_claim_may_lease_is_due(
    store: Store, clock: TestClock
) -> None:
    below = getattr(store, "inner", store)

    async def parked_in(*types: str, queues: tuple[str, ...] | None = None) -> timedelta | None:
        request = ClaimRequest("ann", 1, lease=seconds(30), queues=queues, types=frozenset(types) if types else None)
        found: timedelta | None = (await below.line_feed.claim_by_ids(request, [])).parked_in
        return found

    assert await parked_in("report") is None
    await add_ids(store, {"type": "report"})
    await claim(store, types=frozenset({"mail"}))
    assert [await parked_in("report"), await parked_in()] == [timedelta(0)] * 2
    assert await parked_in("mail") is None
    assert await parked_in("report", queues=("other",)) is None
    assert await parked_in("report", queues=("default",)) == timedelta(0)

"""queues and set_queue: settings that the next claim follows, pauses, and counts."""

import pytest

from demora.core.job import QueueOrder
from demora.core.states import Status
from demora.store.jobs import Pause, Queue, QueueChange, QueueQuery
from demora.store.store import Store
from tests.builders import BROKEN, DONE, LEASE, add_ids, add_one, claim, claim_ids, ended_one, ms, run_one, seconds
from tests.clock import TestClock


async def test_queues_are_listed_by_name_once_they_were_named(store: Store) -> None:
    await add_ids(store, {"queue": "b"}, {"queue": "a"}, {"queue": "b"})
    await store.set_queue("c", QueueChange())
    assert [queue.name for queue in await store.queues()] == ["a", "b", "c"]


async def test_a_queue_stays_named_when_its_jobs_are_gone(store: Store) -> None:
    await store.remove([await ended_one(store, Status.COMPLETED, queue="q")])
    assert await store.queues() == [Queue("q")]


async def test_a_queue_that_nobody_set_has_the_usual_settings(store: Store) -> None:
    await add_one(store)
    [queue] = await store.queues()
    assert (queue.order, queue.pause) == (QueueOrder(step=seconds(1000), strict=False, head_start=seconds(30)), None)


async def test_counts_say_how_many_jobs_stand_where(store: Store, clock: TestClock) -> None:
    await add_ids(store, *[{"queue": "q"}] * 6, {"queue": "q", "delay": ms(10)}, {"queue": "q", "delay": ms(11)})
    await run_one(store, BROKEN)
    await run_one(store, DONE)
    await claim(store, 2)
    assert await store.queues() == [Queue("q", ready=2, delayed=2, processing=2, dead=1)]
    clock.turn(ms=10)
    assert await store.queues() == [Queue("q", ready=3, delayed=1, processing=2, dead=1)]


async def test_a_lapsed_job_counts_as_processing_until_it_is_settled(store: Store, clock: TestClock) -> None:
    await add_one(store)
    await claim(store)
    clock.turn(LEASE.total_seconds())
    assert [queue.processing for queue in await store.queues()] == [1]


async def test_settings_are_changed_one_by_one_and_answered(store: Store) -> None:
    changes = [QueueChange(step=seconds(5)), QueueChange(strict=True), QueueChange(head_start=ms(0)), QueueChange()]
    answers = [(await store.set_queue("q", change)).order for change in changes]
    assert answers[0] == QueueOrder(step=seconds(5))
    assert answers[1] == QueueOrder(step=seconds(5), strict=True)
    assert answers[2] == answers[3] == QueueOrder(step=seconds(5), strict=True, head_start=ms(0))
    assert [await store.set_queue("q", QueueChange())] == await store.queues()


async def test_strictness_can_be_taken_off_again(store: Store) -> None:
    await store.set_queue("q", QueueChange(strict=True))
    assert not (await store.set_queue("q", QueueChange(strict=False))).order.strict


async def test_a_pause_has_a_reason_and_a_time(store: Store, clock: TestClock) -> None:
    paused = await store.set_queue("q", QueueChange(paused=True, reason="the mail server is down"))
    assert paused.pause == Pause("the mail server is down", clock.now())
    assert [queue.pause for queue in await store.queues()] == [paused.pause]


async def test_a_pause_knows_who_made_it(store: Store, clock: TestClock) -> None:
    paused = await store.set_queue("q", QueueChange(paused=True, by="ann"))
    assert paused.pause == Pause(None, clock.now(), "ann")
    assert (await store.set_queue("q", QueueChange(strict=True))).pause == paused.pause
    assert (await store.set_queue("q", QueueChange(paused=False))).pause is None


async def test_pausing_again_keeps_the_time_and_takes_the_new_reason(store: Store, clock: TestClock) -> None:
    await store.set_queue("q", QueueChange(paused=True, reason="one"))
    since = clock.now()
    clock.turn(5)
    assert (await store.set_queue("q", QueueChange(paused=True, reason="two"))).pause == Pause("two", since)


async def test_pausing_again_without_a_reason_leaves_the_pause_as_it_is(store: Store, clock: TestClock) -> None:
    paused = await store.set_queue("q", QueueChange(paused=True, reason="one", by="ann"))
    clock.turn(5)
    assert (await store.set_queue("q", QueueChange(paused=True, by="bob"))).pause == paused.pause
    again = await store.set_queue("q", QueueChange(paused=True, reason="two", by="bob"))
    assert paused.pause is not None
    assert again.pause == Pause("two", paused.pause.paused_at, "bob")
    await store.set_queue("q", QueueChange(paused=False))
    assert (await store.set_queue("q", QueueChange(paused=True, by="eve"))).pause == Pause(None, clock.now(), "eve")


async def test_other_changes_leave_a_pause_alone(store: Store, clock: TestClock) -> None:
    before = await store.set_queue("q", QueueChange(paused=True, reason="one"))
    clock.turn(5)
    assert (await store.set_queue("q", QueueChange(step=seconds(1)))).pause == before.pause


async def test_a_resumed_queue_forgets_its_pause_and_keeps_its_settings(store: Store) -> None:
    await store.set_queue("q", QueueChange(paused=True, reason="one", step=seconds(5)))
    resumed = await store.set_queue("q", QueueChange(paused=False))
    assert (resumed.pause, resumed.order.step) == (None, seconds(5))


@pytest.mark.parametrize("first", [True, False], ids=["new", "named"])
async def test_a_paused_queue_still_takes_jobs_and_counts_them(store: Store, first: bool) -> None:
    if not first:
        await add_one(store, queue="q", delay=seconds(60))
    await store.set_queue("q", QueueChange(paused=True))
    await add_one(store, queue="q")
    assert await claim_ids(store) == []
    assert [queue.ready for queue in await store.queues()] == [1]


async def test_a_pause_leaves_running_jobs_alone(store: Store) -> None:
    await add_one(store)
    [job] = (await claim(store)).jobs
    await store.set_queue("default", QueueChange(paused=True))
    assert (await store.lease_status([job.lease])).lost == frozenset()


async def test_the_next_claim_through_any_store_follows(pair: tuple[Store, Store]) -> None:
    one, other = pair
    added = await add_one(one)
    await one.set_queue("default", QueueChange(paused=True))
    assert await claim_ids(other) == []
    await other.set_queue("default", QueueChange(paused=False))
    assert await claim_ids(one) == [added.id]


async def test_queues_are_shown_page_by_page_with_their_counts(store: Store) -> None:
    await add_ids(store, *[{"queue": name} for name in "edcbaac"])
    assert await shown(store, limit=2) == [("a", 2), ("b", 1)]
    assert await shown(store, after="b", limit=2) == [("c", 2), ("d", 1)]
    assert await shown(store, after="d", limit=2) == [("e", 1)]
    assert await shown(store, after="e", limit=2) == []
    assert await shown(store, after="bb") == [("c", 2), ("d", 1), ("e", 1)]


async def test_one_queue_is_shown_by_its_name(store: Store) -> None:
    await add_ids(store, {"queue": "ab"}, {"queue": "ab"}, {"queue": "abc"})
    assert await shown(store, name="ab") == [("ab", 2)]
    assert await shown(store, name="a") == await shown(store, name="abb") == []


async def shown(store: Store, **which) -> list[tuple[str, int]]:
    return [(queue.name, queue.ready) for queue in await store.queues(QueueQuery(**which))]

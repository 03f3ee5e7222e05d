"""claim, the order: ready time, plus a step per rank, plus the head start of real-time jobs; across queues too."""

import pytest

from demora.core.job import Priority
from demora.core.verdict import HandedBack, Raised, Snoozed
from demora.store.jobs import Change, QueueChange
from demora.store.store import Store
from tests.builders import LEASE, add_ids, add_one, claim, claim_ids, claim_one, ms, run_one, seconds, settle, settle_lapsed
from tests.clock import TestClock

LOW, NORMAL, HIGH, CRITICAL = ({"priority": priority} for priority in sorted(Priority, reverse=True))


async def apart(store: Store, clock: TestClock, *jobs: dict, by: float) -> list[str]:
    """Add jobs one after another, so many seconds apart."""
    ids = []
    for job in jobs:
        ids += await add_ids(store, job)
        clock.turn(by)
    return ids


async def test_the_more_urgent_goes_first(store: Store) -> None:
    ids = await add_ids(store, LOW, CRITICAL, NORMAL, HIGH)
    assert await claim_ids(store) == [ids[n] for n in (1, 3, 2, 0)]


@pytest.mark.parametrize("limit", [1, 2, 3, 6])
async def test_equal_jobs_go_in_order_of_adding(store: Store, limit: int) -> None:
    ids = await add_ids(store, *[{} for _ in range(6)])
    assert [id for _ in range(0, 6, limit) for id in await claim_ids(store, limit)] == ids


@pytest.mark.parametrize("limit", [1, 2, 4])
async def test_equal_jobs_of_different_queues_go_in_order_of_adding(store: Store, limit: int) -> None:
    ids = await add_ids(store, *[{"queue": name} for name in "dbca"])
    assert [id for _ in range(0, 4, limit) for id in await claim_ids(store, limit)] == ids


async def test_jobs_of_a_thousand_queues_go_in_order_of_adding(store: Store) -> None:
    ids = await add_ids(store, *[{"queue": f"q{n * 7919 % 1000}"} for n in range(1000)])
    assert await claim_ids(store, 10) == ids[:10]
    assert await claim_ids(store, 2000) == ids[10:]


async def test_a_job_that_waited_a_step_longer_overtakes_the_next_rank(store: Store, clock: TestClock) -> None:
    old, young = await apart(store, clock, LOW, NORMAL, by=1000.001)
    assert await claim_ids(store) == [old, young]


async def test_a_job_that_waited_less_than_a_step_longer_does_not(store: Store, clock: TestClock) -> None:
    old, young = await apart(store, clock, LOW, NORMAL, by=999.999)
    assert await claim_ids(store) == [young, old]


async def test_a_low_job_overtakes_a_critical_one_after_fifty_minutes(store: Store, clock: TestClock) -> None:
    old, young = await apart(store, clock, LOW, CRITICAL, by=3000.001)
    assert await claim_ids(store) == [old, young]


async def test_sums_that_are_equal_go_in_order_of_adding(store: Store, clock: TestClock) -> None:
    old, young = await apart(store, clock, LOW, NORMAL, by=1000)
    assert await claim_ids(store, 1) == [old]
    assert await claim_ids(store, 1) == [young]


async def test_the_step_is_the_queues_own_and_applies_at_once(store: Store, clock: TestClock) -> None:
    old, young = await apart(store, clock, LOW, NORMAL, by=5)
    await store.set_queue("default", QueueChange(step=seconds(4)))
    assert await claim_ids(store) == [old, young]


async def test_a_strict_queue_knows_no_aging(store: Store, clock: TestClock) -> None:
    await store.set_queue("default", QueueChange(strict=True))
    old, young, youngest = await apart(store, clock, LOW, NORMAL, CRITICAL, by=10_000_000)
    assert await claim_ids(store) == [youngest, young, old]


async def test_real_time_jobs_have_a_head_start_over_scheduled_ones(store: Store, clock: TestClock) -> None:
    [scheduled] = await add_ids(store, {"delay": seconds(10)})
    clock.turn(10 + 29.999)
    [realtime] = await add_ids(store, {})
    assert await claim_ids(store) == [realtime, scheduled]


async def test_no_scheduled_job_is_put_off_by_more_than_the_head_start(store: Store, clock: TestClock) -> None:
    [scheduled] = await add_ids(store, {"delay": seconds(10)})
    clock.turn(10 + 30.001)
    [realtime] = await add_ids(store, {})
    assert await claim_ids(store) == [scheduled, realtime]


async def test_the_head_start_is_the_queues_own(store: Store, clock: TestClock) -> None:
    await store.set_queue("default", QueueChange(head_start=ms(0)))
    [scheduled] = await add_ids(store, {"delay": ms(10)})
    clock.turn(ms=11)
    [realtime] = await add_ids(store, {})
    assert await claim_ids(store) == [scheduled, realtime]


async def test_each_queue_keeps_its_own_settings_in_the_common_order(store: Store, clock: TestClock) -> None:
    await store.set_queue("keen", QueueChange(step=seconds(1)))
    usual = await add_ids(store, {"queue": "usual", **LOW})
    clock.turn(60)
    keen = await add_ids(store, {"queue": "keen", **LOW})
    assert await claim_ids(store) == keen + usual


async def test_a_hand_back_keeps_its_place(store: Store, clock: TestClock) -> None:
    first, second = await apart(store, clock, {}, {}, by=1)
    await settle(store, await claim_one(store), HandedBack())
    assert await claim_ids(store) == [first, second]


@pytest.mark.parametrize("outcome", [Raised("no"), Raised("no", after=ms(0)), Snoozed(ms(0))])
async def test_retries_and_snoozes_lose_the_head_start(store: Store, clock: TestClock, outcome) -> None:
    [again] = await add_ids(store, {"retry_delay": ms(0)})
    await settle(store, await claim_one(store), outcome)
    clock.turn(29)
    [realtime] = await add_ids(store, {})
    assert await claim_ids(store) == [realtime, again]


async def test_a_lapse_loses_the_head_start(store: Store, clock: TestClock) -> None:
    [again] = await add_ids(store, {"retry_delay": ms(0)})
    await claim_one(store)
    clock.turn(LEASE.total_seconds())
    await settle_lapsed(store)
    clock.turn(29)
    [realtime] = await add_ids(store, {})
    assert await claim_ids(store) == [realtime, again]


async def test_a_rescheduled_job_loses_the_head_start(store: Store, clock: TestClock) -> None:
    moved, realtime = await add_ids(store, {}, {})
    await store.change(moved, Change(at=clock.now()))
    assert await claim_ids(store) == [realtime, moved]


async def test_scheduled_jobs_go_by_their_due_time(store: Store, clock: TestClock) -> None:
    ids = await add_ids(store, *[{"delay": ms(n)} for n in (30, 10, 20, 10)])
    clock.turn(1)
    assert await claim_ids(store) == [ids[n] for n in (1, 3, 2, 0)]


async def test_a_limit_cuts_the_order_and_does_not_change_it(store: Store, clock: TestClock) -> None:
    jobs = [{"queue": q, "delay": ms(7 * n % 5), **rank} for n in range(3) for q in "ab" for rank in (LOW, HIGH, CRITICAL)]
    await add_ids(store, *jobs)
    clock.turn(1)
    whole = await claim(store)
    for job in whole.jobs:
        await settle(store, job, HandedBack())
    assert [(await claim_one(store)).lease.id for _ in jobs] == [job.lease.id for job in whole.jobs]


async def test_in_turn_a_queue_comes_before_all_those_named_after_it(store: Store, clock: TestClock) -> None:
    urgent, first, second = await add_ids(
        store, {"queue": "b", "priority": Priority.CRITICAL}, {"queue": "a", "priority": Priority.LOW}, {"queue": "a"}
    )
    assert await claim_ids(store, 1, queues=["a", "b"], in_turn=True) == [second]
    assert await claim_ids(store, 2, queues=["a", "b"], in_turn=True) == [first, urgent]


async def test_not_in_turn_queues_are_one_line(store: Store) -> None:
    [urgent, *_] = await add_ids(store, {"queue": "b", "priority": Priority.CRITICAL}, {"queue": "a"})
    assert await claim_ids(store, 1, queues=["a", "b"]) == [urgent]


async def test_in_turn_a_paused_queue_lets_the_next_one_go(store: Store) -> None:
    _, other = await add_ids(store, {"queue": "a"}, {"queue": "b"})
    await store.set_queue("a", QueueChange(paused=True))
    assert await claim_ids(store, 5, queues=["a", "b"], in_turn=True) == [other]


@pytest.mark.parametrize("queues", [None, ["default"]])
async def test_a_job_that_has_ended_hides_none_that_waits(store: Store, clock: TestClock, queues: list[str] | None) -> None:
    await add_one(store, priority=Priority.LOW, delay=seconds(1))
    clock.turn(1)
    await run_one(store)
    await add_one(store, delay=seconds(600))
    waiting = await add_one(store, priority=Priority.LOW, delay=seconds(60))
    assert (await claim(store, queues=queues)).next_in == seconds(60)
    clock.turn(60)
    assert await claim_ids(store, queues=queues) == [waiting.id]

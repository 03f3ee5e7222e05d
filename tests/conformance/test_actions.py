"""Actions: verbs on all jobs that match, which take only jobs that were there when they were asked for, each once."""

import asyncio
from typing import Any

import msgspec
import pytest

from demora.client.actions import ActionHandler, Actions, RunLost
from demora.client.bulk import BATCH, PICKED, Bulk, BulkResult
from demora.core import action
from demora.core.action import MOST_IDS, QUEUE, ActionProgress
from demora.core.job import Priority
from demora.core.outbound import webhook
from demora.core.states import Status
from demora.core.verdict import Raised, Succeeded
from demora.errors import Invalid, JobNotFound
from demora.handlers.context import Context
from demora.handlers.control import Snooze
from demora.store.jobs import Answer, Change
from demora.store.store import Store
from demora.system.ids import new_id
from tests.builders import (
    BROKEN,
    add_ids,
    add_one,
    claim,
    claimed_job,
    ended_one,
    job_of,
    ms,
    seconds,
    settle,
    settle_lapsed,
    status_of,
)
from tests.clock import TestClock


class Killed(Exception):
    """The worker of an action died."""


async def unheard(progress: ActionProgress) -> None:
    """Stores nothing."""


async def run(store: Store, actions: Actions, *, dies_at: int = 0) -> BulkResult:
    """Claim the action that waits and carry it out, as a worker does. With `dies_at` the worker dies after so many pages,
    when it has stored which jobs the next one has."""
    [job] = (await claim(store, 1, queues=[QUEUE])).jobs
    pages = 0

    async def save(progress: ActionProgress) -> None:
        nonlocal pages
        pages += 1
        await actions.keep(job.lease, ms(0), progress)
        if pages - 1 == dies_at > 0:
            raise Killed

    result = await actions.carry_out(job.lease.id, save)
    await settle(store, job, Succeeded(msgspec.json.encode(result)))
    return result


async def die(store: Store, actions: Actions, clock: TestClock, *, at: int) -> None:
    """Carry out an action until its worker dies, and let its lease lapse."""
    with pytest.raises(Killed):
        await run(store, actions, dies_at=at)
    clock.turn(61)
    await settle_lapsed(store)
    clock.turn(10)  # the delay of its retry


@pytest.fixture
def actions(store: Store) -> Actions:
    return Actions(store, Bulk(store), new_id)


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [("cancel", None, Status.CANCELLED), ("retry", Status.FAILED, Status.QUEUED), ("delete", Status.FAILED, None)],
)
async def test_an_action_takes_the_jobs_that_match_and_no_others(
    store: Store, actions: Actions, action: str, before: Status | None, after: Status | None
) -> None:
    if before is None:
        hit, miss = await add_ids(store, {"queue": "mail"}, {"queue": "other"})
    else:
        hit, miss = await ended_one(store, before, queue="mail"), await ended_one(store, before, queue="other")
    asked = await actions.start(action, "queue:mail")
    assert await actions.carry_out(asked.job.id, unheard) == BulkResult(matched=1, done=1)
    found = await store.get(hit)
    assert (None if found is None else found.status) is after
    assert await status_of(store, miss) is (before or Status.QUEUED)


async def test_a_dry_run_of_an_action_only_counts(store: Store, actions: Actions) -> None:
    ids = await add_ids(store, {}, {})
    asked = await actions.start("cancel", "queue:default", dry_run=True)
    assert await actions.carry_out(asked.job.id, unheard) == BulkResult(matched=2)
    assert [await status_of(store, id) for id in ids] == [Status.QUEUED] * 2


async def test_a_job_that_is_added_after_the_action_is_left_alone(store: Store, actions: Actions, clock: TestClock) -> None:
    await add_one(store)
    asked = await actions.start("cancel", "queue:default")
    clock.turn(1)
    later = await add_one(store)
    assert await actions.carry_out(asked.job.id, unheard) == BulkResult(matched=1, done=1)
    assert await status_of(store, later.id) is Status.QUEUED


MANY = 2 * BATCH + 1
ALL = BulkResult(matched=MANY, done=MANY)


async def test_an_action_whose_worker_dies_goes_on_and_retries_no_job_twice(
    store: Store, actions: Actions, clock: TestClock
) -> None:
    ids = await add_ids(store, *[{}] * MANY)
    for job in (await claim(store, MANY)).jobs:
        await settle(store, job, BROKEN)
    asked = await actions.start("retry", "queue:default")
    await die(store, actions, clock, at=1)
    assert (await actions.get(asked.job.id)).result == BulkResult(matched=BATCH, done=BATCH)
    again = (await claim(store, MANY, queues=["default"])).jobs
    assert len(again) == BATCH
    for job in again:  # they fail a second time, so that their state matches again
        await settle(store, job, BROKEN)
    assert await run(store, actions) == ALL
    waiting = [id for id in ids if await status_of(store, id) is Status.QUEUED]
    assert set(waiting) == set(ids) - {job.lease.id for job in again}


async def test_an_action_that_goes_on_cancels_no_job_that_was_retried_since(
    store: Store, actions: Actions, clock: TestClock
) -> None:
    ids = await add_ids(store, *[{}] * MANY)
    await actions.start("cancel", "queue:default")
    await die(store, actions, clock, at=1)
    meant = ids[-1]  # the newest comes first
    assert await status_of(store, meant) is Status.CANCELLED
    await store.retry([meant])
    assert await run(store, actions) == ALL
    assert [id for id in ids if await status_of(store, id) is Status.QUEUED] == [meant]


@pytest.mark.parametrize("done", [True, False])
async def test_a_page_that_was_under_way_is_cancelled_once(
    store: Store, actions: Actions, clock: TestClock, done: bool
) -> None:
    """The worker dies after it has stored which page it takes, before or after it has cancelled its jobs."""
    ids = await add_ids(store, *[{}] * 4)
    await actions.start("cancel", "queue:default")
    [job] = (await claim(store, 1, queues=[QUEUE])).jobs
    await actions.keep(job.lease, ms(0), ActionProgress().with_page(ids, None))
    if done:
        await store.cancel(ids)
        await store.retry(ids[:1])
    clock.turn(61)
    await settle_lapsed(store)
    clock.turn(10)
    assert await run(store, actions) == (BulkResult(4, 3, 1) if done else BulkResult(4, 4))
    assert (await status_of(store, ids[0]) is Status.QUEUED) is done


async def test_an_action_that_goes_on_reschedules_no_job_twice(store: Store, actions: Actions, clock: TestClock) -> None:
    """A job whose new time has come, and that failed since, keeps the delay of its retry."""
    ids = await add_ids(store, *[{"delay": seconds(3600)}] * MANY)
    asked = await actions.start("reschedule", "queue:default", at=clock.now() + seconds(30))
    await die(store, actions, clock, at=1)
    [job] = (await claim(store, 1, queues=["default"])).jobs
    await settle(store, job, Raised("no"))
    later = (await job_of(store, job.lease.id)).due_at
    assert await run(store, actions) == ALL
    assert (await job_of(store, job.lease.id)).due_at == later
    others = {(await job_of(store, id)).due_at for id in ids if id != job.lease.id}
    assert others == {asked.order.at, clock.now()}  # the second page comes after that time


async def test_of_a_page_that_was_under_way_only_the_rest_is_rescheduled(
    store: Store, actions: Actions, clock: TestClock
) -> None:
    ids = await add_ids(store, *[{"delay": seconds(3600)}] * 3)
    at = clock.now() + seconds(30)
    await actions.start("reschedule", "queue:default", at=at)
    [job] = (await claim(store, 1, queues=[QUEUE])).jobs
    await actions.keep(job.lease, ms(0), ActionProgress().with_page(ids, None))
    for id in ids[:2]:
        await store.change(id, Change(at=at))
    clock.turn(61)
    await settle_lapsed(store)
    [ran] = (await claim(store, 1, queues=["default"])).jobs
    await settle(store, ran, Raised("no"))
    later = (await job_of(store, ran.lease.id)).due_at
    clock.turn(10)
    assert await run(store, actions) == BulkResult(3, 2, 1)
    assert (await job_of(store, ran.lease.id)).due_at == later
    assert {(await job_of(store, id)).due_at for id in ids if id != ran.lease.id} == {at, clock.now()}


async def test_a_spread_that_goes_on_keeps_its_step(store: Store, actions: Actions, clock: TestClock) -> None:
    ids = await add_ids(store, *[{"delay": seconds(3600)}] * MANY)
    begin = clock.now() + seconds(3600)
    await actions.start("spread", "queue:default", at=begin, over=seconds(MANY * 10))
    await die(store, actions, clock, at=1)
    await store.cancel(ids[:5])  # of the oldest ones, which are not yet spread
    assert await run(store, actions) == BulkResult(MANY - 1, MANY - 5, 4)  # four were under way
    for number in (5, 50, BATCH + 1, MANY - 1):
        assert (await job_of(store, ids[number])).due_at == begin + seconds(10) * number


async def test_a_run_that_lost_its_lease_ends_at_its_next_page(store: Store, actions: Actions, clock: TestClock) -> None:
    await add_one(store)
    await actions.start("cancel", "queue:default")
    [job] = (await claim(store, 1, queues=[QUEUE])).jobs
    clock.turn(61)
    with pytest.raises(RunLost):
        await actions.keep(job.lease, ms(0), ActionProgress())


async def test_an_action_that_failed_and_is_retried_by_hand_goes_on(store: Store, actions: Actions) -> None:
    asked = await actions.start("cancel", "queue:default")
    [job] = (await claim(store, 1, queues=[QUEUE])).jobs
    await actions.keep(job.lease, ms(0), ActionProgress(matched=7, done=7, after=None))
    await settle(store, job, BROKEN)
    await store.retry([asked.job.id])
    assert (await actions.get(asked.job.id)).result == BulkResult(7, 7)


async def test_an_action_waits_in_a_queue_of_its_own_and_says_how_far_it_is(store: Store, actions: Actions) -> None:
    await ended_one(store, Status.FAILED)
    asked = await actions.start("delete", "", by="ann")
    assert (asked.job.queue, asked.job.status, asked.result) == (QUEUE, Status.QUEUED, BulkResult())
    assert (asked.order.filter, asked.order.by) == ("status:failed", "ann")
    with pytest.raises(JobNotFound):
        await actions.get((await add_one(store)).id)


async def test_waiting_jobs_get_another_priority_and_time_unless_they_would_expire(
    store: Store, actions: Actions, clock: TestClock
) -> None:
    plain, short = await add_ids(store, {}, {"expires_in": seconds(60)})
    asked = await actions.start("reprioritise", "queue:default", priority="LOW")
    assert await actions.carry_out(asked.job.id, unheard) == BulkResult(matched=2, done=2)
    assert {(await job_of(store, id)).priority for id in (plain, short)} == {Priority.LOW}
    at = asked.job.created_at + seconds(3600)
    asked = await actions.start("reschedule", "queue:default", at=at)
    assert await actions.carry_out(asked.job.id, unheard) == BulkResult(matched=2, done=1, skipped=1)
    assert (await job_of(store, plain)).due_at == at
    assert (await job_of(store, short)).due_at < at


async def test_jobs_are_spread_evenly_and_the_oldest_comes_first(store: Store, actions: Actions, clock: TestClock) -> None:
    ids = []
    for _ in range(4):
        ids.append((await add_one(store)).id)
        clock.turn(1)
    asked = await actions.start("spread", "queue:default", over="1h")
    assert await actions.carry_out(asked.job.id, unheard) == BulkResult(matched=4, done=4)
    begin = asked.job.created_at
    expected = [begin + seconds(900) * n for n in range(4)]
    assert [(await job_of(store, id)).due_at for id in ids] == expected


async def test_jobs_of_demora_itself_are_left_alone_unless_their_queue_is_named(store: Store, actions: Actions) -> None:
    plain, delivery = await add_ids(store, {}, {"queue": webhook.QUEUE, "type": webhook.TYPE, "delay": seconds(60)})
    first = await actions.start("cancel", "")
    assert await actions.carry_out(first.job.id, unheard) == BulkResult(1, 1)
    assert (await status_of(store, plain), await status_of(store, delivery)) == (Status.CANCELLED, Status.QUEUED)
    assert await Bulk(store).cancel_many() == BulkResult()
    second = await actions.start("cancel", f"queue:{webhook.QUEUE}")
    assert await actions.carry_out(second.job.id, unheard) == BulkResult(1, 1)
    assert [await status_of(store, asked.job.id) for asked in (first, second)] == [Status.QUEUED] * 2
    assert await Bulk(store).cancel_many(type=action.TYPE) == BulkResult(2, 2)


async def test_a_worker_carries_out_two_actions_at_once_and_snoozes_the_third() -> None:
    async def held() -> Actions:
        await asyncio.Event().wait()
        raise AssertionError("it waits for ever")

    handler = ActionHandler(held)
    contexts = [Context(claimed_job(type=action.TYPE), "ann") for _ in range(3)]
    running = [asyncio.ensure_future(handler.run(ctx)) for ctx in contexts[:2]]
    await asyncio.sleep(0)
    with pytest.raises(Snooze):
        await handler.run(contexts[2])
    for run in running:
        run.cancel()
    await asyncio.wait(running)
    third = asyncio.ensure_future(handler.run(contexts[2]))
    await asyncio.sleep(0)
    assert not third.done()
    third.cancel()


@pytest.mark.parametrize(
    ("action", "values", "field"),
    [
        ("reschedule", {}, "at"),
        ("reprioritise", {}, "priority"),
        ("cancel", {"priority": "LOW"}, "priority"),
        ("spread", {}, "over"),
        ("spread", {"over": "0s"}, "over"),
        ("cancel", {"over": "1h"}, "over"),
    ],
)
async def test_an_action_takes_the_values_that_it_needs_and_no_others(
    actions: Actions, action: str, values: dict[str, Any], field: str
) -> None:
    with pytest.raises(Invalid) as refused:
        await actions.start(action, "queue:mail", **values)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("action", "search", "field"),
    [("cancel", "status:failed", "status"), ("retry", "status:queued", "status"), ("fly", "queue:mail", "action")],
)
async def test_an_action_that_makes_no_sense_is_refused(actions: Actions, action: str, search: str, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        await actions.start(action, search)
    assert refused.value.field == field


async def test_retried_jobs_are_spread_over_a_window(store: Store, actions: Actions, clock: TestClock) -> None:
    ids = [await ended_one(store, Status.FAILED) for _ in range(4)]
    asked = await actions.start("retry", "status:failed", over="40s")
    assert await actions.carry_out(asked.job.id, unheard) == BulkResult(matched=4, done=4)
    begin = asked.job.created_at
    assert [(await job_of(store, id)).due_at - begin for id in ids] == [seconds(10 * n) for n in range(4)]
    assert {await status_of(store, id) for id in ids} == {Status.QUEUED}


async def test_a_spread_retry_whose_worker_dies_goes_on_and_gives_each_job_its_own_time(
    store: Store, actions: Actions, clock: TestClock
) -> None:
    ids = await add_ids(store, *[{}] * MANY)
    for job in (await claim(store, MANY)).jobs:
        await settle(store, job, BROKEN)
    begin = clock.now() + seconds(3600)
    await actions.start("retry", "queue:default", at=begin, over=f"{MANY}s")
    await die(store, actions, clock, at=1)
    for place in (BATCH, BATCH + 1, BATCH + 2):  # the dead worker had done a part of its page; the newest job is 0
        late = MANY - 1 - place
        assert await store.retry([ids[late]], at=begin + seconds(late)) == [Answer(True, Status.QUEUED)]
    assert await run(store, actions) == ALL
    jobs = [await job_of(store, id) for id in ids]
    assert [job.due_at - begin for job in jobs] == [seconds(n) for n in range(MANY)]
    assert {job.generation for job in jobs} == {2}


@pytest.mark.parametrize("action", ["cancel", "reprioritise"])
async def test_an_action_with_ids_takes_these_jobs_and_no_others_that_match(
    store: Store, actions: Actions, action: str
) -> None:
    ids = await add_ids(store, *[{}] * (2 * PICKED + 3))
    picked, gone = ids[1:-1], ids[2]
    priority = "HIGH" if action == "reprioritise" else None
    asked = await actions.start(action, "queue:default", ids=picked, priority=priority)
    await store.cancel([gone])
    count = len(picked) - 1
    assert await actions.carry_out(asked.job.id, unheard) == BulkResult(matched=count, done=count)
    changed = [job.id for id in ids if (job := await job_of(store, id)).priority is Priority.HIGH or job.status.ended]
    assert changed == picked
    assert {await status_of(store, id) for id in (ids[0], ids[-1])} == {Status.QUEUED}
    assert asked.job.name == f"{action} {len(picked)} selected jobs"


async def test_an_action_with_ids_whose_worker_dies_goes_on_and_retries_no_job_twice(
    store: Store, actions: Actions, clock: TestClock
) -> None:
    count = 2 * PICKED + 1
    ids = await add_ids(store, *[{}] * count)
    for job in (await claim(store, count)).jobs:
        await settle(store, job, BROKEN)
    asked = await actions.start("retry", "status:failed", ids=ids)
    await die(store, actions, clock, at=1)
    assert (await actions.get(asked.job.id)).result == BulkResult(matched=PICKED, done=PICKED)
    await store.retry([ids[PICKED]])  # the dead worker had done a part of its page
    again = (await claim(store, count, queues=["default"])).jobs
    assert len(again) == PICKED + 1
    for job in again:
        await settle(store, job, BROKEN)
    await run(store, actions)
    assert {(await job_of(store, id)).generation for id in ids} == {2}


async def test_jobs_with_these_ids_are_spread_evenly(store: Store, actions: Actions, clock: TestClock) -> None:
    ids = await add_ids(store, *[{}] * (PICKED + 2))
    begin = clock.now() + seconds(60)
    asked = await actions.start("spread", "status:waiting", ids=ids[2:], at=begin, over=f"{PICKED}m")
    assert await actions.carry_out(asked.job.id, unheard) == BulkResult(matched=PICKED, done=PICKED)
    assert [(await job_of(store, id)).due_at - begin for id in ids[2:]] == [seconds(60 * n) for n in range(PICKED)]


async def test_an_action_takes_a_thousand_ids_at_most(actions: Actions) -> None:
    assert MOST_IDS == 1000
    assert await actions.start("cancel", "status:waiting", ids=[new_id() for _ in range(MOST_IDS)])
    with pytest.raises(Invalid) as refused:
        await actions.start("cancel", "status:waiting", ids=[new_id() for _ in range(MOST_IDS + 1)])
    assert refused.value.field == "ids"

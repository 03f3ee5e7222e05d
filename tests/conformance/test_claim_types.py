"""claim with types: which jobs a worker gets that does not know all types, and what becomes of the others."""

import pytest

from demora.core.job import Priority
from demora.core.pace import PaceRequest
from demora.core.states import Status
from demora.core.verdict import HandedBack, Raised
from demora.store.jobs import Change, QueueChange, Topic
from demora.store.store import Store
from tests.builders import add_ids, add_one, claim, claim_ids, claim_one, job_of, ms, new_job, seconds, settle
from tests.clock import TestClock

MAIL, REPORT = frozenset({"mail"}), frozenset({"report"})
BOTH = MAIL | REPORT


async def test_only_jobs_of_the_named_types_are_leased(store: Store) -> None:
    mail, report = await add_ids(store, {"type": "mail"}, {"type": "report"})
    assert await claim_ids(store, types=REPORT) == [report]
    assert await claim_ids(store, types=REPORT) == []
    assert await claim_ids(store, types=MAIL) == [mail]


async def test_no_types_is_none_of_them(store: Store) -> None:
    added = await add_one(store)
    assert await claim_ids(store, types=frozenset()) == []
    assert await claim_ids(store) == [added.id]


async def test_a_job_of_another_type_is_not_touched(store: Store) -> None:
    added = await add_one(store, type="report", delay=ms(0), priority=Priority.LOW)
    before = await job_of(store, added.id)
    await claim(store, types=MAIL)
    assert await job_of(store, added.id) == before
    assert (before.token, before.attempt, before.status) == (0, 0, Status.QUEUED)


@pytest.mark.parametrize(("others", "limit"), [(1, 1), (2, 1), (60, 2), (1300, 100)])
async def test_jobs_of_other_types_stand_in_nobodys_way(store: Store, others: int, limit: int) -> None:
    await store.add([new_job(type="report") for _ in range(others)])
    wanted = (await add_one(store, type="mail")).id
    for _ in range(others // limit + 2):
        claimed = await claim(store, limit, types=MAIL)
        if claimed.jobs:
            break
        assert claimed.next_in == ms(0)  # there was more to park
    assert [job.lease.id for job in claimed.jobs] == [wanted]
    assert await claim_ids(store, types=MAIL) == []


async def test_the_claim_names_the_types_that_it_passed_over(store: Store) -> None:
    await add_ids(store, {"type": "report"}, {"type": "other"}, {"type": "mail"})
    assert (await claim(store, types=MAIL)).parked == {"report", "other"}
    assert (await claim(store, types=MAIL)).parked == frozenset()


async def test_a_worker_that_knows_more_types_keeps_to_the_order(store: Store, clock: TestClock) -> None:
    ids = []
    for type in ("report", "mail", "report", "mail"):
        ids.append((await add_one(store, type=type)).id)
        clock.turn(ms=1)
    low, high = await add_ids(
        store, {"type": "mail", "priority": Priority.LOW}, {"type": "report", "priority": Priority.HIGH}
    )
    first = await claim_one(store, types=MAIL)  # passes over the first report
    assert first.lease.id == ids[1]
    await settle(store, first, HandedBack())
    claimed = [id for _ in range(7) for id in await claim_ids(store, 1, types=BOTH)]
    later = [id for id in (high, *ids, low) if id != claimed[0]]
    assert claimed[1:] == later  # the first may be one from the line, which does not know parked jobs


async def test_without_types_parked_jobs_are_like_all_others(store: Store) -> None:
    report, mail = await add_ids(store, {"type": "report"}, {"type": "mail"})
    assert await claim_ids(store, types=MAIL) == [mail]
    assert await claim_ids(store) == [report]


async def test_a_parked_job_is_claimed_once(pair: tuple[Store, Store]) -> None:
    one, other = pair
    [report] = await add_ids(one, {"type": "report"})
    assert await claim_ids(one, types=MAIL) == []
    assert await claim_ids(other, types=REPORT) == [report]
    assert await claim_ids(one, types=REPORT) == []


async def test_a_parked_job_has_its_attempts_and_ends_as_usual(store: Store, clock: TestClock) -> None:
    [report] = await add_ids(store, {"type": "report", "retry_delay": seconds(1)})
    await claim(store, types=MAIL)
    job = await claim_one(store, types=REPORT)
    assert (job.lease.id, job.retry_state.attempt) == (report, 1)
    await settle(store, job, Raised("no"))
    clock.turn(1)
    assert await claim_ids(store, types=MAIL) == []
    again = await claim_one(store, types=REPORT)
    assert again.retry_state.attempt == 2


async def test_a_parked_job_that_is_handed_back_is_ready(store: Store) -> None:
    [report] = await add_ids(store, {"type": "report"})
    await claim(store, types=MAIL)
    await settle(store, await claim_one(store, types=REPORT), HandedBack())
    assert await claim_ids(store, types=MAIL) == []
    assert await claim_ids(store, types=REPORT) == [report]


async def test_a_parked_job_can_be_changed_cancelled_and_expires(store: Store, clock: TestClock) -> None:
    moved, cancelled, expiring = await add_ids(
        store, {"type": "report"}, {"type": "report"}, {"type": "report", "expires_in": seconds(5)}
    )
    await claim(store, types=MAIL)
    assert (await store.change(moved, Change(delay=seconds(9)))).did
    assert [answer.status for answer in await store.cancel([cancelled])] == [Status.CANCELLED]
    clock.turn(5)
    assert await claim_ids(store, types=REPORT) == []
    assert (await job_of(store, expiring)).status is Status.CANCELLED
    clock.turn(4)
    assert await claim_ids(store, types=REPORT) == [moved]


async def test_the_claim_says_when_a_job_of_its_types_is_due(store: Store, clock: TestClock) -> None:
    await add_ids(store, {"type": "report", "delay": seconds(5)}, {"type": "report"})
    await claim(store, types=MAIL)
    await claim(store, types=REPORT)
    next_in = (await claim(store, types=REPORT)).next_in
    assert next_in == seconds(5)


async def test_a_parked_job_with_a_new_time_is_met_by_claims_again(store: Store) -> None:
    report = await add_one(store, type="report")
    assert (await claim(store, types=MAIL)).parked == {"report"}
    await store.change(report.id, Change(delay=ms(0)))
    assert (await claim(store, types=MAIL)).parked == {"report"}
    assert await claim_ids(store, types=REPORT) == [report.id]


async def test_a_paused_queue_keeps_its_parked_jobs(store: Store) -> None:
    [report] = await add_ids(store, {"type": "report"})
    await claim(store, types=MAIL)
    await store.set_queue("default", QueueChange(paused=True))
    assert await claim_ids(store, types=REPORT) == []
    await store.set_queue("default", QueueChange(paused=False))
    assert await claim_ids(store, types=REPORT) == [report]


async def test_only_the_named_queues_give_parked_jobs(store: Store) -> None:
    here, there = await add_ids(store, {"type": "report", "queue": "a"}, {"type": "report", "queue": "b"})
    await claim(store, types=MAIL)
    assert await claim_ids(store, types=REPORT, queues=["b"]) == [there]
    assert await claim_ids(store, types=REPORT, queues=["a", "b"], in_turn=True) == [here]


async def test_a_pace_holds_parked_jobs_too(store: Store, clock: TestClock) -> None:
    await add_ids(store, *[{"type": "report", "delay": seconds(1)} for _ in range(3)])
    clock.turn(1)
    await claim(store, types=MAIL)
    await store.paces.set("default", PaceRequest(gap=seconds(10), burst=1), by="test")
    assert (await store.paces.all())[0].held == 3
    assert len(await claim_ids(store, types=REPORT)) == 1
    assert len(await claim_ids(store, types=REPORT)) == 0
    clock.turn(10)
    assert len(await claim_ids(store, types=REPORT)) == 1


async def test_parked_jobs_are_counted_as_they_were(store: Store) -> None:
    await add_ids(store, {"type": "report"}, {"type": "report"}, {"type": "mail"})
    await claim(store, 1, types=frozenset({"neither"}))
    [queue] = await store.queues()
    assert (queue.ready, queue.delayed) == (3, 0)
    waiting = {one.type: one.ready for one in (await store.diagnostics.overview()).waiting}
    assert waiting == {"report": 2, "mail": 1}


async def test_new_jobs_of_a_parked_type_are_in_nobodys_way(store: Store) -> None:
    await add_one(store, type="report")
    await claim(store, types=MAIL)
    mail, report = await add_ids(store, {"type": "mail"}, {"type": "report", "delay": ms(0)})
    added = await add_one(store, type="report")
    assert await claim_ids(store, types=MAIL) == [mail]
    assert set(await claim_ids(store, types=REPORT)) >= {report, added.id}


async def test_a_new_job_of_a_parked_type_wakes_those_who_know_it(store: Store) -> None:
    await add_one(store, type="report")
    await claim(store, types=MAIL)
    with store.subscribe(Topic.READY) as subscription:
        subscription.clear()
        await add_one(store, type="report")
        assert await subscription.wait(10)
        subscription.clear()
        later = await add_one(store, type="report", delay=seconds(100))
        await subscription.wait(10)
        subscription.clear()
        await store.change(later.id, Change(delay=seconds(50)))
        assert await subscription.wait(10)

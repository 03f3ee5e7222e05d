"""add: jobs are recorded as they were asked for, all or none, once per id."""

import asyncio
from datetime import UTC, timedelta, timezone
from typing import Any

import pytest

from demora.core.job import Lane, Priority
from demora.core.states import Status
from demora.store.jobs import Query
from demora.store.store import Store
from tests.builders import add_ids, add_one, claim_ids, job_of, ms, new_job, run_one, seconds
from tests.clock import TestClock
from tests.facts import eventually

BAD = {"payload": b'"\xff"'}  # no engine can store text that is no UTF-8


async def test_a_job_is_remembered_as_it_was_asked_for(store: Store) -> None:
    asked = new_job(
        type="email.send",
        name="Greeting",
        queue="mail",
        priority=Priority.HIGH,
        payload='{"to":"Zoë"}'.encode(),
        max_retries=7,
        retry_delay=ms(1500),
        timeout=seconds(90),
        tags=("a", "b"),
        webhook_url="https://example.org/hook",
    )
    await store.add([asked])
    job = await job_of(store, asked.id)
    for field in ("id", "type", "name", "queue", "priority", "max_retries", "retry_delay", "timeout", "tags"):
        assert getattr(job, field) == getattr(asked, field), field
    assert (job.payload_json, job.payload) == (asked.payload, {"to": "Zoë"})
    assert job.webhook_url == asked.webhook_url


ASKED = ({}, {"type": "email.send", "queue": "mail", "tags": ("a",)}, {"priority": Priority.HIGH, "timeout": seconds(9)})
LATER = ({"delay": seconds(5)}, {"expires_in": seconds(5)})


@pytest.mark.parametrize("more", [(), *((one,) for one in LATER)], ids=["at once", "later", "expiring"])
async def test_jobs_of_one_call_are_each_remembered_as_they_were_asked_for(
    store: Store, clock: TestClock, more: tuple[dict[str, Any], ...]
) -> None:
    asked = [new_job(**one) for one in (*ASKED, *more)]
    answers = await store.add(asked)
    for want, answer in zip(asked, answers, strict=True):
        job, due = await job_of(store, want.id), clock.now() + (want.delay or timedelta())
        for field in ("id", "type", "name", "queue", "priority", "timeout", "tags"):
            assert getattr(job, field) == getattr(want, field), field
        assert job.created_at == answer.created_at == clock.now()
        assert job.due_at == job.scheduled_at == answer.scheduled_at == due
        assert job.expires_at == (None if want.expires_in is None else clock.now() + want.expires_in)
    assert {queue.name for queue in await store.queues()} == {job.queue for job in asked}


async def test_a_new_job_has_done_nothing_yet(store: Store, clock: TestClock) -> None:
    job = await job_of(store, (await add_one(store)).id)
    assert (job.status, job.lane, job.token, job.attempt, job.retry_count) == (Status.QUEUED, Lane.REALTIME, 0, 0, 0)
    assert job.created_at == job.scheduled_at == job.due_at == clock.now()
    assert (job.started_at, job.completed_at, job.worker_id, job.result, job.error) == (None,) * 5
    assert (job.attempts, job.log, job.generation) == ((), (), 1)


async def test_the_answers_come_in_order(store: Store, clock: TestClock) -> None:
    jobs = [new_job(delay=seconds(n)) for n in (3, 1, 2)]
    answers = await store.add(jobs)
    assert [answer.id for answer in answers] == [job.id for job in jobs]
    assert [answer.scheduled_at - clock.now() for answer in answers] == [seconds(3), seconds(1), seconds(2)]
    assert all(answer.created_at == clock.now() and not answer.replayed for answer in answers)


async def test_adding_nothing_is_allowed(store: Store) -> None:
    assert await store.add([]) == []


async def test_a_delay_counts_from_the_stores_clock(store: Store, clock: TestClock) -> None:
    job = await job_of(store, (await add_one(store, delay=ms(1))).id)
    assert (job.due_at, job.scheduled_at, job.lane) == (clock.now() + ms(1),) * 2 + (Lane.SCHEDULED,)


async def test_no_delay_at_all_means_now(store: Store) -> None:
    assert (await job_of(store, (await add_one(store, delay=ms(0))).id)).lane is Lane.REALTIME


async def test_a_time_is_kept_whatever_its_zone(store: Store, clock: TestClock) -> None:
    at = (clock.now() + seconds(60)).astimezone(timezone(timedelta(hours=5, minutes=30)))
    job = await job_of(store, (await add_one(store, at=at)).id)
    assert job.due_at == job.scheduled_at == at
    assert job.due_at.tzinfo is UTC


async def test_a_time_between_two_milliseconds_is_rounded_up(store: Store, clock: TestClock) -> None:
    added = await add_one(store, at=clock.now() + timedelta(microseconds=1))
    assert added.scheduled_at == clock.now() + ms(1)
    assert await claim_ids(store) == []


async def test_a_time_in_the_past_means_now(store: Store, clock: TestClock) -> None:
    added = await add_one(store, at=clock.now() - timedelta(days=9))
    job = await job_of(store, added.id)
    assert added.scheduled_at == job.scheduled_at == job.due_at == clock.now()
    assert job.lane is Lane.REALTIME


async def test_adding_an_id_twice_is_adding_it_once(store: Store, clock: TestClock) -> None:
    asked = new_job()
    [first] = await store.add([asked])
    clock.turn(5)
    [second] = await store.add([asked])
    assert (second.id, second.created_at, second.scheduled_at) == (asked.id, first.created_at, first.scheduled_at)
    assert (first.replayed, second.replayed, second.conflict) == (False, True, False)
    assert await claim_ids(store) == [asked.id]


async def test_an_id_twice_in_one_call_is_added_once(store: Store) -> None:
    asked, other = new_job(delay=ms(5)), new_job()
    answers = await store.add([asked, other, asked])
    assert [answer.replayed for answer in answers] == [False, False, True]
    assert answers[2].scheduled_at == answers[0].scheduled_at
    assert len((await store.find(Query())).jobs) == 2


async def test_adding_a_known_id_changes_nothing_of_its_job(store: Store) -> None:
    asked = new_job()
    await store.add([asked])
    await run_one(store)
    before = await job_of(store, asked.id)
    await store.add([new_job(id=asked.id, queue="other", payload=b"{}"), new_job()])
    assert await job_of(store, asked.id) == before
    assert len((await store.find(Query())).jobs) == 2


async def test_one_bad_job_keeps_the_others_of_its_call_out(store: Store) -> None:
    with pytest.raises(UnicodeDecodeError):
        await store.add([new_job(), new_job(**BAD), new_job(queue="new")])
    assert (await store.find(Query())).jobs == []
    assert await store.queues() == []


async def test_thousands_go_in_at_once_and_come_out_in_order(store: Store) -> None:
    ids = await add_ids(store, *[{} for _ in range(3000)])
    assert await claim_ids(store, 5000) == ids


async def test_calls_made_at_the_same_time_all_succeed(store: Store) -> None:
    answers = await asyncio.gather(*(add_one(store) for _ in range(100)))
    assert await claim_ids(store, 200) == [answer.id for answer in answers]


async def test_calls_made_at_the_same_time_each_get_the_answers_to_their_own_jobs(store: Store) -> None:
    calls = [[new_job(queue=f"q{n}-{m}", delay=seconds(n)) for m in range(n % 3 + 1)] for n in range(12)]
    answers = await asyncio.gather(*map(store.add, calls))
    for asked, got in zip(calls, answers, strict=True):
        assert [answer.id for answer in got] == [job.id for job in asked]
        for job in asked:
            stored = await job_of(store, job.id)
            assert (stored.queue, stored.due_at - stored.created_at) == (job.queue, job.delay)


async def test_an_id_in_several_calls_at_the_same_time_is_added_once(store: Store) -> None:
    job = new_job()
    answers = await asyncio.gather(*(store.add([new_job(), job]) for _ in range(10)))
    assert sorted(answer.replayed for _, answer in answers) == [False] + [True] * 9
    assert not any(answer.replayed for answer, _ in answers)


async def test_a_bad_call_fails_alone(store: Store) -> None:
    calls = [add_one(store, **(BAD if n == 50 else {"queue": f"q{n}"})) for n in range(100)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [n for n, answer in enumerate(answers) if isinstance(answer, Exception)] == [50]
    assert len(await claim_ids(store, 200)) == len(await store.queues()) == 99


@pytest.mark.parametrize("passes", range(1, 8))
async def test_cancelling_whoever_awaits_does_not_withdraw_the_write(store: Store, passes: int) -> None:
    first, asked, last = new_job(), new_job(), new_job()
    await store.add([first])
    asking = asyncio.create_task(store.add([asked]))
    for _ in range(passes):
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, store.add([last]), return_exceptions=True)
    assert await eventually(lambda: _ids(store), lambda found: len(found) == 3) == {first.id, asked.id, last.id}


async def _ids(store: Store) -> set[str]:
    return {job.id for job in (await store.find(Query())).jobs}

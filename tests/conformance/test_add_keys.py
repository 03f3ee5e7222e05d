"""add with idempotency keys: one job per key for as long as the key is kept."""

import asyncio
from datetime import timedelta

from demora.core.states import Status
from demora.store.jobs import Query
from demora.store.store import Store
from tests.builders import add_one, claim_ids, ended_one, job_of, key, new_job, seconds
from tests.clock import TestClock


async def count(store: Store) -> int:
    return len((await store.find(Query(limit=200))).jobs)


async def test_the_same_key_and_request_give_the_same_job(store: Store, clock: TestClock) -> None:
    first = await add_one(store, key=key(), delay=seconds(60))
    clock.turn(3600)
    second = await add_one(store, key=key(), delay=seconds(60))
    assert (second.id, second.created_at, second.scheduled_at) == (first.id, first.created_at, first.scheduled_at)
    assert (first.replayed, second.replayed, second.conflict) == (False, True, False)
    assert await count(store) == 1


async def test_the_same_key_for_another_request_is_a_conflict(store: Store) -> None:
    first = await add_one(store, key=key(request=b"one"))
    second = await add_one(store, key=key(request=b"two"))
    assert (second.id, second.conflict, second.replayed) == (first.id, True, False)
    assert await count(store) == 1


async def test_with_one_conflict_nothing_is_stored(store: Store) -> None:
    await add_one(store, key=key(request=b"one"))
    answers = await store.add([new_job(queue="new"), new_job(key=key(request=b"two")), new_job(key=key("other"))])
    assert [answer.conflict for answer in answers] == [False, True, False]
    assert await count(store) == 1
    assert [queue.name for queue in await store.queues()] == ["default"]
    assert not (await add_one(store, key=key("other", b"different"))).conflict


async def test_a_conflict_keeps_no_other_call_out(store: Store) -> None:
    await add_one(store, key=key(request=b"one"))
    calls = [add_one(store, **({"key": key(request=b"two")} if n % 4 == 3 else {})) for n in range(24)]
    answers = await asyncio.gather(*calls)
    assert [answer.conflict for answer in answers] == [n % 4 == 3 for n in range(24)]
    assert {(await job_of(store, answer.id)).id for answer in answers} == {answer.id for answer in answers}
    assert await count(store) == 1 + 18


async def test_keys_of_different_scopes_do_not_meet(store: Store) -> None:
    answers = await store.add([new_job(key=key(namespace="a")), new_job(key=key(request=b"else", namespace="b"))])
    assert [(answer.replayed, answer.conflict) for answer in answers] == [(False, False)] * 2
    assert await count(store) == 2


async def test_a_key_twice_in_one_call_makes_one_job(store: Store) -> None:
    first, second = await store.add([new_job(key=key()), new_job(key=key())])
    assert (second.id, second.replayed) == (first.id, True)
    assert await claim_ids(store) == [first.id]


async def test_a_key_for_two_requests_in_one_call_is_a_conflict(store: Store) -> None:
    first, second = await store.add([new_job(key=key(request=b"one")), new_job(key=key(request=b"two"))])
    assert (first.conflict, second.conflict) == (False, True)
    assert await count(store) == 0


async def test_a_key_is_kept_until_it_expires_and_no_longer(store: Store, clock: TestClock) -> None:
    first = await add_one(store, key=key(kept=timedelta(hours=1)))
    clock.turn(3600, ms=-1)
    assert (await add_one(store, key=key())).replayed
    clock.turn(ms=1)
    again = await add_one(store, key=key(request=b"else", kept=timedelta(hours=1)))
    assert not again.replayed
    assert not again.conflict
    assert again.id != first.id


async def test_a_key_that_is_taken_anew_is_kept_anew(store: Store, clock: TestClock) -> None:
    await add_one(store, key=key(kept=seconds(10)))
    clock.turn(10)
    second = await add_one(store, key=key(kept=seconds(10)))
    clock.turn(9)
    assert (await add_one(store, key=key(kept=seconds(10)))).id == second.id


async def test_a_key_outlives_the_removal_of_its_job(store: Store) -> None:
    id = await ended_one(store, Status.COMPLETED, key=key())
    await store.remove([id])
    again = await add_one(store, key=key())
    assert (again.id, again.replayed) == (id, True)
    assert await count(store) == 0


async def test_a_key_outlives_the_purge_of_its_job(store: Store, clock: TestClock) -> None:
    id = await ended_one(store, Status.FAILED, key=key())
    clock.turn(60)
    assert await store.purge(Status.FAILED, older_than=seconds(60), limit=10) == 1
    again = await add_one(store, key=key(request=b"else"))
    assert (again.id, again.conflict) == (id, True)


async def test_many_calls_with_one_key_make_one_job(store: Store) -> None:
    answers = await asyncio.gather(*(add_one(store, key=key()) for _ in range(200)))
    assert len({answer.id for answer in answers}) == 1
    assert sum(not answer.replayed for answer in answers) == 1
    assert await count(store) == 1


async def test_two_stores_with_one_key_make_one_job(pair: tuple[Store, Store]) -> None:
    answers = await asyncio.gather(*(add_one(store, key=key()) for store in pair for _ in range(20)))
    assert len({answer.id for answer in answers}) == 1
    assert await count(pair[0]) == 1


async def test_a_replay_leaves_the_job_as_it_is(store: Store) -> None:
    id = await ended_one(store, Status.COMPLETED, key=key())
    before = await job_of(store, id)
    await add_one(store, key=key(), queue="other")
    assert await job_of(store, id) == before


async def test_a_queue_first_named_in_a_refused_call_is_listed_once_it_is_used(store: Store) -> None:
    await add_one(store, key=key())
    answers = await store.add([new_job(queue="fresh"), new_job(key=key(request=b"another"))])
    assert answers[1].conflict
    assert "fresh" not in [queue.name for queue in await store.queues()]
    await add_one(store, queue="fresh")
    assert "fresh" in [queue.name for queue in await store.queues()]

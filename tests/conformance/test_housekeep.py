"""housekeep: ended jobs go that nobody wants to keep, by age and number, for all queues or for one in its own way."""

from collections.abc import Sequence

import pytest

from demora.core.retention import Keep, Retention, RetentionRequest
from demora.core.states import Status
from demora.core.workers import WorkerRecord
from demora.store.jobs import HousekeepingResult, Query, QueueChange
from demora.store.store import Store
from tests.builders import add_one, claim_one, ended_one, key, new_job, seconds
from tests.clock import TestClock

MINUTE = Keep(seconds(60))


async def left(store: Store) -> set[str]:
    return {job.id for job in (await store.find(Query(limit=200))).jobs}


async def housekeep(store: Store, limit: int = 100, **kept: Keep) -> HousekeepingResult:
    return await store.housekeep(Retention(**kept), limit=limit)


async def ended(store: Store, clock: TestClock, number: int, **changes: object) -> Sequence[str]:
    """Jobs that ended one millisecond after the other."""
    ids = []
    for _ in range(number):
        ids.append(await ended_one(store, Status.COMPLETED, **changes))
        clock.turn(ms=1)
    return ids


async def test_nothing_goes_unless_somebody_says_so(store: Store, clock: TestClock) -> None:
    await ended_one(store, Status.COMPLETED)
    clock.turn(10**6)
    assert await housekeep(store) == HousekeepingResult((), 0, None)
    assert await housekeep(store, completed=Keep()) == HousekeepingResult((), 0, None)


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
async def test_each_kind_goes_at_its_own_age(store: Store, clock: TestClock, status: Status) -> None:
    ids = {kind: await ended_one(store, kind) for kind in (Status.COMPLETED, Status.FAILED, Status.CANCELLED)}
    clock.turn(60)
    done = await housekeep(store, **{status.name.lower(): MINUTE})
    assert (done.removed, await left(store)) == (1, set(ids.values()) - {ids[status]})


async def test_what_is_younger_stays_and_the_answer_says_for_how_long(store: Store, clock: TestClock) -> None:
    old = await ended_one(store, Status.COMPLETED)
    clock.turn(20)
    young = await ended_one(store, Status.COMPLETED)
    assert await housekeep(store, completed=MINUTE) == HousekeepingResult((), 0, seconds(40))
    clock.turn(40)
    assert await housekeep(store, completed=MINUTE) == HousekeepingResult((), 1, seconds(20))
    assert await left(store) == {young}
    assert old != young


async def test_the_newest_of_one_status_are_counted_without_those_of_another(store: Store, clock: TestClock) -> None:
    ids = []
    for status in (Status.COMPLETED, Status.FAILED, Status.COMPLETED, Status.FAILED, Status.CANCELLED):
        ids.append(await ended_one(store, status))
        clock.turn(ms=1)
    assert (await housekeep(store, completed=Keep(count=1), failed=Keep(count=2), cancelled=Keep(count=1))).removed == 1
    assert await left(store) == set(ids[1:])


async def test_of_each_queue_the_newest_so_many_stay(store: Store, clock: TestClock) -> None:
    mails, reports = await ended(store, clock, 5, queue="mail"), await ended(store, clock, 2, queue="reports")
    assert (await housekeep(store, completed=Keep(count=3))).removed == 2
    assert await left(store) == {*mails[2:], *reports}


async def test_jobs_that_ended_at_the_same_moment_are_counted_one_by_one(store: Store) -> None:
    ids = [await ended_one(store, Status.COMPLETED) for _ in range(4)]
    assert (await housekeep(store, completed=Keep(count=1))).removed == 3
    assert await left(store) == {ids[-1]}


async def test_with_age_and_number_what_either_says_goes(store: Store, clock: TestClock) -> None:
    ids = await ended(store, clock, 4)
    clock.turn(60, ms=-3)  # one is a minute old
    done = await housekeep(store, completed=Keep(seconds(60), 2))
    assert (done.removed, await left(store)) == (2, set(ids[2:]))


async def test_a_queue_may_keep_in_its_own_way(store: Store, clock: TestClock) -> None:
    await store.set_queue("brief", QueueChange(retention=RetentionRequest(completed=Keep(seconds(1)))))
    await store.set_queue("long", QueueChange(retention=RetentionRequest(completed=Keep())))
    ids = {queue: await ended_one(store, Status.COMPLETED, queue=queue) for queue in ("brief", "long", "usual")}
    failed = await ended_one(store, Status.FAILED, queue="long")
    clock.turn(1)
    assert (await housekeep(store, completed=MINUTE, failed=MINUTE)).removed == 1
    assert await left(store) == {ids["long"], ids["usual"], failed}
    clock.turn(59)
    await housekeep(store, completed=MINUTE, failed=MINUTE)
    assert await left(store) == {ids["long"]}


async def test_a_queue_remembers_what_it_keeps_part_by_part(store: Store) -> None:
    await store.set_queue("q", QueueChange(retention=RetentionRequest(completed=MINUTE)))
    await store.set_queue("q", QueueChange(retention=RetentionRequest(failed=Keep(count=9))))
    changed = await store.set_queue("q", QueueChange(strict=True))
    assert changed.retention == Retention(completed=MINUTE, failed=Keep(count=9))
    [queue] = await store.queues()
    assert queue.retention == changed.retention


async def test_a_queue_can_keep_as_all_do_again(store: Store, clock: TestClock) -> None:
    await store.set_queue("q", QueueChange(retention=RetentionRequest(completed=Keep(), failed=Keep())))
    done = await ended_one(store, Status.COMPLETED, queue="q")
    failed = await ended_one(store, Status.FAILED, queue="q")
    changed = await store.set_queue("q", QueueChange(retention=RetentionRequest(completed=None)))
    assert changed.retention == Retention(failed=Keep())
    clock.turn(60)
    assert (await housekeep(store, completed=MINUTE, failed=MINUTE)).removed == 1
    assert await left(store) == {failed} != {done}
    assert (await store.set_queue("q", QueueChange(retention=RetentionRequest(failed=None)))).retention == Retention()


async def test_no_more_than_the_limit_goes_at_once_and_the_rest_at_the_next(store: Store, clock: TestClock) -> None:
    await ended(store, clock, 5)
    clock.turn(60)
    done = [await housekeep(store, 2, completed=MINUTE) for _ in range(3)]
    assert [(d.removed, d.next_in) for d in done] == [(2, seconds(0)), (2, seconds(0)), (1, None)]


async def test_what_has_not_ended_stays(store: Store, clock: TestClock) -> None:
    await add_one(store)
    await claim_one(store)
    await add_one(store)
    clock.turn(10**6)
    nothing = Keep(count=0)
    assert (await housekeep(store, completed=nothing, cancelled=nothing, failed=nothing)).removed == 0
    assert len(await left(store)) == 2


async def test_history_goes_with_its_job(store: Store) -> None:
    await ended_one(store, Status.FAILED)
    await housekeep(store, failed=Keep(count=0))
    [again] = await store.add([new_job()])
    assert [job.id for job in (await store.find(Query())).jobs] == [again.id]
    evidence = await store.audit.evidence()  # type: ignore[attr-defined]
    assert evidence.orphans == []


async def test_keys_that_expired_go_and_others_outlive_their_job(store: Store, clock: TestClock) -> None:
    [first] = await store.add([new_job(key=key("k", kept=seconds(30)))])
    await store.cancel([first.id])
    await housekeep(store, cancelled=Keep(count=0))
    [again] = await store.add([new_job(key=key("k", kept=seconds(30)))])
    assert (again.id, again.replayed) == (first.id, True)
    clock.turn(30)
    await housekeep(store)
    assert (await store.audit.evidence()).keys == []  # type: ignore[attr-defined]


async def test_workers_that_were_silent_for_a_day_are_forgotten(store: Store, clock: TestClock) -> None:
    await store.heartbeat(WorkerRecord("ann", "host", 1, 1))
    clock.turn(86_399)
    await store.heartbeat(WorkerRecord("bob", "host", 2, 1))
    await housekeep(store)
    assert len(await store.workers()) == 2
    clock.turn(1)
    await housekeep(store)
    assert [worker.id for worker in await store.workers()] == ["bob"]

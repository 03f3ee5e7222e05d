"""change: a waiting job is changed in place."""

import asyncio
from datetime import timedelta

import pytest

from demora.core.job import Lane, Priority, revision
from demora.core.states import Status
from demora.core.verdict import Raised
from demora.store.jobs import Answer, Change
from demora.store.store import Store
from tests.builders import (
    NO_IDS,
    add_ids,
    add_one,
    claim_ids,
    claim_one,
    ended_one,
    job_of,
    ms,
    seconds,
    settle,
    without,
)
from tests.clock import TestClock

DID = Answer(True, Status.QUEUED)


async def test_changing_nothing_changes_nothing(store: Store) -> None:
    added = await add_one(store, tags=("a",), priority=Priority.HIGH)
    before = await job_of(store, added.id)
    assert await store.change(added.id, Change()) == DID
    assert await job_of(store, added.id) == before


async def test_a_new_priority_applies_to_the_next_claim(store: Store) -> None:
    first, second = await add_ids(store, {}, {})
    before = await job_of(store, second)
    assert await store.change(second, Change(priority=Priority.CRITICAL)) == DID
    after = await job_of(store, second)
    assert after.priority is Priority.CRITICAL
    assert without(after, "priority") == without(before, "priority")
    assert await claim_ids(store) == [second, first]


@pytest.mark.parametrize("tags", [("x", "y"), ()])
async def test_new_tags_replace_the_old_ones(store: Store, tags: tuple[str, ...]) -> None:
    added = await add_one(store, tags=("a",))
    before = await job_of(store, added.id)
    assert await store.change(added.id, Change(tags=tags)) == DID
    after = await job_of(store, added.id)
    assert after.tags == tags
    assert without(after, "tags") == without(before, "tags")


async def test_a_new_time_puts_it_into_the_scheduled_lane(store: Store, clock: TestClock) -> None:
    added = await add_one(store)
    at = clock.now() + seconds(60)
    assert await store.change(added.id, Change(at=at)) == DID
    after = await job_of(store, added.id)
    assert (after.id, after.due_at, after.scheduled_at, after.lane) == (added.id, at, at, Lane.SCHEDULED)
    assert after.created_at == added.created_at
    clock.turn(59.999)
    assert await claim_ids(store) == []
    clock.turn(ms=1)
    assert await claim_ids(store) == [added.id]


async def test_a_job_can_be_brought_forward(store: Store, clock: TestClock) -> None:
    added = await add_one(store, delay=seconds(3600))
    await store.change(added.id, Change(at=clock.now() - timedelta(days=1)))
    assert (await job_of(store, added.id)).due_at == clock.now()
    assert await claim_ids(store) == [added.id]


async def test_a_time_between_two_milliseconds_is_rounded_up(store: Store, clock: TestClock) -> None:
    added = await add_one(store)
    await store.change(added.id, Change(at=clock.now() + timedelta(microseconds=10)))
    assert (await job_of(store, added.id)).due_at == clock.now() + ms(1)


async def test_a_retrying_job_stays_retrying(store: Store, clock: TestClock) -> None:
    added = await add_one(store)
    await settle(store, await claim_one(store), Raised("no"))
    answer = await store.change(added.id, Change(at=clock.now(), tags=("t",)))
    assert answer == Answer(True, Status.RETRYING)
    assert (await claim_one(store)).retry_state.attempt == 2


async def test_a_delay_counts_from_the_moment_of_the_change(store: Store, clock: TestClock) -> None:
    added = await add_one(store, delay=seconds(100))
    clock.turn(10)
    assert await store.change(added.id, Change(delay=seconds(5))) == DID
    job = await job_of(store, added.id)
    assert (job.due_at, job.scheduled_at) == (clock.now() + seconds(5),) * 2


async def test_a_running_job_is_not_changed(store: Store, clock: TestClock) -> None:
    added = await add_one(store)
    await claim_one(store)
    before = await job_of(store, added.id)
    assert await store.change(added.id, Change(Priority.LOW, clock.now(), tags=("t",))) == Answer(False, Status.PROCESSING)
    assert await job_of(store, added.id) == before


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
async def test_an_ended_job_is_not_changed(store: Store, clock: TestClock, status: Status) -> None:
    id = await ended_one(store, status)
    before = await job_of(store, id)
    assert await store.change(id, Change(Priority.LOW, clock.now(), tags=("t",))) == Answer(False, status)
    assert await job_of(store, id) == before


async def test_of_two_changes_of_one_revision_only_one_is_made(store: Store) -> None:
    added = await add_one(store)
    read = frozenset({revision(await job_of(store, added.id))})
    answers = await asyncio.gather(
        *(store.change(added.id, Change(tags=(tag,), revisions=read)) for tag in ("a", "b", "c", "d"))
    )
    assert [answers.count(answer) for answer in (DID, Answer(False, Status.QUEUED))] == [1, 3]
    [tag] = (await job_of(store, added.id)).tags
    assert tag == "abcd"[answers.index(DID)]


async def test_a_change_of_a_revision_that_is_gone_changes_nothing(store: Store) -> None:
    added = await add_one(store, delay=seconds(100))
    seen = {revision(await job_of(store, added.id))}
    for change in (Change(priority=Priority.LOW), Change(delay=seconds(5)), Change(tags=("t",))):
        assert await store.change(added.id, change) == DID
        before = await job_of(store, added.id)
        assert await store.change(added.id, Change(Priority.HIGH, revisions=frozenset(seen))) == Answer(False, Status.QUEUED)
        assert await job_of(store, added.id) == before
        seen.add(revision(before))
    assert len(seen) == 4
    assert await store.change(added.id, Change(Priority.HIGH, revisions=frozenset(seen))) == DID


async def test_a_job_that_was_claimed_and_handed_back_has_another_revision(store: Store) -> None:
    added = await add_one(store)
    read = frozenset({revision(await job_of(store, added.id))})
    claimed = await claim_one(store)
    assert await store.change(added.id, Change(Priority.HIGH, revisions=read)) == Answer(False, Status.PROCESSING)
    await settle(store, claimed, Raised("x"))
    answer = await store.change(added.id, Change(Priority.HIGH, revisions=read))
    assert (answer.did, answer.status) == (False, Status.RETRYING)


@pytest.mark.parametrize("id", NO_IDS)
async def test_there_is_no_revision_to_change_under_an_id_that_is_no_id(store: Store, id: str) -> None:
    assert await store.change(id, Change(Priority.LOW, revisions=frozenset({"x"}))) == Answer(False, None)


@pytest.mark.parametrize("id", NO_IDS)
async def test_there_is_nothing_to_change_under_an_id_that_is_no_id(store: Store, id: str) -> None:
    assert await store.change(id, Change(Priority.LOW)) == Answer(False, None)

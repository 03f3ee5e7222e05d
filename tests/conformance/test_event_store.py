"""store.events: what events are made of."""

from pathlib import Path

import pytest

from demora.core.events import EventKind
from demora.core.pace import Pace, request_of
from demora.core.retention import Retention
from demora.core.states import Status
from demora.core.verdict import Cancelled, HandedBack, Outcome, Raised, Snoozed
from demora.store.events import SettledJobs
from demora.store.jobs import Change, QueueChange, Report
from demora.store.store import Store
from tests.builders import (
    BROKEN,
    DONE,
    add_ids,
    add_one,
    claim,
    claim_one,
    job_of,
    ms,
    run_one,
    seconds,
    settle,
    settle_lapsed,
    settlement,
)
from tests.clock import TestClock
from tests.conformance.conftest import opened
from tests.setups import Setup


@pytest.fixture(autouse=True)
async def listened_to(store: Store) -> None:
    await store.events.begin()
    await store.events.begin()


async def settled(store: Store, since: str) -> tuple[list[tuple[str, Status]], str]:
    """The jobs that were settled since a position, and the position after them."""
    found = await store.events.settled(since, 100)
    assert found is not None
    assert found.next is None
    return [(job.id, job.status) for job in found.jobs], found.position


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (DONE, Status.COMPLETED),
        (BROKEN, Status.FAILED),
        (Cancelled("no need"), Status.CANCELLED),
        (Raised("no", after=seconds(5)), Status.RETRYING),
    ],
    ids=str,
)
async def test_a_settled_job_is_told_once(store: Store, outcome: Outcome, status: Status) -> None:
    position = await store.events.position()
    added = await add_one(store)
    assert await settled(store, position) == ([], (await settled(store, position))[1])
    await run_one(store, outcome)
    told, position = await settled(store, position)
    assert told == [(added.id, status)]
    assert (await settled(store, position))[0] == []


async def test_what_ends_without_a_run_is_told(store: Store, clock: TestClock) -> None:
    position = await store.events.position()
    cancelled, swept, claimed = await add_ids(
        store, {"delay": seconds(60)}, {"delay": seconds(60), "expires_in": seconds(1)}, {"expires_in": seconds(3)}
    )
    await store.cancel([cancelled])
    told, position = await settled(store, position)
    assert told == [(cancelled, Status.CANCELLED)]
    clock.turn(2)
    await store.housekeep(Retention(), limit=100)
    told, position = await settled(store, position)
    assert told == [(swept, Status.CANCELLED)]
    clock.turn(2)
    await claim(store)
    assert await job_of(store, claimed)
    assert (await settled(store, position))[0] == [(claimed, Status.CANCELLED)]


async def test_a_lapse_is_told_when_it_is_settled(store: Store, clock: TestClock) -> None:
    position = await store.events.position()
    added = await add_one(store)
    await claim_one(store, lease=seconds(10))
    clock.turn(11)
    await settle_lapsed(store)
    assert (await settled(store, position))[0] == [(added.id, Status.RETRYING)]


async def test_a_run_that_was_no_attempt_is_not_told(store: Store, clock: TestClock) -> None:
    position = await store.events.position()
    added = await add_one(store)
    await run_one(store, Raised("no", after=seconds(0)))
    told, position = await settled(store, position)
    assert told == [(added.id, Status.RETRYING)]
    for outcome in (HandedBack(), Snoozed(ms(0))):
        await run_one(store, outcome)
        assert (await settled(store, position))[0] == []


async def test_a_change_of_a_retrying_job_is_not_told_again(store: Store) -> None:
    added = await add_one(store)
    await run_one(store, Raised("no", after=seconds(60)))
    position = await store.events.position()
    await store.change(added.id, Change(delay=seconds(30)))
    assert (await settled(store, position))[0] == []


async def test_a_job_that_runs_again_is_told_when_it_ends_again(store: Store) -> None:
    position = await store.events.position()
    added = await add_one(store)
    await run_one(store, BROKEN)
    await store.retry([added.id])
    assert (await settled(store, position))[0] == []
    job = await claim_one(store)
    assert (await settled(store, position))[0] == []
    await settle(store, job, DONE)
    assert (await settled(store, position))[0] == [(added.id, Status.COMPLETED)]


async def test_a_deleted_job_is_not_told(store: Store) -> None:
    position = await store.events.position()
    await store.remove([await run_after_add(store)])
    assert (await settled(store, position))[0] == []


async def test_a_position_does_not_come_again_when_its_jobs_are_deleted(store: Store) -> None:
    ended = await run_after_add(store)
    position = await store.events.position()
    await store.remove([ended])
    others = [await run_after_add(store) for _ in range(2)]
    assert (await settled(store, position))[0] == [(other, Status.COMPLETED) for other in others]


async def run_after_add(store: Store) -> str:
    await add_one(store)
    return await run_one(store)


async def test_pages_join_and_keep_the_position_of_the_first(store: Store) -> None:
    position = await store.events.position()
    ids = await add_ids(store, *[{} for _ in range(7)])
    jobs = (await claim(store)).jobs
    await store.settle([settlement(job, DONE) for job in jobs])
    told: list[str] = []
    page: SettledJobs | None = await store.events.settled(position, 3)
    assert page is not None
    first = page.position
    late = await run_after_add(store)
    while page is not None:
        told += [job.id for job in page.jobs]
        assert page.position == first
        page = None if page.next is None else await store.events.settled(position, 3, page.next)
    assert told == ids
    assert (await settled(store, first))[0] == [(late, Status.COMPLETED)]


@pytest.mark.parametrize("position", ["", "x", "-1", "1:2", "2:1:", "1:5:9", "999999999999999", "9" * 40, "é", "0:0:"])
async def test_a_position_that_the_database_never_had_is_unknown(store: Store, position: str) -> None:
    await run_after_add(store)
    assert await store.events.settled(position, 10) is None


async def test_a_position_ahead_of_the_database_is_unknown(store: Store) -> None:
    here = await store.events.position()
    ahead = str(10**15) if ":" not in here else f"{10**15}:{10**15}:"
    assert await store.events.settled(ahead, 10) is None


async def test_a_settled_job_says_what_became_of_it(store: Store, clock: TestClock) -> None:
    position = await store.events.position()
    added = await add_one(store, name="Greet", queue="mail", type="demo.greet", tags=("a", "é"))
    clock.turn(3)
    await run_one(store, Raised("ValueError: no", after=seconds(5)))
    page = await store.events.settled(position, 10)
    assert page is not None
    [job] = page.jobs
    stored = await job_of(store, added.id)
    assert (job.name, job.queue, job.type, job.tags) == ("Greet", "mail", "demo.greet", ("a", "é"))
    assert (job.attempt, job.token, job.error, job.worker_id) == (1, 1, "ValueError: no", "ann")
    assert (job.moment, job.due_at) == (stored.attempts[0].ended_at, stored.due_at)


async def test_before_the_first_listener_nothing_is_recorded(setup: Setup, tmp_path: Path, clock: TestClock) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    async with opened(setup, folder, clock) as store:
        position = await store.events.position()
        await run_after_add(store)
        await store.events.begin()
        assert (await settled(store, position))[0] == []
        ended = await run_after_add(store)
        assert (await settled(store, position))[0] == [(ended, Status.COMPLETED)]


# New jobs


async def test_new_jobs_are_told_from_a_mark_on(store: Store, clock: TestClock) -> None:
    await add_one(store)
    none = await store.events.added(None, 10)
    assert none.jobs == []
    clock.turn(1)
    ids = await add_ids(store, {"queue": "mail", "tags": ("a",)}, {"delay": seconds(60)})
    found = await store.events.added(none.mark, 10)
    assert [job.id for job in found.jobs] == ids
    assert (found.jobs[0].queue, found.jobs[0].tags) == ("mail", ("a",))
    assert found.jobs[0].moment == (await job_of(store, ids[0])).created_at


async def test_new_jobs_are_told_also_if_they_have_ended_since(store: Store) -> None:
    mark = (await store.events.added(None, 10)).mark
    id = await run_after_add(store)
    assert [job.id for job in (await store.events.added(mark, 10)).jobs] == [id]


async def test_each_new_job_is_told_and_soon_no_longer(store: Store) -> None:
    mark, told = (await store.events.added(None, 10)).mark, list[str]()
    ids = []
    for _ in range(5):
        ids += await add_ids(store, {}, {})
        found = await store.events.added(mark, 10)
        told, mark = told + [job.id for job in found.jobs], found.mark
    assert sorted(set(told)) == sorted(ids)
    for _ in range(3):
        mark = (await store.events.added(mark, 10)).mark
    assert (await store.events.added(mark, 10)).jobs == []


async def test_new_jobs_come_in_pages(store: Store) -> None:
    mark = (await store.events.added(None, 10)).mark
    ids = await add_ids(store, *[{} for _ in range(5)])
    first = await store.events.added(mark, 3)
    second = await store.events.added(first.mark, 3)
    assert [job.id for job in first.jobs + second.jobs] == ids


async def test_a_job_is_told_also_if_the_job_before_it_was_deleted(store: Store, clock: TestClock) -> None:
    old = await run_after_add(store)
    mark = (await store.events.added(None, 10)).mark
    clock.turn(1)
    await store.remove([old])
    added = await add_one(store)
    assert [job.id for job in (await store.events.added(mark, 10)).jobs] == [added.id]


async def test_in_an_empty_database_the_first_job_is_told(store: Store) -> None:
    mark = (await store.events.added(None, 10)).mark
    added = await add_one(store)
    assert [job.id for job in (await store.events.added(mark, 10)).jobs] == [added.id]


# Running jobs


async def test_running_jobs_are_told_with_their_progress(store: Store, clock: TestClock) -> None:
    assert (await store.events.running(10)).jobs == []
    await add_ids(store, {}, {})
    job = await claim_one(store)
    clock.turn(1)
    await store.renew([Report(job.lease, seconds(1), progress=0.5, message="half")], lease=seconds(30))
    found = await store.events.running(10)
    assert [(one.id, one.progress, one.progress_message) for one in found.jobs] == [(job.lease.id, 0.5, "half")]
    assert (found.jobs[0].token, found.jobs[0].worker_id) == (1, "ann")
    assert found.read_at.timestamp() * 1e6 == pytest.approx(clock.wall_us(), abs=1000)
    await claim(store)
    assert len((await store.events.running(1)).jobs) == 1
    assert len((await store.events.running(10)).jobs) == 2


# Queues


async def test_paused_queues_are_told(store: Store) -> None:
    await add_one(store, queue="mail")
    assert (await store.events.queue_signs(None)).paused == {}
    await store.set_queue("mail", QueueChange(paused=True, reason="full", by="ann"))
    [event] = (await store.events.queue_signs(None)).paused.values()
    assert (event.kind, event.queue, event.reason, event.by) == (EventKind.PAUSED, "mail", "full", "ann")
    await store.set_queue("mail", QueueChange(paused=False))
    assert (await store.events.queue_signs(None)).paused == {}


async def test_changes_of_paces_are_told_after_a_number(store: Store) -> None:
    await store.paces.set("mail", request_of(Pace()), by="ann")
    none = await store.events.queue_signs(None)
    assert none.paces == []
    await store.paces.set("mail", None, by="bob")
    await store.paces.set("*", request_of(Pace(burst=2)), by="cid")
    found = await store.events.queue_signs(none.last_change)
    assert [(one.kind, one.queue, one.by) for one in found.paces[:2]] == [
        (EventKind.PACE, "mail", "bob"),
        (EventKind.PACE, "*", "cid"),
    ]
    assert [one.pace and one.pace.burst for one in found.paces[:2]] == [None, 2]
    assert (await store.events.queue_signs(found.last_change)).paces == []

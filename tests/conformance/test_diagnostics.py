"""`overview` and `activity` agree with what was done to the jobs, on every engine."""

from datetime import timedelta

import msgspec
import pytest

from demora.core.spans import from_ms
from demora.core.states import Status
from demora.store.diagnostics import DiagnosticsStore, JobsOverview, Waiting
from demora.store.store import Store
from tests.builders import DONE, LEASE, add_ids, add_one, claim, claim_one, ended_one, seconds, settle, settle_lapsed
from tests.clock import TestClock


@pytest.fixture
def surveyed(store: Store) -> DiagnosticsStore:
    return store.diagnostics


async def test_an_empty_store_has_nothing_to_tell(surveyed: DiagnosticsStore, clock: TestClock) -> None:
    assert await surveyed.overview() == JobsOverview(now=clock.now())
    activity = await surveyed.activity()
    assert (activity.queues, activity.added, activity.running, activity.due_since) == ([], {}, {}, {})


async def test_waiting_jobs_are_counted_by_queue_and_type(
    store: Store, surveyed: DiagnosticsStore, clock: TestClock
) -> None:
    due = clock.now()
    await add_ids(store, {"queue": "mail", "type": "a"}, {"queue": "mail", "type": "b", "delay": seconds(60)})
    clock.turn(5)
    await add_ids(store, {"queue": "mail", "type": "a"}, {"type": "a"})
    await claim_one(store, queues=["default"])
    assert sorted((await surveyed.overview()).waiting, key=lambda waiting: waiting.type) == [
        Waiting("mail", "a", 2, 0, due),
        Waiting("mail", "b", 0, 1, due + seconds(60)),
    ]


async def test_leases_that_lapsed_are_told_until_they_are_settled(
    store: Store, surveyed: DiagnosticsStore, clock: TestClock
) -> None:
    await add_one(store)
    await claim_one(store)
    clock.turn(LEASE.total_seconds() - 1)
    overview = await surveyed.overview()
    assert (overview.lapsed, overview.lapsed_for) == (0, seconds(0))
    clock.turn(6)
    overview = await surveyed.overview()
    assert (overview.lapsed, overview.lapsed_for) == (1, seconds(5))
    await settle_lapsed(store)
    assert (await surveyed.overview()).lapsed == 0


async def test_jobs_from_the_future_are_told_after_the_clock_was_set_back(
    store: Store, surveyed: DiagnosticsStore, clock: TestClock
) -> None:
    await ended_one(store, Status.COMPLETED)
    await add_one(store)
    overview = await surveyed.overview()
    assert (overview.ahead, overview.ahead_waiting, overview.ahead_by) == (0, 0, timedelta(0))
    clock.step_wall(-3600)
    await add_one(store)
    overview = await surveyed.overview()
    assert (overview.ahead, overview.ahead_waiting, overview.ahead_by) == (2, 1, timedelta(hours=1))
    unended = await surveyed.overview(ended=False)
    assert unended == msgspec.structs.replace(overview, ahead=1)


async def test_a_pulse_counts_what_was_added_since_its_mark(store: Store, surveyed: DiagnosticsStore) -> None:
    await add_ids(store, {}, {"queue": "mail"})
    first = await surveyed.activity()
    assert first.added == {}
    await add_ids(store, {"queue": "mail"}, {"queue": "mail"}, {"queue": "new"})
    second = await surveyed.activity(first.mark)
    assert second.added == {"mail": 2, "new": 1}
    assert (await surveyed.activity(second.mark)).added == {}


async def test_a_pulse_says_what_each_worker_runs_and_since_when_jobs_are_due(
    store: Store, surveyed: DiagnosticsStore, clock: TestClock
) -> None:
    due = clock.wall()
    await add_ids(store, {}, {}, {"queue": "mail"}, {"queue": "later", "delay": seconds(60)})
    clock.turn(5)
    running = (await claim(store, 2, worker="ann", queues=["default"])).jobs
    activity = await surveyed.activity()
    assert (activity.running, activity.due_since, activity.now) == ({"ann": 2}, {"mail": from_ms(due)}, clock.now())
    assert [(queue.name, queue.ready, queue.delayed, queue.processing) for queue in activity.queues] == [
        ("default", 0, 0, 2),
        ("later", 0, 1, 0),
        ("mail", 1, 0, 0),
    ]
    await settle(store, running[0], DONE)
    assert (await surveyed.activity()).running == {"ann": 1}


async def test_running_jobs_are_told_by_worker_and_type_with_the_one_that_runs_longest(
    store: Store, surveyed: DiagnosticsStore, clock: TestClock
) -> None:
    began = clock.now()
    [first, *_] = await add_ids(store, {"type": "a"}, {"type": "a"}, {"type": "b"}, {"type": "a"})
    await claim(store, 1, worker="ann")
    clock.turn(5)
    await claim(store, 2, worker="ann")
    await claim(store, 1, worker="bob")
    running = {(one.worker_id, one.type): one for one in (await surveyed.overview()).running}
    assert {key: one.jobs for key, one in running.items()} == {("ann", "a"): 2, ("ann", "b"): 1, ("bob", "a"): 1}
    longest = running["ann", "a"]
    assert (longest.longest_id, longest.since, longest.latest_at) == (first, began, began + seconds(5))
    clock.turn(LEASE.total_seconds() - 5)
    left = {(one.worker_id, one.type): one.jobs for one in (await surveyed.overview()).running}
    assert left == {("ann", "a"): 1, ("ann", "b"): 1, ("bob", "a"): 1}  # the first lease has lapsed


async def test_a_job_whose_lease_has_lapsed_is_not_the_newest_that_runs(
    store: Store, surveyed: DiagnosticsStore, clock: TestClock
) -> None:
    began = clock.now()
    await add_ids(store, {}, {})
    await claim(store, 1, worker="ann")
    clock.turn(5)
    await claim(store, 1, worker="ann", lease=seconds(1))
    clock.turn(2)
    [running] = (await surveyed.overview()).running
    assert (running.jobs, running.latest_at) == (1, began)


async def test_the_outlook_of_a_ready_job_tells_what_runs(store: Store, clock: TestClock) -> None:
    running = await add_one(store)
    await claim_one(store)
    ready, later = await add_ids(store, {}, {"delay": seconds(60)})
    outlook = await store.paces.outlook(ready)
    assert outlook is not None
    assert [(one.worker_id, one.longest_id, one.since) for one in outlook.running] == [("ann", running.id, clock.now())]
    unready = await store.paces.outlook(later)
    assert unready is not None
    assert unready.running == []

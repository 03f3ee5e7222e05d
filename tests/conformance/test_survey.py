"""survey and pulse: how the jobs stand, for those who look after them; engines that offer them agree with what was done."""

from datetime import timedelta
from typing import cast

import pytest

from demora.core.spans import from_ms
from demora.core.states import Status
from demora.pacing import Paced
from demora.store import Store
from demora.survey import Survey, Surveyed, Waiting
from tests.builders import DONE, LEASE, add_ids, add_one, claim, claim_one, ended_one, seconds, settle, settle_lapsed
from tests.clock import TestClock


@pytest.fixture
def surveyed(store: Store) -> Surveyed:
    if not isinstance(store, Surveyed):
        pytest.skip("this engine does not say how it is doing")
    return cast(Surveyed, store)


async def test_an_empty_store_has_nothing_to_tell(surveyed: Surveyed, clock: TestClock) -> None:
    assert await surveyed.survey() == Survey(now=clock.now())
    pulse = await surveyed.pulse()
    assert (pulse.queues, pulse.added, pulse.running, pulse.due_since) == ([], {}, {}, {})


async def test_waiting_jobs_are_counted_by_queue_and_type(store: Store, surveyed: Surveyed, clock: TestClock) -> None:
    due = clock.now()
    await add_ids(store, {"queue": "mail", "type": "a"}, {"queue": "mail", "type": "b", "delay": seconds(60)})
    clock.turn(5)
    await add_ids(store, {"queue": "mail", "type": "a"}, {"type": "a"})
    await claim_one(store, queues=["default"])
    assert sorted((await surveyed.survey()).waiting, key=lambda waiting: waiting.type) == [
        Waiting("mail", "a", 2, 0, due),
        Waiting("mail", "b", 0, 1, due + seconds(60)),
    ]


async def test_leases_that_lapsed_are_told_until_they_are_settled(
    store: Store, surveyed: Surveyed, clock: TestClock
) -> None:
    await add_one(store)
    await claim_one(store)
    clock.turn(LEASE.total_seconds() - 1)
    assert (await surveyed.survey()).lapsed == 0
    clock.turn(6)
    survey = await surveyed.survey()
    assert (survey.lapsed, survey.lapsed_for) == (1, seconds(5))
    await settle_lapsed(store)
    assert (await surveyed.survey()).lapsed == 0


async def test_jobs_from_the_future_are_told_after_the_clock_was_set_back(
    store: Store, surveyed: Surveyed, clock: TestClock
) -> None:
    await ended_one(store, Status.COMPLETED)
    await add_one(store)
    clock.step_wall(-3600)
    await add_one(store)
    survey = await surveyed.survey()
    assert (survey.ahead, survey.ahead_waiting, survey.ahead_by) == (2, 1, timedelta(hours=1))


async def test_a_pulse_counts_what_was_added_since_its_mark(store: Store, surveyed: Surveyed) -> None:
    await add_ids(store, {}, {"queue": "mail"})
    first = await surveyed.pulse()
    assert first.added == {}
    await add_ids(store, {"queue": "mail"}, {"queue": "mail"}, {"queue": "new"})
    second = await surveyed.pulse(first.mark)
    assert second.added == {"mail": 2, "new": 1}
    assert (await surveyed.pulse(second.mark)).added == {}


async def test_a_pulse_says_what_each_worker_runs_and_since_when_jobs_are_due(
    store: Store, surveyed: Surveyed, clock: TestClock
) -> None:
    due = clock.wall()
    await add_ids(store, {}, {}, {"queue": "mail"}, {"queue": "later", "delay": seconds(60)})
    clock.turn(5)
    running = (await claim(store, 2, worker="ann", queues=["default"])).jobs
    pulse = await surveyed.pulse()
    assert (pulse.running, pulse.due_since, pulse.now) == ({"ann": 2}, {"mail": from_ms(due)}, clock.now())
    assert [(queue.name, queue.ready, queue.delayed, queue.processing) for queue in pulse.queues] == [
        ("default", 0, 0, 2),
        ("later", 0, 1, 0),
        ("mail", 1, 0, 0),
    ]
    await settle(store, running[0], DONE)
    assert (await surveyed.pulse()).running == {"ann": 1}


async def test_running_jobs_are_told_by_worker_and_type_with_the_one_that_runs_longest(
    store: Store, surveyed: Surveyed, clock: TestClock
) -> None:
    began = clock.now()
    [first, *_] = await add_ids(store, {"type": "a"}, {"type": "a"}, {"type": "b"}, {"type": "a"})
    await claim(store, 1, worker="ann")
    clock.turn(5)
    await claim(store, 2, worker="ann")
    await claim(store, 1, worker="bob")
    running = {(one.worker_id, one.type): one for one in (await surveyed.survey()).running}
    assert {key: one.jobs for key, one in running.items()} == {("ann", "a"): 2, ("ann", "b"): 1, ("bob", "a"): 1}
    longest = running["ann", "a"]
    assert (longest.longest_id, longest.since, longest.latest_at) == (first, began, began + seconds(5))
    clock.turn(LEASE.total_seconds() - 5)
    left = {(one.worker_id, one.type): one.jobs for one in (await surveyed.survey()).running}
    assert left == {("ann", "a"): 1, ("ann", "b"): 1, ("bob", "a"): 1}  # the first lease has lapsed


async def test_the_outlook_of_a_ready_job_tells_what_runs(store: Store, clock: TestClock) -> None:
    assert isinstance(store, Paced)
    running = await add_one(store)
    await claim_one(store)
    ready, later = await add_ids(store, {}, {"delay": seconds(60)})
    outlook = await store.outlook(ready)
    assert outlook is not None
    assert [(one.worker_id, one.longest_id, one.since) for one in outlook.running] == [("ann", running.id, clock.now())]
    unready = await store.outlook(later)
    assert unready is not None
    assert unready.running == []

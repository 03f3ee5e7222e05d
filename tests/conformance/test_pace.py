"""Paces: what a claim lets go and when, by the plan of the core, whoever looks."""

import asyncio
import copy
import random
from collections import Counter
from datetime import timedelta

import pytest

from demora.client.paces import Paces
from demora.core.filters import JobFilter
from demora.core.job import Lane, Priority
from demora.core.outbound.webhook import QUEUE as WEBHOOKS
from demora.core.pace import USUAL_RAPID, DelayedStats, Governs, Pace, PaceRequest, Rate, request_of
from demora.core.spans import to_ms
from demora.core.states import Status
from demora.core.verdict import HandedBack, Raised, Succeeded, Verdict
from demora.errors import Invalid
from demora.proof import check
from demora.settings import load
from demora.store.jobs import Change, Claimed, Lease, Query, QueueChange, Report, Settlement, Topic
from demora.store.store import Store
from tests.builders import (
    add_ids,
    add_one,
    claim,
    claim_ids,
    claim_one,
    job_of,
    ms,
    seconds,
    settle,
)
from tests.clock import TestClock

CALM = Pace(rapid=None)
WAITING = Query(JobFilter(frozenset({Status.QUEUED})))
QUICK = Pace(gap=seconds(1), burst=4, stagger=ms(100), rapid=None)


async def set_pace(store: Store, pace: Pace | None = CALM, queue: str = "default", by: str = "ann") -> None:
    await store.paces.set(queue, None if pace is None else request_of(pace), by=by)


async def let_go(store: Store, limit: int = 100) -> Claimed:
    """Claim until the answer is not to come back at once; all jobs in one answer."""
    claimed = await claim(store, limit)
    jobs, released = claimed.jobs, [*claimed.released]
    for _ in range(20):
        if claimed.next_in != timedelta(0) or claimed.lapsed:
            break
        claimed = await claim(store, limit - len(jobs))
        jobs, released = jobs + claimed.jobs, [*released, *claimed.released]
    return Claimed(jobs, claimed.lapsed, claimed.next_in, released)


async def follow(store: Store, clock: TestClock, jobs: int, *, most: int = 1000) -> list[int]:
    """Sleep as workers do, from one look to the next, until so many jobs were claimed: how long after now each was."""
    start, times = clock.wall(), list[int]()
    for _ in range(most):
        claimed = await let_go(store)
        times += [clock.wall() - start] * len(claimed.jobs)
        await give_up(store, claimed)
        if len(times) >= jobs:
            break
        assert claimed.next_in is not None
        clock.turn(ms=max(claimed.next_in // ms(1), 1))
    return times


async def give_up(store: Store, claimed: Claimed) -> None:
    """End jobs, so that no lease wakes anybody."""
    await store.settle([ended(job.lease) for job in claimed.jobs])


def ended(lease: Lease) -> Settlement:
    return Settlement(Report(lease, timedelta(0)), Succeeded(b"1"), Verdict(Status.COMPLETED, result=b"1"))


def at(*times: str) -> list[int]:
    return [(int(minutes) * 60 + int(rest)) * 1000 for minutes, rest in (time.split(":") for time in times)]


# The timeline


async def test_claims_follow_the_sources_timeline_given_a_cycle_at_zero(store: Store, clock: TestClock) -> None:
    await set_pace(store, Pace(burst=1, rapid=None))
    await add_one(store, delay=ms(1))
    clock.turn(ms=1)
    await give_up(store, await let_go(store))  # the cycle at 0:00
    await set_pace(store)
    await add_ids(store, *[{"delay": seconds(15)}] * 4)
    assert await follow(store, clock, 4) == at("2:00", "2:30", "3:00", "4:00")


async def test_the_sources_variables_alone_give_the_sources_timeline(store: Store, clock: TestClock) -> None:
    settings = load({"DELAYED_JOB_GAP_SECONDS": "120", "MAX_DELAYED_JOBS_PER_CYCLE": "3"})
    await Paces(store.paces, settings.usual_pace).apply_paces(settings.pace)
    await add_ids(store, *[{"delay": ms(1)}] * 3)
    clock.turn(ms=1)
    start, seen = clock.wall(), list[tuple[int, str]]()
    await add_ids(store, *[{"delay": seconds(15), "type": "held"}] * 4)
    for now in range(0, 245, 5):
        if now in (0, 30):
            await add_one(store, type="real-time")
        claimed = await let_go(store)
        seen += [(clock.wall() - start, job.type) for job in claimed.jobs]
        await give_up(store, claimed)
        clock.turn(5)
    assert [when for when, type in seen if type == "real-time"] == at("0:00", "0:30")
    assert [when for when, type in seen if type == "held"] == at("2:00", "2:30", "3:00", "4:00")


async def test_without_history_the_first_release_is_immediate(store: Store, clock: TestClock) -> None:
    await set_pace(store)
    await add_ids(store, *[{"delay": seconds(15)}] * 4)
    assert await follow(store, clock, 4) == at("0:15", "0:45", "1:15", "2:15")


async def test_with_nothing_real_time_waiting_the_rapid_rate_applies(store: Store, clock: TestClock) -> None:
    await set_pace(store, Pace(rapid=USUAL_RAPID))
    await add_ids(store, *[{"delay": seconds(1)}] * 6)
    assert await follow(store, clock, 6) == [1000, 7000, 13_000, 19_000, 25_000, 31_000]


async def test_no_job_is_released_before_its_gap_is_over_unless_a_rapid_rate_is_asked_for(
    store: Store, clock: TestClock
) -> None:
    await store.paces.set("default", PaceRequest(gap=seconds(180), burst=1), by="ann")
    await add_ids(store, *[{"delay": seconds(1)}] * 3)
    assert await follow(store, clock, 3) == [1000, 181_000, 361_000]


async def test_a_burst_fits_into_its_gap_unless_a_stagger_is_given(store: Store, clock: TestClock) -> None:
    await store.paces.set("default", PaceRequest(gap=seconds(10), burst=5), by="ann")
    await add_ids(store, *[{"delay": seconds(1)}] * 6)
    assert await follow(store, clock, 6) == [1000, 3000, 5000, 7000, 9000, 11_000]


async def test_a_stagger_that_does_not_fit_is_refused_and_nothing_changes(store: Store) -> None:
    await store.paces.set("default", PaceRequest(gap=seconds(10), burst=2, stagger=seconds(5)), by="ann")
    with pytest.raises(Invalid, match="stagger: 3 releases 5s apart take 15s, longer than the gap of 10s; at most 3s333ms"):
        await store.paces.set("default", PaceRequest(burst=3), by="ann")
    [found] = await store.paces.all()
    assert found.pace == Pace(gap=seconds(10), burst=2, stagger=seconds(5))


async def test_a_real_time_job_that_waits_makes_the_rate_normal(store: Store, clock: TestClock) -> None:
    await set_pace(store, Pace(rapid=USUAL_RAPID, protect=("web",)))
    await add_ids(store, {"delay": seconds(1)}, {"delay": seconds(1)}, {"queue": "web"})
    clock.turn(1)
    claimed = await claim(store, queues=["default"])
    assert (len(claimed.jobs), claimed.next_in) == (1, seconds(30))
    await claim(store, queues=["web"])
    clock.turn(29.999)
    assert await claim_ids(store, queues=["default"]) == []
    clock.turn(ms=1)
    assert len(await claim_ids(store, queues=["default"])) == 1


async def test_each_queue_has_its_own_pace(store: Store, clock: TestClock) -> None:
    await set_pace(store, CALM, "a")
    await set_pace(store, QUICK, "b")
    await add_ids(store, *[{"queue": name, "delay": seconds(1)} for name in "aabbcc"])
    clock.turn(1)
    assert len((await let_go(store)).jobs) == 4
    clock.turn(ms=100)
    assert [job.queue for job in (await let_go(store)).jobs] == ["b"]


# What is governed


async def test_jobs_enqueued_to_run_now_are_never_held(store: Store) -> None:
    await set_pace(store)
    ids = await add_ids(store, *[{}] * 10)
    assert await claim_ids(store) == ids


@pytest.mark.parametrize("governs", [Governs.RETRIES, Governs.SCHEDULED, Governs.BOTH])
async def test_a_pace_holds_what_it_governs(store: Store, clock: TestClock, governs: Governs) -> None:
    await add_one(store, retry_delay=seconds(10))
    failed = await claim_one(store)
    await settle(store, failed, Raised("ValueError: no"))
    [scheduled] = await add_ids(store, {"delay": seconds(10)})
    await set_pace(store, Pace(governs=governs, burst=1, rapid=None))
    await add_ids(store, {"delay": seconds(5)})
    clock.turn(5)
    first = (await let_go(store)).jobs  # the release time is used if scheduled jobs are governed
    assert len(first) == 1
    clock.turn(5)
    free = {Lane.RETRY: failed.lease.id, Lane.SCHEDULED: scheduled}
    held = {id for lane, id in free.items() if lane in governs.lanes}
    if governs is Governs.RETRIES:
        held = set()  # the first retry has a release time at once
    got = {job.lease.id for job in (await let_go(store)).jobs}
    assert got == set(free.values()) - held


async def test_a_job_that_was_let_go_and_handed_back_is_not_held_again(store: Store, clock: TestClock) -> None:
    await set_pace(store)
    await add_ids(store, {"delay": seconds(1)})
    clock.turn(1)
    [job] = (await let_go(store)).jobs
    await settle(store, job, HandedBack())
    assert await claim_ids(store) == [job.lease.id]


async def test_a_job_that_was_let_go_and_failed_is_held_as_a_retry(store: Store, clock: TestClock) -> None:
    await set_pace(store)
    await add_ids(store, {"delay": seconds(1), "retry_delay": seconds(1)})
    clock.turn(1)
    [job] = (await let_go(store)).jobs
    await settle(store, job, Raised("ValueError: no"))
    clock.turn(29.999)
    assert (await let_go(store)).jobs == []
    clock.turn(ms=1)
    assert len((await let_go(store)).jobs) == 1


async def test_setting_and_taking_off_a_pace_rewrites_no_job(store: Store, clock: TestClock) -> None:
    ids = await add_ids(store, *[{"delay": seconds(1)}] * 5)
    before = [await job_of(store, id) for id in ids]
    await set_pace(store)
    clock.turn(1)
    await set_pace(store, None)
    assert [await job_of(store, id) for id in ids] == before
    assert await claim_ids(store) == ids


async def test_the_more_urgent_is_let_go_first(store: Store, clock: TestClock) -> None:
    await set_pace(store, QUICK)
    ids = await add_ids(store, *[{"delay": seconds(1), "priority": priority} for priority in sorted(Priority, reverse=True)])
    clock.turn(1)
    order = []
    for _ in range(4):
        order += [job.lease.id for job in (await let_go(store)).jobs]
        clock.turn(ms=100)
    assert order == ids[::-1]


async def test_a_job_that_was_let_go_is_due_at_its_slot(store: Store, clock: TestClock) -> None:
    await set_pace(store)
    await add_ids(store, *[{"delay": seconds(1)}] * 2)
    clock.turn(40)
    released = (await let_go(store)).released
    assert [to_ms(job.release_at) - clock.wall() for job in released] == [-39_000, -9_000]
    jobs = [await job_of(store, job.id) for job in released]
    assert [(job.lane, job.due_at) for job in jobs] == [(Lane.RELEASED, release.release_at) for release in released]


async def test_a_paused_queue_lets_nothing_go(store: Store, clock: TestClock) -> None:
    await set_pace(store)
    await add_ids(store, {"delay": seconds(1)})
    await store.set_queue("default", QueueChange(paused=True))
    clock.turn(1)
    assert (await store.paces.release()).jobs == []
    assert (await claim(store)).next_in is None
    await store.set_queue("default", QueueChange(paused=False))
    assert len((await let_go(store)).jobs) == 1


async def test_a_held_job_that_expired_uses_no_slot(store: Store, clock: TestClock) -> None:
    await set_pace(store)
    expired, other = await add_ids(store, {"delay": seconds(1), "expires_in": seconds(5)}, {"delay": seconds(6)})
    clock.turn(6)
    assert [job.lease.id for job in (await let_go(store)).jobs] == [other]
    assert (await job_of(store, expired)).lane is Lane.SCHEDULED


async def test_a_held_job_that_expired_keeps_nobody_awake(store: Store, clock: TestClock) -> None:
    await set_pace(store)
    expired = await add_one(store, delay=seconds(1), expires_in=seconds(5))
    clock.turn(6)
    claimed = await let_go(store)
    assert (claimed.jobs, claimed.next_in) == ([], None)
    assert (await job_of(store, expired.id)).status is Status.CANCELLED


async def test_a_clock_that_is_set_back_holds_nobody_for_longer_than_the_next_slot(store: Store, clock: TestClock) -> None:
    await set_pace(store)
    await add_ids(store, *[{"delay": seconds(1)}] * 2)
    clock.turn(1)
    await give_up(store, await let_go(store))
    await store.set_queue("default", QueueChange())
    clock.step_wall(-7200)
    [second] = (await store.find(WAITING)).jobs
    await store.change(second.id, Change(delay=timedelta(0)))
    waits = (await let_go(store)).next_in
    assert waits is not None
    assert waits <= seconds(30)


# Many at once


async def test_any_number_of_claimers_use_each_slot_once(pair: tuple[Store, Store], clock: TestClock) -> None:
    await set_pace(pair[0], QUICK)
    await add_ids(pair[0], *[{"delay": seconds(1)}] * 40)
    clock.turn(1)
    start, times = clock.wall(), list[int]()
    for _ in range(60):
        looks = [claim(pair[n % 2], 5, worker=f"w{n}") for n in range(6)] + [pair[n].paces.release() for n in range(2)]
        for found in await asyncio.gather(*looks):
            released = found.released if isinstance(found, Claimed) else found.jobs
            times += [to_ms(job.release_at) - start for job in released]
        clock.turn(ms=50)
    oracle = [cycle * 1000 + n * 100 for cycle in range(4) for n in range(4)]
    assert sorted(times) == [time for time in oracle if time <= 59 * 50]


async def test_a_large_burst_goes_at_once_if_it_has_no_stagger(store: Store, clock: TestClock) -> None:
    await set_pace(store, Pace(gap=seconds(10), burst=25, stagger=ms(0), rapid=None))
    ids = await add_ids(store, *[{"delay": seconds(1)}] * 60)
    clock.turn(1)
    assert [job.lease.id for job in (await let_go(store)).jobs] == ids[:25]
    clock.turn(10)
    assert [job.lease.id for job in (await let_go(store)).jobs] == ids[25:50]


async def test_slots_survive_a_restart(pair: tuple[Store, Store], clock: TestClock) -> None:
    await set_pace(pair[0])
    await add_ids(pair[0], *[{"delay": seconds(1)}] * 3)
    clock.turn(1)
    assert len((await let_go(pair[0])).jobs) == 1
    await pair[0].close()
    await pair[0].open()
    assert (await let_go(pair[0])).jobs == []
    clock.turn(30)
    assert len((await let_go(pair[1])).jobs) == 1
    assert (await let_go(pair[0])).jobs == []


async def test_a_missed_cycle_is_not_made_up(store: Store, clock: TestClock) -> None:
    await set_pace(store)
    await add_ids(store, *[{"delay": seconds(1)}] * 10)
    clock.turn(1)
    await give_up(store, await let_go(store))
    clock.turn(3600)
    assert len((await let_go(store)).jobs) == 1


# release


async def test_release_names_what_it_let_go_and_when_to_come_back(store: Store, clock: TestClock) -> None:
    await set_pace(store)
    ids = await add_ids(store, {"delay": seconds(1), "priority": Priority.HIGH}, {"delay": seconds(5)})
    assert (await store.paces.release()).next_in == seconds(1)
    clock.turn(1)
    released = await store.paces.release()
    assert [(job.id, job.queue, job.priority) for job in released.jobs] == [(ids[0], "default", Priority.HIGH)]
    assert released.next_in == seconds(30)
    assert await claim_ids(store) == [ids[0]]


async def test_a_release_of_all_due_jobs_comes_back_when_the_next_one_is_due(store: Store, clock: TestClock) -> None:
    await set_pace(store)
    await add_ids(store, {"delay": seconds(1)}, {"delay": seconds(3600)})
    clock.turn(1)
    found = await store.paces.release()
    assert (len(found.jobs), found.next_in) == (1, seconds(3599))


async def test_release_keeps_to_the_queues_it_is_asked_for(store: Store, clock: TestClock) -> None:
    for queue in "ab":
        await set_pace(store, CALM, queue)
        await add_ids(store, {"delay": seconds(1), "queue": queue})
    clock.turn(1)
    assert [job.queue for job in (await store.paces.release(["b"])).jobs] == ["b"]


async def test_with_no_pace_there_is_nothing_to_release(store: Store, clock: TestClock) -> None:
    await add_ids(store, {"delay": seconds(1)})
    clock.turn(1)
    released = await store.paces.release()
    assert (released.jobs, released.next_in) == ([], None)


async def test_a_release_that_is_to_wake_nobody_lets_go_all_the_same(store: Store, clock: TestClock) -> None:
    await set_pace(store)
    [id] = await add_ids(store, {"delay": seconds(1)})
    clock.turn(1)
    assert [job.id for job in (await store.paces.release(wake=False)).jobs] == [id]
    assert await claim_ids(store) == [id]


async def test_a_release_wakes_those_who_wait_for_jobs(store: Store, clock: TestClock) -> None:
    await set_pace(store)
    await add_ids(store, {"delay": seconds(1)})
    clock.turn(1)
    with store.subscribe(Topic.READY) as subscription:
        subscription.clear()
        await store.paces.release()
        await asyncio.wait_for(subscription.wait(None), 5)


# set_pace


async def test_a_wish_is_laid_over_the_pace_that_is_there(store: Store) -> None:
    first = await store.paces.set("q", PaceRequest(gap=seconds(5)), by="ann")
    second = await store.paces.set("q", PaceRequest(burst=7, rapid=False), by="ann")
    assert first is not None
    assert second is not None
    assert first.pace == Pace(gap=seconds(5))
    assert second.pace == Pace(gap=seconds(5), burst=7, rapid=None)


async def test_without_a_pace_a_wish_is_laid_over_the_usual_one(store: Store) -> None:
    found = await store.paces.set("q", PaceRequest(burst=7), by="ann", usual=Pace(gap=seconds(9)))
    assert found is not None
    assert found.pace == Pace(gap=seconds(9), burst=7)


async def test_changes_are_recorded_with_who_and_when(store: Store, clock: TestClock) -> None:
    await set_pace(store, CALM, by="ann")
    first = clock.now()
    clock.turn(5)
    await set_pace(store, None, by="bob")
    found = await store.paces.changes("default", limit=10)
    assert [(change.by, change.at, change.pace) for change in found] == [("bob", clock.now(), None), ("ann", first, CALM)]
    assert await store.paces.all() == []


async def test_a_pace_names_its_queue(store: Store) -> None:
    await set_pace(store, CALM, "mail")
    assert [queue.name for queue in await store.queues()] == ["mail"]


async def test_settings_that_ask_for_the_same_again_change_nothing(store: Store) -> None:
    async def by_settings(asked: PaceRequest | None, text: str) -> Pace | None:
        found = await store.paces.set("q", asked, by="settings", setting=text)
        return None if found is None else found.pace

    assert await by_settings(PaceRequest(burst=2), "burst=2") == Pace(burst=2)
    await store.paces.set("q", PaceRequest(burst=9), by="ann")
    assert await by_settings(PaceRequest(burst=2), "burst=2") == Pace(burst=9)
    assert await by_settings(PaceRequest(burst=4), "burst=4") == Pace(burst=4)


async def test_a_change_wakes_those_who_wait(store: Store) -> None:
    for topic in (Topic.READY, Topic.PACE):
        with store.subscribe(topic) as subscription:
            subscription.clear()
            await set_pace(store)
            await asyncio.wait_for(subscription.wait(None), 5)


async def test_every_store_follows_a_change_with_its_next_claim(pair: tuple[Store, Store], clock: TestClock) -> None:
    ids = await add_ids(pair[0], *[{"delay": seconds(1)}] * 3)
    await set_pace(pair[0])
    clock.turn(1)
    assert len((await let_go(pair[1])).jobs) == 1
    await set_pace(pair[1], None)
    assert len(await claim_ids(pair[0])) == len(ids) - 1


async def test_a_change_keeps_the_next_slot(store: Store, clock: TestClock) -> None:
    await set_pace(store)
    await add_ids(store, *[{"delay": seconds(1)}] * 3)
    clock.turn(1)
    await give_up(store, await let_go(store))
    await set_pace(store, Pace(gap=seconds(9), burst=9, stagger=seconds(1), rapid=None))
    assert await follow(store, clock, 2) == [30_000, 31_000]


# How it is seen


async def test_held_jobs_count_as_delayed(store: Store, clock: TestClock) -> None:
    await set_pace(store, Pace(rapid=None, governs=Governs.SCHEDULED))
    await add_ids(store, *[{"delay": seconds(1)}] * 3, {}, {"delay": seconds(9)})
    clock.turn(1)
    assert [(queue.ready, queue.delayed) for queue in await store.queues()] == [(1, 4)]
    await store.paces.release()
    assert [(queue.ready, queue.delayed) for queue in await store.queues()] == [(2, 3)]


async def test_those_who_look_after_it_see_held_jobs_as_delayed(store: Store, clock: TestClock) -> None:
    await set_pace(store)
    await add_ids(store, *[{"delay": seconds(1)}] * 3)
    clock.turn(100)
    await add_one(store)
    [waiting] = (await store.diagnostics.overview()).waiting
    assert (waiting.ready, waiting.delayed, waiting.oldest_due_at) == (1, 3, clock.now())
    assert (await store.diagnostics.activity()).due_since == {"default": clock.now()}


async def test_a_pacing_says_how_a_queue_stands(store: Store, clock: TestClock) -> None:
    await set_pace(store, Pace(), by="ann")
    set_at = clock.now()
    await add_ids(store, *[{"delay": seconds(1)}] * 3, {"delay": seconds(100)}, {"delay": seconds(4000)}, {})
    clock.turn(1)
    [found] = await store.paces.all()
    assert (found.queue, found.pace, found.set_at, found.set_by, found.now) == (
        "default",
        Pace(),
        set_at,
        "ann",
        clock.now(),
    )
    assert (found.held, found.coming, found.soon, found.quiet) == (3, 2, 4, False)
    assert found.first_due_at == clock.now()


async def test_an_outlook_counts_who_goes_before_among_held_jobs(store: Store, clock: TestClock) -> None:
    await set_pace(store)
    ids = await add_ids(store, *[{"delay": seconds(1)}] * 3, {}, {"delay": seconds(1), "priority": Priority.CRITICAL})
    clock.turn(1)
    found = [await store.paces.outlook(id) for id in ids]
    assert [outlook and outlook.ahead for outlook in found] == [1, 2, 3, 0, 0]
    assert [outlook and outlook.held for outlook in found] == [True, True, True, False, True]


async def test_an_outlook_counts_who_goes_before_among_ready_jobs(store: Store, clock: TestClock) -> None:
    ids = await add_ids(store, *[{}] * 3, {"priority": Priority.HIGH}, {"delay": seconds(9)}, {"queue": "other"})
    found = [await store.paces.outlook(id) for id in ids]
    assert [outlook and outlook.ahead for outlook in found] == [1, 2, 3, 0, 0, 0]


async def test_an_outlook_knows_what_ended_lately_and_who_works(store: Store, clock: TestClock) -> None:
    await add_ids(store, *[{}] * 3)
    for job in (await claim(store, 2)).jobs:
        await store.settle([ended(job.lease)])
    [waiting] = (await store.find(WAITING)).jobs
    found = await store.paces.outlook(waiting.id)
    assert found is not None
    assert (found.recent, found.job, found.now, found.workers) == (2, waiting, clock.now(), [])


async def test_there_is_no_outlook_for_no_job(store: Store) -> None:
    assert await store.paces.outlook("no id") is None


async def test_a_checker_counts_what_is_held_as_the_store_does(store: Store, clock: TestClock) -> None:
    await set_pace(store)
    await add_ids(store, {"delay": seconds(1)}, {"delay": seconds(1)}, {})
    clock.turn(2)
    found = await store.audit.evidence(integrity=False)
    [queue] = found.queues
    assert (queue.ready, queue.delayed) == (1, 2)
    assert not check([], found).violations


# The figures, beside an oracle


class Oracle:
    """A pace, told second by second and without any of the code that keeps it."""

    def __init__(self, gap: int, burst: int, stagger: int) -> None:
        self.gap, self.burst, self.stagger = gap, burst, stagger
        self.dues: list[int] = []  # of the jobs that wait
        self.cycle_at, self.used, self.last = -gap, burst, None

    def slot(self, now: int) -> bool:
        """Whether a release time is now, for a job that is due."""
        return now >= self.cycle_at + self.gap or (
            self.used < self.burst and now == self.cycle_at + self.used * self.stagger
        )

    def step(self, now: int) -> int:
        """How many jobs are released now."""
        due = any(when <= now for when in self.dues)
        if now >= self.cycle_at + self.gap and due:
            self.cycle_at, self.used = now, 0
        if not (self.used < self.burst and now == self.cycle_at + self.used * self.stagger):
            return 0
        self.used += 1
        if due:
            self.dues.remove(min(self.dues))
            self.last = now
        return int(due)

    def stats(self, now: int) -> DelayedStats:
        ready = sum(when <= now for when in self.dues)
        later = copy.deepcopy(self)
        then = next((at for at in range(now, now + 10_000) if later.step(at)), None)
        return DelayedStats(
            total_delayed=len(self.dues),
            ready_now=ready,
            ready_in_hour=sum(when <= now + 3600 for when in self.dues),
            waiting_for_gap=ready - (1 if ready and self.slot(now) else 0),
            next_release_in_seconds=None if then is None else float(then - now),
            time_since_last_release_seconds=None if self.last is None else float(now - self.last),
        )


@pytest.mark.parametrize("queue", ["default", "*"])
@pytest.mark.parametrize(("gap", "burst", "stagger"), [(20, 3, 5), (7, 1, 0), (12, 4, 3)])
async def test_the_figures_are_those_of_an_oracle(
    store: Store, clock: TestClock, queue: str, gap: int, burst: int, stagger: int
) -> None:
    await set_pace(store, Pace(gap=seconds(gap), burst=burst, stagger=seconds(stagger) if burst > 1 else None), queue)
    oracle, chance = Oracle(gap, burst, stagger), random.Random(gap)
    for now in range(90):
        if now < 60 and chance.random() < 0.3:
            delays = [chance.choice((1, 3, 9, 4000)) for _ in range(chance.randint(1, 3))]
            await add_ids(store, *[{"delay": seconds(delay)} for delay in delays])
            oracle.dues += [now + delay for delay in delays]
        found = await store.paces.of("default")
        assert found is not None
        assert found.stats == oracle.stats(now)
        wait = found.stats.next_release_in_seconds
        assert found.next_release_at == (None if wait is None else found.now + timedelta(seconds=wait))
        claimed = await let_go(store)
        await give_up(store, claimed)
        assert len(claimed.jobs) == oracle.step(now)
        clock.turn(1)


# A pace of all queues


EVERY = Pace(gap=seconds(10), burst=1)


async def test_every_queue_without_a_pace_follows_that_of_all_also_one_that_is_named_later(
    store: Store, clock: TestClock
) -> None:
    await set_pace(store, EVERY, "*")
    await set_pace(store, QUICK, "own")
    await add_ids(store, *[{"queue": name, "delay": seconds(1)} for name in ("a", "a", "b", "b", "own", "own")])
    clock.turn(1)
    assert sorted(job.queue for job in (await let_go(store)).jobs) == ["a", "b", "own"]
    clock.turn(ms=100)
    assert [job.queue for job in (await let_go(store)).jobs] == ["own"]
    clock.turn(9.899)
    assert (await let_go(store)).jobs == []
    clock.turn(ms=1)
    assert sorted(job.queue for job in (await let_go(store)).jobs) == ["a", "b"]


async def test_a_queue_that_follows_holds_to_the_gap_from_its_first_job_on(store: Store, clock: TestClock) -> None:
    await set_pace(store, EVERY, "*")
    await add_ids(store, *[{"delay": seconds(1)}] * 4)
    assert await follow(store, clock, 4) == [1000, 11_000, 21_000, 31_000]


async def test_jobs_that_run_now_do_not_wait_for_the_pace_of_all_queues(store: Store, clock: TestClock) -> None:
    await set_pace(store, EVERY, "*")
    await add_ids(store, *[{}] * 3, *[{"delay": seconds(1)}] * 3)
    assert len(await claim_ids(store)) == 3


async def test_a_queue_whose_pace_is_off_is_left_out(store: Store, clock: TestClock) -> None:
    await set_pace(store, None, "free")
    await set_pace(store, EVERY, "*")
    await set_pace(store, None, "later")
    await add_ids(store, *[{"queue": name, "delay": seconds(1)} for name in ("free", "free", "later", "later", "a", "a")])
    clock.turn(1)
    assert sorted(job.queue for job in (await let_go(store)).jobs) == ["a", "free", "free", "later", "later"]
    assert await store.paces.of("free") is None


async def test_a_setting_that_is_taken_away_takes_no_pace_off(store: Store) -> None:
    paces, settings = Paces(store.paces), load({"DELAYED_JOB_GAP_SECONDS": "180"})
    await paces.apply_paces(settings.pace)
    await paces.apply_paces(load({}).pace)
    found = await paces.pacing("any")
    assert found is not None
    assert (found.pace.gap, found.set_by) == (seconds(180), "settings")
    await paces.apply_paces(load({"DEMORA_PACE": "off"}).pace)
    assert await paces.pacing("any") is None


async def test_demoras_own_queues_are_left_out(store: Store, clock: TestClock) -> None:
    await set_pace(store, EVERY, "*")
    await add_ids(store, *[{"queue": WEBHOOKS, "delay": seconds(1)}] * 3)
    clock.turn(1)
    assert len((await let_go(store)).jobs) == 3


async def test_a_pace_of_all_queues_can_be_changed_and_removed(store: Store, clock: TestClock) -> None:
    await set_pace(store, EVERY, "*")
    await add_ids(store, *[{"delay": seconds(1)}] * 6)
    clock.turn(1)
    assert len((await let_go(store)).jobs) == 1
    await set_pace(store, Pace(gap=seconds(2), burst=2), "*")
    clock.turn(10)
    assert len((await let_go(store)).jobs) == 1  # the release time of before
    clock.turn(1)
    assert len((await let_go(store)).jobs) == 1
    await set_pace(store, None, "*")
    assert len((await let_go(store)).jobs) == 3
    assert await store.paces.all() == []


async def test_a_queue_that_follows_takes_its_progress_into_a_pace_of_its_own(store: Store, clock: TestClock) -> None:
    await set_pace(store, EVERY, "*")
    await add_ids(store, *[{"delay": seconds(1)}] * 3)
    clock.turn(1)
    assert len((await let_go(store)).jobs) == 1
    found = await store.paces.set("default", PaceRequest(burst=2), by="ann")
    assert found is not None
    assert (found.pace, found.inherited) == (Pace(gap=seconds(10), burst=2), False)
    clock.turn(9.999)
    assert (await let_go(store)).jobs == []
    clock.turn(ms=1)
    assert len((await let_go(store)).jobs) == 1


async def test_a_paused_queue_that_follows_releases_nothing(store: Store, clock: TestClock) -> None:
    await set_pace(store, EVERY, "*")
    await add_ids(store, *[{"delay": seconds(1)}] * 2)
    await store.set_queue("default", QueueChange(paused=True))
    clock.turn(1)
    assert (await store.paces.release()).jobs == []
    await store.set_queue("default", QueueChange(paused=False))
    assert len((await let_go(store)).jobs) == 1


async def test_the_scheduler_releases_for_queues_that_follow(store: Store, clock: TestClock) -> None:
    assert not (await store.paces.release()).paced
    await set_pace(store, EVERY, "*")
    assert (await store.paces.release()).paced
    ids = await add_ids(store, *[{"delay": seconds(1)}] * 2)
    assert (await store.paces.release()).next_in == seconds(1)
    clock.turn(1)
    released = await store.paces.release()
    assert (len(released.jobs), released.next_in) == (1, seconds(10))
    assert released.jobs[0].id in ids


async def test_two_stores_release_one_job_for_a_queue_that_follows(pair: tuple[Store, Store], clock: TestClock) -> None:
    await set_pace(pair[0], EVERY, "*")
    await add_ids(pair[0], *[{"delay": seconds(1)}] * 20)
    for _ in range(5):
        clock.turn(10)
        both = await asyncio.gather(*(store.paces.release() for store in pair for _ in range(3)))
        assert sum(len(released.jobs) for released in both) == 1


async def test_the_pace_of_all_queues_protects_each_queue_itself(store: Store, clock: TestClock) -> None:
    await set_pace(store, Pace(gap=seconds(10), burst=1, rapid=Rate(seconds(1), 1)), "*")
    await add_ids(store, *[{"queue": name, "delay": seconds(1)} for name in "aabb"], {"queue": "a"})
    clock.turn(1)
    assert len((await store.paces.release()).jobs) == 2
    clock.turn(1)
    assert [job.queue for job in (await store.paces.release()).jobs] == ["b"]


async def test_queues_that_follow_are_seen_with_what_they_hold(store: Store, clock: TestClock) -> None:
    await set_pace(store, EVERY, "*", by="ann")
    await add_ids(store, *[{"queue": "a", "delay": seconds(1)}] * 3, {"queue": "b"}, {"queue": "c", "delay": seconds(99)})
    clock.turn(1)
    found = {pacing.queue: pacing for pacing in await store.paces.all()}
    assert list(found) == ["*", "a", "c"]
    assert {(pacing.pace, pacing.set_by) for pacing in found.values()} == {(EVERY, "ann")}
    assert [pacing.inherited for pacing in found.values()] == [False, True, True]
    assert [(pacing.held, pacing.coming) for pacing in found.values()] == [(0, 0), (3, 0), (0, 1)]
    assert await store.paces.of("a") == found["a"]
    unnamed = await store.paces.of("unnamed")
    assert unnamed is not None
    assert (unnamed.pace, unnamed.inherited) == (EVERY, True)
    counted = {queue.name: (queue.ready, queue.delayed) for queue in await store.queues()}
    assert (counted["a"], counted["b"], "*" in counted) == ((0, 3), (1, 0), False)


async def test_those_who_look_after_it_see_jobs_held_by_the_pace_of_all_queues_as_delayed(
    store: Store, clock: TestClock
) -> None:
    await set_pace(store, EVERY, "*")
    [id, *_] = await add_ids(store, *[{"delay": seconds(1)}] * 3)
    clock.turn(100)
    [waiting] = (await store.diagnostics.overview()).waiting
    assert (waiting.ready, waiting.delayed) == (0, 3)
    outlook = await store.paces.outlook(id)
    assert outlook is not None
    assert (outlook.held, outlook.ahead) == (True, 0)
    assert (await store.diagnostics.activity()).due_since == {}


async def test_a_run_under_the_pace_of_all_queues_passes_the_checker(store: Store, clock: TestClock) -> None:
    await set_pace(store, EVERY, "*")
    await add_ids(store, *[{"delay": seconds(1)}] * 3)
    await follow(store, clock, 3)
    assert not check([], await store.audit.evidence(integrity=False)).violations


# Back to the pace of all queues

OWN = Pace(gap=seconds(60), burst=2)


@pytest.mark.parametrize("own", [OWN, None])
async def test_a_queue_follows_the_pace_of_all_queues_again(store: Store, clock: TestClock, own: Pace | None) -> None:
    await set_pace(store, EVERY, "*")
    await set_pace(store, own, "mail")
    assert await store.paces.follow("mail", by="bob")
    found = await store.paces.of("mail")
    assert found is not None
    assert (found.pace, found.inherited) == (EVERY, True)
    await add_ids(store, *[{"queue": "mail", "delay": ms(1)}] * 2)
    clock.turn(ms=1)
    assert len(await claim_ids(store)) == 1
    clock.turn(10)
    assert len(await claim_ids(store)) == 1


async def test_to_follow_again_is_a_change_that_is_recorded_once(store: Store) -> None:
    await set_pace(store, OWN, "mail")
    assert await store.paces.follow("mail", by="bob")
    assert not await store.paces.follow("mail", by="eve")
    assert not await store.paces.follow("never.named", by="eve")
    last, first = await store.paces.changes("mail", limit=9)
    assert (last.by, last.pace, last.follows) == ("bob", None, True)
    assert (first.pace, first.follows) == (OWN, False)
    assert await store.paces.of("mail") is None


async def test_a_queue_that_is_left_out_before_there_is_a_pace_of_all_queues_stays_out(
    store: Store, clock: TestClock
) -> None:
    await set_pace(store, None, "mail")
    assert [change.is_off for change in await store.paces.changes("mail", limit=9)] == [True]
    await set_pace(store, EVERY, "*")
    await add_ids(store, *[{"queue": queue, "delay": ms(1)} for queue in ("mail", "web") for _ in range(3)])
    clock.turn(ms=1)
    assert await store.paces.of("mail") is None
    assert Counter(job.queue for job in (await let_go(store)).jobs) == {"mail": 3, "web": 1}
    assert await store.paces.follow("mail", by="bob")
    await add_ids(store, *[{"queue": "mail", "delay": ms(1)}] * 3)
    clock.turn(ms=1)
    assert [job.queue for job in (await let_go(store)).jobs] == ["mail"]


async def test_to_follow_again_keeps_the_next_release_time(store: Store, clock: TestClock) -> None:
    await set_pace(store, EVERY, "*")
    await set_pace(store, Pace(gap=seconds(100), burst=1), "mail")
    await add_ids(store, *[{"queue": "mail", "delay": ms(1)}] * 2)
    clock.turn(ms=1)
    assert len(await claim_ids(store)) == 1
    await store.paces.follow("mail", by="bob")
    clock.turn(99)
    assert await claim_ids(store) == []
    clock.turn(1)
    assert len(await claim_ids(store)) == 1


async def test_waiters_are_woken_when_a_queue_follows_again(store: Store) -> None:
    await set_pace(store, OWN, "mail")
    with store.subscribe(Topic.PACE) as subscription:
        subscription.clear()
        await store.paces.follow("mail", by="bob")
        assert await subscription.wait(10)

"""Schedules: one job for each fire time, whoever looks, and what becomes of the fire times that get none."""

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from demora import Demora
from demora.core.filters import JobFilter, Sort
from demora.core.job import Lane
from demora.core.pace import Pace, request_of
from demora.core.schedules.definitions import Definition, Result
from demora.core.schedules.firing import FireOutcome, decide
from demora.core.schedules.schedule import Missed, Overlap, Schedule, job_of
from demora.core.schedules.schedule_request import ScheduleRequest
from demora.core.spans import from_ms
from demora.core.states import Status
from demora.core.workers import WorkerRecord
from demora.errors import Invalid, ScheduleNotFound
from demora.proof import check
from demora.store import schedules as port
from demora.store.jobs import Query, Topic
from demora.store.schedules import DueSchedules, Fired, Firing, Origin
from demora.store.store import Store
from tests.builders import BROKEN, DONE, claim, claim_one, new_job, seconds, settle
from tests.clock import TestClock
from tests.zones import PLACE, own_zones

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
FIRED, SKIPPED, MISSED, REPLACED = FireOutcome.FIRED, FireOutcome.SKIPPED, FireOutcome.MISSED, FireOutcome.REPLACED
START = from_ms(1_800_000_000_000)


def schedule(name: str = "tick", **changes: Any) -> Schedule:
    usual = {"type": "demo.echo", "payload": b'{"hi":1}', "recorded_at": START}
    kind = {} if {"cron", "at"} & changes.keys() else {"every": MINUTE}
    return Schedule(name=name, **{**usual, **kind, **changes})


async def added(store: Store, name: str = "tick", **changes: Any) -> None:
    assert await store.schedules.add(schedule(name, **changes), origin=Origin.API, by="ann") is not None


def firings(due: DueSchedules) -> list[Firing]:
    """What the scheduler makes of schedules that are due."""
    made = []
    for one in due.schedules:
        decision = decide(one.schedule, one.progress, due.now, one.previous)
        jobs = tuple(job_of(one.schedule, new_job().id, fire_time=fire_time) for fire_time in decision.fired)
        made.append(Firing(one, decision, jobs))
    return made


async def fire(store: Store) -> list[Fired]:
    """Look once, and fire what is due."""
    return await store.schedules.fire(firings(await store.schedules.due(limit=100)))


async def outcomes(store: Store, name: str = "tick") -> list[tuple[int, FireOutcome]]:
    """The recorded fire times in minutes after the start, oldest first."""
    found = await store.schedules.records(name, limit=1000)
    return [((one.slot_at - START) // MINUTE, one.outcome) for one in reversed(found)]


async def jobs_of(store: Store, name: str = "tick") -> list[Any]:
    page = await store.find(Query(JobFilter(schedule=name), limit=1000))
    return list(reversed(page.jobs))


async def fire_times(store: Store, name: str = "tick") -> list[int]:
    """The fire times of the jobs of a schedule in minutes after the start."""
    return sorted((job.slot_at - START) // MINUTE for job in await jobs_of(store, name) if job.slot_at is not None)


# One job for each fire time


async def test_a_fire_time_that_is_due_adds_its_job_once(store: Store, clock: TestClock) -> None:
    await added(store, tags=("a",))
    clock.turn(60)
    assert await fire(store) == [Fired(applied=True, added=1)]
    assert await fire(store) == []
    [job] = await jobs_of(store)
    assert (job.type, job.name, job.payload, job.tags) == ("demo.echo", "tick", {"hi": 1}, ("a",))
    assert (job.schedule_name, job.slot_at, job.due_at) == ("tick", START + MINUTE, START + MINUTE)
    found = await store.schedules.get("tick")
    assert found is not None
    assert (found.run_count, found.last_job_id, found.last_status) == (1, job.id, Status.QUEUED)
    assert (found.last_run_at, found.progress.next_at) == (START + MINUTE, START + 2 * MINUTE)


async def test_nothing_is_due_before_its_fire_time(store: Store, clock: TestClock) -> None:
    await added(store)
    clock.turn(ms=59_999)
    due = await store.schedules.due(limit=10)
    assert (due.schedules, due.next_in, due.coming) == ([], timedelta(milliseconds=1), (START + MINUTE,))
    clock.turn(ms=1)
    assert [one.schedule.name for one in (await store.schedules.due(limit=10)).schedules] == ["tick"]


async def test_a_look_returns_the_coming_fire_times_each_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "MOST_COMING", 3)
    starts = [START + timedelta(milliseconds=ms) for ms in (1000, 1000, 1100, 1250, 1251, 5000)]
    for n, start in enumerate(starts):
        await added(store, f"tick-{n}", start_at=start)
    assert (await store.schedules.due(limit=10)).coming == (starts[0], starts[2], starts[3])
    await store.schedules.remove("tick-2")
    assert (await store.schedules.due(limit=10)).coming == (starts[0], starts[3])
    monkeypatch.setattr(port, "MOST_COMING", 1)
    assert (await store.schedules.due(limit=10)).coming == (starts[0],)


async def test_of_processes_that_fire_the_same_fire_time_one_adds_the_job(store: Store, clock: TestClock) -> None:
    await added(store)
    clock.turn(60)
    due = await store.schedules.due(limit=10)
    results = await asyncio.gather(*(store.schedules.fire(firings(due)) for _ in range(8)))
    assert sorted(result.applied for [result] in results) == [False] * 7 + [True]
    assert await fire_times(store) == [1]


async def test_of_two_stores_that_fire_the_same_fire_times_one_adds_each_job(
    pair: tuple[Store, Store], clock: TestClock
) -> None:
    for n in range(20):
        await added(pair[0], f"tick-{n:02}")
    clock.turn(60)
    seen = await asyncio.gather(*(store.schedules.due(limit=100) for store in pair))
    results = await asyncio.gather(*(store.schedules.fire(firings(due)) for store, due in zip(pair, seen, strict=True)))
    assert sum(result.added for each in results for result in each) == 20
    assert [len(await jobs_of(pair[0], f"tick-{n:02}")) for n in range(20)] == [1] * 20


async def test_a_lost_race_is_a_value_and_stores_nothing(store: Store, clock: TestClock) -> None:
    await added(store)
    clock.turn(60)
    late = firings(await store.schedules.due(limit=10))
    await store.schedules.change("tick", ScheduleRequest(tags=["new"]), by="ann")
    assert await store.schedules.fire(late) == [Fired(applied=False)]
    assert (await jobs_of(store), await outcomes(store)) == ([], [])
    await store.schedules.remove("tick")
    assert await store.schedules.fire(late) == [Fired(applied=False)]


async def test_a_schedule_that_is_fired_twice_in_one_call_is_fired_once(store: Store, clock: TestClock) -> None:
    await added(store)
    clock.turn(60)
    due = await store.schedules.due(limit=10)
    assert await store.schedules.fire(firings(due) + firings(due)) == [Fired(applied=True, added=1), Fired(applied=False)]


async def test_a_clock_that_is_set_back_fires_nothing_again(store: Store, clock: TestClock) -> None:
    await added(store)
    for _ in range(3):
        clock.turn(60)
        await fire(store)
    clock.step_wall(-150)
    assert await fire(store) == []
    await store.schedules.change("tick", ScheduleRequest(tags=["new"]), by="ann")  # computes the next fire time from now
    for _ in range(3):
        clock.turn(60)
        await fire(store)
    assert await fire_times(store) == [1, 2, 3]
    assert sum(one.outcome is FIRED for one in await store.schedules.records("tick", limit=10)) == 3


async def test_a_fire_time_with_a_job_that_waits_again_after_the_clock_was_set_back_keeps_its_record(
    store: Store, clock: TestClock
) -> None:
    await added(store, overlap=Overlap.QUEUE)
    clock.turn(60)
    await fire(store)
    before = await store.schedules.records("tick", limit=10)
    clock.step_wall(-30)
    await store.schedules.change("tick", ScheduleRequest(tags=["a"]), by="ann")  # computes the next fire time from now
    clock.turn(30)
    await fire(store)
    found = await store.schedules.change("tick", ScheduleRequest(tags=["b"]), by="ann")
    assert found is not None
    assert found.run_count == 1
    assert await store.schedules.records("tick", limit=10) == before
    backfilled = await store.schedules.backfill("tick", [(START + MINUTE, job_of(schedule(), new_job().id))])
    assert backfilled == port.Backfilled([], [START + MINUTE])


async def test_a_clock_that_is_set_back_after_the_look_fires_nothing_early(store: Store, clock: TestClock) -> None:
    await added(store)
    clock.turn(60)
    due = await store.schedules.due(limit=10)
    clock.step_wall(-5)
    assert await store.schedules.fire(firings(due)) == [Fired(applied=False)]
    assert (await store.schedules.due(limit=10)).schedules == []
    clock.turn(5)
    assert await fire(store) == [Fired(applied=True, added=1)]
    assert check([], await store.audit.evidence()).violations == []


async def test_a_fire_time_that_waits_is_not_early_when_the_clock_is_set_back(store: Store, clock: TestClock) -> None:
    await added(store, overlap=Overlap.QUEUE)
    for _ in range(2):
        clock.turn(60)
        await fire(store)
    running = await claim_one(store)
    clock.step_wall(-5)
    await settle(store, running, DONE)
    assert await fire(store) == []
    clock.turn(5)
    assert [result.added for result in await fire(store)] == [1]
    assert await fire_times(store) == [1, 2]


async def test_a_purge_of_jobs_fires_nothing_again(store: Store, clock: TestClock) -> None:
    await added(store)
    clock.turn(60)
    await fire(store)
    await settle(store, await claim_one(store), DONE)
    assert await store.purge(Status.COMPLETED, older_than=timedelta(0), limit=10) == 1
    clock.step_wall(-60)
    await store.schedules.change("tick", ScheduleRequest(tags=["new"]), by="ann")
    clock.step_wall(60)
    assert [result.added for result in await fire(store)] == [0]
    assert await jobs_of(store) == []
    [record] = await store.schedules.records("tick", limit=10)
    assert (record.outcome, record.job_id is not None) == (FIRED, True)


async def test_records_beyond_those_that_are_kept_are_deleted(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "KEPT_RECORDS", 3)
    monkeypatch.setattr("demora.engines.sqlite.schedules.A_FEW_RECORDS", 2)
    monkeypatch.setattr("demora.engines.postgres.schedules.A_FEW_RECORDS", 2)
    await added(store)
    for _ in range(6):
        clock.turn(60)
        await fire(store)
    assert [fire_time for fire_time, _ in await outcomes(store)] == [4, 5, 6]
    found = await store.schedules.get("tick")
    assert found is not None
    assert found.forgotten_to == START + 3 * MINUTE
    early, kept = new_job(), new_job()
    result = await store.schedules.backfill("tick", [(START + 3 * MINUTE, early), (START + 4 * MINUTE, kept)])
    assert result == port.Backfilled([], [START + 4 * MINUTE])


async def test_many_schedules_are_due_in_pieces_the_earliest_first(store: Store, clock: TestClock) -> None:
    for n in (3, 1, 2):
        await added(store, f"tick-{n}", every=n * MINUTE)
    clock.turn(200)
    due = await store.schedules.due(limit=2)
    assert [one.schedule.name for one in due.schedules] == ["tick-1", "tick-2"]
    assert due.next_in == timedelta(0)


async def test_a_job_that_one_store_fires_is_claimed_by_another(pair: tuple[Store, Store], clock: TestClock) -> None:
    await added(pair[0])
    assert (await claim(pair[1])).jobs == []
    clock.turn(60)
    await fire(pair[0])
    assert (await claim_one(pair[1])).slot_at == START + MINUTE


async def test_a_checker_finds_nothing_wrong_with_the_fire_times(store: Store, clock: TestClock) -> None:
    await added(store, overlap=Overlap.REPLACE)
    for _ in range(3):
        clock.turn(60)
        await fire(store)
    findings = check([], await store.audit.evidence())
    assert (findings.ok, findings.judged["I11"]) == (True, "rows")


# Missed fire times


@pytest.mark.parametrize(
    ("missed", "fired"), [(Missed.SKIP, []), (Missed.LAST, [4]), (Missed.ALL, [3, 4])], ids=["skip", "last", "all"]
)
async def test_missed_fire_times_fire_by_policy(store: Store, clock: TestClock, missed: Missed, fired: list[int]) -> None:
    await added(store, missed=missed, missed_limit=2)
    clock.turn(4 * 60 + 30)
    await fire(store)
    assert await fire_times(store) == fired
    assert await outcomes(store) == [(n, FIRED if n in fired else MISSED) for n in (1, 2, 3, 4)]


# Overlap


async def test_with_skip_a_fire_time_adds_no_job_while_an_earlier_one_has_not_ended(store: Store, clock: TestClock) -> None:
    await added(store, overlap=Overlap.SKIP)
    for _ in range(2):
        clock.turn(60)
        await fire(store)
    await settle(store, await claim_one(store), DONE)
    clock.turn(60)
    await fire(store)
    assert await outcomes(store) == [(1, FIRED), (2, SKIPPED), (3, FIRED)]


async def test_with_queue_the_first_fire_time_waits_for_the_end_of_the_earlier_job(store: Store, clock: TestClock) -> None:
    await added(store, overlap=Overlap.QUEUE)
    for _ in range(3):
        clock.turn(60)
        await fire(store)
    due = await store.schedules.due(limit=10)
    assert (due.schedules, due.keeps) == ([], True)
    assert await fire_times(store) == [1]
    await settle(store, await claim_one(store), DONE)
    assert [result.added for result in await fire(store)] == [1]
    assert await fire_times(store) == [1, 2]
    assert not (await store.schedules.due(limit=10)).keeps
    assert await outcomes(store) == [(1, FIRED), (2, FIRED), (3, SKIPPED)]


async def test_with_replace_a_job_that_was_never_claimed_is_cancelled(store: Store, clock: TestClock) -> None:
    await added(store, overlap=Overlap.REPLACE)
    for _ in range(2):
        clock.turn(60)
        await fire(store)
    assert [job.status for job in await jobs_of(store)] == [Status.CANCELLED, Status.QUEUED]
    assert await outcomes(store) == [(1, REPLACED), (2, FIRED)]
    claimed = await claim_one(store)
    assert (claimed.schedule, claimed.slot_at) == ("tick", START + 2 * MINUTE)
    assert (await claim(store)).jobs == []


async def test_with_replace_the_latest_fire_time_waits_for_a_claimed_job(store: Store, clock: TestClock) -> None:
    await added(store, overlap=Overlap.REPLACE)
    clock.turn(60)
    await fire(store)
    running = await claim_one(store, lease=HOUR)
    for _ in range(2):
        clock.turn(60)
        await fire(store)
    await settle(store, running, DONE)
    await fire(store)
    assert await outcomes(store) == [(1, FIRED), (2, REPLACED), (3, FIRED)]
    assert await fire_times(store) == [1, 3]


async def test_a_firing_is_not_applied_if_the_earlier_jobs_have_changed(store: Store, clock: TestClock) -> None:
    await added(store, overlap=Overlap.REPLACE)
    clock.turn(60)
    await fire(store)
    clock.turn(60)
    late = firings(await store.schedules.due(limit=10))
    await claim_one(store)
    assert await store.schedules.fire(late) == [Fired(applied=False)]
    assert await fire_times(store) == [1]


async def test_a_job_that_waits_for_a_retry_is_an_earlier_run(store: Store, clock: TestClock) -> None:
    await added(store, overlap=Overlap.SKIP, max_retries=3, retry_delay=HOUR)
    clock.turn(60)
    await fire(store)
    await settle(store, await claim_one(store), type(BROKEN)("ValueError: no"))
    clock.turn(60)
    await fire(store)
    assert await outcomes(store) == [(1, FIRED), (2, SKIPPED)]


# Changes


async def test_a_paused_schedule_has_no_fire_times_and_misses_none(store: Store, clock: TestClock) -> None:
    await added(store, missed=Missed.ALL)
    paused = await store.schedules.change("tick", ScheduleRequest(enabled=False, reason="holiday"), by="ann")
    assert paused is not None
    assert (paused.progress.next_at, paused.schedule.reason, paused.changed_by) == (None, "holiday", "ann")
    clock.turn(600)
    assert await fire(store) == []
    await store.schedules.change("tick", ScheduleRequest(enabled=True), by="ann")
    clock.turn(60)
    await fire(store)
    assert await outcomes(store) == [(11, FIRED)]


async def test_a_change_computes_the_next_fire_time_from_now_and_skips_one_that_waits(
    store: Store, clock: TestClock
) -> None:
    await added(store, overlap=Overlap.QUEUE)
    for _ in range(2):
        clock.turn(60)
        await fire(store)
    clock.turn(30)
    changed = await store.schedules.change("tick", ScheduleRequest(every="2m"), by="ann")
    assert changed is not None
    assert changed.progress.next_at == START + 4 * MINUTE
    assert changed.progress.kept_at is None
    assert await outcomes(store) == [(1, FIRED), (2, SKIPPED)]
    assert await fire_times(store) == [1]


async def test_a_change_that_does_not_fit_is_refused_and_stores_nothing(store: Store) -> None:
    await added(store)
    before = await store.schedules.get("tick")
    with pytest.raises(Invalid, match="end_at"):
        await store.schedules.change("tick", ScheduleRequest(end_at=START - MINUTE), by="ann")
    assert await store.schedules.get("tick") == before
    assert await store.schedules.change("none", ScheduleRequest(tags=[]), by="ann") is None


async def test_a_name_is_taken_once(store: Store) -> None:
    await added(store)
    assert await store.schedules.add(schedule(every=HOUR), origin=Origin.CLI, by="bob") is None
    found = await store.schedules.get("tick")
    assert found is not None
    assert (found.schedule.every, found.origin) == (MINUTE, Origin.API)
    assert await store.schedules.get("none") is None


async def test_schedules_are_listed_by_name(store: Store) -> None:
    for name in ("c", "a", "b"):
        await added(store, name)
    assert [one.schedule.name for one in await store.schedules.all()] == ["a", "b", "c"]
    assert [one.schedule.name for one in await store.schedules.all(after="a", limit=1)] == ["b"]


async def test_a_removed_schedule_fires_no_more_and_its_jobs_stay(store: Store, clock: TestClock) -> None:
    await added(store)
    clock.turn(60)
    await fire(store)
    assert await store.schedules.remove("tick")
    assert not await store.schedules.remove("tick")
    clock.turn(60)
    assert await fire(store) == []
    assert await fire_times(store) == [1]
    assert await store.schedules.records("tick", limit=10) == []


# Jobs without a fire time, and past fire times


async def test_a_triggered_job_has_no_fire_time_and_leaves_the_schedule_alone(store: Store, clock: TestClock) -> None:
    await added(store, overlap=Overlap.SKIP)
    before = await store.schedules.get("tick")
    job = job_of(schedule(), new_job().id)
    first = await store.schedules.trigger("tick", job)
    again = await store.schedules.trigger("tick", job)
    assert first is not None
    assert again is not None
    assert (first.replayed, again.replayed) == (False, True)
    [stored] = await jobs_of(store)
    assert (stored.schedule_name, stored.slot_at, stored.lane) == ("tick", None, Lane.SCHEDULED)
    after = await store.schedules.get("tick")
    assert before is not None
    assert after is not None
    assert (after.progress, after.run_count) == (before.progress, 0)
    clock.turn(60)
    await fire(store)
    assert await outcomes(store) == [(1, SKIPPED)]
    assert await store.schedules.trigger("none", job_of(schedule(), new_job().id)) is None


async def test_a_backfill_adds_jobs_for_past_fire_times_that_have_none(store: Store, clock: TestClock) -> None:
    await added(store, missed=Missed.LAST)
    clock.turn(3 * 60 + 30)
    await fire(store)  # the fire times 1 and 2 are missed
    asked: list[tuple[datetime, Any]] = [
        (START + n * MINUTE, job_of(schedule(), new_job().id, delay=timedelta(0))) for n in range(1, 6)
    ]
    result = await store.schedules.backfill("tick", asked)
    assert result == port.Backfilled([START + MINUTE, START + 2 * MINUTE], [START + 3 * MINUTE])
    assert await fire_times(store) == [1, 2, 3]
    assert await outcomes(store) == [(1, FIRED), (2, FIRED), (3, FIRED)]
    repeated = [(fire_time, job_of(schedule(), new_job().id, delay=timedelta(0))) for fire_time, _ in asked]
    result = await store.schedules.backfill("tick", repeated)
    assert result is not None
    assert result.added == []
    assert await store.schedules.backfill("none", asked) is None


async def test_a_schedule_that_was_removed_and_added_again_gives_no_fire_time_a_second_job(
    store: Store, clock: TestClock
) -> None:
    await added(store)
    clock.turn(60)
    await fire(store)
    await store.schedules.remove("tick")
    await added(store)
    await added(store, "other")
    found, other = await store.schedules.get("tick"), await store.schedules.get("other")
    assert found is not None
    assert other is not None
    assert (found.forgotten_to, other.forgotten_to) == (START + MINUTE, None)
    again = job_of(schedule(), new_job().id, delay=timedelta(0))
    assert await store.schedules.backfill("tick", [(START + MINUTE, again)]) == port.Backfilled([], [])
    assert check([], await store.audit.evidence()).violations == []


# Jobs of schedules among all others


async def test_jobs_of_schedules_are_claimed_and_tell_their_fire_time(store: Store, clock: TestClock) -> None:
    await added(store)
    clock.turn(60)
    await fire(store)
    claimed = await claim_one(store)
    assert (claimed.schedule, claimed.slot_at) == ("tick", START + MINUTE)


async def test_a_webhook_tells_the_schedule_and_the_fire_time(store: Store, clock: TestClock) -> None:
    await added(store, webhook_url="https://example.com/hook")
    clock.turn(60)
    await fire(store)
    claimed = await claim_one(store)
    await settle(store, claimed, DONE)
    [delivery] = await store.webhooks.deliveries(claimed.lease.id)
    message = delivery.payload["message"]
    assert (message["scheduleName"], message["slotAt"]) == ("tick", "2027-01-15T08:01:00.000Z")


async def test_jobs_are_found_by_their_schedule_and_all_else(store: Store, clock: TestClock) -> None:
    for name in ("a", "b"):
        await added(store, name)
    for _ in range(3):
        clock.turn(60)
        await fire(store)
    await settle(store, ended := await claim_one(store), DONE)

    async def found(sort: Sort = Sort.CREATED, **parts: Any) -> list[tuple[str | None, str]]:
        page = await store.find(Query(JobFilter(**parts), sort))
        return [(job.schedule_name, job.id) for job in page.jobs]

    assert [name for name, _ in await found(schedule="b")] == ["b"] * 3
    assert await found(schedule="none") == []
    done = frozenset({Status.COMPLETED})
    for sort in (Sort.CREATED, Sort.ENDED):
        assert await found(sort, schedule=ended.schedule, statuses=done) == [(ended.schedule, ended.lease.id)]
    waits = frozenset({Status.QUEUED, Status.PENDING})
    other = "b" if ended.schedule == "a" else "a"
    assert [name for name, _ in await found(Sort.DUE, schedule=other, statuses=waits)] == [other] * 3


async def test_jobs_of_schedules_enter_the_scheduled_lane_so_that_a_pace_governs_them(
    store: Store, clock: TestClock
) -> None:
    await store.paces.set("default", request_of(Pace(gap=seconds(600), burst=1, rapid=None)), by="ann")
    await added(store)
    for _ in range(3):
        clock.turn(60)
        await fire(store)
    assert {job.lane for job in await jobs_of(store)} <= {Lane.SCHEDULED, Lane.RELEASED}
    assert len((await claim(store)).jobs) <= 1


async def test_a_fired_job_wakes_waiting_workers(store: Store, clock: TestClock) -> None:
    await added(store)
    clock.turn(60)
    with store.subscribe(Topic.READY) as subscription:
        subscription.clear()
        await fire(store)
        assert await subscription.wait(10)


async def test_a_new_and_a_changed_schedule_wake_those_who_fire(store: Store) -> None:
    with store.subscribe(Topic.SCHEDULES) as subscription:
        subscription.clear()
        await added(store)
        assert await subscription.wait(10)
        subscription.clear()
        await store.schedules.change("tick", ScheduleRequest(every="2m"), by="ann")
        assert await subscription.wait(10)


# Schedules in code


def definition(*schedules: Schedule, process: str = "one", app_version: str | None = None) -> Definition:
    return Definition("shop", process, schedules, app_version)


async def results(store: Store, what: Definition) -> dict[str, Result]:
    return {one.name: one.result for one in await store.schedules.define(what)}


async def test_schedules_in_code_are_added_updated_and_retired(store: Store, clock: TestClock) -> None:
    assert await results(store, definition(schedule("a"), schedule("b"))) == {"a": Result.ADDED, "b": Result.ADDED}
    found = await store.schedules.get("a")
    assert found is not None
    assert (found.origin, found.application, found.defined) == (Origin.CODE, "shop", found.schedule)
    clock.turn(30)
    assert await results(store, definition(schedule("a"), schedule("b", tags=("x",)))) == {
        "a": Result.SAME,
        "b": Result.UPDATED,
    }
    again = await store.schedules.get("a")
    assert again == found
    beat = await store.schedules.get("b")
    assert beat is not None
    assert beat.progress.next_at == START + MINUTE
    assert await results(store, definition(schedule("a"))) == {"a": Result.SAME, "b": Result.RETIRED}
    assert await store.schedules.get("b") is None


async def test_the_last_fire_time_of_a_schedule_in_code_fires_after_a_restart_and_its_records_stay(
    store: Store, clock: TestClock
) -> None:
    party = schedule("party", at=(START + MINUTE,))
    assert await results(store, definition(party)) == {"party": Result.ADDED}
    clock.turn(61)
    ended = Definition("shop", "two", (), over=(party,))
    assert await results(store, ended) == {"party": Result.SAME}
    await fire(store)
    assert await results(store, ended) == {"party": Result.SAME}
    assert (await fire_times(store, "party"), await outcomes(store, "party")) == ([1], [(1, FIRED)])
    assert await results(store, Definition("shop", "two", (), over=(schedule("never", at=(START,)),))) == {
        "never": Result.OVER,
        "party": Result.RETIRED,
    }
    assert await store.schedules.all() == []


async def test_a_process_registers_the_schedules_that_are_over_too(store: Store) -> None:
    party = schedule("party", at=(START + MINUTE,))
    await store.heartbeat(WorkerRecord("old", "host", 1, 1))
    await store.schedules.define(definition(party, process="old"))
    await store.schedules.define(Definition("shop", "old", (), over=(party,)))
    assert await results(store, definition(process="new")) == {"party": Result.PENDING}


async def test_what_a_person_changed_is_kept_over_a_deploy(store: Store) -> None:
    await store.schedules.define(definition(schedule("a")))
    await store.schedules.change("a", ScheduleRequest(every="5m"), by="ann")
    await store.schedules.define(definition(schedule("a", tags=("x",))))
    found = await store.schedules.get("a")
    assert found is not None
    assert (found.schedule.every, found.schedule.tags, found.changed_by) == (5 * MINUTE, ("x",), "ann")


async def test_a_name_that_a_person_took_stays_theirs(store: Store) -> None:
    await added(store, "a", every=HOUR)
    assert await results(store, definition(schedule("a"))) == {"a": Result.TAKEN}
    found = await store.schedules.get("a")
    assert found is not None
    assert found.schedule.every == HOUR


async def test_a_schedule_is_not_retired_while_another_live_process_registers_it(store: Store, clock: TestClock) -> None:
    await store.heartbeat(WorkerRecord("old", "host", 1, 1))
    await store.schedules.define(definition(schedule("a"), process="old"))
    assert await results(store, definition(process="new")) == {"a": Result.PENDING}
    clock.turn(60)
    assert await results(store, definition(process="new")) == {"a": Result.RETIRED}


async def test_a_schedule_is_not_retired_while_a_process_without_a_worker_registers_it(
    store: Store, clock: TestClock
) -> None:
    await store.schedules.attend("old")
    await store.schedules.define(definition(schedule("a"), process="old"))
    clock.turn(40)
    await store.schedules.attend("old")
    assert await results(store, definition(process="new")) == {"a": Result.PENDING}
    await store.schedules.leave("old")
    assert await results(store, definition(process="new")) == {"a": Result.RETIRED}


async def test_processes_with_a_worker_and_those_that_attend_are_live_for_half_a_minute(
    store: Store, clock: TestClock
) -> None:
    await store.heartbeat(WorkerRecord("worker", "host", 1, 1))
    await store.schedules.attend("service")
    assert await store.schedules.live() == ["service", "worker"]
    clock.turn(20)
    await store.schedules.attend("service")
    await store.schedules.attend("scheduler")
    clock.turn(20)
    assert await store.schedules.live() == ["scheduler", "service"]
    await store.schedules.leave("scheduler")
    assert await store.schedules.live() == ["service"]
    clock.turn(20)
    assert await store.schedules.live() == []


async def test_processes_that_attend_say_which_paces_their_settings_ask_for(store: Store, clock: TestClock) -> None:
    await store.heartbeat(WorkerRecord("worker", "host", 1, 1, paces="* gap=9m"))
    await store.schedules.attend("gone", paces="* gap=1m")
    clock.turn(20)
    await store.schedules.attend("service", paces="* gap=3m")
    await store.schedules.attend("scheduler")
    clock.turn(20)
    for _ in range(2):
        await store.schedules.attend("service", paces="* gap=3m")
        assert await store.schedules.attending() == {"scheduler": "", "service": "* gap=3m"}
    await store.schedules.leave("service")
    assert await store.schedules.attending() == {"scheduler": ""}
    for name in ("service", "gone"):  # what they asked for before is forgotten
        await store.schedules.attend(name)
    assert await store.schedules.attending() == {"gone": "", "scheduler": "", "service": ""}


async def test_the_higher_version_wins_while_a_process_of_it_is_live(store: Store, clock: TestClock) -> None:
    await store.heartbeat(WorkerRecord("new", "host", 1, 1))
    new, old = schedule("a", tags=("new",)), schedule("a", tags=("old",))
    await store.schedules.define(definition(new, schedule("b"), process="new", app_version="1.10"))
    for _ in range(2):  # the second time both are registered already
        assert await results(store, definition(old, app_version="1.9")) == {"a": Result.OLDER, "b": Result.OLDER}
        assert await results(store, definition(new, schedule("b"), process="new", app_version="1.10")) == {
            "a": Result.SAME,
            "b": Result.SAME,
        }
    clock.turn(60)
    assert await results(store, definition(old, app_version="1.9")) == {"a": Result.UPDATED, "b": Result.RETIRED}
    found = await store.schedules.get("a")
    assert found is not None
    assert (found.schedule.tags, found.app_version) == (("old",), "1.9")


async def test_next_fire_times_are_computed_anew_only_for_a_newer_database_of_zones(store: Store) -> None:
    await added(store, cron="0 3 * * *", timezone="Europe/Madrid")
    assert await store.schedules.foresee("2026a") == 0
    assert await store.schedules.foresee("2025c") == 0


async def test_a_newer_database_of_zones_moves_the_next_fire_time(store: Store, tmp_path: Path) -> None:
    with own_zones(tmp_path) as zones:
        zones.set(HOUR)
        await added(store, cron="0 3 * * *", timezone=PLACE)
        await store.schedules.foresee("2026a")
        before = await store.schedules.get("tick")
        late = await store.schedules.due(limit=1)
        zones.set(2 * HOUR)
        assert await store.schedules.foresee("2026a") == 0
        with store.subscribe(Topic.SCHEDULES) as subscription:
            subscription.clear()
            assert await store.schedules.foresee("2026b") == 1
            assert await subscription.wait(10)
        after = await store.schedules.get("tick")
    assert before is not None
    assert after is not None
    assert before.progress.next_at is not None
    assert after.progress.next_at == before.progress.next_at - HOUR
    assert after.revision > before.revision
    assert late.coming == (before.progress.next_at,)


async def test_a_schedule_in_a_zone_that_this_machine_does_not_know_keeps_no_other_from_being_foreseen(
    store: Store, tmp_path: Path
) -> None:
    with own_zones(tmp_path) as zones:
        zones.set(HOUR)
        zones.set(HOUR, "Demo/Gone")
        await added(store, "broken", cron="0 3 * * *", timezone="Demo/Gone")
        await added(store, cron="0 3 * * *", timezone=PLACE)
        broken = await store.schedules.get("broken")
        zones.take_away("Demo/Gone")
        zones.set(2 * HOUR)
        assert await store.schedules.foresee("2026b") == 1
        assert await store.schedules.get("broken") == broken


@pytest.mark.parametrize("name", ["mail\0", "", "a b", "x" * 129])
async def test_a_name_that_no_schedule_can_have_is_not_found(store: Store, name: str) -> None:
    client = await Demora(store=store).open()
    for ask in (
        client.schedule,
        client.pause_schedule,
        client.resume_schedule,
        client.trigger_schedule,
        client.remove_schedule,
        client.next_runs,
        client.schedule_jobs,
        client.fire_records,
    ):
        with pytest.raises(ScheduleNotFound):
            await ask(name)
    with pytest.raises(Invalid):
        await client.schedules(after=name)

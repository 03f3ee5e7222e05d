"""What the doctor makes of schedules."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from demora.core.job import Job, Lane, Priority
from demora.core.schedules.firing import FireOutcome, begin
from demora.core.schedules.schedule import Schedule
from demora.core.states import Status
from demora.core.workers import WorkerRecord
from demora.doctor.schedules import IN_A_ROW, OVERLAPS, ScheduleHistory, judge_schedules
from demora.store.diagnostics import Finding
from demora.store.schedules import FireRecord, Origin, StoredSchedule

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LIVE = WorkerRecord("ann", "host", 7, 20, (), ("a",))
SCHEDULE = Schedule(name="tick", type="a", payload=b"{}", recorded_at=NOW, every=timedelta(minutes=1))


def history(*outcomes: FireOutcome, jobs: tuple[Status, ...] = (), **changes: Any) -> ScheduleHistory:
    schedule = msgspec.structs.replace(SCHEDULE, **changes)
    stored = StoredSchedule(schedule, 1, begin(schedule, NOW), Origin.API)
    fire_times = [FireRecord("tick", NOW - n * timedelta(minutes=1), one, NOW) for n, one in enumerate(outcomes)]
    times = {"created_at": NOW, "scheduled_at": NOW, "due_at": NOW}
    made = [
        Job(
            *(str(n), "tick", "a", "default", b"{}", Priority.NORMAL, status, Lane.SCHEDULED),
            **times,
            max_retries=0,
            retry_delay=timedelta(0),
        )
        for n, status in enumerate(jobs)
    ]
    return ScheduleHistory(stored, fire_times, made)


def judged(*histories: ScheduleHistory, workers: tuple[WorkerRecord, ...] = (LIVE,)) -> list[Finding]:
    return [finding for finding in judge_schedules(histories, workers, NOW) if finding.level != "ok"]


def test_a_schedule_whose_jobs_run_is_well() -> None:
    fine = history(FireOutcome.FIRED, jobs=(Status.QUEUED, Status.COMPLETED, Status.FAILED, Status.FAILED))
    assert judged(fine) == []
    assert [finding.level for finding in judge_schedules([fine], [LIVE], NOW)] == ["ok"]


def test_a_type_that_no_live_worker_knows_is_named() -> None:
    [finding] = judged(history(type="b"))
    assert finding.fact == "schedule tick adds jobs of type b, which no live worker knows"
    assert judged(history(type="b"), workers=()) == []  # then the workers are what is missing


def test_runs_that_overlap_always_are_named() -> None:
    held_up = (FireOutcome.SKIPPED,) * (OVERLAPS - 1)
    [finding] = judged(history(*held_up, FireOutcome.REPLACED))
    assert f"the last {OVERLAPS} runs of schedule tick" in finding.fact
    assert judged(history(*held_up, FireOutcome.FIRED)) == []


def lasting(span: timedelta | None, *, every: int = 1, added_late: timedelta = timedelta(0)) -> ScheduleHistory:
    """A schedule per minute of which each `every`th fire time has a job that lasts so long; None: it has not ended."""
    minute, count = timedelta(minutes=1), 2 * OVERLAPS + 1
    fire_times = [NOW - n * minute for n in range(count)]
    records = [
        FireRecord("tick", fire_time, FireOutcome.SKIPPED if n % every else FireOutcome.FIRED, fire_time)
        for n, fire_time in enumerate(fire_times)
    ]
    [pattern] = history(jobs=(Status.COMPLETED,)).jobs
    jobs = [
        msgspec.structs.replace(
            pattern,
            slot_at=fire_time,
            created_at=fire_time + added_late,
            completed_at=None if span is None else fire_time + added_late + span,
            status=Status.PROCESSING if span is None else Status.COMPLETED,
        )
        for fire_time in fire_times[::every]
    ]
    return msgspec.structs.replace(history(), records=records, jobs=jobs)


def test_jobs_that_last_past_the_next_fire_time_overlap_also_where_that_is_allowed() -> None:
    minute = timedelta(minutes=1)
    assert "tick overlapped" in judged(lasting(1.5 * minute))[0].fact
    assert "tick overlapped" in judged(lasting(None))[0].fact
    assert judged(lasting(0.9 * minute)) == []
    some = lasting(1.5 * minute)
    short = msgspec.structs.replace(some.jobs[3], completed_at=some.jobs[3].slot_at)
    assert judged(msgspec.structs.replace(some, jobs=[*some.jobs[:3], short, *some.jobs[4:]])) == []


def test_jobs_that_make_every_other_fire_time_skip_overlap_always() -> None:
    minute = timedelta(minutes=1)
    assert "tick overlapped" in judged(lasting(1.5 * minute, every=2))[0].fact
    assert judged(lasting(0.5 * minute, every=2)) == []


def test_jobs_that_were_added_late_do_not_overlap() -> None:
    assert judged(lasting(timedelta(minutes=5), added_late=timedelta(hours=1))) == []


def test_a_schedule_in_a_zone_that_this_machine_does_not_know_is_named() -> None:
    stored = history().stored
    broken = msgspec.structs.replace(stored.schedule, every=None, cron="@daily", timezone="Demo/Gone")
    [finding] = judged(ScheduleHistory(msgspec.structs.replace(stored, schedule=broken)))
    assert "cannot fire on a machine such as this one: timezone: 'Demo/Gone'" in finding.fact


def test_jobs_that_failed_in_a_row_are_named() -> None:
    [finding] = judged(history(jobs=(Status.PROCESSING, *(Status.FAILED,) * IN_A_ROW)))
    assert finding.fact == f"the last {IN_A_ROW} jobs of schedule tick have failed"


def test_a_schedule_that_a_clock_far_ahead_has_fired_is_named() -> None:
    stored = history().stored
    ahead = msgspec.structs.replace(stored, progress=begin(stored.schedule, NOW + timedelta(days=365)))
    [finding] = judged(ScheduleHistory(ahead))
    assert "schedule tick fires nothing before 2031-01-01T00:00:00.000Z" in finding.fact
    assert finding.advice == "begin from now: demora schedule resume tick"
    assert judged(history()) == []


def test_a_paused_schedule_is_not_judged() -> None:
    assert judged(history(type="b", enabled=False)) == []

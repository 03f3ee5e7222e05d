"""What the doctor makes of schedules."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from demora.core.firing import SlotOutcome, begin
from demora.core.job import Job, Lane, Priority
from demora.core.schedule import Schedule
from demora.core.states import Status
from demora.doctor.schedules import IN_A_ROW, OVERLAPS, ScheduleHistory, judge_schedules
from demora.store.diagnostics import Finding
from demora.store.jobs import WorkerRecord
from demora.store.schedules import Origin, SlotRecord, StoredSchedule

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LIVE = WorkerRecord("ann", "host", 7, 20, (), ("a",))
SCHEDULE = Schedule(name="tick", type="a", payload=b"{}", recorded_at=NOW, every=timedelta(minutes=1))


def history(*outcomes: SlotOutcome, jobs: tuple[Status, ...] = (), **changes: Any) -> ScheduleHistory:
    schedule = msgspec.structs.replace(SCHEDULE, **changes)
    stored = StoredSchedule(schedule, 1, begin(schedule, NOW), Origin.API)
    slots = [SlotRecord("tick", NOW - n * timedelta(minutes=1), one, NOW) for n, one in enumerate(outcomes)]
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
    return ScheduleHistory(stored, slots, made)


def judged(*histories: ScheduleHistory, workers: tuple[WorkerRecord, ...] = (LIVE,)) -> list[Finding]:
    return [finding for finding in judge_schedules(histories, workers) if finding.level != "ok"]


def test_a_schedule_whose_jobs_run_is_well() -> None:
    fine = history(SlotOutcome.FIRED, jobs=(Status.QUEUED, Status.COMPLETED, Status.FAILED, Status.FAILED))
    assert judged(fine) == []
    assert [finding.level for finding in judge_schedules([fine], [LIVE])] == ["ok"]


def test_a_type_that_no_live_worker_knows_is_named() -> None:
    [finding] = judged(history(type="b"))
    assert finding.fact == "schedule tick adds jobs of type b, which no live worker knows"
    assert judged(history(type="b"), workers=()) == []  # then the workers are what is missing


def test_runs_that_overlap_always_are_named() -> None:
    held_up = (SlotOutcome.SKIPPED,) * (OVERLAPS - 1)
    [finding] = judged(history(*held_up, SlotOutcome.REPLACED))
    assert f"the last {OVERLAPS} runs of schedule tick" in finding.fact
    assert judged(history(*held_up, SlotOutcome.FIRED)) == []


def test_jobs_that_failed_in_a_row_are_named() -> None:
    [finding] = judged(history(jobs=(Status.PROCESSING, *(Status.FAILED,) * IN_A_ROW)))
    assert finding.fact == f"the last {IN_A_ROW} jobs of schedule tick have failed"


def test_a_paused_schedule_is_not_judged() -> None:
    assert judged(history(type="b", enabled=False)) == []

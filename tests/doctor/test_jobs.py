"""What the doctor makes of a overview: each thing that may keep jobs from running, and when it is a problem."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from demora.core.pace import Pace, begin
from demora.core.workers import Running, WorkerRecord
from demora.doctor import judge_jobs, judge_paces
from demora.doctor.jobs import LATE, PAUSED_LONG
from demora.store.diagnostics import Finding, JobsOverview, Waiting
from demora.store.jobs import Pause, Queue
from demora.store.paces import Pacing

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
LIVE = WorkerRecord("ann", "host", 7, 20, (), ("a",))
SILENT = WorkerRecord("bob", "host", 8, 20, (), ("a",), heartbeat_ago=MINUTE)


def waiting(queue: str = "mail", type: str = "a", ready: int = 1, delayed: int = 0, past: timedelta = SECOND) -> Waiting:
    return Waiting(queue, type, ready, delayed, NOW - past)


def judged(
    *waits: Waiting, queues: tuple[Queue, ...] = (), workers: tuple[WorkerRecord, ...] = (LIVE,), **overview: Any
) -> list[Finding]:
    """What is not well."""
    found = judge_jobs(JobsOverview(NOW, list(waits), **overview), queues, workers)
    return [finding for finding in found if finding.level != "ok"]


def test_where_all_is_well_nothing_is_told() -> None:
    assert judged(waiting()) == []


@pytest.mark.parametrize(("ready", "level"), [(1, "problem"), (0, "warning")])
def test_no_live_worker_is_a_problem_if_jobs_are_ready(ready: int, level: str) -> None:
    [finding] = judged(waiting(ready=ready, delayed=1), workers=())
    assert (finding.check, finding.level) == ("workers", level)


def test_jobs_of_a_paused_queue_need_no_worker() -> None:
    [finding] = judged(waiting(), workers=(), queues=(Queue("mail", pause=Pause(None, NOW)),))
    assert (finding.check, finding.level) == ("workers", "warning")


def test_a_silent_worker_is_named_with_what_takes_its_jobs() -> None:
    [finding] = judged(workers=(LIVE, SILENT))
    assert finding.fact == "worker bob (pid 8 on host) sent its last heartbeat 1m ago"
    assert finding.advice is not None
    assert "demora recover --worker bob" in finding.advice


@pytest.mark.parametrize(("ready", "level"), [(1, "problem"), (0, "warning")])
def test_a_type_that_no_live_worker_knows_is_named(ready: int, level: str) -> None:
    [finding] = judged(waiting(type="b", ready=ready, delayed=2), workers=(LIVE,))
    assert (finding.check, finding.level) == ("types", level)
    assert "type b in queue mail" in finding.fact


def test_demo_jobs_whose_handlers_are_off_are_to_be_cancelled() -> None:
    [finding] = judged(waiting(type="demo.echo"), workers=(LIVE,))
    assert finding.advice is not None
    assert "off once an API key exists" in finding.advice
    assert "demora cancel --search 'status:waiting type:demo.*'" in finding.advice


def test_a_type_that_only_a_silent_worker_or_one_of_another_queue_knows_is_named() -> None:
    other = WorkerRecord("eve", "host", 9, 1, ("slow",), ("b",))
    knows = WorkerRecord("bob", "host", 8, 1, (), ("b",), heartbeat_ago=MINUTE)
    assert [finding.check for finding in judged(waiting(type="b"), workers=(LIVE, other, knows))] == ["workers", "types"]
    assert judged(waiting("slow", type="b"), workers=(LIVE, other)) == []


def test_a_queue_that_no_live_worker_serves_is_named_once() -> None:
    only = WorkerRecord("ann", "host", 7, 20, ("slow",), ("a",))
    [finding] = judged(waiting(), waiting(type="b", ready=0, delayed=2), workers=(only,))
    assert (finding.check, finding.level) == ("queues", "problem")
    assert finding.fact == "3 jobs in queue mail, which no live worker serves"
    assert finding.advice == "start one: demora worker --queues mail"


@pytest.mark.parametrize(("span", "count"), [(PAUSED_LONG, 1), (PAUSED_LONG - SECOND, 0)])
def test_a_queue_that_has_been_paused_for_long_is_told(span: timedelta, count: int) -> None:
    findings = judged(queues=(Queue("mail", pause=Pause("down", NOW - span), ready=2),))
    assert [(finding.check, finding.level) for finding in findings] == [("queues", "warning")] * count
    assert all("paused for 1h (down), 2 jobs in it" in finding.fact for finding in findings)


def test_jobs_that_wait_long_past_their_time_are_told() -> None:
    [finding] = judged(waiting(past=LATE, ready=3), waiting("slow", past=2 * LATE, ready=2), waiting("new"))
    assert (finding.check, finding.level) == ("waiting", "warning")
    assert finding.fact == "5 jobs overdue, the oldest by 10m (type a in slow)"
    assert judged(waiting(past=LATE), queues=(Queue("mail", pause=Pause(None, NOW)),)) == []


def test_more_slots_are_no_advice_for_late_jobs_that_no_worker_can_run() -> None:
    found = judged(waiting(past=LATE, type="b"), waiting(past=LATE, type="a"), workers=(LIVE,))
    assert [(finding.check, finding.fact.split(",")[0]) for finding in found] == [
        ("types", "1 job of type b in queue mail: no live worker knows b"),
        ("waiting", "1 job overdue"),
    ]
    assert found[0].advice is not None
    assert found[0].advice.endswith("otherwise it fails after an hour")


@pytest.mark.parametrize(("span", "count"), [(MINUTE, 1), (SECOND, 0)])
def test_leases_that_nobody_settles_are_told(span: timedelta, count: int) -> None:
    assert [finding.check for finding in judged(lapsed=2, lapsed_for=span)] == ["leases"] * count


@pytest.mark.parametrize(("wait", "level"), [(1, "problem"), (0, "warning")])
def test_a_clock_that_was_set_back_is_told(wait: int, level: str) -> None:
    [finding] = judged(ahead=2, ahead_waiting=wait, ahead_by=HOUR)
    assert (finding.check, finding.level) == ("clock", level)
    assert "up to 1h in the future" in finding.fact


def test_dead_letters_are_counted_by_queue() -> None:
    [finding] = judged(queues=(Queue("mail", dead=2), Queue("slow", dead=1), Queue("none")))
    assert (finding.level, finding.fact) == ("warning", "3 jobs failed for good: 2 in mail, 1 in slow")


def test_every_finding_that_is_not_well_says_what_to_do() -> None:
    found = judged(
        waiting(type="b", past=HOUR),
        waiting(past=HOUR),
        queues=(Queue("slow", dead=1, pause=Pause(None, NOW - 2 * HOUR)),),
        workers=(LIVE, SILENT),
        lapsed=1,
        lapsed_for=HOUR,
        ahead=1,
        ahead_by=HOUR,
    )
    assert {finding.check for finding in found} == {
        "clock",
        "workers",
        "types",
        "queues",
        "waiting",
        "leases",
        "dead letters",
    }
    assert all(finding.advice for finding in found)


def taken(jobs: int, *, youngest: timedelta) -> list[Running]:
    return [Running("ann", "demo.sleep", jobs, "id-1", NOW - HOUR, NOW - youngest)]


@pytest.mark.parametrize(("youngest", "level"), [(SECOND, "warning"), (MINUTE, "problem")])
def test_slots_that_are_all_taken_are_told_with_what_takes_them(youngest: timedelta, level: str) -> None:
    [finding] = judged(waiting(ready=2), running=taken(20, youngest=youngest))
    assert (finding.check, finding.level) == ("slots", level)
    named = "all 20 slots of worker ann are taken (20 demo.sleep) while 2 jobs wait; longest: id-1 (demo.sleep) for 1h"
    assert finding.fact == named
    assert finding.advice is not None
    assert "DEMORA_MAX_TIMEOUT" in finding.advice


def test_slots_are_no_trouble_while_one_is_free_or_no_job_waits_for_them() -> None:
    assert judged(waiting(), running=taken(19, youngest=HOUR)) == []
    assert judged(waiting(ready=0, delayed=1), running=taken(20, youngest=HOUR)) == []
    other = WorkerRecord("eve", "host", 9, 1, (), ("a",))
    assert judged(waiting(), workers=(LIVE, other), running=taken(20, youngest=HOUR)) == []


# Paces


def every(by: str = "settings") -> Pacing:
    return Pacing("*", Pace(), begin(0), NOW, by, NOW)


def worker(id: str, paces: str, **more: Any) -> WorkerRecord:
    return WorkerRecord(id, "host", 7, 20, (), ("a",), paces=paces, **more)


def test_processes_whose_settings_of_paces_differ_are_named() -> None:
    alike = [worker("ann", "* gap=3m"), worker("bob", "* gap=3m")]
    assert [found.level for found in judge_paces([every()], alike)] == ["ok"]
    other, gone = worker("cid", ""), worker("dan", "mail off", heartbeat_ago=MINUTE)
    found = [finding.fact for finding in judge_paces([every()], [*alike, other, gone]) if finding.level == "warning"]
    assert found == [
        "processes have different pace settings: worker ann (pid 7 on host), worker bob (pid 7 on host) have * gap=3m",
        "processes have different pace settings: worker cid (pid 7 on host) has none",
    ]


def test_schedulers_and_services_whose_settings_of_paces_differ_are_named_too() -> None:
    workers = [worker("ann", "* gap=3m")]
    assert [found.level for found in judge_paces([every()], workers, {"box-1-a": "* gap=3m"})] == ["ok"]
    found = [finding.fact for finding in judge_paces([every()], workers, {"box-1-a": ""}) if finding.level == "warning"]
    assert found == [
        "processes have different pace settings: worker ann (pid 7 on host) has * gap=3m",
        "processes have different pace settings: scheduler or service box-1-a has none",
    ]
    [_, warned] = judge_paces([every()], [], {"box-1-a": ""})
    assert "from settings that no live process has any more" in warned.fact
    assert [found.level for found in judge_paces([every()], [], {"box-1-a": "* gap=3m"})] == ["ok"]


def test_a_pace_of_all_queues_whose_setting_was_taken_away_is_told() -> None:
    [_, warned] = judge_paces([every()], [worker("ann", "mail off")])
    assert (warned.level, warned.fact) == (
        "warning",
        "all queues have the pace 3 in 2m from settings that no live process has any more",
    )
    assert [found.level for found in judge_paces([every("cli:ann")], [worker("ann", "mail off")])] == ["ok"]
    assert [found.level for found in judge_paces([every()], [])] == ["ok"]

"""Rows that disagree with themselves, with their events, with the counts that are shown, or with the end of the run."""

from typing import Any

import pytest

from demora.core.job import Lane
from demora.proof import WorldEvent, check
from demora.store.audit import Evidence, JobFacts, PaceFacts, QueueFacts
from tests.proof.lives import JOB, START, Life, broken, evidence, facts

DRAINED = [WorldEvent("healed", START), WorldEvent("drained", START + 50_000)]
PAUSED = [QueueFacts("default", ready=1, paused=True)]

GOOD = {
    "a success": facts(),
    "a waiting job": facts(status="QUEUED"),
    "a running job": facts(status="PROCESSING"),
    "a dead letter": facts(status="FAILED", token=2, attempt=2, recorded=(1, 2), error="no", retry_count=1),
    "a job cancelled before it started": facts(status="CANCELLED", token=0, attempt=0),
    "a second generation": facts(generation=2, token=4, recorded=(1, 2, 3), attempt=2),
    "a hand-back": facts(status="QUEUED", token=3, attempt=0),
}

BAD: dict[str, tuple[str, JobFacts]] = {
    "a lease on a job that waits": ("I17", facts(status="QUEUED", lease_until=5)),
    "a running job without a lease": ("I17", facts(status="PROCESSING", lease_until=None)),
    "an end without its time": ("I17", facts(completed_at=None)),
    "the time of an end that did not come": ("I17", facts(status="QUEUED", completed_at=START)),
    "more attempts than allowed": ("I5", facts(token=3, attempt=3, recorded=(1, 2))),
    "more attempts than claims": ("I5", facts(token=0)),
    "more credits than claims": ("I5", facts(attempt=-1)),
    "more retries than allowed": ("I5", facts(retry_count=2)),
    "an attempt missing in the record": ("I5", facts(status="FAILED", error="no")),
    "an attempt too many in the record": ("I5", facts(recorded=(1,))),
    "an attempt under a token to come": ("I5", facts(token=2, attempt=2, recorded=(3,))),
    "a dead letter without an error": ("I12", facts(status="FAILED", recorded=(1,))),
    "a dead letter with an empty error": ("I12", facts(status="FAILED", recorded=(1,), error="")),
}


@pytest.mark.parametrize("row", GOOD.values(), ids=GOOD)
def test_a_row_that_agrees_with_itself_is_accepted(row: JobFacts) -> None:
    assert broken(check([], evidence(row))) == []


@pytest.mark.parametrize(("rule", "row"), BAD.values(), ids=BAD)
def test_a_row_that_does_not_is_flagged_under_its_rule_alone(rule: str, row: JobFacts) -> None:
    assert broken(check([], evidence(row))) == [rule]


STUCK = [facts(status="QUEUED"), facts(status="PROCESSING"), facts(status="RETRYING", recorded=(1,), completed_at=None)]
EXCUSED: list[tuple[JobFacts, dict[str, Any]]] = [
    (facts(), {}),
    (facts(status="QUEUED", due_at=START + 50_001), {}),
    (facts(status="QUEUED"), {"queues": PAUSED}),
]


@pytest.mark.parametrize("row", STUCK, ids=lambda row: row.status)
def test_a_due_job_that_has_not_ended_when_the_queues_are_drained_is_lost(row: JobFacts) -> None:
    assert broken(check(DRAINED, evidence(row))) == ["I1"]
    assert broken(check(DRAINED[:1], evidence(row))) == []


@pytest.mark.parametrize(("row", "more"), EXCUSED, ids=["ended", "due later", "paused"])
def test_a_job_that_has_ended_or_may_wait_is_not_lost(row: JobFacts, more: dict[str, Any]) -> None:
    assert broken(check(DRAINED, evidence(row, **more))) == []


def test_an_end_that_was_undone_without_an_event_is_flagged() -> None:
    ended = Life().added().claimed().settled().events
    assert broken(check(ended, evidence(facts()))) == []
    assert broken(check(ended, evidence(facts(status="QUEUED", token=1, attempt=0)))) == ["I2"]
    assert broken(check(ended, evidence(facts(status="CANCELLED", recorded=(1,))))) == ["I2"]


def test_a_row_that_changed_without_an_event_is_flagged() -> None:
    assert broken(check(Life().added().events, evidence(facts(status="PROCESSING")))) == ["I17"]


WRONG_COUNTS = [
    QueueFacts("default", ready=2),
    QueueFacts("default", ready=1, dead=1),
    QueueFacts("default", delayed=1),
    QueueFacts("default", ready=1, processing=1),
]


def test_counts_that_are_those_of_the_rows_are_accepted() -> None:
    assert broken(check([], evidence(facts(status="QUEUED"), queues=[QueueFacts("default", ready=1)]))) == []


def test_what_a_pace_holds_counts_as_delayed_until_it_is_taken_off() -> None:
    held, off = PaceFacts("default", START, lanes=(Lane.SCHEDULED,)), PaceFacts("default", START + 1)
    waiting, queue = facts(status="QUEUED", lane=Lane.SCHEDULED), QueueFacts("default", delayed=1)
    assert broken(check([], evidence(waiting, queues=[queue], paces=[held]))) == []
    assert broken(check([], evidence(waiting, queues=[queue], paces=[held, off]))) == ["I15"]


@pytest.mark.parametrize("queue", WRONG_COUNTS, ids=str)
def test_counts_that_differ_from_the_rows_are_flagged(queue: QueueFacts) -> None:
    assert broken(check([], evidence(facts(status="QUEUED"), queues=[queue]))) == ["I15"]


def test_a_queue_that_is_not_shown_is_flagged() -> None:
    assert broken(check([], evidence(facts(), queues=[QueueFacts("other")]))) == ["I15"]


@pytest.mark.parametrize("harm", [{"integrity": ["row 3 missing from index jobs_waiting"]}, {"orphans": [JOB]}], ids=str)
def test_a_harmed_database_is_flagged(harm: dict[str, Any]) -> None:
    assert broken(check([], Evidence(now=START, jobs=[], **harm))) == ["I17"]

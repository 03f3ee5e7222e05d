"""What the checker says of itself: which rules it judged, by what, and what a violation looks like."""

import time

import pytest

from demora.proof import RULES, Bounds, WorldEvent, check
from demora.store.audit import KeyFacts, PaceFacts, QueueFacts
from tests.proof.lives import JOB, START, Life, call, end, evidence, facts, start

NOT_YET = {"I14"}


def test_rows_alone_judge_what_rows_can_and_name_the_rest() -> None:
    findings = check([], evidence(facts(), integrity=[], queues=[QueueFacts("default")]))
    assert findings.judged == {"I5": "rows", "I12": "rows", "I15": "rows", "I17": "rows, integrity check"}
    assert findings.not_judged["I3"] == "needs an audit"
    assert findings.judged.keys() | findings.not_judged.keys() == RULES.keys()


def test_all_histories_together_judge_all_that_there_is() -> None:
    history = [*Life().added().claimed().settled().events, *call("add", "ok", JOB, asked={"key": "k"}), start(), end()]
    world = [WorldEvent("healed", START), WorldEvent("drained", START)]
    end_facts = evidence(
        facts(schedule="nightly", slot_at=START),
        integrity=[],
        queues=[QueueFacts("default")],
        keys=[KeyFacts("", "k", JOB, START, START)],
        paces=[PaceFacts("default", START)],
    )
    bounds = Bounds(start=1000, drain=1000)
    findings = check([*history, *world], end_facts, bounds=bounds, canaries=["s3cret"], output=["fine"])
    assert findings.ok
    assert set(findings.not_judged) == NOT_YET
    assert findings.judged["I1"] == "client, events, drained"
    assert (findings.counts["jobs"], findings.counts["sql claimed"]) == (1, 1)


def test_nothing_given_is_nothing_judged() -> None:
    findings = check([])
    assert (findings.ok, findings.judged) == (True, {})


def test_events_are_taken_from_the_evidence_if_the_history_has_none() -> None:
    early = Life().added(due_at=START + 1).claimed()
    assert check([], evidence(facts(status="PROCESSING"), events=early.events)).of("I6") == 1


def test_events_are_judged_in_the_order_of_their_numbers() -> None:
    life = Life().added().claimed().settled()
    assert check(reversed(life.events)).ok


@pytest.mark.parametrize("output", [["all is well", "token=s3cret"], ["s3cret"]], ids=str)
def test_a_secret_in_the_output_is_flagged_and_not_repeated(output: list[str]) -> None:
    findings = check([], canaries=["s3cret"], output=output)
    [violation] = findings.violations
    assert violation.rule == "I18"
    assert "s3cret" not in violation.says


def test_a_violation_explains_itself_with_all_events_of_its_job() -> None:
    life = Life().added().wait(5).claimed().wait(10).settled().claimed()
    findings = check([*life.events, *call("add", "ok", JOB), start(), end(), *Life("other", seq=99).added().events])
    [violation] = findings.violations
    said = violation.explain().splitlines()
    assert said[0] == f"I2 one end: job {JOB} had ended COMPLETED and was claimed nevertheless"
    assert len(said) == 1 + 4 + 2 + 2
    assert any("+0.005s sql     #2 claimed QUEUED → PROCESSING token 1 attempt 1 of 2" in line for line in said)
    assert any("handler end token 1 outcome 'ok'" in line for line in said)
    assert findings.explain() == violation.explain()


def test_a_refused_write_is_shown_with_how_the_job_stood() -> None:
    [violation] = check(Life().added().claimed().stale("settle", 1).events).violations
    assert "stale settle under token 1; the job is PROCESSING with token 1" in violation.explain()


def test_only_the_first_violations_are_told() -> None:
    history = [event for n in range(5) for event in Life(str(n), seq=9 * n).added().removed().events]
    assert check(history).explain(2).endswith("and 3 more")


@pytest.mark.timed
def test_a_hundred_thousand_events_are_judged_in_a_second() -> None:
    history = [e for n in range(25_000) for e in Life(str(n), seq=9 * n).added().claimed().renewed().settled().events]
    began = time.process_time()
    assert check(history, bounds=Bounds(start=100)).ok
    assert time.process_time() - began < 2  # half the promised speed, for slow machines

"""What clients were told, against SQL: lost jobs, forgotten asked_for, doubled keys. Unknown outcomes accuse nobody."""

import pytest

from demora.proof import ClientEvent, HistoryEvent, check
from demora.store.audit import KeyFacts
from tests.proof.lives import JOB, OTHER, START, Life, broken, call, evidence, facts, failed_twice, rules_broken, start

ADDED = call("add", "ok", JOB)
KEY = {"key": "k", "request": "a"}
ANOTHER = {"key": "k", "request": "b"}
LATER = {"due_at": START + 1000}


def test_an_answered_job_that_is_there_is_no_loss() -> None:
    assert broken(check(ADDED, evidence(facts()))) == []


def test_an_answered_job_that_is_nowhere_is_lost() -> None:
    assert broken(check(ADDED, evidence(facts(OTHER)))) == ["I1"]


def test_an_answered_job_without_an_event_is_lost() -> None:
    other = Life(OTHER).added()
    assert rules_broken(other, *ADDED) == ["I1"]


@pytest.mark.parametrize("kind", ["unknown", "fail"])
def test_a_job_that_was_not_answered_may_be_missing(kind: str) -> None:
    assert broken(check(call("add", kind, JOB), evidence())) == []


def test_a_job_whose_add_is_unknown_may_exist() -> None:
    assert broken(check(call("add", "unknown", JOB), evidence(facts()))) == []


@pytest.mark.parametrize("kind", ["ok", "unknown"])
def test_a_deleted_job_is_not_lost(kind: str) -> None:
    assert broken(check([*ADDED, *call("delete", kind, JOB)], evidence())) == []


def test_a_purged_job_is_not_lost() -> None:
    life = Life().added().claimed().settled().removed()
    assert broken(check([*ADDED, *life.events], evidence())) == []


def test_a_job_whose_events_end_before_its_removal_is_lost() -> None:
    assert broken(check(Life().added().claimed().events, evidence())) == ["I1"]


GOOD: dict[str, list[HistoryEvent]] = {
    "a cancel of a waiting job": [*Life().added().cancelled().events, *call("cancel", "ok", JOB, answer="CANCELLED")],
    "a cancel of a running job": [
        *Life().added().claimed().cancel_requested().events,
        *call("cancel", "ok", JOB, answer="PROCESSING"),
    ],
    "a cancel whose outcome is unknown": [*Life().added().events, *call("cancel", "unknown", JOB)],
    "a retry": [*failed_twice(Life()).retried().events, *call("retry", "ok", JOB)],
    "a later time": [*Life().added().changed(due_at=START + 1000).events, *call("reschedule", "ok", JOB, asked=LATER)],
    "a delayed job": [*Life().added(due_at=START + 1000).events, *call("add", "ok", JOB, asked=LATER)],
    "a key used once": [*Life().added().events, *call("add", "ok", JOB, asked=KEY)],
    "a replay": [
        *Life().added().events,
        *call("add", "ok", JOB, asked=KEY),
        *(ClientEvent("invoke", "add", "r", START, (OTHER,), **KEY), ClientEvent("ok", "add", "r", START, (JOB,))),
    ],
    "a refusal of another request": [
        *Life().added().events,
        *call("add", "ok", JOB, asked=KEY),
        *call("add", "fail", OTHER, asked=ANOTHER, answer="422"),
    ],
    "a key that had expired": [
        *Life().added().events,
        *Life(OTHER, seq=9).added().events,
        *call("add", "ok", JOB, asked={**KEY, "kept": 60_000}),
        *call("add", "ok", OTHER, at=START + 60_000, asked={**ANOTHER, "kept": 60_000}),
    ],
}

BAD: dict[str, tuple[str, list[HistoryEvent]]] = {
    "a cancel that left no trace": ("I9", [*Life().added().events, *call("cancel", "ok", JOB, answer="CANCELLED")]),
    "a asked that left no trace": (
        "I9",
        [*Life().added().claimed().events, *call("cancel", "ok", JOB, answer="PROCESSING")],
    ),
    "a retry that left no trace": ("I12", [*failed_twice(Life()).events, *call("retry", "ok", JOB)]),
    "a time that was moved forward": ("I6", [*Life().added().events, *call("add", "ok", JOB, asked=LATER)]),
    "a new time that was forgotten": ("I6", [*Life().added().events, *call("reschedule", "ok", JOB, asked=LATER)]),
    "two jobs for one key": (
        "I10",
        [
            *Life().added().events,
            *Life(OTHER, seq=9).added().events,
            *call("add", "ok", JOB, asked=KEY),
            *call("add", "unknown", OTHER, asked=KEY),
        ],
    ),
    "two answers to one request": (
        "I10",
        [
            *Life().added().events,
            *Life(OTHER, seq=9).added().events,
            *call("add", "ok", JOB, asked=KEY),
            *(ClientEvent("invoke", "add", "x", START, ("none",), **KEY), ClientEvent("ok", "add", "x", START, (OTHER,))),
        ],
    ),
    "another request answered like the first": (
        "I10",
        [
            *Life().added().events,
            *call("add", "ok", JOB, asked=KEY),
            *(ClientEvent("invoke", "add", "y", START, (OTHER,), **ANOTHER), ClientEvent("ok", "add", "y", START, (JOB,))),
        ],
    ),
    "the same request refused": (
        "I10",
        [*Life().added().events, *call("add", "ok", JOB, asked=KEY), *call("add", "fail", OTHER, asked=KEY, answer="422")],
    ),
}


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD)
def test_answers_that_sql_bears_out_are_accepted(history: list[HistoryEvent]) -> None:
    assert broken(check(history)) == []


@pytest.mark.parametrize(("rule", "history"), BAD.values(), ids=BAD)
def test_an_answer_that_sql_belies_is_flagged_under_its_rule_alone(rule: str, history: list[HistoryEvent]) -> None:
    assert broken(check(history)) == [rule]


def test_without_an_audit_a_start_after_an_answered_cancel_is_flagged() -> None:
    cancel = call("cancel", "ok", JOB, at=START - 100, answer="CANCELLED")
    assert broken(check([*cancel, start()])) == ["I9"]
    assert broken(check([*cancel, *call("retry", "ok", JOB), start()])) == []


def test_a_key_that_leads_to_a_job_that_was_never_added_is_flagged() -> None:
    there = facts(OTHER, "QUEUED")
    key = KeyFacts("", "k", JOB, START + 1, START + 86_400_000)
    assert broken(check(Life(OTHER).added().events, evidence(there, keys=[key]))) == ["I10"]
    assert broken(check([], evidence(there, keys=[key]))) == []  # the job may have been purged

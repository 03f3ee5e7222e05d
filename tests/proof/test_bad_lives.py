"""Lives in SQL that break a promise: each is flagged, under its rule and no other."""

import pytest

from demora.proof import check
from tests.proof.lives import LEASE, OTHER, START, Life, broken, failed_twice, rules_broken

GOOD = {
    "a success": Life().added().claimed().renewed().settled(),
    "a dead letter": failed_twice(Life()),
    "a retry by hand": failed_twice(Life()).retried().claimed().settled().removed(),
    "a lapse": Life().added().claimed().wait(LEASE).lapsed().claimed("bob").stale("settle", 1).settled(),
    "a worker lost for good": Life().added(max_retries=0).claimed().wait(LEASE).lapsed("FAILED", max_retries=0),
    "hand-backs": Life().added().claimed().handed_back().claimed().handed_back().claimed().settled(),
    "a cancel while it waits": Life().added().changed(due_at=Life().at + 9).cancelled().retried(),
    "a cancel while it runs": Life().added().claimed().cancel_requested().settled("CANCELLED", error="gave up"),
    "a cancel that came too late": Life().added().claimed().cancel_requested().settled(),
    "a lapse that another had settled": Life().added().claimed().wait(LEASE).lapsed().stale("lapse", 1),
    "an error beyond help": Life().added().claimed().buried(),
    "steps signed by their workers": Life().added().claimed().renewed().accepted("renew").settled().accepted().removed(),
    "a renewal that gained nothing": Life().added().claimed().accepted("renew").settled().accepted().stale("settle", 1),
    "a type that nobody knew": Life().added().claimed().buried(credits=1, error="UnknownType: no"),
    "a job that expired": Life().added(expires_at=START + 5).wait(5).cancelled(),
    "a job tried again after its expiry": Life()
    .added(expires_at=START + 5)
    .claimed()
    .failed_once()
    .wait(5)
    .claimed()
    .settled(),
    "a job that was there before the audit": Life().claimed(old_status="QUEUED", token=8, old_token=7, credits=7).settled(),
}

BAD = {
    "I1": {
        "removed while it waits": Life().added().removed(),
        "removed while it runs": Life().added().claimed().removed(),
    },
    "I2": {
        "two ends": Life().added().claimed().settled().changed(status="FAILED"),
        "two ends of two runs": Life().added().claimed().settled().settled("FAILED", old_status="PROCESSING", error="no"),
        "claimed after its end": Life().added().claimed().settled().claimed(),
        "changed after its end": Life().added().claimed().settled().changed(rank=0),
        "started anew after success": Life().added().claimed().settled().retried(),
        "retried in the same generation": failed_twice(Life()).retried(generation=1),
    },
    "I3": {
        "the token did not grow": Life().added().claimed().failed_once().claimed(token=1),
        "settled after the lease ran out": Life().added().claimed().wait(LEASE).settled(),
        "renewed after the lease ran out": Life().added().claimed().wait(LEASE + 1).renewed(),
        "the token changed in a renewal": Life().added().claimed().renewed(token=2).settled(),
        "the token changed in a settlement": Life().added().claimed().failed_once(token=3),
        "the holder was refused": Life().added().claimed().stale("settle", 1).settled(),
        "the rescuer was refused": Life().added().claimed().wait(LEASE).stale("lapse", 1).lapsed(),
        "a stale settlement accepted": Life()
        .added()
        .claimed()
        .failed_once()
        .accepted()
        .claimed()
        .settled()
        .accepted(token=1),
        "a stale renewal accepted": Life().added().claimed(token=1).renewed().accepted("renew", 0).settled().accepted(),
        "settled by nobody": Life().added().claimed().renewed().accepted("renew").settled().stale("settle", 0),
        "settled by nobody, then claimed": Life().added().claimed().failed_once().claimed().settled().accepted(),
        "ended under no lease": Life().added().changed(status="COMPLETED"),
    },
    "I19": {
        "started at its expiry": Life().added(expires_at=START + 5).wait(5).claimed().settled(),
        "started after a hand-back, which did not count": Life()
        .added(expires_at=START + 5)
        .claimed()
        .handed_back()
        .wait(5)
        .claimed()
        .settled(),
    },
    "I4": {
        "claimed while leased": Life().added().claimed().claimed("bob"),
        "taken over too early": Life().added().claimed().wait(LEASE - 1).lapsed().claimed("bob"),
        "taken over despite a renewal": Life().added().claimed().wait(9000).renewed().wait(LEASE - 9000).lapsed(),
    },
    "I5": {
        "one attempt too many": Life().added().claimed().failed_once(max_retries=9).claimed(max_retries=0),
        "a claim that was no attempt": Life().added().claimed(credits=1),
        "a claim counted twice": Life().added().claimed(token=2),
        "a lost worker that was no attempt": Life().added().claimed().wait(LEASE).lapsed(credits=1, retries=0),
        "a success that was no attempt": Life().added().claimed().settled(credits=1),
        "credit for two runs at once": Life().added().claimed().handed_back(credits=2),
        "a retry that was not counted": Life().added().claimed().failed_once(retries=0),
    },
    "I6": {
        "a millisecond early": Life().added(due_at=Life().at + 1).claimed(),
        "early after a retry": Life().added().claimed().failed_once(due_at=Life().at + 1000).wait(999).claimed(),
        "early after a change": Life().added().changed(due_at=Life().at + 50).wait(49).claimed(),
    },
    "I9": {
        "claimed after it was cancelled": Life().added().cancelled().claimed(),
        "tried again after the request": Life().added().claimed().cancel_requested().failed_once(),
        "handed back after the request": Life().added().claimed().cancel_requested().handed_back(),
        "claimed with a request": Life().added().claimed(cancel_requested=True),
    },
    "I12": {
        "tried again with all attempts spent": Life().added().claimed().failed_once().claimed().failed_once(),
        "buried too soon for a lost worker": Life().added().claimed().wait(LEASE).lapsed("FAILED"),
        "buried without an error": Life().added().claimed().buried(error=None),
        "retried without new attempts": failed_twice(Life()).retried(credits=0),
        "retried with the old request": Life()
        .added()
        .claimed()
        .cancel_requested()
        .settled("CANCELLED")
        .retried(cancel_requested=True),
    },
    "I17": {
        "a change that left no event": Life().added().claimed().settled(old_status="RETRYING"),
        "a claim that left no event": Life().added().claimed(old_token=1, token=2),
    },
}


@pytest.mark.parametrize("life", GOOD.values(), ids=GOOD)
def test_a_life_as_promised_is_accepted(life: Life) -> None:
    assert rules_broken(life) == []


@pytest.mark.parametrize(
    ("rule", "life"),
    [pytest.param(rule, life, id=f"{rule}: {name}") for rule, lives in BAD.items() for name, life in lives.items()],
)
def test_a_broken_promise_is_flagged_under_its_rule_alone(rule: str, life: Life) -> None:
    assert rules_broken(life) == [rule]


def test_two_unique_jobs_of_one_key_that_wait_together_are_flagged() -> None:
    first, second = Life().added(unique="mail k"), Life(OTHER, seq=9).added(unique="mail k")
    assert broken(check([*first.events, *second.events])) == ["I20"]


def test_a_unique_job_may_follow_on_one_that_was_claimed_or_ended() -> None:
    for first in (Life().added(unique="mail k").claimed().failed_once(), Life().added(unique="mail k").cancelled()):
        assert broken(check([*first.events, *Life(OTHER, seq=9).added(unique="mail k").events])) == []

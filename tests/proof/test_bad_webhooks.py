"""Ends that somebody is to hear of, and what tells of them."""

import pytest

from demora.proof import check
from demora.store.audit import JobFacts
from tests.proof.lives import JOB, START, Life, broken, evidence, facts

TELLS = f"{START:012x}"
TELLS = f"{TELLS[:8]}-{TELLS[8:]}-7000-8000-000000000009"
LATER = f"{START + 1:012x}"
LATER = f"{LATER[:8]}-{LATER[8:]}-7000-8000-000000000009"
END = facts(webhook=True)


def delivery(id: str = TELLS, **changes: object) -> JobFacts:
    return facts(id, "QUEUED", queue="demora.webhooks", **{"cause": JOB, **changes})


def judged(*jobs: JobFacts, lives: list[Life] | None = None) -> list[str]:
    """With the events of each job that is there, and of those in `lives`."""
    written = []
    for number, job in enumerate(jobs):
        life = Life(job.id, seq=100 * number).added()
        life = life.claimed().settled() if job.status == "COMPLETED" else life
        written += life.events
    written += [event for life in lives or [] for event in life.events]
    return broken(check(written, evidence(*jobs)))


def test_an_end_with_its_delivery_is_as_it_should_be() -> None:
    assert judged(END, delivery()) == []
    assert judged(facts()) == []


def test_an_end_that_nothing_tells_of_is_flagged() -> None:
    assert judged(END) == ["I13"]
    assert judged(facts(webhook=True, completed_at=START + 1), delivery(cause="another")) == ["I13"]


def test_a_cancel_is_told_only_where_that_is_asked_for() -> None:
    cancelled = Life().added()
    cancelled._step("cancelled", status="CANCELLED")
    for asked in (False, True):
        row = facts(status="CANCELLED", token=0, attempt=0, webhook=True, on_cancel=asked)
        assert broken(check(cancelled.events, evidence(row))) == (["I13"] if asked else [])


def test_a_delivery_that_was_removed_has_been_there() -> None:
    gone = Life(TELLS, seq=900).added().claimed().settled()
    gone._step("removed", status=None)
    assert judged(END, lives=[gone]) == []


@pytest.mark.parametrize(
    "jobs",
    [
        (END, delivery(), delivery(TELLS[:-1] + "8")),
        (END, delivery(webhook=True)),
        (END, delivery(LATER)),
    ],
    ids=["told twice", "a delivery with a webhook", "older than the end"],
)
def test_a_delivery_that_is_not_as_it_should_be_is_flagged(jobs: tuple[JobFacts, ...]) -> None:
    assert judged(*jobs) == ["I13"]


def test_without_an_audit_it_is_not_judged() -> None:
    findings = check([], evidence(END))
    assert findings.violations == []
    assert findings.not_judged["I13"] == "needs an audit and rows"

"""Jobs of schedules that cannot be, each flagged as I11."""

import pytest

from demora.proof import check
from demora.store.audit import JobFacts, SlotFacts
from tests.proof.lives import JOB, START, broken, evidence, facts

OTHER = "01900000-0000-7000-8000-000000000077"


def of_slot(job: str = JOB, slot_at: int = START, schedule: str = "nightly") -> JobFacts:
    return facts(job, schedule=schedule, slot_at=slot_at)


GOOD = {
    "one job for its slot": ([of_slot()], [SlotFacts("nightly", START, "fired", JOB)]),
    "the record of it is no longer kept": ([of_slot()], []),
    "another slot": ([of_slot(), of_slot(OTHER, START - 1)], []),
    "the same slot of another schedule": ([of_slot(), of_slot(OTHER, schedule="daily")], []),
    "triggered twice": ([facts(schedule="nightly"), facts(OTHER, schedule="nightly")], []),
    "the job was deleted": ([], [SlotFacts("nightly", START, "fired", JOB)]),
}
BAD = {
    "two jobs for one slot": ([of_slot(), of_slot(OTHER)], []),
    "added before its slot": ([of_slot(slot_at=START + 1)], []),
    "another job is on record": ([of_slot()], [SlotFacts("nightly", START, "fired", OTHER)]),
    "on record as missed": ([of_slot()], [SlotFacts("nightly", START, "missed")]),
}


@pytest.mark.parametrize("case", GOOD)
def test_what_may_be_is_accepted(case: str) -> None:
    jobs, slots = GOOD[case]
    assert broken(check([], evidence(*jobs, slots=slots))) == []


@pytest.mark.parametrize("case", BAD)
def test_what_must_not_be_is_flagged(case: str) -> None:
    jobs, slots = BAD[case]
    assert broken(check([], evidence(*jobs, slots=slots))) == ["I11"]

"""Jobs of schedules that cannot be, each flagged as I11."""

import pytest

from demora.proof import check
from demora.store.audit import FireFacts, JobFacts
from tests.proof.lives import JOB, START, broken, evidence, facts

OTHER = "01900000-0000-7000-8000-000000000077"


def of_fire_time(job: str = JOB, slot_at: int = START, schedule: str = "nightly") -> JobFacts:
    return facts(job, schedule=schedule, slot_at=slot_at)


GOOD = {
    "one job for its fire time": ([of_fire_time()], [FireFacts("nightly", START, "fired", JOB)]),
    "the record of it is no longer kept": ([of_fire_time()], []),
    "another fire time": ([of_fire_time(), of_fire_time(OTHER, START - 1)], []),
    "the same fire time of another schedule": ([of_fire_time(), of_fire_time(OTHER, schedule="daily")], []),
    "triggered twice": ([facts(schedule="nightly"), facts(OTHER, schedule="nightly")], []),
    "the job was deleted": ([], [FireFacts("nightly", START, "fired", JOB)]),
}
BAD = {
    "two jobs for one fire time": ([of_fire_time(), of_fire_time(OTHER)], []),
    "added before its fire time": ([of_fire_time(slot_at=START + 1)], []),
    "another job is on record": ([of_fire_time()], [FireFacts("nightly", START, "fired", OTHER)]),
    "on record as missed": ([of_fire_time()], [FireFacts("nightly", START, "missed")]),
}


@pytest.mark.parametrize("case", GOOD)
def test_what_may_be_is_accepted(case: str) -> None:
    jobs, fire_times = GOOD[case]
    assert broken(check([], evidence(*jobs, fire_times=fire_times))) == []


@pytest.mark.parametrize("case", BAD)
def test_what_must_not_be_is_flagged(case: str) -> None:
    jobs, fire_times = BAD[case]
    assert broken(check([], evidence(*jobs, fire_times=fire_times))) == ["I11"]

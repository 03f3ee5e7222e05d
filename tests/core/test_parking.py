"""Parked jobs: when their types count as unknown, and when they fail."""

from datetime import timedelta

import pytest

from demora.core.spans import span_ms
from demora.core.verdict import NO_HANDLER_GRACE
from demora.core.workers import LIVE_WITHIN, Judged, ParkedType, WorkerRecord, failing_until, fails_at, judge

GRACE = span_ms(NO_HANDLER_GRACE)
NEW, OLD = ParkedType("mail.send", "mail", None), ParkedType("mail.send", "mail", 5)
KNOWS = WorkerRecord("ann", "host", 1, 4, types=("mail.send",))
DOES_NOT = WorkerRecord("ben", "host", 2, 4, types=("report.build",))
ELSEWHERE = WorkerRecord("cat", "host", 3, 4, queues=("reports",), types=("report.build",))
DEAD = WorkerRecord("dan", "host", 4, 4, types=("mail.send",), heartbeat_ago=LIVE_WITHIN)


def test_a_type_that_no_live_worker_knows_is_unknown_from_now_on() -> None:
    assert judge([NEW], [DOES_NOT, DEAD], 9) == Judged([ParkedType("mail.send", "mail", 9)], [], {("mail.send", "mail"): 9})


def test_a_type_stays_unknown_since_it_first_was() -> None:
    assert judge([OLD], [DOES_NOT], 9) == Judged([], [], {("mail.send", "mail"): 5})


def test_a_type_unknown_since_the_epoch_is_unknown() -> None:
    parked = ParkedType("mail.send", "mail", 0)
    assert judge([parked], [DOES_NOT], 9) == Judged([], [], {("mail.send", "mail"): 0})


def test_a_type_that_a_worker_knows_again_is_no_longer_unknown() -> None:
    assert judge([OLD], [KNOWS, DOES_NOT], 9) == Judged([NEW], [], {})


@pytest.mark.parametrize("workers", [[], [ELSEWHERE], [DEAD]])
def test_without_a_live_worker_of_the_queue_no_type_is_unknown(workers: list[WorkerRecord]) -> None:
    assert judge([OLD], workers, 9) == Judged([NEW], [], {})


@pytest.mark.parametrize("others", [[], [ELSEWHERE], [DEAD]])
def test_a_type_that_every_worker_of_its_queue_knows_is_forgotten(others: list[WorkerRecord]) -> None:
    assert judge([NEW], [KNOWS, *others], 9) == Judged([], [NEW], {})


def test_a_type_that_one_worker_of_its_queue_does_not_know_is_kept() -> None:
    assert judge([NEW], [KNOWS, DOES_NOT], 9) == Judged([], [], {})


def test_a_parked_job_fails_an_hour_after_it_was_due_and_its_type_unknown() -> None:
    assert timedelta(hours=1) == NO_HANDLER_GRACE
    assert fails_at(5, 3) == fails_at(3, 5) == 5 + GRACE
    assert fails_at(3, failing_until(GRACE + 9)) == GRACE + 9

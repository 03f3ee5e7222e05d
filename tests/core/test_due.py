"""When a job is due that a caller asks for, and in which lane it waits."""

from datetime import UTC, datetime, timedelta

import pytest

from demora.core.job import Lane, due_at, due_ms, lane_for
from demora.core.spans import from_ms, to_ms

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("at", "delay", "due"),
    [(None, None, NOW), (NOW + HOUR, None, NOW + HOUR), (NOW - HOUR, None, NOW), (None, HOUR, NOW + HOUR)],
)
def test_a_job_is_due_at_its_time_after_its_delay_or_at_once(
    at: datetime | None, delay: timedelta | None, due: datetime
) -> None:
    assert due_at(at, delay, NOW) == due
    assert from_ms(due_ms(at, delay, to_ms(NOW))) == due


def test_in_milliseconds_a_job_is_not_due_before_its_time() -> None:
    at = NOW + timedelta(microseconds=1)
    assert from_ms(due_ms(at, None, to_ms(NOW))) == NOW + timedelta(milliseconds=1)


def test_only_a_job_that_is_due_at_once_and_of_no_schedule_is_real_time() -> None:
    assert lane_for(5, 5) is Lane.REALTIME
    assert lane_for(6, 5) is Lane.SCHEDULED
    assert lane_for(5, 5, of_schedule=True) is Lane.SCHEDULED

"""Backfills: past fire times only, none that may have had a job, and not too many."""

from datetime import UTC, datetime, timedelta

import pytest

from demora.core.schedules.firing import MOST_FIRE_TIMES, backfill_times
from demora.core.schedules.schedule import Schedule
from demora.errors import Invalid
from tests.builders import ms, seconds

NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
HOURLY = Schedule(name="hourly", type="t", payload=b"{}", recorded_at=NOON, cron="0 * * * *")


def fire_times(
    first: datetime, last: datetime, *, decided_to: datetime = NOON, forgotten_to: datetime | None = None
) -> list[datetime]:
    return backfill_times(HOURLY, first, last, decided_to=decided_to, forgotten_to=forgotten_to)


def test_both_ends_of_the_range_belong_to_it() -> None:
    assert fire_times(NOON - 2 * HOUR, NOON - HOUR) == [NOON - 2 * HOUR, NOON - HOUR]
    assert fire_times(NOON - HOUR, NOON - HOUR) == [NOON - HOUR]


def test_fire_times_that_are_still_to_come_are_left_out() -> None:
    assert fire_times(NOON - HOUR, NOON + 9 * HOUR, decided_to=NOON + seconds(1)) == [NOON - HOUR, NOON]
    assert fire_times(NOON + HOUR, NOON + 9 * HOUR) == []


def test_a_range_whose_records_are_no_longer_kept_is_refused() -> None:
    with pytest.raises(Invalid, match=r"from: which fire times had a job is known only after 2026-01-15T10:00:00\.000Z"):
        fire_times(NOON - 2 * HOUR, NOON, forgotten_to=NOON - 2 * HOUR)
    assert fire_times(NOON - 2 * HOUR + ms(1), NOON, forgotten_to=NOON - 2 * HOUR) == [NOON - HOUR, NOON]


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(Invalid, match="to: must not be before from"):
        fire_times(NOON, NOON - ms(1))


def test_a_range_with_too_many_fire_times_is_refused_with_where_to_end() -> None:
    begin = NOON - MOST_FIRE_TIMES * HOUR
    with pytest.raises(Invalid, match=r"more than 10,000 fire times; give one that ends before 2026-01-15T12:00:00\.000Z"):
        fire_times(begin, NOON)
    assert len(fire_times(begin, NOON - ms(1))) == MOST_FIRE_TIMES


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(Invalid, match="from: the time has no zone"):
        fire_times(datetime(2026, 1, 1), NOON)
